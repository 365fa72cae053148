//! Replies of any HTTP endpoint: the rule for a success, server-sent events (WHATWG HTML, section 9.2), and the times
//! of replies that stream. In: a complete body, and the arrival of each of its pieces, stamped before anything is
//! parsed. Out: the first violation of the rule, or the times of the events.

use crate::reply::{TooLarge, quoted};
use anyhow::{Result, anyhow, bail};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::mem;
use std::sync::Arc;
use tierlab_analysis::record::StreamedReply;

/// Maximum pieces and events of one reply, which bounds its times to 5 MiB.
const MAX_PIECES: usize = 1 << 18;

pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

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
    pub fn check_body(&self, headers: &HeaderMap, body: &[u8]) -> Result<()> {
        if self.last_event.is_some() || is_stream(headers) {
            return self.check_stream(body, None, |_| {}).map(drop);
        }
        let Some(pointer) = &self.pointer else { return Ok(()) };
        let document: serde_json::Value = serde_json::from_slice(body)
            .map_err(|_| anyhow!("the reply is not JSON, so `{pointer}` is missing: `{}`", quoted(body)))?;
        let Some(found) = document.pointer(pointer) else {
            bail!("`{pointer}` is missing in the reply: `{}`", quoted(body));
        };
        match &self.equals {
            Some(wanted) if !is_equal(found, wanted) => Err(anyhow!(
                "`{pointer}` is {}, not {}",
                quoted(found.to_string().as_bytes()),
                quoted(wanted.to_string().as_bytes())
            )),
            _ => Ok(()),
        }
    }

    /// Checks a stream: no error among its events, the required last event, the pointer in one of them. Calls
    /// `on_event` with the end of each event except the required last one, and returns the last number at the pointer
    /// `tokens`.
    pub(super) fn check_stream(
        &self,
        body: &[u8],
        tokens: Option<&str>,
        mut on_event: impl FnMut(usize),
    ) -> Result<Option<u64>> {
        let (mut last, mut is_found, mut counted) = (None, self.pointer.is_none(), None);
        for event in Events::of(body) {
            let Event { name, data, end } = event?;
            // A long stream has thousands of events, of which few must be parsed.
            let is_of_use = !is_found || data.contains("\"error\"") || tokens.is_some_and(|at| may_have(&data, at));
            let document = is_of_use.then(|| serde_json::from_str(&data).ok()).flatten();
            let document: serde_json::Value = document.unwrap_or_default();
            if name == "error" || document.get("error").is_some_and(|error| !error.is_null()) {
                bail!("the stream has an error: `{}`", quoted(data.as_bytes()));
            }
            let at_pointer = self.pointer.as_ref().and_then(|pointer| document.pointer(pointer));
            is_found |=
                at_pointer.is_some_and(|found| self.equals.as_ref().is_none_or(|wanted| is_equal(found, wanted)));
            counted = tokens.and_then(|at| document.pointer(at)?.as_u64()).or(counted);
            if self.last_event.as_ref() != Some(&data) {
                on_event(end);
            }
            last = Some(data);
        }
        let Some(last) = last else {
            bail!("the reply is not a stream of events: `{}`", quoted(body));
        };
        if let Some(wanted) = self.last_event.as_ref().filter(|wanted| **wanted != last) {
            let last = quoted(last.as_bytes());
            bail!("the stream ends with `{last}` before `{wanted}`");
        }
        match &self.pointer {
            Some(pointer) if !is_found => Err(anyhow!("no event of the stream has the required `{pointer}`")),
            _ => Ok(counted),
        }
    }

    /// True if a status means success.
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

/// Server-sent event.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
    /// Length of the body up to the byte that completes the event.
    end: usize,
}

/// Data of an event that its stream does not complete.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ends within an event: `{}`", quoted(.0.as_bytes()))]
struct CutEvent(String);

/// Events of a body; the last one is an error with its data if the body ends within it.
struct Events<'a> {
    body: &'a [u8],
    at: usize,
    /// End of the last line. The `\n` of a `\r\n` may arrive later and completes nothing.
    end: usize,
}

