//! Tokens and TLS, on a real server process.

use crate::grpc::{call as grpc_call, raw, serve, wire};
use crate::harness::{Data, Server, mlp_input, on_tier};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::path::Path;
use std::sync::Arc;
use tierlab_models::generators::ModelKind;
use tierlab_protocol::grpc::messages::{
    Empty, ModelInferRequest, ModelInferResponse, RepositoryModelRequest, ServerLiveResponse,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::{Code, Request, Response, Status};

#[tokio::test]
async fn calls_want_their_token_and_the_log_does_not_hold_it() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let (token, admin) = (data.path("token"), data.path("admin"));
    std::fs::write(&token, "token-for-all\n").unwrap();
    std::fs::write(&admin, "token-for-admins\n").unwrap();
    let set = [
        format!("access.token_file={}", token.display()),
        format!("access.admin_token_file={}", admin.display()),
        "admin.enabled=true".to_owned(),
        "repository.control=explicit".to_owned(),
        "models=[\"*\"]".to_owned(),
    ];
    let server = serve(&data, "memory", &set.each_ref().map(String::as_str));
    let load = "/v2/repository/models/mlp/load";
    for (method, path, bearer, status) in [
        ("GET", "/v2/health/live", None, 200),
        ("GET", "/v2/health/ready", None, 200),
        ("GET", "/", None, 200),
        ("GET", "/v2", None, 401),
        ("GET", "/metrics", None, 401),
        ("GET", "/v2/models/mlp", Some("token-for-all"), 200),
        ("GET", "/v2/models/mlp", Some("token-for-al"), 401),
        ("POST", load, None, 401),
        ("POST", load, Some("token-for-all"), 403),
        ("POST", load, Some("token-for-admins"), 200),
        ("GET", "/metrics", Some("token-for-admins"), 200),
    ] {
        let request = server.client.request(method.parse().unwrap(), server.url(path));
        let request = match bearer {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let reply = crate::harness::Reply::of(request.send().await.unwrap()).await;
        assert_eq!(reply.status, status, "{method} {path} {bearer:?}: {}", reply.text());
        if status == 401 {
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            assert!(reply.error().contains("Bearer"), "{}", reply.text());
        }
    }
    let infer = server.infer_request("mlp", mlp_input(1));
    assert_eq!(infer.try_clone().unwrap().send().await.unwrap().status(), 401);
    assert_eq!(infer.bearer_auth("token-for-all").send().await.unwrap().status(), 200);
    // A gRPC call that comes to the HTTP front is answered as HTTP is: a proxy that reads statuses must not take it for served.
    for path in [
        "/v2/models/mlp/infer",
        "/inference.GRPCInferenceService/ModelInfer",
        "/metrics",
    ] {
        let call = server
            .client
            .post(server.url(path))
            .header("content-type", "application/grpc");
        let reply = crate::harness::Reply::of(call.send().await.unwrap()).await;
        assert_eq!(
            (reply.status, reply.header("grpc-status")),
            (401, None),
            "{path}: {}",
            reply.text()
        );
        assert!(reply.error().contains("Bearer"), "{}", reply.text());
    }
    calls_want_their_token_over_grpc(&server).await;
    assert!(!server.log().contains("token-for"), "{}", server.log());
}

#[test]
fn a_folders_name_forges_no_line_of_the_log() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let forged = "2026-01-01T00:00:00Z ERROR forged";
    std::fs::create_dir(data.path(&format!("models/a\n{forged}"))).unwrap();
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let line = server.logged(&["skipped in listing"]);
    assert!(
        line.contains("folder=\"models\"") && line.contains(&format!("a\\n{forged}")),
        "{line}"
    );
    assert!(
        !server.log().lines().any(|line| line.starts_with(forged)),
        "{}",
        server.log()
    );
}

async fn calls_want_their_token_over_grpc(server: &Server) {
    fn with<Q>(message: Q, token: Option<&str>) -> Request<Q> {
        let mut request = Request::new(message);
        if let Some(token) = token {
            let bearer = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", bearer);
        }
        request
    }
    let code = |reply: Result<(), Status>| reply.err().map(|status| (status.code(), status.message().to_owned()));
    let (all, admins) = (Some("token-for-all"), Some("token-for-admins"));
    let live: Response<ServerLiveResponse> = grpc_call(wire(server), "ServerLive", with(Empty {}, all))
        .await
        .unwrap();
    assert!(live.into_inner().live);
    for (token, expected) in [
        (None, Some(Code::Unauthenticated)),
        (Some("token-for-al"), Some(Code::Unauthenticated)),
        (all, None),
        (admins, None),
    ] {
        let request = with(raw("mlp", mlp_input(1)), token);
        let reply: Result<Response<ModelInferResponse>, Status> = grpc_call(wire(server), "ModelInfer", request).await;
        let refused = code(reply.map(drop));
        assert_eq!(refused.as_ref().map(|(code, _)| *code), expected, "{token:?}");
        assert!(
            refused.is_none_or(|(_, message)| message.contains("Bearer")),
            "{token:?}"
        );
    }
    for (token, expected) in [
        (None, Some(Code::Unauthenticated)),
        (all, Some(Code::PermissionDenied)),
        (admins, None),
    ] {
        let load = RepositoryModelRequest {
            model_name: "mlp".into(),
            ..RepositoryModelRequest::default()
        };
        let reply: Result<Response<Empty>, Status> =
            grpc_call(wire(server), "RepositoryModelLoad", with(load, token)).await;
        assert_eq!(code(reply.map(drop)).map(|(code, _)| code), expected, "{token:?}");
    }
}

