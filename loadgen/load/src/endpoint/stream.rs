//! Connections to one server, with or without TLS. In: an address and access settings. Out: byte streams after their
//! handshake.

use super::access::Access;
use super::address::Address;
use super::tls::{Alpn, Tls};
use hyper::header::{HeaderMap, HeaderValue};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::either::Either;

/// Time limit for a connection, its handshake included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// An open connection, without or with TLS.
pub type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

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
    pub fn new(url: &str, access: &Access) -> Result<Self, String> {
        let address = Address::parse(url)?;
        let called = access.host.as_deref().unwrap_or(&address.authority);
        let authority = HeaderValue::from_str(called).map_err(|_| format!("invalid server name: `{called}`"))?;
        let tls = address
            .secure
            .then(|| {
                let host = access.host.as_deref().map_or(address.host.as_str(), without_port);
                Tls::new(access, host)
            })
            .transpose()?;
        Ok(Self {
            authority,
            headers: access.headers.clone(),
            tls,
            address,
        })
    }

    /// Creates an endpoint at another URL with the same access. Headers and token are used only if its address is of
    /// the same server, for which they were given.
    ///
    /// # Errors
    /// Those of [`Endpoint::new`].
    pub fn beside(&self, url: &str, access: &Access) -> Result<Self, String> {
        let address = Address::parse(url)?;
        if address.is_same_origin(&self.address) {
            return Self::new(url, access);
        }
        let stranger = Access {
            host: None,
            headers: HeaderMap::new(),
            ..access.clone()
        };
        Self::new(url, &stranger)
    }

    /// TLS settings for another HTTP/1.1 client: roots, and the client's own certificate.
    #[must_use]
    pub(crate) fn tls_config(&self) -> Option<&ClientConfig> {
        self.tls.as_ref().map(Tls::http1)
    }

    /// Returns the name that its certificate must have: a host name or an IP address without brackets.
    #[must_use]
    pub(crate) fn tls_name(&self) -> Option<String> {
        Some(self.tls.as_ref()?.name.to_str().into_owned())
    }

    /// Returns a path with the server's prefix.
    #[must_use]
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.address.prefix)
    }

    /// Connects, with a handshake if the server uses TLS.
    ///
    /// # Errors
    /// The reason for the failed connection, with advice if there is any.
    pub async fn connect(&self, alpn: Alpn) -> Result<Stream, String> {
        match tokio::time::timeout(CONNECT_LIMIT, self.open(alpn)).await {
            Ok(done) => done,
            Err(_) => Err(format!("no connection in {} s", CONNECT_LIMIT.as_secs())),
        }
    }

    async fn open(&self, alpn: Alpn) -> Result<Stream, String> {
        let Address { host, port, .. } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| format!("no connection ({error})"))?;
        // Otherwise small requests wait for the other side's acknowledgement.
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(tls) = &self.tls else {
            return Ok(Stream::Left(stream));
        };
        let shaken = tls.connector(alpn).connect(tls.name.clone(), stream).await;
        let stream = shaken.map_err(|error| format!("no TLS connection: {}", explained(&error)))?;
        if alpn == Alpn::Http2 && stream.get_ref().1.alpn_protocol().is_some_and(|chosen| chosen != b"h2") {
            return Err("no TLS connection: the server does not offer HTTP/2".to_owned());
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
fn explained(error: &io::Error) -> String {
    let text = error.to_string();
    let hint = if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        "; pass the certificate of its CA by --ca FILE (`target.ca`)"
    } else if text.contains("not valid for name") || text.contains("NotValidForName") {
        "; its certificate is for another name: pass that name by --host-header NAME (`target.host`)"
    } else if text.contains("CaUsedAsEndEntity") {
        "; it is a CA certificate: create a server certificate with `openssl req -x509 ... -addext basicConstraints=critical,CA:FALSE`"
    } else if text.contains("Expired") {
        "; its certificate has expired, by this machine's clock"
    } else if text.contains("CertificateRequired") || text.contains("certificate required") {
        "; it requires a client certificate: pass --cert FILE --key FILE (`target.cert`, `target.key`)"
    } else if text.contains("InvalidContentType") || text.contains("corrupt message") {
        "; the server does not use TLS: try http://"
    } else {
        ""
    };
    format!("{text}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{AccessSpec, Header};

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
        let same = server.beside("http://h:1/metrics", &access).unwrap();
        let other = server.beside("http://h:2/metrics", &access).unwrap();
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
}
