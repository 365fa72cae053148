//! Plan of requests to any HTTP endpoint. Plain data, sent to load processes unchanged.

use super::events::{Event, Events, is_stream};
use crate::inputs::Lengths;
use crate::recording::RecordingSpec;
use crate::reply::quoted;
use hyper::header::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Requests to an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CustomSpec {
    /// HTTP method.
    pub method: String,
    /// Path and query, behind the prefix of the server's address.
    pub path: String,
    /// Value of `Content-Type` for the body; empty omits the header.
    pub content_type: String,
    /// Source of bodies.
    pub body: BodySource,
    /// Inferences of one request.
    pub rows_per_request: u32,
    /// Entities for `{entity_id}`.
    pub entities: Option<Entities>,
    /// Values drawn for each request, by the names of their places in the template.
    pub values: BTreeMap<String, Drawn>,
    /// Rule for a successful reply.
    pub success: Success,
    /// Set if replies stream.
    pub stream: Option<StreamSpec>,
}

/// Value drawn for each request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Drawn {
    /// Whole number.
    Number(Lengths),
    /// Text with this number of random words.
    Words(Lengths),
    /// Text with a recorded number of words.
    Recorded {
        /// Name of the recorded number.
        words: String,
        /// Name of the recorded ids of its blocks of 512 words; equal ids have equal words.
        blocks: Option<String>,
    },
}

impl Drawn {
    /// Names of the recorded values that it takes.
    pub(super) fn recorded(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::Number(_) | Self::Words(_) => [None, None],
            Self::Recorded { words, blocks } => [Some(words), blocks.as_ref()],
        };
        names.into_iter().flatten().map(String::as_str)
    }
}

/// Streamed replies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// Form of the stream.
    pub kind: StreamKind,
    /// JSON pointer to the number of tokens in an event; the last such event counts.
    pub tokens: Option<String>,
}

/// `target.reply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// Server-sent events.
    Sse,
    /// Pieces as they arrive, each an event.
    Chunked,
}

/// Source of bodies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodySource {
    /// No body.
    Empty,
    /// Template text.
    Text(String),
    /// File with a template.
    File(PathBuf),
    /// File with a body on every line.
    Recorded(PathBuf),
    /// Recorded requests with their own times. A template, if given, replaces their bodies.
    Replay {
        /// Recorded requests.
        recording: RecordingSpec,
        /// Template text.
        template: Option<String>,
    },
    /// Template filled with the columns of a CSV file.
    Rows {
        /// Template text.
        template: String,
        /// CSV file with a header.
        rows: PathBuf,
    },
}

impl BodySource {
    /// File that bodies are built from.
    pub const fn file_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Empty | Self::Text(_) => None,
            Self::File(file) | Self::Recorded(file) | Self::Rows { rows: file, .. } => Some(file),
            Self::Replay { recording, .. } => Some(&mut recording.file),
        }
    }
}

/// Entities `first_id .. first_id + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entities {
    /// First id.
    pub first_id: i64,
    /// Number of ids.
    pub count: u64,
}

/// Rule for a success of `kind = "http"`; every other reply is an error (default: status 200 with any body).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Success {
    /// Statuses of success.
    pub status: Vec<u16>,
    /// JSON pointer (RFC 6901) to a value that must be in the body.
    pub pointer: Option<String>,
    /// Required value at the pointer (default: any).
    pub equals: Option<serde_json::Value>,
    /// Data of the last event of a stream of server-sent events: `"[DONE]"`.
    pub last_event: Option<String>,
}

impl Default for Success {
    fn default() -> Self {
        Self {
            status: vec![200],
            pointer: None,
            equals: None,
            last_event: None,
        }
    }
}

impl Success {
    /// Checks a body against the rule, as a stream of events if the headers or the rule say that it is one.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_body(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
        if self.last_event.is_some() || is_stream(headers) {
            return self.check_stream(body, None, |_| {}).map(drop);
        }
        let Some(pointer) = &self.pointer else { return Ok(()) };
        let document: serde_json::Value = serde_json::from_slice(body)
            .map_err(|_| format!("the reply is not JSON, so `{pointer}` is missing: `{}`", quoted(body)))?;
        let Some(found) = document.pointer(pointer) else {
            return Err(format!("`{pointer}` is missing in the reply: `{}`", quoted(body)));
        };
        match &self.equals {
            Some(wanted) if !is_equal(found, wanted) => Err(format!(
                "`{pointer}` is {}, not {}",
                quoted(found.to_string().as_bytes()),
                quoted(wanted.to_string().as_bytes())
            )),
            _ => Ok(()),
        }
    }

    /// Checks a stream: no error among its events, the required last event, the pointer in one of them. Calls `seen`
    /// with the end of each event except the required last one, and returns the last number at the pointer `tokens`.
    pub(super) fn check_stream(
        &self,
        body: &[u8],
        tokens: Option<&str>,
        mut seen: impl FnMut(usize),
    ) -> Result<Option<u64>, String> {
        let (mut last, mut is_found, mut counted) = (None, self.pointer.is_none(), None);
        for event in Events::of(body) {
            let cut = |data: String| format!("the stream ends within an event: `{}`", quoted(data.as_bytes()));
            let Event { name, data, end } = event.map_err(cut)?;
            // A long stream has thousands of events, of which few must be parsed.
            let is_of_use = !is_found || data.contains("\"error\"") || tokens.is_some_and(|at| may_have(&data, at));
            let document = is_of_use.then(|| serde_json::from_str(&data).ok()).flatten();
            let document: serde_json::Value = document.unwrap_or_default();
            if name == "error" || document.get("error").is_some_and(|error| !error.is_null()) {
                return Err(format!("the stream has an error: `{}`", quoted(data.as_bytes())));
            }
            let at_pointer = self.pointer.as_ref().and_then(|pointer| document.pointer(pointer));
            is_found |=
                at_pointer.is_some_and(|found| self.equals.as_ref().is_none_or(|wanted| is_equal(found, wanted)));
            counted = tokens.and_then(|at| document.pointer(at)?.as_u64()).or(counted);
            if self.last_event.as_ref() != Some(&data) {
                seen(end);
            }
            last = Some(data);
        }
        let Some(last) = last else {
            return Err(format!("the reply is not a stream of events: `{}`", quoted(body)));
        };
        if let Some(wanted) = self.last_event.as_ref().filter(|wanted| **wanted != last) {
            let last = quoted(last.as_bytes());
            return Err(format!("the stream ends with `{last}` before `{wanted}`"));
        }
        match &self.pointer {
            Some(pointer) if !is_found => Err(format!("no event of the stream has the required `{pointer}`")),
            _ => Ok(counted),
        }
    }

    /// True if a status means success.
    #[must_use]
    pub fn has_status(&self, status: u16) -> bool {
        self.status.contains(&status)
    }
}