/// A certificate authority, a server's certificate and a client's, as PEM files in a folder.
fn certificates(folder: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    for name in ["localhost", "client"] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &authority).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// Connects over TLS.
async fn connect(
    address: &str,
    folder: &Path,
    alpn: &[&str],
    with_certificate: bool,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(folder.join("ca.pem")).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = if with_certificate {
        let certificate = CertificateDer::from_pem_file(folder.join("client.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.join("client.key")).unwrap();
        builder.with_client_auth_cert(vec![certificate], key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Calls `/v2/health/live` over TLS; the protocol agreed upon, and the first bytes of the reply.
async fn call(
    address: &str,
    folder: &Path,
    alpn: &[&str],
    with_certificate: bool,
) -> std::io::Result<(String, String)> {
    let mut stream = connect(address, folder, alpn, with_certificate).await?;
    let agreed = String::from_utf8_lossy(stream.get_ref().1.alpn_protocol().unwrap_or_default()).into_owned();
    if agreed == "h2" {
        // The preface and empty settings; the reply begins with the server's settings frame.
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
            .await?;
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).await?;
        return Ok((agreed, format!("frame {}", frame[3])));
    }
    stream
        .write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    Ok((agreed, String::from_utf8_lossy(&reply).into_owned()))
}

/// One `ModelInfer` over TLS.
async fn infer_over_tls(
    server: &Server,
    folder: &Path,
    with_certificate: bool,
) -> Result<ModelInferResponse, Box<dyn std::error::Error>> {
    let address = server.grpc_address.as_ref().expect("gRPC is served");
    let stream = connect(address, folder, &["h2"], with_certificate).await?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let service = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        let mut sender = sender.clone();
        async move { sender.send_request(request).await }
    });
    let wire = tonic::client::Grpc::with_origin(service, "https://localhost".parse()?);
    let request = Request::new(raw("mlp", mlp_input(3)));
    let reply: Response<ModelInferResponse> = grpc_call::<_, ModelInferRequest, _>(wire, "ModelInfer", request).await?;
    Ok(reply.into_inner())
}

#[tokio::test]
async fn tls_speaks_both_versions_and_asks_clients_for_certificates() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let folder = data.0.path().to_owned();
    certificates(&folder);
    let certificate = format!("tls.certificate={}", folder.join("localhost.pem").display());
    let key = format!("tls.key={}", folder.join("localhost.key").display());
    let server = serve(&data, "memory", &[&certificate, &key]);
    let reply = infer_over_tls(&server, &folder, false).await.unwrap();
    assert_eq!(reply.outputs[0].shape, [3, 1]);
    let (agreed, reply) = call(&server.address, &folder, &["http/1.1"], false).await.unwrap();
    assert_eq!(agreed, "http/1.1");
    assert!(
        reply.starts_with("HTTP/1.1 200") && reply.ends_with("{\"live\":true}"),
        "{reply}"
    );
    let both = call(&server.address, &folder, &["h2", "http/1.1"], false)
        .await
        .unwrap();
    assert_eq!(both, ("h2".to_owned(), "frame 4".to_owned()));
    let plain = server.raw(b"GET /v2 HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(!plain.contains("200 OK"), "{plain}");
    drop(server);

    let client_ca = format!("tls.client_ca={}", folder.join("ca.pem").display());
    let server = serve(&data, "memory", &[&certificate, &key, &client_ca]);
    assert_eq!(infer_over_tls(&server, &folder, true).await.unwrap().outputs.len(), 1);
    let unauthenticated = infer_over_tls(&server, &folder, false).await;
    assert!(unauthenticated.is_err(), "{unauthenticated:?}");
    let (_, reply) = call(&server.address, &folder, &["http/1.1"], true).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let unauthenticated = call(&server.address, &folder, &["http/1.1"], false).await;
    assert!(unauthenticated.is_err(), "{unauthenticated:?}");
}

#[tokio::test]
async fn an_open_server_on_the_network_is_warned_of() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let mut arguments = on_tier(&data, "memory");
    arguments.extend(["--listen".into(), "0.0.0.0:0".into()]);
    let server = Server::start(&arguments, &[]);
    for named in ["access.token_file", "unencrypted"] {
        server.logged(&[named]);
    }
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    assert!(!server.log().contains("unencrypted"), "{}", server.log());
}
