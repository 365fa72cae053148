//! Protection against web pages: requests that a browser may send for a page of another site.
//!
//! In: the head of a call that changes something. Out: whether a page of another site may have sent it, with advice if
//! the sender is not a page. A browser identifies such a page in `Origin`, in `Sec-Fetch-Site` and, if the page's own
//! name points here (DNS rebinding), in `Host`. Other clients never send the first two, and send the server's name in
//! `Host`. Calls with a token are not checked: no page knows one, and browsers do not add it.

use super::Denied;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Path prefixes of calls that change something, or would in Triton.
const CHANGES: [&str; 10] = [
    "/v2/repository/models/",
    "/v2/logging",
    "/v2/trace/",
    "/v2/systemsharedmemory",
    "/v2/cudasharedmemory",
    "/inference.GRPCInferenceService/RepositoryModel",
    "/inference.GRPCInferenceService/LogSettings",
    "/inference.GRPCInferenceService/TraceSetting",
    "/inference.GRPCInferenceService/SystemSharedMemory",
    "/inference.GRPCInferenceService/CudaSharedMemory",
];
/// Path suffixes of such calls on a model.
const MODEL_CHANGES: &str = "/trace/setting";
const MODELS: &str = "/v2/models/";

/// True if a call changes state.
pub(super) fn changes(method: &Method, path: &str) -> bool {
    if *method != Method::POST {
        // Other methods change nothing.
        return false;
    }
    match path.strip_prefix(MODELS) {
        Some(model) => model.ends_with(MODEL_CHANGES),
        None => CHANGES.iter().any(|start| path.starts_with(start)),
    }
}

/// Names by which the server may be called without a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Loopback names and addresses, and `names`.
    ///
    /// # Errors
    /// Fails for an invalid name or address, or one with a port.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let names = names.into_iter().map(|name| {
            let bare = name.parse::<Authority>().ok();
            let bare = bare.filter(|host| host.as_str() == host.host());
            let host = bare.map(|host| plain(host.host())).filter(|host| !host.is_empty());
            // IPv6 addresses have brackets in a URL, but may be given without.
            let address = || name.parse::<IpAddr>().ok().map(|address| address.to_string());
            address().or(host).ok_or(name)
        });
        let names = names.collect::<Result<_, String>>();
        names
            .map(Self)
            .map_err(|name| format!("invalid host: `{name}`; use a name or address without a port"))
    }

    /// Refuses a call that a web page of another site may have sent.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Denied> {
        let target = uri.authority().map(Authority::as_str);
        let mut hosts = Vec::with_capacity(2);
        let named = headers.get_all(HOST).iter().map(|value| value.to_str().ok());
        for value in named.chain(target.map(Some)) {
            let host = value.and_then(|value| value.parse::<Authority>().ok());
            let host = host.ok_or(Denied::ForeignHost)?;
            if !has_only_port(&host) || !self.has(&plain(host.host())) {
                return Err(Denied::ForeignHost);
            }
            hosts.push(host);
        }
        let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
        if !matches!(site, None | Some(b"same-origin" | b"none")) {
            return Err(Denied::ForeignPage);
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
            let origin = origin.as_ref().and_then(Uri::authority);
            let own =
                |host: &Authority| origin.is_some_and(|origin| origin.as_str().eq_ignore_ascii_case(host.as_str()));
            if hosts.is_empty() || !hosts.iter().all(own) {
                return Err(Denied::ForeignPage);
            }
        }
        Ok(())
    }

    fn has(&self, host: &str) -> bool {
        let address = host.parse::<IpAddr>().ok();
        address.is_some_and(|address| address.to_canonical().is_loopback())
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.0.iter().any(|known| known == host)
    }
}

/// True if the host is followed by nothing but a port. `Authority::host` drops everything else too, as in
/// `[::1].example`.
fn has_only_port(authority: &Authority) -> bool {
    let named = authority.as_str();
    let named = named.rsplit_once('@').map_or(named, |(_, named)| named);
    let behind = named.strip_prefix(authority.host()).unwrap_or(named);
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port)
}

