//! Outcome of a request, with its message for the result, and the server's stage times. In: a checked reply and its
//! `Server-Timing` headers, or the reason for its absence.

use super::received::TooLarge;
use hyper::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use std::fmt::Display;
use tierlab_analysis::record::{Failure, Outcome, StreamedReply};
use tierlab_protocol::grpc::SERVER_TIMING;
use tierlab_protocol::timing::StageTimings;

/// A request without a reply, or with one that is not the model's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", message.as_deref().unwrap_or_default())]
pub struct NoReply {
    /// Kind of failure.
    pub failure: Failure,
    /// Details for the reader of the result.
    pub message: Option<String>,
}

impl NoReply {
    /// Creates a failure with details.
    pub(crate) fn new(failure: Failure, message: impl Display) -> Self {
        Self {
            failure,
            message: Some(message.to_string()),
        }
    }
}

impl From<Failure> for NoReply {
    fn from(failure: Failure) -> Self {
        Self { failure, message: None }
    }
}

impl From<TooLarge> for NoReply {
    fn from(what: TooLarge) -> Self {
        Self::new(Failure::TooLarge, what)
    }
}

/// Verdict on a reply or its absence.
#[derive(Debug)]
pub struct CheckedReply {
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Stages of the server.
    pub timings: Option<StageTimings>,
    /// Times of a good reply that streams.
    pub stream: Option<Box<StreamedReply>>,
    /// Example for the result, if the kind of failure alone is not enough.
    pub message: Option<String>,
}

impl CheckedReply {
    /// Creates the outcome of a good reply.
    pub const fn ok(timings: Option<StageTimings>) -> Self {
        Self {
            outcome: Outcome::Ok,
            timings,
            stream: None,
            message: None,
        }
    }

    /// Creates the outcome of a failed request.
    pub fn failed(failure: Failure, timings: Option<StageTimings>) -> Self {
        Self {
            outcome: Outcome::Failed(failure),
            ..Self::ok(timings)
        }
    }

    /// Creates the outcome of an invalid reply.
    pub fn invalid(what: &impl Display, timings: Option<StageTimings>) -> Self {
        Self {
            message: Some(what.to_string()),
            ..Self::failed(Failure::WrongReply, timings)
        }
    }
}

impl From<NoReply> for CheckedReply {
    fn from(NoReply { failure, message }: NoReply) -> Self {
        Self {
            message,
            ..Self::failed(failure, None)
        }
    }
}

/// Maximum length of a server's stage times; this project's server sends less than 300 bytes.
const TIMING_BYTES: usize = 4 << 10;

/// Returns the stages of the first header that reports one. Other headers (of a proxy, or a server with its own names)
/// report no stages, and are not read as stages of zero length.
pub(crate) fn stages(headers: &HeaderMap) -> Option<StageTimings> {
    let texts = headers.get_all(SERVER_TIMING).iter().map(HeaderValue::as_bytes);
    let short = texts.filter(|text| text.len() <= TIMING_BYTES);
    let mut read = short.filter_map(|text| StageTimings::parse_header(std::str::from_utf8(text).ok()?).ok());
    read.find(has_stages)
}

/// True if any stage is present. All stages together take longer than the microsecond that a header resolves.
fn has_stages(timings: &StageTimings) -> bool {
    !timings.total().is_zero() || timings.batch_rows > 0
}

/// Describes a content encoding that was not requested: the reason for a body that cannot be read.
pub fn unrequested_coding(headers: &HeaderMap) -> Option<String> {
    let coding = headers.get(CONTENT_ENCODING)?.as_bytes();
    (!coding.eq_ignore_ascii_case(b"identity"))
        .then(|| format!("content encoding `{}` was not requested", quoted(coding)))
}

/// Maximum characters quoted from a reply.
const MAX_QUOTED: usize = 120;

/// Fault of a reply that does not have the model's form.
pub(super) fn wrong_reply(what: impl Display) -> NoReply {
    NoReply::new(Failure::WrongReply, what)
}

/// Fault of a reply that has the model's form and wrong values.
pub(super) fn wrong_value(what: impl Display) -> NoReply {
    NoReply::new(Failure::WrongValue, what)
}

/// Returns the start of a server's message as a printable line.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(4 * MAX_QUOTED)];
    let text = String::from_utf8_lossy(start);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderName;
    use tierlab_protocol::timing::Stage;

    fn infer_us(headers: &[&str]) -> Option<u128> {
        let header = |text: &&str| (HeaderName::from_static(SERVER_TIMING), text.parse().unwrap());
        let timings = stages(&headers.iter().map(header).collect())?;
        Some(timings.get(Stage::Infer).as_micros())
    }

    #[test]
    fn what_others_wrote_is_no_stage() {
        for foreign in [
            "cdn-cache;desc=HIT",
            "db;dur=53, app;dur=47.2",
            "total;dur=12",
            "",
            ",",
            "infer;dur=-4",
            "infer",
        ] {
            assert_eq!(infer_us(&[foreign]), None, "{foreign}");
        }
        assert_eq!(infer_us(&[]), None);
    }

    #[test]
    fn the_servers_own_header_is_found_among_those_of_proxies() {
        let own = "decode;dur=0.010, infer;dur=1.500, total;dur=1.510, rows;desc=\"1\"";
        for headers in [[own, "cdn;dur=3"], ["cdn;dur=3", own], ["cache;desc=HIT", own]] {
            assert_eq!(infer_us(&headers), Some(1_500), "{headers:?}");
        }
    }
}
