//! One request over HTTP/1.1 on a connection of the user's own. In: a body, and the connection of the last request where
//! there is one. Out: the reply read to its last byte, and the connection where it can be used again.
//!
//! hyper speaks the protocol; it is polled in place, by whoever sends and then by the user, without a task or a pool
//! between the two, so that a request costs no wake-up but that of its reply. The moment of sending is read in front of
//! the system call that writes the request. Knows nothing of schedules.

use super::stamp::Stamp;
use crate::payload::Body;
use crate::record::{Failure, Outcome};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use reqwest::Url;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tierlab_protocol::infer::HEADER_LENGTH;
use tierlab_protocol::timing::StageTimings;
use tokio::net::TcpStream;
use tokio::task::unconstrained;

/// Where infer requests are posted, taken apart once for all of them.
#[derive(Debug)]
pub(super) struct Target {
    /// HOST:PORT.
    authority: String,
    path: Uri,
    headers: HeaderMap,
}

impl Target {
    /// `None` for what no request can be sent to.
    pub(super) fn new(url: &Url) -> Option<Self> {
        let authority = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
        let path = match url.query() {
            None => url.path().parse().ok()?,
            Some(query) => format!("{}?{query}", url.path()).parse().ok()?,
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(&authority).ok()?);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let agent = concat!("tierlab-loadgen/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        Some(Self {
            authority,
            path,
            headers,
        })
    }

    fn request(&self, body: &Body) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.bytes.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = self.headers.clone();
        describe(body, request.headers_mut());
        request
    }
}

/// The headers of an infer request with this body.
#[must_use]
pub fn headers(body: &Body) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(2);
    describe(body, &mut headers);
    headers
}

fn describe(body: &Body, headers: &mut HeaderMap) {
    if let Some(json_len) = body.json_len {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(json_len));
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
}

/// An open connection.
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    connection: http1::Connection<Wire, Full<Bytes>>,
    over: bool,
}

impl Link {
    async fn open(target: &Target, stamp: Arc<Stamp>) -> Result<Box<Self>, Failure> {
        let connect = async {
            let stream = TcpStream::connect(&target.authority).await?;
            // Else small requests wait for the server's acknowledgement.
            stream.set_nodelay(true)?;
            let io = TokioIo::new(stream);
            http1::handshake(Wire { io, stamp }).await.map_err(io::Error::other)
        };
        let (sender, connection) = connect.await.map_err(|_: io::Error| Failure::Connect)?;
        Ok(Box::new(Self {
            sender,
            connection,
            over: false,
        }))
    }

    /// Whether a request would be written at once. Until it is, the connection wakes nobody: handing it the request would
    /// else wake up the task that has looked after it, for nothing.
    pub(super) fn make_ready(&mut self) -> bool {
        self.turn(&mut Context::from_waker(Waker::noop()));
        !self.over && self.sender.is_ready()
    }

    /// Looks after a connection without request: whether the server has closed it.
    pub(super) fn is_closed(&mut self, cx: &mut Context<'_>) -> bool {
        self.turn(cx);
        self.over
    }

    fn turn(&mut self, cx: &mut Context<'_>) {
        // What went wrong, the request on it learns for itself.
        self.over = self.over || Pin::new(&mut self.connection).poll(cx).is_ready();
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, hyper::Error> {
        let response = self.sender.send_request(request);
        let (head, body) = self.carry(response).await?.into_parts();
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            body: self.carry(body.collect()).await?.to_bytes(),
        })
    }

    /// Polls a future that waits for the connection, and the connection with it.
    async fn carry<F: Future>(&mut self, waits: F) -> F::Output {
        // Without a budget of polls: at its end a future waits for the wake-up that is withheld here.
        let mut waits = pin!(unconstrained(waits));
        poll_fn(|cx| {
            // It is looked at whenever the connection has had its turn, and so need wake nobody.
            let mut unwoken = Context::from_waker(Waker::noop());
            // Before that too, since a body is not read until it is asked for.
            if let Poll::Ready(done) = waits.as_mut().poll(&mut unwoken) {
                return Poll::Ready(done);
            }
            self.turn(cx);
            waits.as_mut().poll(&mut unwoken)
        })
        .await
    }
}

