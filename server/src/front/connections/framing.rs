//! Validation of body framing: a request must delimit its body in exactly one way.
//!
//! In: a request's head. Out: nothing, or the fault. hyper refuses contradictory headers and closes the connection after a
//! request with both a length and chunks.

use http::header::TRANSFER_ENCODING;
use http::{HeaderMap, HeaderValue};

/// Checks the codings of a body in HTTP/1. Only `chunked` is spoken, once (RFC 9112, section 6.1): hyper looks for it at the
/// end of the list and passes over the others, so that their bytes would be taken for the body's.
pub(super) fn check(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if is_chunked(coding) => Ok(()),
        _ => Err("the header `Transfer-Encoding` is not `chunked` alone: no other coding is spoken here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chunked_is_spoken_and_only_once() {
        for (codings, good) in [
            (&[][..], true),
            (&["chunked"], true),
            (&["Chunked"], true),
            (&["gzip, chunked"], false),
            (&["gzip", "chunked"], false),
            (&["chunked", "chunked"], false),
            (&["chunked, chunked"], false),
            (&["identity"], false),
            (&[""], false),
        ] {
            let codings = codings
                .iter()
                .map(|&coding| (TRANSFER_ENCODING, HeaderValue::from_static(coding)));
            assert_eq!(check(&codings.clone().collect()).is_ok(), good, "{codings:?}");
        }
    }
}
