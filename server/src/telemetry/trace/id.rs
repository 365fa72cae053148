//! Ids of requests. In: headers. Out: an id that is safe in a log line, a header and a JSON string as it is.

use http::{HeaderMap, HeaderName};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a client's id at most; longer ones are not taken over.
const MAX_BYTES: usize = 128;

/// The first half of the ids made here: of this process alone.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Id of a request in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestId {
    /// Id given by the client.
    Given(Box<str>),
    /// Trace id.
    Trace(u128),
    /// Made here: a count within this process.
    Own(u64),
}

impl RequestId {
    /// The id that a header gives, where it is one.
    pub(crate) fn given(headers: &HeaderMap, name: &HeaderName) -> Option<Self> {
        let value = headers.get(name)?.to_str().ok()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
        let fits = !value.is_empty() && value.len() <= MAX_BYTES && value.bytes().all(plain);
        fits.then(|| Self::Given(value.into()))
    }

    /// A new one.
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
}
