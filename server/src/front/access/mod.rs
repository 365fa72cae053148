//! Authorisation: a bearer token for all calls, and a separate one for loading and unloading models. Without a token, no
//! foreign web page may change anything ([`Hosts::check`]).
//!
//! In: the tokens of the configuration, and a request's head. Out: the request, or a refusal with 401 or 403 (for gRPC,
//! the matching statuses). Tokens are stored as SHA-256, compared in constant time, and never printed. Health calls are
//! open, since probes have no token. The page at `/` is open too and asks for a token if its content needs one.

use crate::front::{Routes, discard, error};
use crate::telemetry::Front;
use anyhow::{Context as _, Result, anyhow, bail};
use axum::body::Body;
use axum::response::Response;
use http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use subtle::ConstantTimeEq;
use tonic::{Code, Status};

/// Paths or path prefixes of calls that need no token.
const PUBLIC_PATHS: [&str; 5] = [
    "/v2/health/live",
    "/v2/health/ready",
    "/grpc.health.v1.Health/",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
];
/// Path of the page for people. It needs no token because it contains no information about the server; its requests do.
pub(crate) const PAGE: &str = "/";
/// Path prefixes of calls that manage models.
const ADMIN_PATHS: [&str; 3] = [
    "/v2/repository/models/",
    "/inference.GRPCInferenceService/RepositoryModelLoad",
    "/inference.GRPCInferenceService/RepositoryModelUnload",
];

/// True for health calls, which need no token.
pub(crate) fn is_health_path(path: &str) -> bool {
    PUBLIC_PATHS.iter().any(|open| path.starts_with(open))
}

/// Token, stored as its digest.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// Takes a token; ignores surrounding white space.
    ///
    /// # Errors
    /// Fails for an empty token, or for characters not allowed in a header.
    pub(crate) fn new(token: &str) -> Result<Self> {
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("invalid token: use one word of visible ASCII characters");
        }
        Ok(Self(Sha256::digest(token).into()))
    }

    /// Reads a token from a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or holds no valid token.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| anyhow!("{}: {e}", path.display()))?;
        Self::new(&text).map_err(|e| anyhow!("{}: {e}", path.display()))
    }

    fn matches(&self, bearer_token: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(bearer_token).into();
        self.0.ct_eq(&digest).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Configured tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Token for all calls; without it they are open.
    pub(crate) token: Option<Secret>,
    /// Token for calls that manage models, also valid for all others. Without it, they are treated like other calls.
    pub(crate) admin: Option<Secret>,
    /// Host names by which the server may be called to change something without a token.
    pub(crate) hosts: Hosts,
}

/// Reason why a call is refused, with advice for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Denied {
    /// Missing or unknown token.
    #[error("send the token as `Authorization: Bearer TOKEN`")]
    Unknown,
    /// Valid token, but not for this call.
    #[error("this call requires the token for managing models")]
    NotAdmin,
    /// No token, and the `Host` header names an unknown host.
    #[error(
        "unknown host in a call that changes the server, as from a web page whose name points here: use 127.0.0.1 or \
            localhost, list its name in `access.allowed_hosts`, or set `access.admin_token_file` and send the token"
    )]
    ForeignHost,
    /// No token, and a web page of another origin.
    #[error(
        "call that changes the server from a web page of another origin (`Origin`, `Sec-Fetch-Site`): send it from a \
            program, or set `access.admin_token_file` and send the token"
    )]
    ForeignPage,
}

impl Access {
    /// Answers a request by its routes, or refuses it.
    pub(crate) async fn answer<R: Routes>(&self, routes: &R, request: Request<Body>) -> Response {
        let Err(denied) = self.allows(&request) else {
            return routes.answer(request).await;
        };
        // A stream that is reset before the end of its body loses its reply in some clients, such as curl 7.88.
        if R::FRONT == Front::Http && request.version() == Version::HTTP_2 {
            discard(request.into_body()).await;
        }
        refuse(R::FRONT, denied)
    }

    fn allows<B>(&self, request: &Request<B>) -> Result<(), Denied> {
        let (path, headers) = (request.uri().path(), request.headers());
        if self.token.is_some() || self.admin.is_some() {
            self.allows_token(path, headers)?;
        }
        // A request with a token is not a web page's.
        let with_token =
            self.token.is_some() || (self.admin.is_some() && ADMIN_PATHS.iter().any(|admin| path.starts_with(admin)));
        if !with_token && changes_state(request.method(), path) {
            self.hosts.check(request.uri(), headers)?;
        }
        Ok(())
    }