impl<'a> Events<'a> {
    fn of(body: &'a [u8]) -> Self {
        let at = if body.starts_with(BOM) { BOM.len() } else { 0 };
        Self { body, at, end: at }
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = self.body.get(self.at..).filter(|rest| !rest.is_empty())?;
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let (line, ends) = rest.split_at(rest.iter().position(is_end).unwrap_or(rest.len()));
        self.end = self.at + line.len() + ends.len().min(1);
        self.at = self.end + usize::from(ends.starts_with(b"\r\n"));
        Some(line)
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, CutEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut name, mut data) = (String::new(), None::<String>);
        while let Some(line) = self.line() {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default();
            let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
            match &line[..colon] {
                b"" if line.is_empty() => match data.take() {
                    Some(data) => {
                        let (name, end) = (mem::take(&mut name), self.end);
                        return Some(Ok(Event { name, data, end }));
                    }
                    None => name.clear(),
                },
                b"data" => match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&value);
                    }
                    None => data = Some(value.into_owned()),
                },
                b"event" => name = value.into_owned(),
                _ => {}
            }
        }
        data.map(|data| Err(CutEvent(data)))
    }
}

/// True if the headers of a reply say that its body is a stream of events.
fn is_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = value.and_then(|value| value.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Arrival of a body, piece by piece, in microseconds on the step's clock.
pub(crate) struct Pieces {
    spec: Arc<StreamSpec>,
    first_byte_us: u64,
    /// Length of the body after each arrival, and its time.
    arrived: Vec<(usize, u64)>,
}

impl Pieces {
    pub(crate) fn new(spec: Arc<StreamSpec>, first_byte_us: u64) -> Self {
        Self {
            spec,
            first_byte_us,
            arrived: Vec::with_capacity(64),
        }
    }

    /// Adds a piece, after which the body is `bytes` long. Pieces of one read arrived together.
    ///
    /// # Errors
    /// More pieces than a reply may have.
    pub(crate) fn push(&mut self, bytes: usize, us: u64) -> Result<(), TooLarge> {
        let is_full = self.arrived.len() == MAX_PIECES;
        match self.arrived.last_mut() {
            Some(last) if last.1 == us => last.0 = bytes,
            _ if is_full => return Err(TooLarge::pieces(MAX_PIECES)),
            _ => self.arrived.push((bytes, us)),
        }
        Ok(())
    }

    /// Time at which the body's first `bytes` bytes had arrived.
    fn time_of(&self, bytes: usize) -> u64 {
        let at = self.arrived.partition_point(|(arrived, _)| *arrived < bytes);
        self.arrived.get(at).map_or(self.first_byte_us, |(_, us)| *us)
    }

    /// Checks the complete body by the rule of success, and measures its events.
    ///
    /// # Errors
    /// The first violation.
    pub(crate) fn measure(&self, success: &Success, headers: &HeaderMap, body: &[u8]) -> Result<StreamedReply> {
        let mut reply = StreamedReply {
            first_byte_us: self.first_byte_us,
            bytes: body.len() as u64,
            ..StreamedReply::default()
        };
        let mut before = None;
        let mut event_at = |us: u64| match before.replace(us) {
            None => reply.first_event_us = us,
            Some(before) if reply.gaps_us.len() < MAX_PIECES => {
                reply.gaps_us.push(u32::try_from(us - before).unwrap_or(u32::MAX));
            }
            Some(_) => {}
        };
        let tokens = match self.spec.kind {
            StreamKind::Sse => {
                let at = self.spec.tokens.as_deref();
                success.check_stream(body, at, |end| event_at(self.time_of(end)))?
            }
            StreamKind::Chunked => {
                self.arrived.iter().for_each(|(_, us)| event_at(*us));
                success.check_body(headers, body)?;
                None
            }
        };
        if before.is_none() {
            bail!("the stream has no event besides the required last one");
        }
        if reply.gaps_us.len() == MAX_PIECES {
            bail!("the stream has more than {MAX_PIECES} events");
        }
        reply.gaps_us.shrink_to_fit();
        Ok(StreamedReply { tokens, ..reply })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
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
        Success::default().check_body(&plain(), yaml).unwrap();
        let error = Success::default().check_body(&events(), yaml).unwrap_err().to_string();
        assert!(error.contains("ends within an event"), "{error}");
    }

    #[test]
    fn what_the_pointer_names_must_be_there() {
        let body = br#"{"predictions":[0.5],"ok":true,"n":1}"#;
        rule("/predictions/0", None).check_body(&plain(), body).unwrap();
        rule("/ok", Some(json!(true))).check_body(&plain(), body).unwrap();
        rule("/n", Some(json!(1.0))).check_body(&plain(), body).unwrap();
        Success::default().check_body(&plain(), b"anything").unwrap();
        for (rule, body, message) in [
            (rule("/predictions/1", None), &body[..], "`/predictions/1` is missing"),
            (rule("/ok", Some(json!(false))), body, "`/ok` is true, not false"),
            (rule("/x", None), b"<html>", "not JSON"),
        ] {
            let error = rule.check_body(&plain(), body).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
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
        done.check_body(&events(), whole).unwrap();
        Success::default().check_body(&events(), whole).unwrap();
        for (rule, body, message) in [
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
            let error = rule.check_body(&events(), body).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let null = b"data: {\"error\": null}\n\n";
        Success::default().check_body(&events(), null).unwrap();
    }

    proptest! {
        #[test]
        fn any_body_is_judged(body in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(text) = rule("/a", None).check_body(&plain(), &body) {
                prop_assert!(text.to_string().chars().count() < 3 * 120);
            }
        }
    }

    fn read(body: &[u8]) -> Result<Vec<(String, String, usize)>, CutEvent> {
        Events::of(body)
            .map(|event| event.map(|Event { name, data, end }| (name, data, end)))
            .collect()
    }

    #[test]
    fn events_end_at_the_byte_that_completes_them() {
        let event = |name: &str, data: &str, end| (name.to_owned(), data.to_owned(), end);
        for (body, events) in [
            (
                &b"data: a\n\ndata:b\n\n"[..],
                vec![event("", "a", 9), event("", "b", 17)],
            ),
            (
                b"data: a\r\n\r\ndata: b\r\n\r\n",
                vec![event("", "a", 10), event("", "b", 21)],
            ),
            (b"data: a\r\rdata: b\r\r", vec![event("", "a", 9), event("", "b", 18)]),
            (b"\xef\xbb\xbfdata: a\n\n", vec![event("", "a", 12)]),
            (b": one\n\n: two\ndata: a\n\n", vec![event("", "a", 22)]),
            (b"event: x\ndata: a\ndata: b\ndata\n\n", vec![event("x", "a\nb\n", 31)]),
            (b"event: x\n\ndata:  a\nid: 7\n\n", vec![event("", " a", 26)]),
            (b"data: \xff\n\n", vec![event("", "\u{fffd}", 9)]),
            (b"{\"a\":1}", vec![]),
            (b"", vec![]),
        ] {
            assert_eq!(read(body), Ok(events), "{}", String::from_utf8_lossy(body));
        }
        assert_eq!(read(b"data: a\n\ndata: {\"choi"), Err(CutEvent("{\"choi".to_owned())));
        let long = [&b"data: "[..], &vec![b'x'; 1 << 20], b"\n\n"].concat();
        assert_eq!(read(&long).unwrap()[0].1.len(), 1 << 20);
    }

    proptest! {
        #[test]
        fn any_bytes_are_events_or_none(body in prop::collection::vec(prop::sample::select(&b"data: x\r\n\xef\xbb\xbf:e"[..]), 0..80)) {
            let mut before = 0;
            for event in Events::of(&body).flatten() {
                prop_assert!(event.end > before && event.end <= body.len());
                before = event.end;
            }
        }
    }

    fn pieces(kind: StreamKind) -> Pieces {
        let tokens = Some("/usage/completion_tokens".to_owned());
        Pieces::new(Arc::new(StreamSpec { kind, tokens }), 5)
    }

    fn done() -> Success {
        Success {
            last_event: Some("[DONE]".into()),
            ..Success::default()
        }
    }

    const BODY: &str = "\u{feff}: hi\r\n\r\ndata: {\"a\":1}\r\n\r\ndata: {\"b\":\r\ndata: 2}\n\ndata: {\"usage\":\
        {\"completion_tokens\":7}}\r\rdata: [DONE]\n\n";

    #[test]
    fn an_event_arrives_with_its_last_byte_however_it_is_split() {
        let ends: Vec<usize> = ["1}\r\n\r", "2}\n\n", "}}\r\r"]
            .map(|end| BODY.find(end).unwrap() + end.len())
            .into();
        // Bytes one by one, then in two pieces at every byte.
        let mut one_by_one = pieces(StreamKind::Sse);
        (1..=BODY.len()).for_each(|bytes| one_by_one.push(bytes, 100 + bytes as u64).unwrap());
        let reply = one_by_one.measure(&done(), &HeaderMap::new(), BODY.as_bytes()).unwrap();
        assert_eq!((reply.first_byte_us, reply.first_event_us), (5, 100 + ends[0] as u64));
        assert_eq!(reply.gaps_us, [(ends[1] - ends[0]) as u32, (ends[2] - ends[1]) as u32]);
        assert_eq!((reply.tokens, reply.bytes), (Some(7), BODY.len() as u64));
        for cut in 1..BODY.len() {
            let mut two = pieces(StreamKind::Sse);
            two.push(cut, 10).unwrap();
            two.push(BODY.len(), 30).unwrap();
            let reply = two.measure(&done(), &HeaderMap::new(), BODY.as_bytes()).unwrap();
            let times: Vec<u64> = ends.iter().map(|end| if *end <= cut { 10 } else { 30 }).collect();
            assert_eq!(reply.first_event_us, times[0]);
            assert_eq!(
                reply.gaps_us,
                [(times[1] - times[0]) as u32, (times[2] - times[1]) as u32]
            );
        }
    }

    #[test]
    fn failures_have_no_times() {
        for (body, message) in [
            ("data: [DONE]\n\n", "no event besides"),
            ("data: a\n\n", "before `[DONE]`"),
            ("data: a\n\ndata: b", "ends within an event: `b`"),
            ("event: error\ndata: a\n\ndata: [DONE]\n\n", "has an error"),
            ("{\"error\":\"no model\"}", "not a stream of events"),
            ("", "not a stream of events"),
        ] {
            let mut one = pieces(StreamKind::Sse);
            one.push(body.len(), 10).unwrap();
            let error = one.measure(&done(), &HeaderMap::new(), body.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(message), "{body}: {error}");
        }
    }

    #[test]
    fn pieces_are_bounded_and_those_of_one_read_are_one() {
        let mut chunked = pieces(StreamKind::Chunked);
        for (bytes, us) in [(1, 10), (2, 10), (3, 12), (9, 20)] {
            chunked.push(bytes, us).unwrap();
        }
        let reply = chunked
            .measure(&Success::default(), &HeaderMap::new(), b"{\"n\": 12}")
            .unwrap();
        assert_eq!((reply.first_event_us, &reply.gaps_us[..]), (10, &[2, 8][..]));
        assert!(
            pieces(StreamKind::Chunked)
                .measure(&Success::default(), &HeaderMap::new(), b"")
                .is_err()
        );
        let mut many = pieces(StreamKind::Sse);
        (0..MAX_PIECES).for_each(|bytes| many.push(bytes, bytes as u64).unwrap());
        assert!(many.push(MAX_PIECES, MAX_PIECES as u64).is_err());
        // More events than pieces.
        let mut one = pieces(StreamKind::Sse);
        let body = "data\n\n".repeat(MAX_PIECES + 1);
        one.push(body.len(), 1).unwrap();
        let error = one
            .measure(&Success::default(), &HeaderMap::new(), body.as_bytes())
            .unwrap_err();
        assert!(error.to_string().contains("more than 262144 events"), "{error}");
    }
}
