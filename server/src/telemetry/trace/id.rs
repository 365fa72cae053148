//! Id of a request, and the trace started by its client.

use http::{HeaderMap, HeaderName};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum bytes of a client's id; longer ones are ignored.
const MAX_BYTES: usize = 128;

/// First half of the ids generated in this process.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Id of a request in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestId {
    /// Id given by the client.
    Given(Box<str>),
    /// Trace id.
    Trace(u128),
    /// Generated here: a count within this process.
    Own(u64),
}

impl RequestId {
    /// Id given in a header, if valid.
    pub(crate) fn given(headers: &HeaderMap, name: &HeaderName) -> Option<Self> {
        let value = headers.get(name)?.to_str().ok()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
        let fits = !value.is_empty() && value.len() <= MAX_BYTES && value.bytes().all(plain);
        fits.then(|| Self::Given(value.into()))
    }

    /// Generates an id.
    pub(crate) fn generate() -> Self {
        Self::Own(NEXT.fetch_add(1, Relaxed))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(id) => f.write_str(id),
            Self::Trace(id) => write!(f, "{id:032x}"),
            Self::Own(count) => write!(f, "{:016x}{count:016x}", *PROCESS),
        }
    }
}

/// A `traceparent` header: W3C Trace Context, <https://www.w3.org/TR/trace-context/#traceparent-header>.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub(super) trace_id: u128,
    pub(super) parent_id: u64,
    pub(super) sampled: bool,
}

impl TraceParent {
    /// Parses the header; `None` if it is missing or invalid, as the specification requires.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get("traceparent")?.to_str().ok()?.trim())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut hex = |len: usize| {
            let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            parts
                .next()
                .filter(|part| part.len() == len && part.bytes().all(digits))
        };
        let (version, trace_id, parent_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        // Later versions may append parts; version 0 has four.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace_id, 16).ok().filter(|&id| id != 0)?;
        let parent_id = u64::from_str_radix(parent_id, 16).ok().filter(|&id| id != 0)?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self {
            trace_id,
            parent_id,
            sampled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_header_is_taken_as_it_is_or_not_at_all(value in prop::collection::vec(any::<u8>(), 0..200)) {
            let name = HeaderName::from_static("x-request-id");
            let Ok(header) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let headers = HeaderMap::from_iter([(name.clone(), header)]);
            if let Some(id) = RequestId::given(&headers, &name) {
                let shown = id.to_string();
                prop_assert_eq!(shown.as_bytes(), &value[..]);
                prop_assert_eq!(serde_json::to_string(&shown).unwrap(), format!("\"{shown}\""));
                prop_assert!(shown.len() <= MAX_BYTES);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(trace in 1_u128.., parent in 1_u64.., flags in 0_u8..) {
            let text = format!("00-{trace:032x}-{parent:016x}-{flags:02x}");
            let read = TraceParent::parse(&text).unwrap();
            prop_assert_eq!(read.trace_id, trace);
            prop_assert_eq!(read.parent_id, parent);
            prop_assert_eq!(read.sampled, flags & 1 == 1);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f-]{0,60}|.{0,60}") {
            let _ = TraceParent::parse(&text);
        }
    }

    #[test]
    fn damaged_parents_are_none() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(TraceParent::parse(good).is_some());
        assert!(TraceParent::parse(&good.replace("00-0af", "01-0af")).is_some());
        assert!(TraceParent::parse(&format!("01{}-more", &good[2..])).is_some());
        for bad in [
            format!("{good}-more"),
            good.replace("00-0af", "ff-0af"),
            good.to_uppercase(),
            good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            good.replace("b7ad6b7169203331", &"0".repeat(16)),
            good.replace("9c-", "-"),
            good[..good.len() - 1].to_owned(),
            String::new(),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
    }
}
