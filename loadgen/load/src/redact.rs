//! Removal of credentials from stored or printed text. In: an address, a server's message. Out: the same with `***` for names and
//! passwords in URLs, and for values of their queries and fragments.

/// Replacement of a secret.
const HIDDEN: &str = "***";

/// Hides all parts of URLs in a text except the location.
pub fn urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "\"'`<>,;)".contains(c));
        let end = end.unwrap_or(after.len());
        let (url, more) = after.split_at(end);
        let authority_len = url.find(['/', '?', '#']).unwrap_or(url.len());
        // A password may contain unescaped characters: everything before the last `@` is hidden.
        let user_len = url[..authority_len]
            .rfind('@')
            .or_else(|| url.find(['?', '#']).map_or(url, |q| &url[..q]).rfind('@'));
        let location = match user_len {
            Some(len) => {
                out.push_str(HIDDEN);
                &url[len..]
            }
            None => url,
        };
        match location.find(['?', '#']) {
            Some(query) => {
                out.push_str(&location[..=query]);
                out.push_str(HIDDEN);
            }
            None => out.push_str(location),
        }
        rest = more;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_what_is_secret_and_nothing_else() {
        for (text, expected) in [
            ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/"),
            (
                "http://user:pass@host:1/x?token=abc#d: no",
                "http://***@host:1/x?*** no",
            ),
            ("http://user:p/a@s@host/x", "http://***@host/x"),
            (
                "at `http://u@h`, and s3://k:s@b.c",
                "at `http://***@h`, and s3://***@b.c",
            ),
            ("mail a@b, no URL", "mail a@b, no URL"),
        ] {
            assert_eq!(urls(text), expected);
        }
    }
}
