//! TLS: certificates and keys from PEM files to what a listener needs.
//!
//! In: paths. Out: an acceptor that offers HTTP/2 and HTTP/1.1, and asks clients for certificates where a CA for them is
//! named. Files are read once, at the start.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// Paths of the PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The server's certificate, and those between it and its root.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// Clients must show a certificate that one of these has signed.
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
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read, holds nothing of its kind, or does not fit the others; the message names it.
    pub(crate) fn open(&self) -> Result<Tls, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let at = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let tls = |e: rustls::Error| at(&self.certificate, &e);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(tls)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|e| at(path, &e))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| at(path, &e))?)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| at(&self.key, &e))?;
        let mut config = builder
            .with_single_cert(certificates(&self.certificate)?, key)
            .map_err(|e| format!("{} with {}: {e}", self.certificate.display(), self.key.display()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let read = CertificateDer::pem_file_iter(path).map_err(|e| at(&e))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(|e| at(&e))?;
    if certificates.is_empty() {
        return Err(at(&"holds no certificate in PEM"));
    }
    Ok(certificates)
}
