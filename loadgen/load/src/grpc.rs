//! Infer calls over gRPC: HTTP/2 connections shared by the users of a step, as gRPC's clients share theirs.
//!
//! In: an address and framed messages. Out: replies with their metadata, read to the last byte. The connections are
//! hyper's own, without a client library's queue between the user and the wire, so that the server is measured. Knows
//! nothing of tensors and due times.

use crate::endpoint::{Alpn, Endpoint, broken};
use crate::reply::{self, BodyError, CheckedReply, Expected, Limit, NoReply, Received};
use anyhow::{anyhow, ensure};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tierlab_analysis::record::Failure;
use tierlab_protocol::grpc::client::{infer_path, unframed};
use tierlab_protocol::infer::InferReply;
use tierlab_protocol::timing::StageTimings;
use tokio::sync::{Mutex, OnceCell};

/// Users per connection: a server accepts a bounded number of concurrent calls on each (often 100), beyond which calls
/// would wait here.
const USERS_PER_CONNECTION: usize = 64;
/// Maximum concurrent handshakes: enough for a server's cores, and within its queue of new connections.
pub(crate) const HANDSHAKES: usize = 64;
/// Time limit for connections that are opened before a step, well below the one for its users to start.
pub(crate) const WARM_LIMIT: Duration = Duration::from_secs(15);
/// Flow control, large enough that no reply waits for it.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;

/// Connections of a step.
#[derive(Debug)]
pub struct Connections {
    /// Server of the connections.
    pub endpoint: Arc<Endpoint>,
    /// Address of infer calls.
    uri: Uri,
    /// Scheme and authority of requests.
    pub(crate) origin: String,
    senders: Vec<Mutex<Option<SendRequest<Full<Bytes>>>>>,
    warmed: OnceCell<()>,
    next: AtomicUsize,
}

/// Complete reply.
#[derive(Debug)]
pub struct GrpcReply {
    /// HTTP status.
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    body: Received,
}

impl Connections {
    /// Creates connections over gRPC for `users` users, or a `fixed` number; each is opened on first use, and again after it broke.
    ///
    /// # Errors
    /// An address with a path, because gRPC defines its own.
    pub fn new(endpoint: Arc<Endpoint>, users: usize, fixed: Option<usize>) -> anyhow::Result<Self> {
        let address = &endpoint.address;
        ensure!(
            address.prefix.is_empty(),
            "{}: invalid gRPC address; give one such as http://127.0.0.1:8001 or https://host:8001, without a path: gRPC \
             defines its own",
            address.url()
        );
        Self::http2(endpoint, users, fixed)
    }

    /// Creates connections for requests of any kind: `fixed`, or as many as the users need.
    ///
    /// # Errors
    /// A name that cannot be that of a server.
    pub fn http2(endpoint: Arc<Endpoint>, users: usize, fixed: Option<usize>) -> anyhow::Result<Self> {
        let address = &endpoint.address;
        let called = endpoint.authority.to_str().unwrap_or(&address.authority);
        let origin = format!("{}://{called}", address.scheme());
        let uri = format!("{origin}{}", infer_path());
        let count = fixed.unwrap_or_else(|| users.div_ceil(USERS_PER_CONNECTION)).max(1);
        Ok(Self {
            uri: uri.parse().map_err(|_| anyhow!("invalid server name: `{called}`"))?,
            origin,
            endpoint,
            senders: (0..count).map(|_| Mutex::new(None)).collect(),
            warmed: OnceCell::new(),
            next: AtomicUsize::new(0),
        })
    }

    /// Opens all connections once, if that costs a handshake or if `opens_first` is true, within a time limit. A call
    /// retries a failed connection.
    pub async fn warm(&self, opens_first: bool) {
        if !self.endpoint.address.secure && !opens_first {
            return;
        }
        let opening = || async {
            let indices = stream::iter(0..self.senders.len());
            let opened = indices.for_each_concurrent(HANDSHAKES, |index| async move {
                let _ = self.sender(index).await;
            });
            let _ = tokio::time::timeout(WARM_LIMIT, opened).await;
        };
        self.warmed.get_or_init(opening).await;
    }

