//! Texts of a service's XML replies. In: a reply's body. Out: text of its elements, and pages of listings without the keys
//! that would make `object_store` refuse the whole page.

use bytes::Bytes;
use object_store::path::Path as Key;

/// Elements of an object in a listing and of its key: of S3 and Google, and of Azure.
const LISTED: [(&str, &str); 2] = [("Contents", "Key"), ("Blob", "Name")];

/// Text of the first element of this name.
pub(super) fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    rest.split_once('<').map(|(text, _)| text)
}

/// Removes the objects of a page whose key has no path, such as `a//b` and the markers of folders. Other replies stay as
/// they are.
pub(super) fn without_invalid_keys(page: Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(&page) else {
        return page;
    };
    let found = LISTED.iter().find(|(entry, _)| text.contains(&format!("</{entry}>")));
    let Some((entry, name)) = found else {
        return page;
    };
    // Other keys would be refused with their page, or listed without a slash at one of their ends.
    let is_valid = |key: &str| Key::parse(key).is_ok_and(|parsed| AsRef::<str>::as_ref(&parsed) == key);
    let end = format!("</{entry}>");
    let mut kept = String::with_capacity(text.len());
    for piece in text.split_inclusive(&end) {
        let start = piece.find(&format!("<{entry}>")).unwrap_or(piece.len());
        let (before, object) = piece.split_at(start);
        kept.push_str(before);
        match element(object, name).map(characters) {
            Some(key) if !is_valid(&key) => {
                if !key.ends_with('/') {
                    tracing::warn!(?key, "skipped in listing: not a valid object path");
                }
            }
            _ => kept.push_str(object),
        }
    }
    kept.into()
}

/// Text with its numeric references replaced. Those by name stand for characters that any path may have.
fn characters(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("&#") {
        out.push_str(before);
        let (number, later) = after.split_once(';').unwrap_or((after, ""));
        let code = match number.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        out.extend(code.ok().and_then(char::from_u32));
        rest = later;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_are_paths_stay_in_a_page() {
        for (entry, name) in LISTED {
            let object = |key: &str| format!("<{entry}><{name}>{key}</{name}><Size>1</Size></{entry}>");
            let good = ["a", "a b/&amp;.&#34;&#xe9;", "...", "a/&lt;"].map(object).concat();
            let bad = ["a//b", "a/../b", ".", "/a", "a/", "a&#xA;b", "a\nb", "&#46;/x"]
                .map(object)
                .concat();
            let page = |objects: &str| format!("<?xml version=\"1.0\"?><List>{objects}<Next>x</Next></List>");
            let mixed = without_invalid_keys(page(&(bad.clone() + &good + &bad)).into());
            assert_eq!(mixed, page(&good));
            assert_eq!(without_invalid_keys(page(&bad).into()), page(""));
        }
        for other in [
            b"<Error><Key>a//b</Key></Error>".as_slice(),
            b"</Contents>",
            b"\xff</Blob>",
            b"",
        ] {
            assert_eq!(without_invalid_keys(Bytes::from_static(other)), other);
        }
    }
}
