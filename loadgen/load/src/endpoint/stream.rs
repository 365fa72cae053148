//! Address of a server, and connections to it, with or without TLS. In: a URL and access settings. Out: the parts of
//! the URL, and byte streams after their handshake.

use super::access::Access;
use crate::redact;
use anyhow::{anyhow, bail, ensure};
use hyper::header::{HeaderMap, HeaderValue};
use reqwest::Url;
use rustls_pki_types::ServerName;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tierlab_agents::tls::client_config;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, ClientConfig};
use tokio_util::either::Either;

/// Time limit for a connection, its handshake included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Reason for a failed connection, with advice if there is any.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server cannot be reached.
    #[error("no connection ({0})")]
    Unreachable(io::Error),
    /// No connection within the time limit, its handshake included.
    #[error("no connection in {} s", CONNECT_LIMIT.as_secs())]
    Timeout,
    /// Failed handshake.
    #[error("no TLS connection: {0}")]
    Tls(String),
}

/// An open connection, without or with TLS.
pub type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// True for TLS.
    pub secure: bool,
    /// Name or IP address, without brackets.
    pub host: String,
    /// Port number.
    pub port: u16,
    /// Authority in requests: HOST, with the port unless it is the scheme's default.
    pub authority: String,
    /// Prefix of every path, such as `/prefix`; may be empty.
    pub prefix: String,
}

impl Address {
    /// Parses `http://HOST:PORT/PREFIX` or `https://…`.
    ///
    /// # Errors
    /// An invalid address, or one with more parts. The extra parts are not quoted, since they may be secret.
    pub fn parse(url: &str) -> anyhow::Result<Self> {
        let shown = redact::urls(url);
        let parsed: Url = url.parse().map_err(|_| {
            anyhow!("{shown}: invalid URL; give one such as http://127.0.0.1:8000 or https://host:8443/prefix")
        })?;
        let secure = match parsed.scheme() {
            "http" => false,
            "https" => true,
            other => bail!(
                "{shown}: `{other}://` is not supported; give the address as http://HOST:PORT or https://HOST:PORT/PREFIX"
            ),
        };
        let has_user = !parsed.username().is_empty() || parsed.password().is_some();
        ensure!(
            !has_user && parsed.query().is_none() && parsed.fragment().is_none(),
            "{shown}: give the server's address without a name, a password or a token, and without `?` and `#`: it is stored in the \
             result; give a bearer token by --token-env NAME or --token-file FILE"
        );
        let (Some(named), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
            bail!("{shown}: host is missing");
        };
        // Without the scheme's default port.
        let authority = match parsed.port() {
            None => named.to_owned(),
            Some(port) => format!("{named}:{port}"),
        };
        Ok(Self {
            secure,
            host: named.trim_matches(['[', ']']).to_owned(),
            port,
            authority,
            prefix: parsed.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Scheme of its URL.
    pub const fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// URL with the prefix, without a slash at its end.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority, self.prefix)
    }

    /// True if another address belongs to the same server, judged by the URLs.
    pub fn is_same_origin(&self, other: &Self) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }
}

/// Protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2, as required by gRPC.
    Http2,
}

/// TLS settings for one server. It holds the private key and never prints it.
#[derive(Clone)]
struct Tls {
    http1: TlsConnector,
    http2: TlsConnector,
    /// Name that the certificate must have.
    name: ServerName<'static>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

impl Tls {
    /// Creates the settings for a server of that name.
    ///
    /// # Errors
    /// A file that cannot be read or has no certificate or key, or an invalid certificate name.
    fn new(access: &Access, host: &str) -> anyhow::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| anyhow!("invalid certificate name: `{host}`"))?;
        let keys = "--ca, --cert, --key, `target.ca`, `target.cert`, `target.key`";
        let config = client_config(access.spec.ca.as_deref(), access.spec.identity.as_ref());
        let config = config.map_err(|error| anyhow!("{error} ({keys})"))?;
        let offering = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        Ok(Self {
            http1: offering(b"http/1.1"),
            http2: offering(b"h2"),
            name,
        })
    }
}

/// Server with its access settings.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Address of the server.
    pub address: Address,
    /// Authority of requests: the header Host, and `:authority`.
    pub authority: HeaderValue,
    /// Headers of every request: the configured ones, and the token.
    pub headers: HeaderMap,
    tls: Option<Tls>,
}

impl Endpoint {
    /// Creates an endpoint at a URL.
    ///
    /// # Errors
    /// An invalid address, or certificates that cannot be read.
    pub fn new(url: &str, access: &Access) -> anyhow::Result<Self> {
        let address = Address::parse(url)?;
        let host = access.spec.host.as_deref();
        let called = host.unwrap_or(&address.authority);
        let authority = HeaderValue::from_str(called).map_err(|_| anyhow!("invalid server name: `{called}`"))?;
        let host = host.map_or(address.host.as_str(), without_port);
        let tls = address.secure.then(|| Tls::new(access, host));
        Ok(Self {
            authority,
            headers: access.headers.clone(),
            tls: tls.transpose()?,
            address,
        })
    }

    /// Creates an endpoint at another URL with the same access. Headers and token are used only if its address is of
    /// the same server, for which they were given.
    ///
    /// # Errors
    /// Those of [`Endpoint::new`].
    pub fn with_same_access(&self, url: &str, access: &Access) -> anyhow::Result<Self> {
        let address = Address::parse(url)?;
        if address.is_same_origin(&self.address) {
            return Self::new(url, access);
        }
        let mut anonymous = access.clone();
        anonymous.spec.host = None;
        anonymous.headers.clear();
        Self::new(url, &anonymous)
    }

