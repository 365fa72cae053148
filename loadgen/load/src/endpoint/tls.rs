//! TLS of a client of the measured server. In: access settings. Out: configurations for HTTP/1.1 and HTTP/2.

use super::access::Access;
use rustls_pki_types::ServerName;
use std::fmt;
use std::sync::Arc;
use tierlab_agents::tls::client_config;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

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
pub(super) struct Tls {
    http1: TlsConnector,
    http2: TlsConnector,
    /// Name that the certificate must have.
    pub(super) name: ServerName<'static>,
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
    pub(super) fn new(access: &Access, host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("invalid certificate name: `{host}`"))?;
        let config = client_config(access.ca.as_deref(), access.identity.as_ref())?;
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

    /// Settings for HTTP/1.1.
    pub(super) fn http1(&self) -> &ClientConfig {
        self.http1.config()
    }

    pub(super) const fn connector(&self, alpn: Alpn) -> &TlsConnector {
        match alpn {
            Alpn::Http1 => &self.http1,
            Alpn::Http2 => &self.http2,
        }
    }
}
