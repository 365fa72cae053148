//! Input data of perf_analyzer: its JSON file with `data` and `validation_data`, or a folder with a file for each
//! input.
//!
//! In: a path. Out: recorded requests, one per step, streams one after the other. Format: NVIDIA's `perf_analyzer`,
//! `docs/input_data.md`. Unknown keys are refused by name.

use super::{InputError, read, short};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;
use tierlab_load::inputs::{Recorded, RecordedContent, RecordedRequest, RecordedTensor};

/// Maximum number of steps of all streams.
const MAX_STEPS: usize = 1_000_000;
/// Maximum number of files in a folder.
const MAX_FILES: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    data: Vec<Box<RawValue>>,
    #[serde(default)]
    validation_data: Option<Vec<Box<RawValue>>>,
}

/// Tensor with a description instead of a bare array.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedTensor {
    content: Option<Box<RawValue>>,
    shape: Option<Vec<u64>>,
    b64: Option<String>,
}

/// Reads requests from a file or a folder.
///
/// # Errors
/// Data that cannot be read, by stream, step and tensor.
pub fn requests(path: &Path) -> Result<Recorded, InputError> {
    match path.is_dir() {
        true => folder(path),
        false => recorded(short(path), &read(path)?).map_err(super::err(path)),
    }
}

/// Reads expected replies: a file's validation data, or its data if it has no other.
///
/// # Errors
/// Those of [`requests`].
pub fn expectations(path: &Path) -> Result<Recorded, InputError> {
    let refuse = super::err(path);
    let document = document(&read(path)?).map_err(&refuse)?;
    let entries = document.validation_data.unwrap_or(document.data);
    let steps = steps(&entries).map_err(&refuse)?;
    if steps.is_empty() {
        return Err(refuse(anyhow!("no validation data")));
    }
    let request = |step: RecordedRequest| RecordedRequest {
        place: step.place,
        expected: step.inputs,
        ..RecordedRequest::default()
    };
    Ok(Recorded {
        source: short(path),
        requests: steps.into_iter().map(request).collect(),
    })
}

fn document(bytes: &[u8]) -> Result<Document> {
    serde_json::from_slice(bytes).map_err(|error| anyhow!("not input data of perf_analyzer: {error}"))
}

fn recorded(source: String, bytes: &[u8]) -> Result<Recorded> {
    let document = document(bytes)?;
    let mut requests = steps(&document.data)?;
    ensure!(!requests.is_empty(), "`data` is missing or empty");
    if let Some(entries) = document.validation_data {
        let expected = steps(&entries)?;
        let data_steps = requests.iter().map(|step| &step.place);
        if !expected.iter().map(|step| &step.place).eq(data_steps) {
            bail!(
                "`validation_data` has {} steps, `data` has {}, or their streams differ",
                expected.len(),
                requests.len()
            );
        }
        for (request, step) in requests.iter_mut().zip(expected) {
            request.expected = step.inputs;
        }
    }
    Ok(Recorded { source, requests })
}

/// Returns the steps of one stream or of several.
fn steps(entries: &[Box<RawValue>]) -> Result<Vec<RecordedRequest>> {
    let mut steps = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.get().trim_start().starts_with('[') {
            let stream: Vec<Box<RawValue>> =
                serde_json::from_str(entry.get()).map_err(|error| anyhow!("stream {index}: {error}"))?;
            for (number, text) in stream.iter().enumerate() {
                steps.push(step(format!("stream {index}, step {number}"), text)?);
            }
        } else {
            steps.push(step(format!("step {index}"), entry)?);
        }
        if steps.len() > MAX_STEPS {
            bail!("more than {MAX_STEPS} steps; shorten the file");
        }
    }
    Ok(steps)
}

fn step(place: String, text: &RawValue) -> Result<RecordedRequest> {
    let tensors: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(text.get()).map_err(|error| anyhow!("{place}: {error}"))?;
    let named = tensors
        .into_iter()
        .map(|(name, text)| tensor(name.clone(), text).map_err(|problem| anyhow!("{place}: `{name}`: {problem}")));
    Ok(RecordedRequest {
        inputs: named.collect::<Result<_, _>>()?,
        place,
        ..RecordedRequest::default()
    })
}

fn tensor(name: String, text: Box<RawValue>) -> Result<RecordedTensor> {
    if !text.get().trim_start().starts_with('{') {
        return Ok(RecordedTensor {
            name,
            shape: None,
            content: RecordedContent::Json(text),
        });
    }
    let described: DescribedTensor = serde_json::from_str(text.get())?;
    let content = match (described.content, described.b64) {
        (Some(_), Some(_)) => bail!("it has both `content` and `b64`"),
        (None, None) => bail!("it has neither `content` nor `b64`"),
        (None, Some(encoded)) => raw(&encoded)?,
        (Some(content), None) if content.get().trim_start().starts_with('{') => {
            let inner: DescribedTensor = serde_json::from_str(content.get())?;
            raw(&inner.b64.context("its `content` is neither an array nor `b64`")?)?
        }
        (Some(content), None) => RecordedContent::Json(content),
    };
    Ok(RecordedTensor {
        name,
        shape: described.shape,
        content,
    })
}