    /// TLS settings for another HTTP/1.1 client: roots, and the client's own certificate.
    pub(crate) fn tls_config(&self) -> Option<&ClientConfig> {
        self.tls.as_ref().map(|tls| tls.http1.config().as_ref())
    }

    /// Returns the name that its certificate must have: a host name or an IP address without brackets.
    pub(crate) fn tls_name(&self) -> Option<String> {
        Some(self.tls.as_ref()?.name.to_str().into_owned())
    }

    /// Returns a path with the server's prefix.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.address.prefix)
    }

    /// Connects, with a handshake if the server uses TLS.
    ///
    /// # Errors
    /// The reason for the failed connection, with advice if there is any.
    pub async fn connect(&self, alpn: Alpn) -> Result<Stream, ConnectError> {
        let opened = tokio::time::timeout(CONNECT_LIMIT, self.open(alpn)).await;
        opened.unwrap_or(Err(ConnectError::Timeout))
    }

    async fn open(&self, alpn: Alpn) -> Result<Stream, ConnectError> {
        let Address { host, port, .. } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(ConnectError::Unreachable)?;
        // Otherwise small requests wait for the other side's acknowledgement.
        stream.set_nodelay(true).map_err(ConnectError::Unreachable)?;
        let Some(tls) = &self.tls else {
            return Ok(Stream::Left(stream));
        };
        let connector = match alpn {
            Alpn::Http1 => &tls.http1,
            Alpn::Http2 => &tls.http2,
        };
        let handshake = connector.connect(tls.name.clone(), stream).await;
        let stream = handshake.map_err(|error| ConnectError::Tls(explain(&error)))?;
        if alpn == Alpn::Http2 && stream.get_ref().1.alpn_protocol().is_some_and(|chosen| chosen != b"h2") {
            return Err(ConnectError::Tls("the server does not offer HTTP/2".to_owned()));
        }
        Ok(Stream::Right(Box::new(stream)))
    }
}

fn without_port(host: &str) -> &str {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && !name.ends_with(':') => name.trim_matches(['[', ']']),
        _ => host.trim_matches(['[', ']']),
    }
}

/// Describes a failed handshake, with advice.
fn explain(error: &io::Error) -> String {
    use CertificateError as Bad;
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let hint = match cause {
        Some(rustls::Error::InvalidCertificate(bad)) => match bad {
            Bad::UnknownIssuer | Bad::BadSignature => "; pass the certificate of its CA by --ca FILE (`target.ca`)",
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "; its certificate is for another name: pass that name by --host-header NAME (`target.host`)"
            }
            Bad::Expired | Bad::ExpiredContext { .. } => "; its certificate has expired, by this machine's clock",
            // An error of a crate below rustls, which only shows its text.
            Bad::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                "; it is a CA certificate: create a server certificate with `openssl req -x509 ... -addext basicConstraints=critical,CA:FALSE`"
            }
            _ => "",
        },
        Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "; it requires a client certificate: pass --cert FILE --key FILE (`target.cert`, `target.key`)"
        }
        Some(rustls::Error::InvalidMessage(_)) => "; the server does not use TLS: try http://",
        _ => "",
    };
    format!("{error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{AccessSpec, Header};
    use proptest::prelude::*;

    #[test]
    fn what_was_given_for_one_server_goes_to_no_other() {
        let access = AccessSpec {
            host: Some("models.internal:9".into()),
            headers: vec![Header {
                name: "x-key".into(),
                value: "S3CRET".into(),
            }],
            ..AccessSpec::default()
        }
        .open()
        .unwrap();
        let server = Endpoint::new("http://h:1/p", &access).unwrap();
        assert_eq!(server.authority, "models.internal:9");
        let same = server.with_same_access("http://h:1/metrics", &access).unwrap();
        let other = server.with_same_access("http://h:2/metrics", &access).unwrap();
        assert_eq!(same.headers.len(), 1);
        assert_eq!(
            (other.headers.len(), &other.authority),
            (0, &HeaderValue::from_static("h:2"))
        );
        assert!(!format!("{server:?}").contains("S3CRET"));
    }

    #[test]
    fn a_name_is_told_from_its_port() {
        for (host, name) in [("h", "h"), ("h:1", "h"), ("[::1]:8", "::1"), ("10.0.0.1:1", "10.0.0.1")] {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn addresses_are_taken_apart() {
        for (url, authority, prefix, again) in [
            ("http://localhost", "localhost", "", "http://localhost"),
            ("http://localhost:80/", "localhost", "", "http://localhost"),
            ("http://[::1]:8000/a/b/", "[::1]:8000", "/a/b", "http://[::1]:8000/a/b"),
            ("https://h", "h", "", "https://h"),
            ("https://h:8443/models", "h:8443", "/models", "https://h:8443/models"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(
                (address.authority.as_str(), address.prefix.as_str()),
                (authority, prefix)
            );
            assert_eq!(address.url(), again);
        }
        assert_eq!(Address::parse("http://[::1]:8000").unwrap().host, "::1");
        assert_eq!(Address::parse("https://h").unwrap().port, 443);
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_secrets() {
        for bad in [
            "127.0.0.1:8000",
            "grpc://h:1",
            "nonsense",
            "",
            "http://user:S3CRET@h:1",
            "http://h:1/?token=S3CRET",
            "http://h:1/#S3CRET",
            "http://u:S3CRET@h:x",
        ] {
            let error = Address::parse(bad).unwrap_err();
            assert!(!error.to_string().contains("S3CRET"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z:/@?#\\[\\].0-9]{0,40}") {
            if let Ok(address) = Address::parse(&text) {
                prop_assert_eq!(Address::parse(&address.url()).unwrap(), address);
            }
        }
    }
}
