//! Plan of requests to any HTTP endpoint. Plain data, sent to load processes unchanged.

use crate::reply::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Requests to an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CustomSpec {
    /// HTTP method.
    pub method: String,
    /// Path and query, behind the prefix of the server's address.
    pub path: String,
    /// Value of `Content-Type` for the body; empty for none.
    pub content_type: String,
    /// Source of bodies.
    pub body: BodySource,
    /// Inferences of one request.
    pub rows_per_request: u32,
    /// Entities for `{entity_id}`.
    pub entities: Option<Entities>,
    /// Rule for a successful reply.
    pub success: Success,
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
    /// Template with the columns of a CSV file.
    Rows {
        /// Template text.
        template: String,
        /// CSV file with a header.
        rows: PathBuf,
    },
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
    /// Checks a body against the rule.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_body(&self, body: &[u8]) -> Result<(), String> {
        match events(body) {
            Some(events) => return self.check_stream(&events?),
            None if self.last_event.is_some() => {
                return Err(format!("the reply is no stream of events: `{}`", quoted(body)));
            }
            None => {}
        }
        let Some(pointer) = &self.pointer else { return Ok(()) };
        let document: serde_json::Value = serde_json::from_slice(body)
            .map_err(|_| format!("the reply is no JSON, and should have `{pointer}`: `{}`", quoted(body)))?;
        let Some(found) = document.pointer(pointer) else {
            return Err(format!("the reply has no `{pointer}`: `{}`", quoted(body)));
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

    /// Checks a stream: no error among its events, the last one as stated, the pointer in one of them.
    fn check_stream(&self, events: &[Event]) -> Result<(), String> {
        if let Some(error) = events.iter().find(|event| event.is_error()) {
            return Err(format!("the stream has an error: `{}`", quoted(error.data.as_bytes())));
        }
        let last = events.last().map_or("", |event| event.data.as_str());
        if let Some(wanted) = self.last_event.as_ref().filter(|wanted| *wanted != last) {
            return Err(format!(
                "the stream ends with `{}` before `{wanted}`",
                quoted(last.as_bytes())
            ));
        }
        let Some(pointer) = &self.pointer else { return Ok(()) };
        let found = |event: &Event| {
            let document: serde_json::Value = serde_json::from_str(&event.data).ok()?;
            let found = document.pointer(pointer)?;
            Some(self.equals.as_ref().is_none_or(|wanted| is_equal(found, wanted)))
        };
        if events.iter().any(|event| found(event) == Some(true)) {
            return Ok(());
        }
        Err(format!("no event of the stream has `{pointer}` as it should be"))
    }

    /// True if a status means success.
    #[must_use]
    pub fn has_status(&self, status: u16) -> bool {
        self.status.contains(&status)
    }
}

/// Server-sent event.
#[derive(Debug, Default, PartialEq)]
struct Event {
    name: String,
    data: String,
}

impl Event {
    fn is_error(&self) -> bool {
        let says_so = || {
            let document: serde_json::Value = serde_json::from_str(&self.data).ok()?;
            Some(!document.get("error")?.is_null())
        };
        self.name == "error" || says_so() == Some(true)
    }
}

/// Events of a body in the format `text/event-stream` (WHATWG HTML, section 9.2); `None` for any other body.
///
/// # Errors
/// The last event is cut off.
fn events(body: &[u8]) -> Option<Result<Vec<Event>, String>> {
    let text = std::str::from_utf8(body).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().find(|line| !line.is_empty())?;
    let is_field = ["data:", "event:", "id:", "retry:", ":"]
        .iter()
        .any(|field| first.starts_with(field));
    if !is_field {
        return None;
    }
    let (mut events, mut event, mut lines) = (Vec::new(), Event::default(), 0);
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.is_empty() && lines > 0 => {
                events.push(std::mem::take(&mut event));
                lines = 0;
            }
            "data" => {
                if lines > 0 {
                    event.data.push('\n');
                }
                event.data.push_str(value);
                lines += 1;
            }
            "event" => value.clone_into(&mut event.name),
            _ => {}
        }
    }
    if lines > 0 {
        let cut = quoted(event.data.as_bytes());
        return Some(Err(format!("the stream ends within an event: `{cut}`")));
    }
    Some(Ok(events))
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
    use proptest::prelude::*;
    use serde_json::json;

    fn rule(pointer: &str, equals: Option<serde_json::Value>) -> Success {
        Success {
            pointer: Some(pointer.into()),
            equals,
            ..Success::default()
        }
    }

    #[test]
    fn what_the_pointer_names_must_be_there() {
        let body = br#"{"predictions":[0.5],"ok":true,"n":1}"#;
        assert_eq!(rule("/predictions/0", None).check_body(body), Ok(()));
        assert_eq!(rule("/ok", Some(json!(true))).check_body(body), Ok(()));
        assert_eq!(rule("/n", Some(json!(1.0))).check_body(body), Ok(()));
        assert_eq!(Success::default().check_body(b"anything"), Ok(()));
        for (rule, body, says) in [
            (rule("/predictions/1", None), &body[..], "no `/predictions/1`"),
            (rule("/ok", Some(json!(false))), body, "`/ok` is true, not false"),
            (rule("/x", None), b"<html>", "no JSON"),
        ] {
            let error = rule.check_body(body).unwrap_err();
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
        assert_eq!(done.check_body(whole), Ok(()));
        assert_eq!(Success::default().check_body(whole), Ok(()));
        for (rule, body, says) in [
            (&done, &b"data: {\"choices\":[1]}\n\n"[..], "before `[DONE]`"),
            (&done, b"data: {\"choices\":[]}\n\ndata: [DONE]\n\n", "`/choices/0`"),
            (&done, b"{\"choices\":[1]}", "no stream of events"),
            (
                &Success::default(),
                b"data: {\"error\": {\"code\": 5}}\n\ndata: [DONE]\n\n",
                "has an error",
            ),
            (&Success::default(), b"event: error\ndata: full\n\n", "has an error"),
            (&Success::default(), b"data: a\n\ndata: {\"choi", "ends within an event"),
        ] {
            let error = rule.check_body(body).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(Success::default().check_body(b"data: {\"error\": null}\n\n"), Ok(()));
        assert_eq!(
            events(b"event: x\ndata: a\ndata: b\n\n").unwrap().unwrap(),
            [Event {
                name: "x".into(),
                data: "a\nb".into()
            }]
        );
    }

    proptest! {
        #[test]
        fn any_body_is_judged(body in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(text) = rule("/a", None).check_body(&body) {
                prop_assert!(text.chars().count() < 3 * 120);
            }
        }
    }
}
