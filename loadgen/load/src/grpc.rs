//! Infer calls over gRPC: HTTP/2 connections that every user of a step shares, as gRPC's clients share theirs.
//!
//! In: an address and framed messages. Out: replies with their metadata, read to the last byte. The connections are
//! hyper's own, without a client library's queue between the user and the wire, so that what is measured is the server.
//! Knows nothing of tensors nor of when a call is due.

use crate::reply::{self, BodyError, CheckedReply, Expected, Limit, NoReply, Received};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reqwest::Url;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierlab_analysis::record::Failure;
use tierlab_protocol::grpc::SERVER_TIMING;
use tierlab_protocol::grpc::client::{infer_path, unframed};
use tierlab_protocol::timing::StageTimings;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// Users on one connection: a server takes a bounded number of calls at a time on each (often 100), beyond which they
/// would wait here.
const USERS_PER_CONNECTION: usize = 64;
/// Flow control, large enough that no reply waits for it.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;

/// The connections of a step.
#[derive(Debug)]
pub struct Connections {
    authority: String,
    uri: Uri,
    senders: Vec<Mutex<Option<SendRequest<Full<Bytes>>>>>,
    next: AtomicUsize,
}

/// A reply, whole.
#[derive(Debug)]
pub struct GrpcReply {
    status: StatusCode,
    headers: HeaderMap,
    body: Received,
}

impl Connections {
    /// As many as so many users need; each is made when it is first used, and again when it broke.
    ///
    /// # Errors
    /// No `http://HOST:PORT`.
    pub fn new(url: &Url, users: usize) -> Result<Self, String> {
        let shown = crate::redact::urls(url.as_str());
        let refuse =
            || format!("{shown}: no address of a gRPC server; give one as http://127.0.0.1:8001, and nothing more");
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(refuse());
        }
        let (Some(host), Some(port), "http", "/") =
            (url.host_str(), url.port_or_known_default(), url.scheme(), url.path())
        else {
            return Err(refuse());
        };
        let authority = format!("{host}:{port}");
        let uri = format!("http://{authority}{}", infer_path());
        Ok(Self {
            uri: uri.parse().map_err(|_| refuse())?,
            authority,
            senders: (0..users.div_ceil(USERS_PER_CONNECTION).max(1))
                .map(|_| Mutex::new(None))
                .collect(),
            next: AtomicUsize::new(0),
        })
    }

    /// HOST:PORT.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Sends a framed message and reads the whole reply.
    ///
    /// # Errors
    /// No connection, one that broke, or a reply beyond the limit.
    pub async fn call(&self, message: Bytes, limit: &Limit) -> Result<GrpcReply, NoReply> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.senders.len();
        let mut sender = self.sender(place).await?;
        let response = match sender.send_request(self.request(message.clone())).await {
            // The server closed the connection before anything was written: another one is made.
            Err(error) if error.is_canceled() => {
                sender = self.sender(place).await?;
                sender.send_request(self.request(message)).await
            }
            response => response,
        };
        let (head, body) = response.map_err(|_| Failure::Broken)?.into_parts();
        let body = reply::read(body, limit).await.map_err(|cut| match cut {
            BodyError::Lost(_) => Failure::Broken.into(),
            BodyError::TooLarge(what) => NoReply::from(what),
        })?;
        Ok(GrpcReply {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    fn request(&self, message: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        request
    }

    async fn sender(&self, place: usize) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let mut kept = self.senders[place].lock().await;
        if let Some(sender) = kept.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = TcpStream::connect(&self.authority)
            .await
            .map_err(|_| Failure::Connect)?;
        // Else small requests wait for the server's acknowledgement.
        stream.set_nodelay(true).map_err(|_| Failure::Connect)?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Failure::Connect)?;
        // Ends with its last sender. Each call on it returns its own error.
        tokio::spawn(connection);
        *kept = Some(sender.clone());
        Ok(sender)
    }
}

