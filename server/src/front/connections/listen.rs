//! Listeners: TLS, and the open-file limit for their connections.
//!
//! In: an address and a backlog; the bounds of connections; paths of certificates. Out: a listener; bounds that fit the
//! process's limit of open files, which is raised as far as possible; an acceptor that offers HTTP/2 and HTTP/1.1, and
//! requires client certificates if a CA for them is set. Files are read once, at the start.

use crate::Millis;
use anyhow::{Result, anyhow, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Maximum connections that are closing. Above it, a new connection is accepted only once one of them is closed.
pub(super) const MAX_CLOSING: usize = 16;
/// Files reserved for everything but connections: tiers, models, the log. Fewer if the limit is low.
const OTHER_FILES: u64 = 256;

/// Listens on an address. The kernel lets `backlog` connections wait to be accepted, or `net.core.somaxconn` if that is
/// less; std and tokio do not offer this setting.
///
/// # Errors
/// Fails if the address is unavailable.
pub fn listen(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// Raises the process's limit of open files to its maximum, and lowers the bounds of connections to what fits into it;
/// each of `fronts` listeners has such bounds. Logs both.
pub(crate) fn fit_files(bounds: Bounds, fronts: u64) -> Bounds {
    let limit = match raise_files() {
        Ok(limit) => limit,
        Err(error) => {
            tracing::warn!(%error, "cannot read the limit of open files: `connections.max` may exceed it");
            return bounds;
        }
    };
    let fitting = fitting(bounds, fronts, limit);
    if fitting.max < bounds.max {
        tracing::warn!(
            max = fitting.max,
            wanted = bounds.max,
            files = limit,
            "lowered `connections.max` to the limit of open files: raise that limit (`ulimit -Hn`, LimitNOFILE=)"
        );
    }
    fitting
}

/// Raises the limit and returns it.
fn raise_files() -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= hard {
        return Ok(soft);
    }
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => {
            tracing::info!(from = soft, to = hard, "raised the limit of open files");
            Ok(hard)
        }
        Err(error) => {
            tracing::warn!(%error, soft, hard, "cannot raise the limit of open files");
            Ok(soft)
        }
    }
}

fn fitting(bounds: Bounds, fronts: u64, limit: u64) -> Bounds {
    let free = (limit - OTHER_FILES.min(limit / 4)) / fronts.max(1);
    let reserved = (bounds.health_places + MAX_CLOSING) as u64;
    let max = bounds
        .max
        .min(usize::try_from(free.saturating_sub(reserved).max(1)).unwrap_or(usize::MAX));
    let mut fitting = Bounds {
        max,
        max_per_address: None,
        ..bounds
    };
    fitting.max_per_address = Some(bounds.per_address().min(fitting.per_address()));
    fitting
}

/// Bounds on connections, and on the time of slow clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Bounds {
    /// Maximum open connections.
    pub(crate) max: usize,
    /// Maximum connections of one client address (default: a share of `max`).
    pub(crate) max_per_address: Option<usize>,
    /// Additional connections, on which only health requests are answered.
    pub(crate) health_places: usize,
    /// Maximum connections that wait to be accepted.
    pub(crate) backlog: u32,
    /// Time limit of a request's head, in milliseconds; also closes connections without a request.
    #[serde(rename = "header_timeout_ms", with = "Millis")]
    pub(crate) header_timeout: Duration,
    /// Time limit for a client to read the next part of a reply, in milliseconds.
    #[serde(rename = "write_timeout_ms", with = "Millis")]
    pub(crate) write_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max: 4096,
            max_per_address: None,
            health_places: 16,
            backlog: 4096,
            header_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
        }
    }
}

impl Bounds {
    /// Maximum connections of one client address (default: enough for a proxy in front of all clients, but never all).
    pub(crate) fn per_address(&self) -> usize {
        let share = self.max - self.max / 4;
        self.max_per_address.unwrap_or(share)
    }
}

/// `[tls]`: paths of the PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsFiles {
    /// Server certificate and its intermediate certificates.
    pub(crate) certificate: Option<PathBuf>,
    /// Private key of the certificate.
    pub(crate) key: Option<PathBuf>,
    /// CA certificates; clients must show a certificate signed by one of them.
    pub(crate) client_ca: Option<PathBuf>,
}

/// TLS acceptor. It holds the private key and never prints it.
#[derive(Clone)]
pub(crate) struct Tls(pub(super) TlsAcceptor);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl TlsFiles {
    /// Reads the files; `None` if there are none.
    ///
    /// # Errors
    /// Fails if a certificate has no key, or if a file cannot be read, contains no PEM item of its kind, or does not
    /// match the others. The message names it.
    pub(crate) fn open(&self) -> Result<Option<Tls>> {
        let (certificate, key) = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) if self.client_ca.is_none() => return Ok(None),
            _ => bail!("set `tls.certificate` and `tls.key` together, and `tls.client_ca` only with them"),
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| at(certificate, e))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|e| at(path, e))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| at(path, e))?)
            }
        };
        let private = PrivateKeyDer::from_pem_file(key).map_err(|e| at(key, e))?;
        let mut config = builder
            .with_single_cert(certificates(certificate)?, private)
            .map_err(|e| anyhow!("{} with {}: {e}", certificate.display(), key.display()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Some(Tls(TlsAcceptor::from(Arc::new(config)))))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| at(path, e))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(|e| at(path, e))?;
    if certificates.is_empty() {
        return Err(at(path, "contains no PEM certificate"));
    }
    Ok(certificates)
}

fn at(path: &Path, reason: impl fmt::Display) -> anyhow::Error {
    anyhow!("{}: {reason}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_fit_into_the_files_there_are() {
        let bounds = Bounds {
            max: 4096,
            ..Bounds::default()
        };
        let max = |fronts, limit| fitting(bounds, fronts, limit).max;
        assert_eq!((max(1, 1 << 20), max(2, 1 << 20), max(2, u64::MAX)), (4096, 4096, 4096));
        assert_eq!(max(1, 1024), 1024 - 256 - 32);
        assert_eq!(max(2, 1024), 384 - 32);
        assert_eq!((max(2, 64), max(2, 0)), (1, 1));
        assert_eq!(fitting(bounds, 1, 1024).max_per_address, Some(736 - 184));
        let own = Bounds {
            max_per_address: Some(10),
            ..bounds
        };
        assert_eq!(fitting(own, 1, 1024).max_per_address, Some(10));
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_and_a_free_one_is_taken() {
        let open = listen("127.0.0.1:0".parse().unwrap(), 16).unwrap();
        let error = listen(open.local_addr().unwrap(), 16).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