    /// Sends a framed message and reads the whole reply.
    ///
    /// # Errors
    /// A failed or broken connection, or a reply beyond the limit.
    pub async fn call(&self, message: Bytes, limit: &Limit) -> Result<GrpcReply, NoReply> {
        let (head, body) = self.send(|| self.request(message.clone()), limit).await?;
        Ok(GrpcReply {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    /// Sends a request and reads the whole reply; calls `request` again for a second attempt.
    pub(crate) async fn send(
        &self,
        request: impl Fn() -> Request<Full<Bytes>> + Send,
        limit: &Limit,
    ) -> Result<(Parts, Received), NoReply> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.senders.len();
        let mut sender = self.sender(index).await?;
        let response = match sender.send_request(request()).await {
            // The server closed the connection before anything was written: another one is opened.
            Err(error) if error.is_canceled() => {
                sender = self.sender(index).await?;
                sender.send_request(request()).await
            }
            response => response,
        };
        let lost = |error: hyper::Error| NoReply::new(Failure::Broken, broken(&error));
        let (head, body) = response.map_err(lost)?.into_parts();
        let body = reply::read(body, limit).await.map_err(|cut| match cut {
            BodyError::Lost(error) => lost(error),
            BodyError::TooLarge(what) => NoReply::from(what),
        })?;
        Ok((head, body))
    }

    /// Calls within a time limit: see [`Connections::call`].
    ///
    /// # Errors
    /// Those of a call, or no reply in time.
    pub(crate) async fn call_within(
        &self,
        message: Bytes,
        limit: &Limit,
        within: Duration,
    ) -> Result<GrpcReply, NoReply> {
        let calling = tokio::time::timeout(within, self.call(message, limit));
        calling.await.unwrap_or_else(|_| Err(Failure::Timeout.into()))
    }

    fn request(&self, message: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.endpoint.headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        request
    }

    async fn sender(&self, index: usize) -> Result<SendRequest<Full<Bytes>>, NoReply> {
        let mut open = self.senders[index].lock().await;
        if let Some(sender) = open.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let refused = |message: String| NoReply::new(Failure::Connect, message);
        let connected = self.endpoint.connect(Alpn::Http2).await;
        let stream = connected.map_err(|error| refused(error.to_string()))?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| refused(error.to_string()))?;
        // Ends with its last sender. Each call on it returns its own error.
        tokio::spawn(connection);
        *open = Some(sender.clone());
        Ok(sender)
    }
}

impl GrpcReply {
    /// Length of the body in bytes.
    pub(crate) fn len(&self) -> usize {
        self.body.bytes.len()
    }

    fn metadata(&self, name: &str) -> Option<&str> {
        let trailers = self.body.trailers.as_ref().and_then(|trailers| trailers.get(name));
        trailers.or_else(|| self.headers.get(name))?.to_str().ok()
    }

    /// Returns the stage times that the server reports, before or after the message.
    fn timings(&self) -> Option<StageTimings> {
        let trailers = self.body.trailers.as_ref().and_then(reply::stages);
        trailers.or_else(|| reply::stages(&self.headers))
    }

    /// Checks status and structure, and reads the server's stage times, as for HTTP.
    pub(crate) fn check(&self, expected: &Expected) -> CheckedReply {
        let timings = self.timings();
        match self.decode(expected) {
            Ok(_) => CheckedReply::ok(timings),
            Err(failed) => CheckedReply {
                timings,
                ..failed.into()
            },
        }
    }

    /// Returns the reply, once its status and structure are checked.
    ///
    /// # Errors
    /// A failed call, or a reply that is not the model's.
    pub fn decode(&self, expected: &Expected) -> Result<InferReply, NoReply> {
        let wrong_reply = |what: &str| NoReply::new(Failure::WrongReply, what);
        let code: Option<u16> = self.metadata("grpc-status").and_then(|code| code.parse().ok());
        match (self.status, code) {
            (StatusCode::OK, Some(0)) => {}
            (StatusCode::OK, None) => return Err(wrong_reply("`grpc-status` is missing in the reply")),
            (StatusCode::OK, Some(code)) => return Err(Failure::Rpc(code).into()),
            (status, _) => return Err(Failure::Status(status.as_u16()).into()),
        }
        let message = self.message();
        let message = message.ok_or_else(|| wrong_reply("the reply is not one complete message"))?;
        expected.check_grpc(&message)
    }

    /// Returns its message, if it has one.
    pub(crate) fn message(&self) -> Option<Bytes> {
        unframed(&self.body.bytes).filter(|message| !message.is_empty())
    }

