//! Connections over TLS, with servers in the test's own runtime.

use super::{AccessSpec, Alpn, ConnectError, Endpoint, NoAnswer, Query};
use crate::reply::Limit;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;

/// Writes `ca.pem` to a folder, and returns the TLS acceptor of a server with a certificate for `name`.
pub(crate) fn acceptor(folder: &Path, name: &str, alpn: &[&[u8]]) -> TlsAcceptor {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), ca.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ca).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Returns access settings that trust the CA of a folder, with this host name.
pub(crate) fn trusting(folder: &Path, host: &str) -> AccessSpec {
    AccessSpec {
        host: Some(host.to_owned()),
        ca: Some(folder.join("ca.pem")),
        ..AccessSpec::default()
    }
}

/// Starts a server that answers every connection with a fixed reply.
async fn fixed(acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut buffer = [0; 4_096];
            if stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .await;
                let _ = stream.shutdown().await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_certificate_is_held_against_the_name_and_the_ca() {
    let folder = tempfile::tempdir().unwrap();
    let address = fixed(acceptor(folder.path(), "models.internal", &[b"http/1.1"])).await;
    let url = format!("https://{address}/p");
    let send = |spec: AccessSpec, url: String| async move {
        let endpoint = Endpoint::new(&url, &spec.open().unwrap()).unwrap();
        let answered = endpoint
            .send(Query::get("/x"), &Limit::of(100), Duration::from_secs(20))
            .await;
        answered.map(|answer| answer.body).map_err(|error| error.to_string())
    };
    let trusted = trusting(folder.path(), "models.internal");
    assert_eq!(send(trusted.clone(), url.clone()).await.unwrap(), "ok");
    let other_name = send(trusting(folder.path(), "other"), url.clone()).await.unwrap_err();
    assert!(other_name.contains("--host-header"), "{other_name}");
    let elsewhere = tempfile::tempdir().unwrap();
    acceptor(elsewhere.path(), "models.internal", &[]);
    let other_ca = send(trusting(elsewhere.path(), "models.internal"), url.clone())
        .await
        .unwrap_err();
    assert!(other_ca.contains("--ca"), "{other_ca}");
    // A server without TLS has another message than an untrusted one.
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain_url = format!("https://{}", plain.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let mut buffer = [0; 4_096];
        while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    });
    let no_tls = send(trusted, plain_url).await.unwrap_err();
    assert!(no_tls.contains("does not use TLS"), "{no_tls}");
}

#[tokio::test]
async fn a_server_without_http2_is_no_grpc_server() {
    let folder = tempfile::tempdir().unwrap();
    let address = fixed(acceptor(folder.path(), "h", &[b"http/1.1"])).await;
    let access = trusting(folder.path(), "h").open().unwrap();
    let endpoint = Endpoint::new(&format!("https://{address}"), &access).unwrap();
    assert!(endpoint.connect(Alpn::Http1).await.is_ok());
    let error = endpoint.connect(Alpn::Http2).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls(_)), "{error}");
}

#[test]
fn a_missing_certificate_is_named_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let access = trusting(folder.path(), "h").open().unwrap();
    let error = Endpoint::new("https://127.0.0.1:1", &access).unwrap_err().to_string();
    assert!(error.contains("ca.pem") && error.contains("`target.ca`"), "{error}");
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let endpoint = Endpoint::new(&format!("http://{closed}"), &AccessSpec::default().open().unwrap()).unwrap();
    let answered = endpoint
        .send(Query::get("/"), &Limit::of(100), Duration::from_secs(20))
        .await;
    let is_unreachable = matches!(answered, Err(NoAnswer::Connect(ConnectError::Unreachable(_))));
    assert!(is_unreachable, "{answered:?}");
}
