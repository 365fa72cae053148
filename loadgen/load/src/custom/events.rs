//! Server-sent events of a complete body (WHATWG HTML, section 9.2), with the position of each in it.

use hyper::header::{CONTENT_TYPE, HeaderMap};
use std::mem;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Server-sent event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) data: String,
    /// Length of the body up to the byte that completes the event.
    pub(super) end: usize,
}

/// Events of a body; the last one is an error with its data if the body ends within it.
pub(super) struct Events<'a> {
    body: &'a [u8],
    at: usize,
    /// End of the last line. The `\n` of a `\r\n` may arrive later and completes nothing.
    end: usize,
}

impl<'a> Events<'a> {
    pub(super) fn of(body: &'a [u8]) -> Self {
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
    type Item = Result<Event, String>;

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
        data.map(Err)
    }
}

/// True if the headers of a reply say that its body is a stream of events.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|said| said.to_str().ok());
    let kind = said.and_then(|said| said.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &[u8]) -> Result<Vec<(String, String, usize)>, String> {
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
        assert_eq!(read(b"data: a\n\ndata: {\"choi"), Err("{\"choi".to_owned()));
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
}
