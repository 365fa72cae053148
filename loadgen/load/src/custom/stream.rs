//! Times of one reply that streams. In: the arrival of each piece of the body, stamped before anything is parsed, and the
//! complete body. Out: the times of its events.

use super::spec::{StreamKind, StreamSpec, Success};
use crate::reply::TooLarge;
use hyper::header::HeaderMap;
use std::sync::Arc;
use tierlab_analysis::record::StreamedReply;

/// Maximum pieces and events of one reply, which bounds its times to 5 MiB.
const MOST: usize = 1 << 18;

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
        let is_full = self.arrived.len() == MOST;
        match self.arrived.last_mut() {
            Some(last) if last.1 == us => last.0 = bytes,
            _ if is_full => return Err(TooLarge::pieces(MOST)),
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
    pub(crate) fn measure(&self, success: &Success, headers: &HeaderMap, body: &[u8]) -> Result<StreamedReply, String> {
        let mut reply = StreamedReply {
            first_byte_us: self.first_byte_us,
            bytes: body.len() as u64,
            ..StreamedReply::default()
        };
        let mut before = None;
        let mut event_at = |us: u64| match before.replace(us) {
            None => reply.first_event_us = us,
            Some(before) if reply.gaps_us.len() < MOST => {
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
            return Err("the stream has no event besides the required last one".to_owned());
        }
        if reply.gaps_us.len() == MOST {
            return Err(format!("the stream has more than {MOST} events"));
        }
        reply.gaps_us.shrink_to_fit();
        Ok(StreamedReply { tokens, ..reply })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (body, says) in [
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
            assert!(error.contains(says), "{body}: {error}");
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
        (0..MOST).for_each(|bytes| many.push(bytes, bytes as u64).unwrap());
        assert!(many.push(MOST, MOST as u64).is_err());
        // More events than pieces.
        let mut one = pieces(StreamKind::Sse);
        let body = "data\n\n".repeat(MOST + 1);
        one.push(body.len(), 1).unwrap();
        let error = one
            .measure(&Success::default(), &HeaderMap::new(), body.as_bytes())
            .unwrap_err();
        assert!(error.contains("more than 262144 events"), "{error}");
    }
}
