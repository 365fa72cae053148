//! Checks of a request's head: a valid request names its host and delimits its body in exactly one way.
//!
//! In: a request's head. Out: nothing, or what is wrong with it. hyper refuses contradictory headers and closes the
//! connection after a request with both a length and chunks.

use http::header::{HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Version};

/// Checks a request's head.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), &'static str> {
    check_host(request).and_then(|()| check_framing(request.headers()))
}

/// Checks the host of a request. HTTP/1.1 requires the header `Host` exactly once (RFC 9112, section 3.2); HTTP/1.0
/// does not. In HTTP/2 `:authority` replaces it, and a `Host` beside it must match (RFC 9113, section 8.3.1).
fn check_host<B>(request: &Request<B>) -> Result<(), &'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err("duplicate header `Host`");
    }
    let version = request.version();
    let Some(host) = host else {
        return match version {
            Version::HTTP_11 => Err("missing header `Host`, required by HTTP/1.1"),
            _ => Ok(()),
        };
    };
    if !is_host(host) {
        return Err("invalid header `Host`: use a name or address, with or without a port");
    }
    match request.uri().authority() {
        // In HTTP/1 the host of an absolute URL overrides `Host`.
        Some(authority) if version == Version::HTTP_2 && !names(host, authority) => {
            Err("`:authority` and the header `Host` differ")
        }
        _ => Ok(()),
    }
}

/// Marks allowed in hosts without brackets, beside letters and digits.
const HOST_MARKS: &[u8] = b"-._~%!$&'()*+,;=:";

/// True if the value is a valid host. An empty value is sent for a target without a host. After an address in brackets
/// only a port may follow.
fn is_host(value: &HeaderValue) -> bool {
    let mut parts = value.as_bytes().split(|&byte| byte == b']');
    let (host, port) = (parts.next().unwrap_or_default(), parts.next());
    let (host, is_port) = match (host.strip_prefix(b"["), port) {
        (Some(address), Some(port)) => (address, port.is_empty() || port.starts_with(b":")),
        (None, None) => (host, true),
        _ => (host, false),
    };
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || HOST_MARKS.contains(byte);
    let is_plain = |bytes: &[u8]| bytes.iter().all(is_allowed);
    is_port && parts.next().is_none() && is_plain(host) && port.is_none_or(is_plain)
}

fn names(host: &HeaderValue, authority: &Authority) -> bool {
    host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
}

/// Checks the transfer codings of a body in HTTP/1. Only a single `chunked` is supported (RFC 9112, section 6.1): hyper
/// looks for it at the end of the list and ignores the others, so that their bytes would be taken for the body's.
fn check_framing(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if is_chunked(coding) => Ok(()),
        _ => Err("unsupported header `Transfer-Encoding`: use only `chunked`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(version: Version, uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        check_host(&request.body(()).unwrap()).is_ok()
    }

    #[test]
    fn a_request_names_its_host_once() {
        let (one, old, two) = (Version::HTTP_11, Version::HTTP_10, Version::HTTP_2);
        for (version, uri, hosts, good) in [
            (one, "/v2", &["a"][..], true),
            (one, "/v2", &["127.0.0.1:8000"], true),
            (one, "/v2", &["[::1]:8000"], true),
            (one, "/v2", &[""], true),
            (one, "/v2", &[], false),
            (one, "/v2", &["a", "a"], false),
            (one, "/v2", &["a b"], false),
            (one, "/v2", &["a/b"], false),
            (one, "/v2", &["u@a"], false),
            (one, "/v2", &["[::1]"], true),
            (one, "/v2", &["[::1].a"], false),
            (one, "/v2", &["[::1]:80]"], false),
            (one, "/v2", &["[::1"], false),
            (one, "/v2", &["a[::1]"], false),
            (one, "http://b/v2", &["a"], true),
            (one, "http://b/v2", &[], false),
            (old, "/v2", &[], true),
            (old, "/v2", &["a", "b"], false),
            (two, "http://a/v2", &[], true),
            (two, "http://a/v2", &["A"], true),
            (two, "http://a/v2", &["b"], false),
            (two, "http://a/v2", &["a", "a"], false),
            (two, "/v2", &["a"], true),
            (two, "/v2", &[], true),
        ] {
            assert_eq!(checked(version, uri, hosts), good, "{version:?} {uri} {hosts:?}");
        }
    }

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
            assert_eq!(check_framing(&codings.clone().collect()).is_ok(), good, "{codings:?}");
        }
    }
}
