//! One request over HTTP/1.1 on a connection of the user. In: a body, and the connection of the last request if there
//! is one. Out: the reply read to its last byte, and the connection if it can be reused.
//!
//! hyper speaks the protocol. It is polled in place, by the sending thread and then by the user, without a task or a
//! pool in between, so that a request costs no wake-up except that of its reply. The send time is read just before the
//! system call that writes the request; with TLS before its encryption, which thus counts as service time. Knows
//! nothing of schedules.

use super::wire::{SendTime, Wire};
use super::{Compress, ConnectionUse, Sending};
use crate::custom::{Custom, Pieces, StreamSpec, Success};
use crate::endpoint::{Alpn, Endpoint, broken};
use crate::grpc::Connections;
use crate::payload::Body;
use crate::reply::{self, BodyError, CheckedReply, Expected, Limit, NoReply, Received, TooLarge};
use anyhow::{anyhow, bail};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
};
use hyper::http::response::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io::Read as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tierlab_analysis::record::Failure;
use tierlab_protocol::infer::HEADER_LENGTH;
use tierlab_protocol::timing::StageTimings;
use tokio::task::unconstrained;

/// Maximum size of a reply's head, and of one read; hyper's own default.
const HEAD_BYTES: usize = 8_192 + 4_096 * 100;

/// Maximum size of a decompressed reply.
const PLAIN_BYTES: u64 = 64 << 20;

/// Destination and form of requests over HTTP.
#[derive(Debug, Clone)]
pub struct HttpRoute {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) method: Method,
    path: Uri,
    /// Content type of the body, unless it is an infer request.
    content_type: Option<HeaderValue>,
    /// Rule for a successful reply of endpoints that do not speak the Open Inference Protocol.
    pub(crate) success: Option<Arc<Success>>,
    /// Set if replies stream.
    stream: Option<Arc<StreamSpec>>,
    /// Connections over HTTP/2, shared by all users.
    pub(super) http2: Option<Arc<Connections>>,
}

impl HttpRoute {
    /// The same route over HTTP/2.
    #[must_use]
    pub fn with_http2(mut self, connections: Arc<Connections>) -> Self {
        self.http2 = Some(connections);
        self
    }

    /// Infer route of a model, behind the server's prefix.
    ///
    /// # Errors
    /// An invalid path.
    pub fn infer(endpoint: Arc<Endpoint>, path: &str) -> anyhow::Result<Self> {
        let path = endpoint.path(path);
        Ok(Self {
            path: path.parse().map_err(|_| anyhow!("invalid URL path: `{path}`"))?,
            method: Method::POST,
            content_type: None,
            success: None,
            stream: None,
            http2: None,
            endpoint,
        })
    }

    /// Route of any other endpoint.
    ///
    /// # Errors
    /// An invalid path.
    pub fn custom(endpoint: Arc<Endpoint>, custom: &Custom) -> anyhow::Result<Self> {
        Ok(Self {
            method: custom.method.clone(),
            content_type: custom.content_type.clone(),
            success: Some(Arc::clone(&custom.success)),
            stream: custom.stream.clone(),
            ..Self::infer(endpoint, &custom.path)?
        })
    }

    /// Address for messages, without the query.
    pub fn shown(&self) -> String {
        let address = &self.endpoint.address;
        format!("{}://{}{}", address.scheme(), address.authority, self.path.path())
    }

    /// Path with the server's prefix and the query.
    pub(crate) fn path(&self) -> &str {
        self.path.path_and_query().map_or("/", PathAndQuery::as_str)
    }

    /// Headers of a body.
    pub fn headers(&self, body: &Body) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(2);
        self.describe(body, &mut headers);
        headers
    }

    fn describe(&self, body: &Body, headers: &mut HeaderMap) {
        let recorded = body.line.as_ref().and_then(|line| line.content_type.as_ref());
        let content_type = match (recorded.or(self.content_type.as_ref()), body.json_len) {
            (Some(_), _) if body.line.is_some() && body.bytes.is_empty() => return,
            (Some(content_type), _) => content_type.clone(),
            (None, _) if self.success.is_some() => return,
            (None, None) => HeaderValue::from_static("application/json"),
            (None, Some(json_len)) => {
                headers.insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(json_len));
                HeaderValue::from_static("application/octet-stream")
            }
        };
        headers.insert(CONTENT_TYPE, content_type);
    }
}

