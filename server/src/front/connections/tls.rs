//! TLS: loads certificates and keys from PEM files for a listener.
//!
//! In: paths. Out: an acceptor that offers HTTP/2 and HTTP/1.1, and requires client certificates if a CA for them is
//! set. Files are read once, at the start.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

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
    pub(crate) fn open(&self) -> Result<Option<Tls>, String> {
        let (certificate, key) = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) if self.client_ca.is_none() => return Ok(None),
            _ => {
                let what = "set `tls.certificate` and `tls.key` together, and `tls.client_ca` only with them";
                return Err(what.into());
            }
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
            .map_err(|e| format!("{} with {}: {e}", certificate.display(), key.display()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Some(Tls(TlsAcceptor::from(Arc::new(config)))))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| at(path, e))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(|e| at(path, e))?;
    if certificates.is_empty() {
        return Err(at(path, "contains no PEM certificate"));
    }
    Ok(certificates)
}

fn at(path: &Path, what: impl fmt::Display) -> String {
    format!("{}: {what}", path.display())
}