/// Sends a request and reads the whole reply, on `link` or else on a new connection. The stamp tells when it was sent; of
/// a request that had to wait for its connection, that is when the connection was begun.
pub(super) async fn exchange(
    target: Arc<Target>,
    body: Body,
    link: Option<Box<Link>>,
    stamp: Arc<Stamp>,
) -> (Result<Reply, Failure>, Option<Box<Link>>) {
    if let Some(mut link) = link {
        match link.exchange(target.request(&body)).await {
            Ok(reply) => return (Ok(reply), Some(link)),
            // The server closed it while it was idle, and nothing was written.
            Err(error) if error.is_canceled() && !stamp.is_set() => {}
            Err(_) => return (Err(Failure::Broken), None),
        }
    }
    stamp.set();
    // In a box, for few requests need it.
    let opened = Box::pin(Link::open(&target, stamp)).await;
    let mut link = match opened {
        Ok(link) => link,
        Err(failure) => return (Err(failure), None),
    };
    match link.exchange(target.request(&body)).await {
        Ok(reply) => (Ok(reply), Some(link)),
        Err(_) => (Err(Failure::Broken), None),
    }
}

/// A stream that takes the time in front of the first write of each request.
struct Wire {
    io: TokioIo<TcpStream>,
    stamp: Arc<Stamp>,
}

impl Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stamp.set();
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stamp.set();
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

/// A reply, whole, and not looked at yet.
pub(super) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    /// Looks at status and frame only: every tensor of every reply would cost the machine what is to be measured. What a
    /// reply says is checked once for each server, before its first step.
    pub(super) fn judge(&self) -> (Outcome, Option<StageTimings>) {
        let timings = self
            .headers
            .get("server-timing")
            .and_then(|value| StageTimings::parse_header(value.to_str().ok()?).ok());
        let json_len = match self.headers.get(HEADER_LENGTH) {
            None => Some(self.body.len()),
            Some(value) => value
                .to_str()
                .ok()
                .and_then(|value| value.parse().ok())
                .filter(|&len: &usize| len <= self.body.len()),
        };
        let framed = json_len
            .and_then(|len| self.body.get(..len))
            .is_some_and(|json| json.first() == Some(&b'{') && json.trim_ascii_end().last() == Some(&b'}'));
        let outcome = match self.status {
            StatusCode::OK if framed => Outcome::Ok,
            StatusCode::OK => Outcome::Failed(Failure::BadReply),
            status => Outcome::Failed(Failure::Status(status.as_u16())),
        };
        (outcome, timings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, json_len: Option<&str>, body: &'static str) -> Reply {
        let mut headers = HeaderMap::new();
        if let Some(len) = json_len {
            headers.insert(HEADER_LENGTH, len.parse().unwrap());
        }
        headers.insert("server-timing", "infer;dur=1.5, rows;desc=\"2\"".parse().unwrap());
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    #[test]
    fn replies_are_judged_by_status_and_frame() {
        let failed = |failure| Outcome::Failed(failure);
        for (reply, expected) in [
            (reply(200, None, "{}"), Outcome::Ok),
            (reply(200, Some("2"), "{}\u{1}\u{2}"), Outcome::Ok),
            (reply(200, None, ""), failed(Failure::BadReply)),
            (reply(200, None, "{\"cut"), failed(Failure::BadReply)),
            (reply(200, Some("9"), "{}"), failed(Failure::BadReply)),
            (reply(200, Some("x"), "{}"), failed(Failure::BadReply)),
            (reply(503, None, "{}"), failed(Failure::Status(503))),
        ] {
            assert_eq!(reply.judge().0, expected);
        }
        assert_eq!(reply(200, None, "{}").judge().1.unwrap().batch_rows, 2);
    }

    #[test]
    fn addresses_are_taken_apart() {
        for (url, authority, path) in [
            (
                "http://localhost/v2/models/m/infer",
                "localhost:80",
                "/v2/models/m/infer",
            ),
            ("http://[::1]:8000/a%20b?c=d", "[::1]:8000", "/a%20b?c=d"),
        ] {
            let target = Target::new(&url.parse().unwrap()).unwrap();
            assert_eq!(
                (target.authority.as_str(), target.path.to_string().as_str()),
                (authority, path)
            );
        }
    }
}