/// True if the text of a document may have a value at a pointer: cheaper than parsing it.
fn may_have(document: &str, pointer: &str) -> bool {
    let key = pointer.rsplit('/').next().unwrap_or_default();
    let is_plain = !key.contains('~') && key.parse::<u64>().is_err();
    !is_plain || document.contains(key)
}

/// Compares JSON values; numbers are equal by value, such as `1` and `1.0`.
fn is_equal(found: &serde_json::Value, wanted: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (found, wanted) {
        (Number(found), Number(wanted)) => found == wanted || found.as_f64() == wanted.as_f64(),
        (Array(found), Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| is_equal(found, wanted))
        }
        (Object(found), Object(wanted)) => {
            let has = |(key, wanted)| found.get(key).is_some_and(|found| is_equal(found, wanted));
            found.len() == wanted.len() && wanted.iter().all(has)
        }
        _ => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{CONTENT_TYPE, HeaderValue};
    use proptest::prelude::*;
    use serde_json::json;

    fn rule(pointer: &str, equals: Option<serde_json::Value>) -> Success {
        Success {
            pointer: Some(pointer.into()),
            equals,
            ..Success::default()
        }
    }

    fn plain() -> HeaderMap {
        HeaderMap::new()
    }

    fn events() -> HeaderMap {
        let kind = HeaderValue::from_static("Text/Event-Stream; charset=utf-8");
        HeaderMap::from_iter([(CONTENT_TYPE, kind)])
    }

    #[test]
    fn a_reply_is_a_stream_of_events_only_if_its_headers_say_so() {
        let yaml = b"id: 7\ndata: ok\nevent: error\n";
        assert_eq!(Success::default().check_body(&plain(), yaml), Ok(()));
        let error = Success::default().check_body(&events(), yaml).unwrap_err();
        assert!(error.contains("ends within an event"), "{error}");
    }

    #[test]
    fn what_the_pointer_names_must_be_there() {
        let body = br#"{"predictions":[0.5],"ok":true,"n":1}"#;
        assert_eq!(rule("/predictions/0", None).check_body(&plain(), body), Ok(()));
        assert_eq!(rule("/ok", Some(json!(true))).check_body(&plain(), body), Ok(()));
        assert_eq!(rule("/n", Some(json!(1.0))).check_body(&plain(), body), Ok(()));
        assert_eq!(Success::default().check_body(&plain(), b"anything"), Ok(()));
        for (rule, body, says) in [
            (rule("/predictions/1", None), &body[..], "`/predictions/1` is missing"),
            (rule("/ok", Some(json!(false))), body, "`/ok` is true, not false"),
            (rule("/x", None), b"<html>", "not JSON"),
        ] {
            let error = rule.check_body(&plain(), body).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_stream_with_an_error_or_without_its_last_event_is_no_success() {
        let done = Success {
            last_event: Some("[DONE]".into()),
            pointer: Some("/choices/0".into()),
            ..Success::default()
        };
        let whole = b": hello\n\ndata: {\"choices\":[1]}\r\n\r\ndata: [DONE]\n\n";
        assert_eq!(done.check_body(&events(), whole), Ok(()));
        assert_eq!(Success::default().check_body(&events(), whole), Ok(()));
        for (rule, body, says) in [
            (&done, &b"data: {\"choices\":[1]}\n\n"[..], "before `[DONE]`"),
            (&done, b"data: {\"choices\":[]}\n\ndata: [DONE]\n\n", "`/choices/0`"),
            (&done, b"{\"choices\":[1]}", "not a stream of events"),
            (
                &Success::default(),
                b"data: {\"error\": {\"code\": 5}}\n\ndata: [DONE]\n\n",
                "has an error",
            ),
            (&Success::default(), b"event: error\ndata: full\n\n", "has an error"),
            (&Success::default(), b"data: a\n\ndata: {\"choi", "ends within an event"),
        ] {
            let error = rule.check_body(&events(), body).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(
            Success::default().check_body(&events(), b"data: {\"error\": null}\n\n"),
            Ok(())
        );
    }

    proptest! {
        #[test]
        fn any_body_is_judged(body in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(text) = rule("/a", None).check_body(&plain(), &body) {
                prop_assert!(text.chars().count() < 3 * 120);
            }
        }
    }
}
