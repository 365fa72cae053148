//! Whole requests, one per line, each the JSON body of an infer request. In: a path. Out: recorded requests that are
//! sent unchanged.

use super::{read, short};
use bytes::Bytes;
use std::path::Path;
use tierlab_load::inputs::{Recorded, RecordedRequest};
use tierlab_protocol::infer::InferRequest;

/// Maximum number of requests.
const REQUESTS: usize = 1_000_000;

/// Reads every line of a file; empty lines are skipped.
///
/// # Errors
/// A line that is not an infer request, with its number.
pub fn requests(path: &Path) -> Result<Recorded, String> {
    of(&short(path), &Bytes::from(read(path)?)).map_err(|what| format!("{}: {what}", path.display()))
}

fn of(source: &str, bytes: &Bytes) -> Result<Recorded, String> {
    let mut requests = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let line = bytes.slice_ref(line);
        InferRequest::decode(&line.clone().into(), None).map_err(|error| format!("line {}: {error}", index + 1))?;
        requests.push(RecordedRequest {
            place: format!("line {}", index + 1),
            whole: Some(line),
            ..RecordedRequest::default()
        });
        if requests.len() > REQUESTS {
            return Err(format!("more than {REQUESTS} requests; cut it"));
        }
    }
    if requests.is_empty() {
        return Err("no requests".into());
    }
    Ok(Recorded {
        source: source.to_owned(),
        requests,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}"#;

    #[test]
    fn lines_are_requests() {
        let recorded = of("r", &format!("{LINE}\r\n\n{LINE}").into()).unwrap();
        assert_eq!(recorded.requests.len(), 2);
        assert_eq!(recorded.requests[1].place, "line 3");
        assert_eq!(recorded.requests[0].whole.as_deref(), Some(LINE.as_bytes()));
        let bad = of("r", &format!("{LINE}\n{}", LINE.replace("[1,2]}", "[1]}")).into()).unwrap_err();
        assert!(bad.starts_with("line 2: "), "{bad}");
        assert!(of("r", &Bytes::from_static(b"\n")).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in "[\\[\\]{}\":,a-z0-9\n]{0,80}", at in 0_usize..70, byte: u8) {
            let _ = of("r", &text.into());
            let mut line = LINE.as_bytes().to_vec();
            line[at] = byte;
            let _ = of("r", &line.into());
        }
    }
}