impl GrpcReply {
    /// How long its body is.
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.bytes.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.bytes.is_empty()
    }

    fn metadata(&self, name: &str) -> Option<&str> {
        let trailers = self.body.trailers.as_ref().and_then(|trailers| trailers.get(name));
        trailers.or_else(|| self.headers.get(name))?.to_str().ok()
    }

    /// Its status, its structure, and what the server says of its stages, as for HTTP.
    #[must_use]
    pub fn judge(&self, expected: &Expected) -> CheckedReply {
        let timings = self
            .metadata(SERVER_TIMING)
            .and_then(|text| StageTimings::parse_header(text).ok());
        let code: Option<u16> = self.metadata("grpc-status").and_then(|code| code.parse().ok());
        match (self.status, code) {
            (StatusCode::OK, Some(0)) => {}
            (StatusCode::OK, None) => return CheckedReply::wrong(&"the reply has no `grpc-status`", timings),
            (StatusCode::OK, Some(code)) => return CheckedReply::failed(Failure::Rpc(code), timings),
            (status, _) => return CheckedReply::failed(Failure::Status(status.as_u16()), timings),
        }
        let Some(message) = self.message() else {
            return CheckedReply::wrong(&"the reply is not one whole message", timings);
        };
        match expected.check_grpc(&message) {
            Ok(()) => CheckedReply::ok(timings),
            Err(wrong) => CheckedReply::refused(&wrong, timings),
        }
    }

    /// The message in it; `None` where it has none.
    #[must_use]
    pub fn message(&self) -> Option<Bytes> {
        unframed(&self.body.bytes).filter(|message| !message.is_empty())
    }

    /// What the server says of a failed call.
    #[must_use]
    pub fn said(&self) -> String {
        let text = self.metadata("grpc-message").unwrap_or_default();
        let mut said: String = text.chars().take(500).collect();
        if self.status != StatusCode::OK {
            said = format!("HTTP {} {said}", self.status);
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::Outcome;

    fn reply(status: u16, headers: &[(&'static str, &'static str)], body: &'static [u8]) -> GrpcReply {
        let mut trailers = HeaderMap::new();
        for (name, value) in headers {
            trailers.insert(*name, HeaderValue::from_static(value));
        }
        GrpcReply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Received::whole(Bytes::from_static(body), Some(trailers)),
        }
    }

    #[test]
    fn replies_are_judged_by_status_and_structure() {
        let expected = Expected::new("m", &[], None);
        let wrong = Outcome::Failed(Failure::WrongReply);
        // Model `m`, and an output with name, type and shape, without elements.
        let whole = b"\0\0\0\0\x10\x0a\x01m\x2a\x0b\x0a\x01y\x12\x04FP32\x18\0";
        let ok = [
            ("grpc-status", "0"),
            ("server-timing", "infer;dur=1.5, rows;desc=\"2\""),
        ];
        for (reply, outcome) in [
            (reply(200, &ok, whole), Outcome::Ok),
            (reply(200, &ok, b""), wrong),
            (reply(200, &ok, b"\0\0\0\0\x09ab"), wrong),
            (reply(200, &[], whole), wrong),
            (
                reply(200, &[("grpc-status", "14")], b""),
                Outcome::Failed(Failure::Rpc(14)),
            ),
            (reply(503, &[], b""), Outcome::Failed(Failure::Status(503))),
        ] {
            let judged = reply.judge(&expected);
            assert_eq!(judged.outcome, outcome, "{judged:?}");
        }
        assert_eq!(reply(200, &ok, whole).judge(&expected).timings.unwrap().batch_rows, 2);
    }

    #[test]
    fn only_addresses_are_taken() {
        for bad in ["https://h:1", "http://h:1/x", "grpc://h:1"] {
            let error = Connections::new(&bad.parse().unwrap(), 1).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
        let with = Connections::new(&"http://u:S3CRET@h:1/?token=S3CRET".parse().unwrap(), 1).unwrap_err();
        assert!(!with.contains("S3CRET"), "{with}");
        let many = Connections::new(&"http://127.0.0.1:9".parse().unwrap(), 200).unwrap();
        assert_eq!(many.senders.len(), 4);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_no_connection() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let connections = Connections::new(&format!("http://{closed}").parse().unwrap(), 8).unwrap();
        let missing = connections.call(Bytes::new(), &Limit::of(100)).await.unwrap_err();
        assert_eq!(missing.failure, Failure::Connect);
    }
}