/// Prepared route, with the parts common to all requests.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) route: HttpRoute,
    /// Scheme and authority of paths over HTTP/2; empty over HTTP/1.1.
    origin: String,
    headers: HeaderMap,
    limit: Limit,
    /// True if each request has a connection of its own.
    pub(super) is_single_use: bool,
    /// True if read times are used.
    stamps_reads: bool,
    compress: Option<Compress>,
}

impl Target {
    pub(super) fn new(route: &HttpRoute, limit: Limit, sending: Sending) -> Self {
        let mut headers = route.endpoint.request_headers();
        let is_single_use = sending.connections == ConnectionUse::New;
        if is_single_use {
            // Asks the server to close first, so that closed connections wait on its side, as with other clients.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if sending.compress.is_some_and(Compress::replies) {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let mut route = route.clone();
        let mut origin = String::new();
        if let Some(connections) = &route.http2 {
            // Pseudo-headers of HTTP/2 take the place of `host`.
            headers.remove(HOST);
            connections.origin.clone_into(&mut origin);
            // Both parts were parsed before.
            route.path = format!("{origin}{}", route.path).parse().unwrap_or(route.path);
        }
        Self {
            headers,
            origin,
            limit,
            is_single_use,
            stamps_reads: route.stream.is_some() || sending.keep_requests,
            compress: sending.compress,
            route,
        }
    }

    fn reply(&self, head: Parts, body: Received, pieces: Option<Pieces>) -> HttpReply {
        HttpReply {
            pieces,
            accepts_gzip: self.compress.is_some_and(Compress::replies),
            ..HttpReply::new(head.status, head.headers, body, self.route.success.clone())
        }
    }

    fn request(&self, body: &Body) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.bytes.clone()));
        *request.method_mut() = self.route.method.clone();
        *request.uri_mut() = self.route.path.clone();
        *request.headers_mut() = self.headers.clone();
        self.route.describe(body, request.headers_mut());
        if let Some(line) = &body.line {
            *request.method_mut() = line.method.clone();
            // All parts were parsed before.
            if let Ok(uri) = format!("{}{}", self.origin, self.route.endpoint.path(&line.path)).parse() {
                *request.uri_mut() = uri;
            }
        }
        if self.compress.is_some_and(Compress::requests) && !body.bytes.is_empty() {
            let gzip = HeaderValue::from_static("gzip");
            request.headers_mut().insert(CONTENT_ENCODING, gzip);
        }
        request
    }
}

/// Sends a request on a shared connection over HTTP/2, and reads the whole reply.
pub(super) async fn exchange_over_http2(
    target: &Target,
    body: &Body,
    connections: &Connections,
) -> Result<HttpReply, NoReply> {
    let (head, body) = connections.send(|| target.request(body), &target.limit).await?;
    Ok(target.reply(head, body, None))
}

/// An open connection.
pub(super) struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    connection: http1::Connection<Wire, Full<Bytes>>,
    /// True if nothing can be sent on it any more.
    pub(super) ended: bool,
}

impl HttpConnection {
    /// Connects; over TLS with the handshake done.
    pub(super) async fn open(target: &Target, send_time: Arc<SendTime>) -> Result<Box<Self>, NoReply> {
        let refused = |message: String| NoReply::new(Failure::Connect, message);
        let connected = target.route.endpoint.connect(Alpn::Http1).await;
        let stream = connected.map_err(|error| refused(error.to_string()))?;
        let io = TokioIo::new(stream);
        let mut http = http1::Builder::new();
        http.max_buf_size(HEAD_BYTES);
        let handshake = http.handshake(Wire::new(io, send_time, target.stamps_reads)).await;
        let (sender, connection) = handshake.map_err(|error| refused(error.to_string()))?;
        Ok(Box::new(Self {
            sender,
            connection,
            ended: false,
        }))
    }

