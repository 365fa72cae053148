//! Lines of text, one value per line. In: a path. Out: records of text, converted to numbers for numeric inputs; or
//! lengths.

use super::{read, short};
use std::path::Path;
use tierlab_load::inputs::Records;

/// Maximum number of lengths.
const LENGTHS: usize = 4_000_000;

/// Reads every line of a file.
///
/// # Errors
/// A file that cannot be read, is not text, or has no line.
pub fn records(path: &Path) -> Result<Records, String> {
    let text = text(path)?;
    Records::lines(short(path), text.lines())
}

/// Reads lengths, one per line; empty lines are skipped.
///
/// # Errors
/// A line that is not a length, with its number; no length at all, or too many.
pub fn lengths(path: &Path) -> Result<Vec<u64>, String> {
    let text = text(path)?;
    let mut lengths = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let length = line.parse().map_err(|_| {
            let shown: String = line.chars().take(40).collect();
            format!("{}: line {}: `{shown}` is no length", path.display(), index + 1)
        })?;
        lengths.push(length);
        if lengths.len() > LENGTHS {
            return Err(format!("{}: more than {LENGTHS} lengths; cut it", path.display()));
        }
    }
    if lengths.is_empty() {
        return Err(format!("{}: no lengths", path.display()));
    }
    Ok(lengths)
}

fn text(path: &Path) -> Result<String, String> {
    String::from_utf8(read(path)?).map_err(|error| format!("{}: no UTF-8: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(text: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn lengths_come_in_order_and_bad_ones_are_named() {
        assert_eq!(lengths(file(b"7\n\n 12 \r\n0").path()), Ok(vec![7, 12, 0]));
        let bad = lengths(file(b"1\n-2\n").path()).unwrap_err();
        assert!(bad.contains("line 2: `-2`"), "{bad}");
        assert!(lengths(file(b"\n").path()).is_err());
        assert!(lengths(Path::new("/no/such")).unwrap_err().contains("/no/such"));
        assert_eq!(records(file(b"a\nb\n").path()).unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..100)) {
            let file = file(&text);
            let _ = lengths(file.path());
            let _ = records(file.path());
        }
    }
}
