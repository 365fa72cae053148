//! Headers that may stand once.
//!
//! In: a request's headers. Out: the value of one, or a refusal. Knows nothing of what the values mean.

use crate::request::refusal::Refusal;
use http::{HeaderMap, HeaderName, HeaderValue};

/// A header that may stand once: of two, somebody before the server might have read the other.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Refusal::bad(format!("the header {name} is given more than once"))),
        (value, None) => Ok(value),
    }
}