    /// Makes the connection ready, and returns true if a request would be written at once. The connection is polled
    /// without a waker, because otherwise handing it the request would wake the user's task for nothing.
    pub(super) fn make_ready(&mut self) -> bool {
        self.poll_connection(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }

    /// Polls an idle connection, and returns true if the server has closed it.
    pub(super) fn is_closed(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_connection(cx);
        self.ended
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) {
        // The request on it returns the error.
        self.ended = self.ended || Pin::new(&mut self.connection).poll(cx).is_ready();
    }

    async fn exchange(&mut self, target: &Target, body: &Body, times: &SendTime) -> Result<HttpReply, Lost> {
        let response = self.sender.send_request(target.request(body));
        let response = async { response.await.map_err(Lost::of) };
        let (head, body) = self.drive(response).await?.into_parts();
        let stream = target.route.stream.as_ref();
        let mut pieces = stream.map(|spec| Pieces::new(Arc::clone(spec), times.first_read_us()));
        let seen = |bytes| match &mut pieces {
            Some(pieces) => pieces.push(bytes, times.read_us()),
            None => Ok(()),
        };
        let body = async {
            reply::read_pieces(body, &target.limit, seen)
                .await
                .map_err(Lost::of_body)
        };
        let body = self.drive(body).await?;
        Ok(target.reply(head, body, pieces))
    }

    /// Polls a future that waits for the connection, together with the connection. An ended connection answers no
    /// request: hyper keeps a request that it had not begun to write, neither sent nor refused.
    async fn drive<T>(&mut self, future: impl Future<Output = Result<T, Lost>>) -> Result<T, Lost> {
        // Without a budget of polls, whose end would require the wake-up that is withheld here.
        let mut future = pin!(unconstrained(future));
        poll_fn(|cx| {
            // The future is polled after every poll of the connection, and so needs no waker.
            let mut noop_context = Context::from_waker(Waker::noop());
            // Also before it, because a body is read only on demand.
            if let Poll::Ready(done) = future.as_mut().poll(&mut noop_context) {
                return Poll::Ready(done);
            }
            self.poll_connection(cx);
            match future.as_mut().poll(&mut noop_context) {
                Poll::Ready(done) => Poll::Ready(done),
                Poll::Pending if self.ended => Poll::Ready(Err(Lost::Closed)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// Reason for a missing reply.
enum Lost {
    /// The connection was closed before the request was begun, as far as hyper knows.
    Closed,
    /// The connection broke, or the bytes were not a reply or too many.
    Failed(NoReply),
}

impl Lost {
    #[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
    fn of(error: hyper::Error) -> Self {
        if error.is_canceled() {
            return Self::Closed;
        }
        Self::Failed(if error.is_parse_too_large() {
            TooLarge::head(HEAD_BYTES).into()
        } else if error.is_parse() {
            NoReply::new(Failure::Broken, format_args!("invalid HTTP/1.1 reply ({error})"))
        } else {
            NoReply::new(Failure::Broken, broken(&error))
        })
    }

    fn of_body(cut: BodyError<hyper::Error>) -> Self {
        match cut {
            BodyError::Lost(error) => Self::of(error),
            BodyError::TooLarge(what) => Self::Failed(what.into()),
        }
    }
}

impl From<Lost> for NoReply {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Closed => NoReply::new(Failure::Broken, "the connection was closed without a reply"),
            Lost::Failed(missing) => missing,
        }
    }
}

/// Sends a request and reads the whole reply, on `connection` or else on a new connection. `send_time` receives the
/// send time; for a request that had to wait for its connection, the time at which connecting began.
pub(super) async fn exchange(
    target: Arc<Target>,
    body: Body,
    connection: Option<Box<HttpConnection>>,
    send_time: Arc<SendTime>,
) -> (Result<HttpReply, NoReply>, Option<Box<HttpConnection>>) {
    if let Some(mut connection) = connection {
        match connection.exchange(&target, &body, &send_time).await {
            Ok(reply) => return (Ok(reply), Some(connection)),
            // The server closed the connection while it was idle, and nothing was written.
            Err(Lost::Closed) if !send_time.is_set() => {}
            Err(lost) => return (Err(lost.into()), None),
        }
    }
    send_time.set();
    // Boxed, because few requests need it.
    let mut connection = match Box::pin(HttpConnection::open(&target, Arc::clone(&send_time))).await {
        Ok(connection) => connection,
        Err(missing) => return (Err(missing), None),
    };
    match connection.exchange(&target, &body, &send_time).await {
        Ok(reply) => (Ok(reply), Some(connection)),
        Err(lost) => (Err(lost.into()), None),
    }
}

/// Complete reply, not checked yet.
pub(crate) struct HttpReply {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    /// Body as received.
    pub(crate) body: Received,
    /// Rule of success, for replies other than infer replies.
    success: Option<Arc<Success>>,
    /// Arrival of the body, piece by piece, if it streams.
    pieces: Option<Pieces>,
    /// True if the request accepts gzip.
    accepts_gzip: bool,
}

impl HttpReply {
    /// Length of the body in bytes.
    pub(crate) fn len(&self) -> usize {
        self.body.bytes.len()
    }

    /// Creates a reply that another client has read.
    pub(crate) const fn new(
        status: StatusCode,
        headers: HeaderMap,
        body: Received,
        success: Option<Arc<Success>>,
    ) -> Self {
        Self {
            status,
            headers,
            body,
            success,
            pieces: None,
            accepts_gzip: false,
        }
    }

    /// Stage times reported by the server.
    pub(crate) fn timings(&self) -> Option<StageTimings> {
        reply::stages(&self.headers)
    }

    /// True if the body has the requested compression.
    fn is_gzip(&self) -> bool {
        let coding = self.headers.get(CONTENT_ENCODING).filter(|_| self.accepts_gzip);
        coding.is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"gzip"))
    }

    /// Body, decompressed if it used the requested compression.
    fn plain(&self) -> anyhow::Result<Bytes> {
        if !self.is_gzip() {
            return Ok(self.body.bytes.clone());
        }
        let mut plain = Vec::new();
        let mut decoder = MultiGzDecoder::new(&self.body.bytes[..]).take(PLAIN_BYTES);
        match decoder.read_to_end(&mut plain) {
            Ok(bytes) if bytes as u64 == PLAIN_BYTES => bail!("more than {PLAIN_BYTES} bytes after decompression"),
            Ok(_) => Ok(plain.into()),
            Err(error) => bail!("invalid gzip body: {error}"),
        }
    }

    /// Describes a content encoding that was not requested.
    fn unrequested_coding(&self) -> Option<String> {
        reply::unrequested_coding(&self.headers).filter(|_| !self.is_gzip())
    }

    /// Checks status and structure, and reads the server's stage times.
    pub(crate) fn check(&self, expected: &Expected) -> CheckedReply {
        let timings = self.timings();
        let body = match self.plain() {
            Ok(body) => body,
            Err(fault) => return CheckedReply::invalid(&fault, timings),
        };
        if let Some(success) = &self.success {
            if !success.has_status(self.status.as_u16()) {
                return CheckedReply::failed(Failure::Status(self.status.as_u16()), timings);
            }
            let checked = match &self.pieces {
                Some(pieces) => pieces
                    .measure(success, &self.headers, &body)
                    .map(|stream| Some(Box::new(stream))),
                None => success.check_body(&self.headers, &body).map(|()| None),
            };
            let ok = CheckedReply::ok(timings);
            return match checked {
                Ok(stream) => CheckedReply { stream, ..ok },
                Err(fault) => {
                    let coding = self.unrequested_coding();
                    CheckedReply::invalid(&coding.unwrap_or_else(|| fault.to_string()), timings)
                }
            };
        }
        if self.status != StatusCode::OK {
            return CheckedReply::failed(Failure::Status(self.status.as_u16()), timings);
        }
        let json_len = self.headers.get(HEADER_LENGTH);
        let json_len = json_len.map(|value| value.to_str().ok()?.parse::<usize>().ok());
        if json_len == Some(None) {
            return CheckedReply::invalid(&format!("`{HEADER_LENGTH}` is not a number"), timings);
        }
        match expected.check_http(&body, json_len.flatten()) {
            Ok(_) => CheckedReply::ok(timings),
            Err(fault) => match self.unrequested_coding() {
                None => CheckedReply {
                    timings,
                    ..fault.into()
                },
                Some(coding) => CheckedReply::invalid(&coding, timings),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::route;
    use crate::endpoint::Access;
    use tierlab_analysis::record::Outcome;

    const GOOD: &str = r#"{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[0.5]}]}"#;

    fn reply(status: u16, json_len: Option<&str>, body: &'static str) -> HttpReply {
        let mut headers = HeaderMap::new();
        if let Some(len) = json_len {
            headers.insert(HEADER_LENGTH, len.parse().unwrap());
        }
        headers.insert("server-timing", "infer;dur=1.5, rows;desc=\"2\"".parse().unwrap());
        HttpReply {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: Received::complete(Bytes::from_static(body.as_bytes()), None),
            success: None,
            pieces: None,
            accepts_gzip: false,
        }
    }

    #[test]
    fn a_compressed_reply_is_checked_without_its_compression() {
        let mut coded = reply(200, None, "");
        coded.headers.insert("content-encoding", "gzip".parse().unwrap());
        coded.accepts_gzip = true;
        let expected = Expected::new("m", &[], None);
        coded.body = Received::complete(crate::payload::gzip(GOOD.as_bytes()), None);
        assert_eq!(coded.check(&expected).outcome, Outcome::Ok);
        let other = coded.check(&Expected::new("other", &[], None));
        assert!(other.message.unwrap().contains("from model `m`"));
        coded.body = Received::complete(Bytes::from_static(b"{}"), None);
        let checked = coded.check(&expected);
        assert!(checked.message.unwrap().contains("invalid gzip"));
        coded.body = Received::complete(crate::payload::gzip(&vec![b' '; PLAIN_BYTES as usize + 1]), None);
        assert!(coded.check(&expected).message.unwrap().contains("after decompression"));
    }

    #[test]
    fn replies_are_judged_by_status_and_structure() {
        let expected = Expected::new("m", &[], None);
        let checked = |reply: &HttpReply| reply.check(&expected).outcome;
        let fault = Outcome::Failed(Failure::WrongReply);
        for (reply, outcome) in [
            (reply(200, None, GOOD), Outcome::Ok),
            (reply(200, None, "{}"), fault),
            (reply(200, None, ""), fault),
            (reply(200, None, &GOOD[..9]), fault),
            (reply(200, Some("900"), GOOD), fault),
            (reply(200, Some("x"), GOOD), fault),
            (reply(503, None, GOOD), Outcome::Failed(Failure::Status(503))),
        ] {
            assert_eq!(checked(&reply), outcome);
        }
        assert_eq!(reply(200, None, GOOD).check(&expected).timings.unwrap().batch_rows, 2);
    }

    #[test]
    fn a_coded_body_is_named_as_such() {
        let mut coded = reply(200, None, "\u{1f}\u{8b}");
        coded.headers.insert("content-encoding", "gzip".parse().unwrap());
        let checked = coded.check(&Expected::new("m", &[], None));
        assert_eq!(checked.outcome, Outcome::Failed(Failure::WrongReply));
        assert!(checked.message.unwrap().contains("encoding `gzip`"));
        coded.success = Some(Arc::new(Success {
            pointer: Some("/y".into()),
            ..Success::default()
        }));
        let custom = coded.check(&Expected::default());
        assert!(custom.message.unwrap().contains("encoding `gzip`"));
    }

    #[test]
    fn what_a_server_says_of_its_stages_has_a_limit() {
        let mut long = reply(200, None, GOOD);
        let header = format!("infer;dur=1.5{}", ", x;dur=1".repeat(4 << 10));
        long.headers.insert("server-timing", header.parse().unwrap());
        let checked = long.check(&Expected::new("m", &[], None));
        assert_eq!((checked.outcome, checked.timings), (Outcome::Ok, None));
    }

    #[test]
    fn replies_of_other_endpoints_are_judged_by_their_rule() {
        let checked = |status, body| {
            let success = Success {
                status: vec![200, 202],
                pointer: Some("/predictions/0".into()),
                equals: None,
                ..Success::default()
            };
            let reply = HttpReply {
                success: Some(Arc::new(success)),
                ..reply(status, None, body)
            };
            reply.check(&Expected::new("m", &[], None))
        };
        assert_eq!(checked(202, r#"{"predictions":[0.5]}"#).outcome, Outcome::Ok);
        assert_eq!(checked(500, "").outcome, Outcome::Failed(Failure::Status(500)));
        let fault = checked(200, r#"{"error":"asleep"}"#);
        assert_eq!(fault.outcome, Outcome::Failed(Failure::WrongReply));
        assert!(fault.message.unwrap().contains("asleep"));
    }

    #[test]
    fn requests_go_behind_the_prefix() {
        let endpoint = Arc::new(Endpoint::new("http://localhost:8000/a%20b", &Access::default()).unwrap());
        let route = HttpRoute::infer(endpoint, "/v2/models/m/infer").unwrap();
        assert_eq!(route.shown(), "http://localhost:8000/a%20b/v2/models/m/infer");
        let target = Target::new(&route, Limit::of(100), Sending::default());
        let request = target.request(&Body {
            json_len: Some(3),
            ..Body::new(Bytes::new())
        });
        assert_eq!(request.uri(), "/a%20b/v2/models/m/infer");
        assert_eq!(request.headers()["host"], "localhost:8000");
        assert_eq!(request.headers()["content-type"], "application/octet-stream");
    }

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

    fn answer(stream: &mut std::net::TcpStream) {
        use std::io::{Read as _, Write as _};
        let mut received = Vec::new();
        let mut byte = [0];
        while !received.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            received.push(byte[0]);
        }
        stream.write_all(REPLY).unwrap();
    }

    /// Sends a request on a connection that the server has closed since the last one, after `check` may have noticed
    /// the close.
    async fn after_a_close(check: impl FnOnce(&mut HttpConnection) -> bool) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            answer(&mut first);
            let (beacon, _) = listener.accept().unwrap();
            drop(first);
            drop(beacon);
            answer(&mut listener.accept().unwrap().0);
        });
        let target = Arc::new(Target::new(&route(address), Limit::of(100), Sending::default()));
        let clock = crate::pacer::Clock::starting_at(std::time::Instant::now());
        let send_time = Arc::new(SendTime::default());
        send_time.begin(clock);
        let body = Body::new(Bytes::new());
        let first = exchange(Arc::clone(&target), body.clone(), None, Arc::clone(&send_time)).await;
        let (Ok(_), Some(mut connection)) = first else {
            panic!("the first request failed")
        };
        // A second connection closed after it: once its end is visible here, the runtime knows of the first close too.
        let beacon = tokio::net::TcpStream::connect(address).await.unwrap();
        beacon.readable().await.unwrap();
        send_time.begin(clock);
        let begun_us = clock.now_us();
        assert!(check(&mut connection));
        let again = exchange(target, body, Some(connection), Arc::clone(&send_time));
        let limit = std::time::Duration::from_secs(20);
        let (reply, _) = tokio::time::timeout(limit, again).await.expect("the request is lost");
        assert!(reply.is_ok());
        assert!(
            send_time
                .sent_us()
                .is_some_and(|sent_us| (begun_us..=clock.now_us()).contains(&sent_us))
        );
        server.join().unwrap();
    }

    #[tokio::test]
    async fn a_close_that_is_seen_before_the_request_is_handed_over() {
        after_a_close(|connection| !connection.make_ready() && connection.ended).await;
    }

    #[tokio::test]
    async fn a_close_that_is_seen_in_the_poll_that_would_send_the_request() {
        after_a_close(|connection| !connection.ended).await;
    }
}