    fn allows_token(&self, path: &str, headers: &HeaderMap) -> Result<(), Denied> {
        if is_health_path(path) {
            return Ok(());
        }
        let bearer_token = bearer_token(headers);
        let is_token = |secret: &Option<Secret>| match (secret, bearer_token) {
            (Some(secret), Some(bearer_token)) => secret.matches(bearer_token),
            _ => false,
        };
        let has_access = self.token.is_none() || is_token(&self.token);
        if is_token(&self.admin) {
            return Ok(());
        }
        if self.admin.is_some() && ADMIN_PATHS.iter().any(|admin| path.starts_with(admin)) {
            let is_valid = has_access && bearer_token.is_some();
            return Err(if is_valid { Denied::NotAdmin } else { Denied::Unknown });
        }
        // Checked last, so that requests with a token do not pay for it.
        (has_access || path == PAGE).then_some(()).ok_or(Denied::Unknown)
    }
}

/// Token of an `Authorization: Bearer` header.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn refuse(front: Front, denied: Denied) -> Response {
    let message = denied.to_string();
    let (status, code) = match denied {
        Denied::Unknown => (StatusCode::UNAUTHORIZED, Code::Unauthenticated),
        _ => (StatusCode::FORBIDDEN, Code::PermissionDenied),
    };
    if front == Front::Grpc {
        return Status::new(code, message).into_http();
    }
    let mut response = error(status, message);
    if denied == Denied::Unknown {
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Path prefixes of calls that change something, or would in Triton.
const CHANGE_PATHS: [&str; 10] = [
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
const MODEL_CHANGE_SUFFIX: &str = "/trace/setting";
const MODEL_PATHS: &str = "/v2/models/";

/// True if a call changes state.
fn changes_state(method: &Method, path: &str) -> bool {
    let changes_state = match path.strip_prefix(MODEL_PATHS) {
        Some(model) => model.ends_with(MODEL_CHANGE_SUFFIX),
        None => CHANGE_PATHS.iter().any(|start| path.starts_with(start)),
    };
    // Other methods change nothing.
    changes_state && *method == Method::POST
}

/// Names by which the server may be called without a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Loopback names and addresses, and `names`.
    ///
    /// # Errors
    /// Fails for an invalid name or address, or one with a port.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Result<Self> {
        let names = names.into_iter().map(|name| {
            let bare = name.parse::<Authority>().ok();
            // A pattern would match no request.
            let bare = bare.filter(|host| host.as_str() == host.host() && !name.contains('*'));
            let host = bare.map(|host| canonical(host.host())).filter(|host| !host.is_empty());
            // IPv6 addresses have brackets in a URL, but may be given without.
            let address = || name.parse::<IpAddr>().ok().map(|address| address.to_string());
            let invalid = || format!("invalid host: `{name}`; use a name or address without a port or `*`");
            address().or(host).with_context(invalid)
        });
        names.collect::<Result<_>>().map(Self)
    }

    /// Refuses a call that a web page of another site may have sent. A browser identifies such a page in `Origin`, in
    /// `Sec-Fetch-Site` and, if the page's own name points here (DNS rebinding), in `Host`. Other clients never send
    /// the first two, and send the server's name in `Host`. Calls with a token are not checked: no page knows one, and
    /// browsers do not add it.
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Denied> {
        let target = uri.authority().map(Authority::as_str);
        let mut hosts = Vec::with_capacity(2);
        let sent_hosts = headers.get_all(HOST).iter().map(|value| value.to_str().ok());
        for value in sent_hosts.chain(target.map(Some)) {
            let host = value.and_then(|value| value.parse::<Authority>().ok());
            let host = host.ok_or(Denied::ForeignHost)?;
            if !has_only_port(&host) || !self.allows(&canonical(host.host())) {
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
            let same_origin =
                |host: &Authority| origin.is_some_and(|origin| origin.as_str().eq_ignore_ascii_case(host.as_str()));
            if hosts.is_empty() || !hosts.iter().all(same_origin) {
                return Err(Denied::ForeignPage);
            }
        }
        Ok(())
    }

    fn allows(&self, host: &str) -> bool {
        let address = host.parse::<IpAddr>().ok();
        address.is_some_and(|address| address.to_canonical().is_loopback())
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.0.iter().any(|allowed| allowed == host)
    }
}

/// True if the host is followed by nothing but a port. `Authority::host` drops everything else too, as in
/// `[::1].example`.
fn has_only_port(authority: &Authority) -> bool {
    let host = authority.as_str();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let suffix = host.strip_prefix(authority.host()).unwrap_or(host);
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    suffix.is_empty() || suffix.strip_prefix(':').is_some_and(is_port)
}

/// Host in a form for comparison: lower case, no brackets, no trailing dot.
fn canonical(host: &str) -> String {
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
    use bytes::Bytes;
    use futures::FutureExt;
    use futures::channel::mpsc;
    use std::io;
    use std::pin::pin;

    fn access(token: Option<&str>, admin: Option<&str>) -> Access {
        let secret = |token: &str| Secret::new(token).unwrap();
        Access {
            token: token.map(secret),
            admin: admin.map(secret),
            hosts: Hosts::default(),
        }
    }

    fn headers(value: Option<&str>) -> HeaderMap {
        let header = value.map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap()));
        header.into_iter().collect()
    }

    #[test]
    fn each_call_wants_its_token() {
        let (infer, load) = ("/v2/models/m/infer", "/v2/repository/models/m/load");
        let grpc = "/inference.GRPCInferenceService/RepositoryModelUnload";
        let both = access(Some("aaa"), Some("bbb"));
        let only_admin = access(None, Some("bbb"));
        let only_token = access(Some("aaa"), None);
        let unknown = Err(Denied::Unknown);
        for (access, path, value, expected) in [
            (&both, infer, None, unknown),
            (&both, infer, Some("Bearer aaa"), Ok(())),
            (&both, infer, Some("bearer  aaa "), Ok(())),
            (&both, infer, Some("Bearer bbb"), Ok(())),
            (&both, infer, Some("Bearer aa"), unknown),
            (&both, infer, Some("Bearer aaaa"), unknown),
            (&both, infer, Some("Basic aaa"), unknown),
            (&both, infer, Some("aaa"), unknown),
            (&both, "/metrics", None, unknown),
            (&both, "/v2/health/live", None, Ok(())),
            (&both, "/", None, Ok(())),
            (&both, "/", Some("Bearer x"), Ok(())),
            (&both, "//", None, unknown),
            (&both, "", None, unknown),
            (&both, "/v2/health/ready", Some("Bearer x"), Ok(())),
            (&both, load, Some("Bearer aaa"), Err(Denied::NotAdmin)),
            (&both, load, Some("Bearer bbb"), Ok(())),
            (&both, load, None, unknown),
            (&both, grpc, Some("Bearer aaa"), Err(Denied::NotAdmin)),
            (&only_admin, infer, None, Ok(())),
            (&only_admin, load, None, unknown),
            (&only_admin, load, Some("Bearer bbb"), Ok(())),
            (&only_token, load, Some("Bearer aaa"), Ok(())),
            (&only_token, load, Some("Bearer bbb"), unknown),
        ] {
            assert_eq!(access.allows_token(path, &headers(value)), expected, "{path} {value:?}");
        }
    }

    #[test]
    fn tokens_are_words_and_never_shown() {
        for bad in ["", " \n", "two words", "ü", "a\0b"] {
            assert!(Secret::new(bad).is_err(), "{bad:?}");
        }
        let access = access(Some("very-secret\n"), None);
        assert!(access.token.as_ref().unwrap().matches(b"very-secret"));
        assert!(!format!("{access:?}").contains("very"));
    }

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
            assert!(changes_state(&Method::POST, path), "{path}");
            assert!(!changes_state(&Method::GET, path), "{path}");
        }
        for path in [
            "/v2/models/m/infer",
            "/v2/repository/index",
            "/inference.GRPCInferenceService/ModelInfer",
        ] {
            assert!(!changes_state(&Method::POST, path), "{path}");
        }
    }

    struct NoRoutes;

    impl Routes for NoRoutes {
        const FRONT: Front = Front::Http;

        async fn answer(&self, _: Request<Body>) -> Response {
            unreachable!("the request is refused")
        }
    }

    #[tokio::test]
    async fn a_small_body_over_http2_is_read_before_its_request_is_refused() {
        let access = access(Some("aaa"), None);
        let (client, body) = mpsc::channel::<io::Result<Bytes>>(1);
        let request = Request::post("/v2/models/m/infer").version(Version::HTTP_2);
        let request = request.body(Body::from_stream(body)).unwrap();
        let mut answered = pin!(access.answer(&NoRoutes, request));
        assert!(answered.as_mut().now_or_never().is_none());
        drop(client);
        assert_eq!(answered.await.status(), StatusCode::UNAUTHORIZED);
    }

    #[test]
    fn what_is_no_host_is_no_allowed_one() {
        for bad in ["", "a:80", "http://a", "a/b", "a b", "[::1].a", "u@a", "*", "*.example"] {
            assert!(Hosts::new([bad.to_owned()]).is_err(), "{bad:?}");
        }
        let hosts = Hosts::new(["Lab.Example.".to_owned(), "fd00::1".to_owned(), "[fd00::2]".to_owned()]).unwrap();
        assert_eq!(hosts.0, ["lab.example", "fd00::1", "fd00::2"]);
    }
}