fn raw(encoded: &str) -> Result<RecordedContent> {
    let bytes = STANDARD.decode(encoded);
    let bytes = bytes.map_err(|error| anyhow!("its `b64` is not base64: {error}"))?;
    Ok(RecordedContent::Raw(bytes.into()))
}

/// Reads one request from a folder, in which each file is the input of its name.
fn folder(path: &Path) -> Result<Recorded, InputError> {
    let refuse = super::err::<String>(path);
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(path).map_err(super::err(path))? {
        let entry = entry.map_err(super::err(path))?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(refuse("a file whose name is not UTF-8".into()));
        };
        if !entry.path().is_file() {
            let problem = format!("`{name}` is not a file; perf_analyzer's folder has a file for each input");
            return Err(refuse(problem));
        }
        if inputs.len() == MAX_FILES {
            return Err(refuse(format!("more than {MAX_FILES} files")));
        }
        inputs.push(RecordedTensor {
            name,
            shape: None,
            content: RecordedContent::File(Bytes::from(read(&entry.path())?)),
        });
    }
    if inputs.is_empty() {
        let problem = "an empty folder; perf_analyzer's has a file for each input";
        return Err(refuse(problem.into()));
    }
    inputs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Recorded {
        source: short(path),
        requests: vec![RecordedRequest {
            place: "the folder".into(),
            inputs,
            ..RecordedRequest::default()
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAMS: &str = r#"{"data": [
        [{"x": {"content": [1, 2], "shape": [2]}, "t": ["a"]}, {"x": {"b64": "AAA="}}],
        [{"x": [3], "t": {"content": {"b64": "AQAAAGE="}}}]
    ], "validation_data": [[{"y": [1]}, {"y": [2]}], [{"y": [3]}]]}"#;

    #[test]
    fn streams_steps_and_contents_are_read() {
        let all = recorded("d.json".into(), STREAMS.as_bytes()).unwrap();
        let places: Vec<_> = all.requests.iter().map(|request| request.place.as_str()).collect();
        assert_eq!(places, ["stream 0, step 0", "stream 0, step 1", "stream 1, step 0"]);
        let first = &all.requests[0];
        assert_eq!(first.inputs[1].name, "x");
        assert_eq!(first.inputs[1].shape, Some(vec![2]));
        assert_eq!(first.expected[0].name, "y");
        assert!(matches!(&all.requests[1].inputs[0].content, RecordedContent::Raw(bytes) if bytes.len() == 2));
        assert!(matches!(&all.requests[2].inputs[0].content, RecordedContent::Raw(bytes) if bytes.ends_with(b"a")));
        let plain = recorded("d.json".into(), br#"{"data": [{"x": [1]}, {"x": [2]}]}"#).unwrap();
        assert_eq!(plain.requests[1].place, "step 1");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, problem) in [
            ("[]", "`data` is missing or empty"),
            ("{}", "`data` is missing"),
            (
                r#"{"data": [{"x": {"contents": [1]}}]}"#,
                "step 0: `x`: unknown field `contents`",
            ),
            (r#"{"data": [{"x": {"shape": [1]}}]}"#, "neither `content` nor `b64`"),
            (r#"{"data": [{"x": {"b64": "!"}}]}"#, "not base64"),
            (
                r#"{"data": [{"x": [1]}], "validation_data": []}"#,
                "has 0 steps, `data` has 1",
            ),
            (r#"{"data": [[[1]]]}"#, "stream 0, step 0"),
            (r#"{"data": [], "weights": 1}"#, "unknown field `weights`"),
        ] {
            let refused = recorded("d.json".into(), text.as_bytes()).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(problem), "{refused} does not say {problem}");
        }
    }

    #[test]
    fn a_folder_has_a_file_for_each_input() {
        let place = tempfile::tempdir().unwrap();
        assert!(requests(place.path()).is_err());
        std::fs::write(place.path().join("x"), [0; 8]).unwrap();
        std::fs::write(place.path().join("t"), "a\nb\n").unwrap();
        let all = requests(place.path()).unwrap();
        let names: Vec<_> = all.requests[0]
            .inputs
            .iter()
            .map(|tensor| tensor.name.as_str())
            .collect();
        assert_eq!(names, ["t", "x"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}\":,a-z0-9 ]{0,80}", at in 0_usize..200, byte: u8) {
            let _ = recorded("d".into(), text.as_bytes());
            let mut known = STREAMS.as_bytes().to_vec();
            known[at] = byte;
            let _ = recorded("d".into(), &known);
        }
    }
}
