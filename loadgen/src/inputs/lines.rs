//! Lines of a file: values as text, lengths, or whole requests. In: a path. Out: records of text, converted to numbers for
//! numeric inputs; lengths; or recorded requests that are sent unchanged.

use super::{InputError, err, read, short};
use anyhow::{anyhow, bail, ensure};
use bytes::Bytes;
use std::path::Path;
use tierlab_load::inputs::{Recorded, RecordedRequest, Records};
use tierlab_protocol::infer::InferRequest;

/// Maximum number of lengths.
const MAX_LENGTHS: usize = 4_000_000;
/// Maximum number of requests.
const MAX_REQUESTS: usize = 1_000_000;

/// Reads every line of a file.
///
/// # Errors
/// A file that cannot be read, is not text, or has no line.
pub fn records(path: &Path) -> Result<Records, InputError> {
    Records::lines(short(path), text(path)?.lines()).map_err(err(path))
}

/// Reads lengths, one per line; empty lines are skipped.
///
/// # Errors
/// A line that is not a length, with its number; no length at all, or too many.
pub fn lengths(path: &Path) -> Result<Vec<u64>, InputError> {
    let text = text(path)?;
    let mut lengths = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let length = line.parse().map_err(|_| {
            let shown: String = line.chars().take(40).collect();
            err(path)(format!("line {}: `{shown}` is not a length", index + 1))
        })?;
        lengths.push(length);
        if lengths.len() > MAX_LENGTHS {
            return Err(err(path)(format!("more than {MAX_LENGTHS} lengths; shorten the file")));
        }
    }
    if lengths.is_empty() {
        return Err(err(path)("no lengths"));
    }
    Ok(lengths)
}

fn text(path: &Path) -> Result<String, InputError> {
    String::from_utf8(read(path)?).map_err(|error| err(path)(format!("not UTF-8: {error}")))
}

/// Reads requests, one per line, each the JSON body of an infer request; empty lines are skipped.
///
/// # Errors
/// A line that is not an infer request, with its number.
pub fn requests(path: &Path) -> Result<Recorded, InputError> {
    recorded(&short(path), &Bytes::from(read(path)?)).map_err(err(path))
}

fn recorded(source: &str, bytes: &Bytes) -> anyhow::Result<Recorded> {
    let mut requests = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let line = bytes.slice_ref(line);
        InferRequest::decode(&line.clone().into(), None).map_err(|error| anyhow!("line {}: {error}", index + 1))?;
        requests.push(RecordedRequest {
            place: format!("line {}", index + 1),
            whole: Some(line),
            ..RecordedRequest::default()
        });
        if requests.len() > MAX_REQUESTS {
            bail!("more than {MAX_REQUESTS} requests; shorten the file");
        }
    }
    ensure!(!requests.is_empty(), "no requests");
    Ok(Recorded {
        source: source.to_owned(),
        requests,
    })
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
        assert!(bad.problem.starts_with("line 2: `-2`"), "{bad}");
        assert!(lengths(file(b"\n").path()).is_err());
        assert!(
            lengths(Path::new("/no/such"))
                .unwrap_err()
                .to_string()
                .contains("/no/such")
        );
        assert_eq!(records(file(b"a\nb\n").path()).unwrap().count(), 2);
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..100)) {
            let file = file(&text);
            let _ = lengths(file.path());
            let _ = records(file.path());
        }
    }

    const LINE: &str = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}"#;

    #[test]
    fn lines_are_requests() {
        let read = recorded("r", &format!("{LINE}\r\n\n{LINE}").into()).unwrap();
        assert_eq!(read.requests.len(), 2);
        assert_eq!(read.requests[1].place, "line 3");
        assert_eq!(read.requests[0].whole.as_deref(), Some(LINE.as_bytes()));
        let bad = recorded("r", &format!("{LINE}\n{}", LINE.replace("[1,2]}", "[1]}")).into()).unwrap_err();
        assert!(bad.to_string().starts_with("line 2: "), "{bad}");
        assert!(recorded("r", &Bytes::from_static(b"\n")).is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_a_request_or_refused(text in "[\\[\\]{}\":,a-z0-9\n]{0,80}", at in 0_usize..70, byte: u8) {
            let _ = recorded("r", &text.into());
            let mut line = LINE.as_bytes().to_vec();
            line[at] = byte;
            let _ = recorded("r", &line.into());
        }
    }
}
