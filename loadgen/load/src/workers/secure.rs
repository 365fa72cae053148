//! TLS between a run and its agents. In: PEM files. Out: both sides' configurations. Files are read once.

use crate::endpoint::Identity;
use crate::endpoint::tls::{at, client_config, read_identity, roots};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Creates an agent's side: its own certificate, and with `client_ca` only runs with a certificate of that CA.
///
/// # Errors
/// A file that cannot be read or holds nothing of its kind.
pub fn acceptor(own: &Identity, client_ca: Option<&Path>) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(Some(ca))?), provider)
                .build()
                .map_err(|error| at(ca, "CA", &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = read_identity(own)?;
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| at(&own.cert, "certificate", &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Creates a run's side: agents must have a certificate of `ca`.
///
/// # Errors
/// A file that cannot be read or holds nothing of its kind.
pub fn connector(ca: &Path, own: Option<&Identity>) -> Result<TlsConnector, String> {
    Ok(TlsConnector::from(Arc::new(client_config(Some(ca), own)?)))
}
