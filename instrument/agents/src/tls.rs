//! TLS of clients, and of a run and its agents. In: PEM files, read once. Out: configurations, by default with the system's roots.

use anyhow::{Result, anyhow, bail};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A client's certificate and its key, both PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Certificate with its intermediates.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Creates an agent's settings: its own certificate, and if `client_ca` is given, only runs with a certificate of that CA.
///
/// # Errors
/// A file is unreadable or lacks the expected content.
pub fn server_config(identity: &Identity, client_ca: Option<&Path>) -> Result<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| anyhow!("TLS: {error}"))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(Some(ca))?), provider)
                .build()
                .map_err(|error| file_error(ca, "CA", &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = read_identity(identity)?;
    let config = builder.with_single_cert(chain, key);
    config.map_err(|error| file_error(&identity.cert, "certificate", &error))
}

/// Creates the settings of a client that trusts `ca` (default: the system's roots).
///
/// # Errors
/// A file is unreadable or lacks the expected content.
pub fn client_config(ca: Option<&Path>, identity: Option<&Identity>) -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| anyhow!("TLS: {error}"))?
        .with_root_certificates(roots(ca)?);
    let Some(identity) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let (chain, key) = read_identity(identity)?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| anyhow!("{} with {}: {error}", identity.cert.display(), identity.key.display()))
}

/// Reads a certificate with its intermediates, and its key.
///
/// # Errors
/// A file is unreadable or lacks the expected content.
fn read_identity(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let key = PrivateKeyDer::from_pem_file(&identity.key).map_err(|error| file_error(&identity.key, "key", &error))?;
    Ok((certificates(&identity.cert)?, key))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| file_error(path, "CA", &error))?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        bail!("this system has no trusted certificates: pass the server's CA with --ca FILE (`target.ca`)");
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| file_error(path, "certificates", &error))?;
    if certificates.is_empty() {
        bail!("{}: no PEM certificate", path.display());
    }
    Ok(certificates)
}

fn file_error(path: &Path, what: &str, error: &dyn fmt::Display) -> anyhow::Error {
    anyhow!("{} ({what}): {error}", path.display())
}
