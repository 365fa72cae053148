//! Removal of credentials from stored or printed text. In: a plan, an address, a server's message. Out: the same with
//! `***` for names and passwords in URLs, for values of their queries and fragments, and for values of secret keys.

/// Replacement of a secret.
const HIDDEN: &str = "***";
/// Keys whose values are never stored.
const SECRET_KEYS: [&str; 5] = ["secret", "password", "token", "credential", "access_key"];

/// Hides all parts of URLs in a text except the location.
#[must_use]
pub fn urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || "\"'`<>,;)".contains(c))
            .unwrap_or(after.len());
        let (url, more) = after.split_at(end);
        let authority_len = url.find(['/', '?', '#']).unwrap_or(url.len());
        // A password may contain unescaped characters: everything before the last `@` is hidden.
        let user_len = url[..authority_len]
            .rfind('@')
            .or_else(|| url.find(['?', '#']).map_or(url, |q| &url[..q]).rfind('@'));
        let place = match user_len {
            Some(len) => {
                out.push_str(HIDDEN);
                &url[len..]
            }
            None => url,
        };
        match place.find(['?', '#']) {
            Some(query) => {
                out.push_str(&place[..=query]);
                out.push_str(HIDDEN);
            }
            None => out.push_str(place),
        }
        rest = more;
    }
    out + rest
}

/// Hides the same in a plan or config in TOML, and the strings of secret keys.
#[must_use]
pub fn toml(text: &str) -> String {
    let text = urls(text);
    let (mut out, mut headers) = (String::with_capacity(text.len()), Headers::default());
    for line in text.split_inclusive('\n') {
        match headers.is_inside(line) {
            true if line.contains('=') && !line.trim_start().starts_with(['#', '[']) => out += &hidden(line),
            // Inside a table over several lines, every line may hold a value.
            true if headers.is_open && !line.contains('}') => {}
            _ => out += &hide_value(line),
        }
    }
    out
}

/// Tracks whether a line of TOML is in a table of headers, whose values are often credentials.
#[derive(Default)]
struct Headers {
    /// True in a `[....headers]` table.
    in_table: bool,
    /// True in a `headers = {` that is not closed yet.
    is_open: bool,
}

impl Headers {
    fn is_inside(&mut self, line: &str) -> bool {
        let trimmed = line.trim();
        if self.is_open {
            self.is_open = !trimmed.ends_with('}');
            return true;
        }
        if let Some(name) = trimmed.strip_prefix('[') {
            self.in_table = name.trim_end_matches([']', ' ']).ends_with("headers");
            return false;
        }
        let key = line.split('=').next().unwrap_or_default().trim();
        let is_headers = line.contains('=') && key.rsplit('.').next().is_some_and(|key| key == "headers");
        let is_one = line.contains('=') && key.contains("headers.");
        self.is_open = is_headers && trimmed.contains('{') && !trimmed.contains('}');
        self.in_table || is_headers || is_one
    }
}

fn hidden(line: &str) -> String {
    let key = line.split('=').next().unwrap_or_default();
    let end = if line.ends_with('\n') { "\n" } else { "" };
    format!("{key}= \"{HIDDEN}\"{end}")
}

fn hide_value(line: &str) -> String {
    let Some((key, _)) = line.split_once('=') else {
        return line.to_owned();
    };
    let name = key.to_ascii_lowercase();
    if key.trim_start().starts_with('#') || !SECRET_KEYS.iter().any(|secret| name.contains(secret)) {
        return line.to_owned();
    }
    hidden(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn plans_lose_the_values_of_secret_keys() {
        let plan = "name = \"a\"\n[lab.tier.s3.set]\nendpoint = \"http://k:s@h:1\"\nsecret_access_key = \"x\"\n# token = 1\nrates = [1, 2]\n";
        let kept = toml(plan);
        assert_eq!(
            kept,
            "name = \"a\"\n[lab.tier.s3.set]\nendpoint = \"http://***@h:1\"\nsecret_access_key = \"***\"\n# token = 1\nrates = [1, 2]\n"
        );
        assert_eq!(toml(&kept), kept);
    }

    #[test]
    fn values_of_headers_are_hidden_however_they_are_written() {
        for (plan, kept) in [
            (
                "headers = { X-Key = \"S3CRET\" }\na = 1\n",
                "headers = \"***\"\na = 1\n",
            ),
            (
                "[target.headers]\nX-Key = \"S3CRET\"\n[x]\na = 1\n",
                "[target.headers]\nX-Key = \"***\"\n[x]\na = 1\n",
            ),
            ("headers.X-Key = \"S3CRET\"\n", "headers.X-Key = \"***\"\n"),
        ] {
            assert_eq!(toml(plan), kept);
            assert_eq!(toml(kept), kept);
        }
        let several = toml("headers = {\n  X-Key = \"S3CRET\",\n  Y = \"S3CRET\"\n}\na = 1\n");
        assert!(!several.contains("S3CRET") && several.ends_with("a = 1\n"), "{several}");
    }

    proptest! {
        #[test]
        fn what_is_hidden_stays_hidden(text in "[a-z:/@?#=\\n\" .]{0,60}", user in "[a-z]{8}", secret in "[A-Z]{12}") {
            let with = format!("{text} http://{user}:{secret}@h/p?q={secret} {text}");
            let once = toml(&with);
            prop_assert!(!once.contains(&secret), "{}", once);
            prop_assert_eq!(toml(&once), once);
        }
    }
}
