//! Foreign servers in threads of the test: HTTP/1.1 with or without TLS, answering by a function.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// Received request.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Headers by their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// Status and body.
pub(crate) type Reply = (u16, String);

type Answer = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

/// Serves on a free port and returns its address; ends with the test's process.
pub(crate) fn site(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> u16 {
    start(Arc::new(answer), None)
}

/// Serves behind TLS.
pub(crate) fn secure_site(tls: &Arc<ServerConfig>, answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> u16 {
    start(Arc::new(answer), Some(Arc::clone(tls)))
}

fn start(answer: Answer, tls: Option<Arc<ServerConfig>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.set_nodelay(true);
            let (answer, tls) = (Arc::clone(&answer), tls.clone());
            thread::spawn(move || match tls {
                None => serve(stream, &answer),
                Some(tls) => serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream), &answer),
            });
        }
    });
    port
}

fn serve(stream: impl Read + Write, answer: &Answer) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream) {
        let (status, body) = answer(&asked);
        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.get_mut().write_all(text.as_bytes()).is_err() || stream.get_mut().flush().is_err() {
            return;
        }
    }
}

fn read<S: Read>(stream: &mut BufReader<S>) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(Some(0), |text| text.parse().ok())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Asked {
        method,
        path,
        headers,
        body: String::from_utf8(body).ok()?,
    })
}

/// Writes `ca.pem`, `client.pem` and `client.key` to a folder, and returns a server's configuration: for
/// `models.internal`, and only for clients with the certificate.
pub(crate) fn certificates(folder: &Path) -> Arc<ServerConfig> {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let signed = |name: &str, usage| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &ca).unwrap(), key)
    };
    let (client, client_key) = signed("client", ExtendedKeyUsagePurpose::ClientAuth);
    std::fs::write(folder.join("ca.pem"), ca.pem()).unwrap();
    std::fs::write(folder.join("client.pem"), client.pem()).unwrap();
    std::fs::write(folder.join("client.key"), client_key.serialize_pem()).unwrap();
    let (server, server_key) = signed("models.internal", ExtendedKeyUsagePurpose::ServerAuth);
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![server.der().clone()],
            PrivateKeyDer::try_from(server_key.serialize_der()).unwrap(),
        )
        .unwrap();
    Arc::new(config)
}

/// True if a server listens on the port.
pub(crate) fn is_listening(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}