    /// Error message of a failed call.
    pub fn error_message(&self) -> String {
        let text = self.metadata("grpc-message").unwrap_or_default();
        let error_message: String = text.chars().take(500).collect();
        match self.status {
            StatusCode::OK => error_message,
            status => format!("HTTP {status} {error_message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Access;
    use tierlab_analysis::record::Outcome;

    impl GrpcReply {
        /// Creates a reply with status 0.
        pub(crate) fn complete(body: Bytes) -> Self {
            let trailers = HeaderMap::from_iter([(
                hyper::header::HeaderName::from_static("grpc-status"),
                HeaderValue::from_static("0"),
            )]);
            Self {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body: Received::complete(body, Some(trailers)),
            }
        }
    }

    fn reply(status: u16, headers: &[(&'static str, &'static str)], body: &'static [u8]) -> GrpcReply {
        let mut trailers = HeaderMap::new();
        for (name, value) in headers {
            trailers.insert(*name, HeaderValue::from_static(value));
        }
        GrpcReply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Received::complete(Bytes::from_static(body), Some(trailers)),
        }
    }

    #[test]
    fn replies_are_judged_by_status_and_structure() {
        let expected = Expected::new("m", &[], None);
        let wrong_reply = Outcome::Failed(Failure::WrongReply);
        // Model `m`, and an output with name, type and shape, without elements.
        let whole = b"\0\0\0\0\x10\x0a\x01m\x2a\x0b\x0a\x01y\x12\x04FP32\x18\0";
        let ok = [
            ("grpc-status", "0"),
            ("server-timing", "infer;dur=1.5, rows;desc=\"2\""),
        ];
        for (reply, outcome) in [
            (reply(200, &ok, whole), Outcome::Ok),
            (reply(200, &ok, b""), wrong_reply),
            (reply(200, &ok, b"\0\0\0\0\x09ab"), wrong_reply),
            (reply(200, &[], whole), wrong_reply),
            (
                reply(200, &[("grpc-status", "14")], b""),
                Outcome::Failed(Failure::Rpc(14)),
            ),
            (reply(503, &[], b""), Outcome::Failed(Failure::Status(503))),
        ] {
            let checked = reply.check(&expected);
            assert_eq!(checked.outcome, outcome, "{checked:?}");
        }
        assert_eq!(reply(200, &ok, whole).check(&expected).timings.unwrap().batch_rows, 2);
    }

    fn connections(url: &str, users: usize) -> anyhow::Result<Connections> {
        Connections::new(Arc::new(Endpoint::new(url, &Access::default())?), users, None)
    }

    #[test]
    fn only_addresses_are_taken() {
        let error = connections("http://h:1/x", 1).unwrap_err().to_string();
        assert!(
            error.contains("http://h:1/x") && error.contains("without a path"),
            "{error}"
        );
        assert_eq!(connections("http://127.0.0.1:9", 200).unwrap().senders.len(), 4);
    }

    #[tokio::test]
    async fn calls_go_over_tls_with_what_was_given() {
        use crate::endpoint::{Header, tests};
        use hyper::service::service_fn;
        let folder = tempfile::tempdir().unwrap();
        let acceptor = tests::acceptor(folder.path(), "models.internal", &[b"h2"]);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(stream).await.unwrap();
            let answer = |request: Request<hyper::body::Incoming>| async move {
                let named = request
                    .uri()
                    .authority()
                    .is_some_and(|authority| authority == "models.internal");
                let status = if named && request.headers()["x-key"] == "v" {
                    "0"
                } else {
                    "16"
                };
                let mut reply = hyper::Response::new(Full::new(Bytes::from_static(b"\0\0\0\0\x03\x0a\x01m")));
                reply
                    .headers_mut()
                    .insert("grpc-status", HeaderValue::from_static(status));
                Ok::<_, std::convert::Infallible>(reply)
            };
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await
        });
        let mut access = tests::trusting(folder.path(), "models.internal");
        access.headers = vec![Header {
            name: "X-Key".into(),
            value: "v".into(),
        }];
        let endpoint = Endpoint::new(&url, &access.open().unwrap()).unwrap();
        let connections = Connections::new(Arc::new(endpoint), 1, None).unwrap();
        connections.warm(false).await;
        // The only connection that the server accepts is open already.
        let reply = connections.call(Bytes::new(), &Limit::of(100)).await.unwrap();
        assert_eq!(
            (reply.metadata("grpc-status"), reply.message().unwrap().len()),
            (Some("0"), 3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_opened_together_once_and_within_a_limit() {
        use crate::endpoint::tests;
        let folder = tempfile::tempdir().unwrap();
        let _ = tests::acceptor(folder.path(), "h", &[b"h2"]);
        // Accepts connections and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", silent.local_addr().unwrap());
        let access = tests::trusting(folder.path(), "h").open().unwrap();
        let endpoint = Arc::new(Endpoint::new(&url, &access).unwrap());
        for (connections, limit) in [(60, Duration::from_secs(10)), (200, WARM_LIMIT)] {
            let connections = Connections::new(Arc::clone(&endpoint), 1, Some(connections)).unwrap();
            let began = tokio::time::Instant::now();
            futures::future::join_all((0..8).map(|_| connections.warm(false))).await;
            // On the paused clock.
            assert_eq!(began.elapsed().as_secs(), limit.as_secs());
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_no_connection() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let connections = connections(&format!("http://{closed}"), 8).unwrap();
        let missing = connections.call(Bytes::new(), &Limit::of(100)).await.unwrap_err();
        assert_eq!(missing.failure, Failure::Connect);
        assert!(missing.message.unwrap().contains("refused"));
    }
}