/// Host in a form for comparison: lower case, no brackets, no trailing dot.
fn plain(host: &str) -> String {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = inner.unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &[&str], target: &str, headers: &[(&'static str, &str)]) -> Result<(), Denied> {
        let hosts = Hosts::new(hosts.iter().map(ToString::to_string)).unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        hosts.check(&target.parse().unwrap(), &headers.collect())
    }

    #[test]
    fn programs_pass_by_the_names_that_are_known_and_pages_do_not() {
        let path = "/v2/repository/models/m/unload";
        let (host, page) = (Err(Denied::ForeignHost), Err(Denied::ForeignPage));
        for (target, headers, expected) in [
            (path, &[("host", "127.0.0.1:8000")][..], Ok(())),
            (path, &[("host", "localhost:8000")], Ok(())),
            (path, &[("host", "LOCALHOST.")], Ok(())),
            (path, &[("host", "[::1]:8000")], Ok(())),
            (path, &[("host", "[::ffff:127.0.0.1]:8000")], Ok(())),
            (path, &[("host", "lab.example:8000")], Ok(())),
            (path, &[("host", "10.0.0.5")], Ok(())),
            (path, &[], Ok(())),
            ("http://localhost:8001/x", &[], Ok(())),
            ("http://evil.example:8001/x", &[], host),
            (path, &[("host", "evil.example:8000")], host),
            (path, &[("host", "10.0.0.6:8000")], host),
            (path, &[("host", "localhost.evil.example")], host),
            (path, &[("host", "127.0.0.1"), ("host", "evil.example")], host),
            (path, &[("host", "a b")], host),
            (path, &[("host", "[::1].evil.example")], host),
            (path, &[("host", "[::1]80")], host),
            (path, &[("host", "[::1]:80.evil.example")], host),
            (path, &[("host", "localhost:evil.example")], host),
            ("http://[::1].evil.example/x", &[], host),
            (
                path,
                &[("host", "localhost:8000"), ("origin", "http://localhost:8000")],
                Ok(()),
            ),
            (
                path,
                &[("host", "localhost:8000"), ("origin", "http://localhost:3000")],
                page,
            ),
            (
                path,
                &[("host", "localhost:8000"), ("origin", "http://evil.example")],
                page,
            ),
            (path, &[("host", "localhost:8000"), ("origin", "null")], page),
            (path, &[("origin", "http://evil.example")], page),
            (path, &[("host", "localhost"), ("sec-fetch-site", "cross-site")], page),
            (path, &[("host", "localhost"), ("sec-fetch-site", "same-site")], page),
            (
                path,
                &[("host", "localhost"), ("sec-fetch-site", "same-origin")],
                Ok(()),
            ),
            (path, &[("host", "localhost"), ("sec-fetch-site", "none")], Ok(())),
        ] {
            assert_eq!(
                check(&["lab.example", "10.0.0.5"], target, headers),
                expected,
                "{target} {headers:?}"
            );
        }
    }

    #[test]
    fn what_changes_something_is_known_by_its_path() {
        for path in [
            "/v2/repository/models/m/load",
            "/v2/models/m/trace/setting",
            "/v2/trace/setting",
            "/v2/logging",
            "/v2/systemsharedmemory/region/r/register",
            "/inference.GRPCInferenceService/RepositoryModelUnload",
        ] {
            assert!(changes(&Method::POST, path), "{path}");
            assert!(!changes(&Method::GET, path), "{path}");
        }
        for path in [
            "/v2/models/m/infer",
            "/v2/repository/index",
            "/inference.GRPCInferenceService/ModelInfer",
        ] {
            assert!(!changes(&Method::POST, path), "{path}");
        }
    }

    #[test]
    fn what_is_no_host_is_no_allowed_one() {
        for bad in ["", "a:80", "http://a", "a/b", "a b", "[::1].a", "u@a"] {
            assert!(Hosts::new([bad.to_owned()]).is_err(), "{bad:?}");
        }
        let hosts = Hosts::new(["Lab.Example.".to_owned(), "fd00::1".to_owned(), "[fd00::2]".to_owned()]).unwrap();
        assert_eq!(hosts.0, ["lab.example", "fd00::1", "fd00::2"]);
    }
}
