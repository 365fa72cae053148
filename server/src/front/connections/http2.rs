//! HTTP/2 on one connection, with replies paced by the client's flow control.
//!
//! In: a stream that begins with the HTTP/2 preface, and the routes. Out: replies. A reply is handed to the protocol
//! only as far as the client's windows allow, so that waiting bytes are known per stream: a stream without progress is
//! reset, and its bytes are released. hyper would hand over whole replies, whose progress is then unknown.

use super::activity::{Activity, CloseReason, OpenRequest, ReplyBody, ReplyPart, RequestBody, WaitGuard};
use super::guarded::{GuardedStream, PROGRESS_BYTES, Transport};
use super::shared::{CLOSE_TIMEOUT, Endpoint, MAX_HEAD_BYTES, answer, close_reason};
use crate::front::Routes;
use crate::front::access::is_health_path;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures::FutureExt;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::{HeaderValue, Method, Request, Response};
use hyper::body::Frame;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, timeout};

/// Maximum streams of a connection.
const MAX_STREAMS: u32 = 256;
/// Flow-control window of a stream and of a connection.
const WINDOW_BYTES: u32 = 1 << 20;
/// Maximum bytes buffered for one stream before the socket takes them.
const SEND_BUFFER_BYTES: usize = 400 << 10;
/// Maximum locally reset streams that are remembered, for frames that arrive late.
const MAX_LOCAL_RESETS: usize = 1024;
/// Time limit of the answer to a ping.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum bytes reserved of a window at a time, so that streams share it.
const PIECE_BYTES: usize = PROGRESS_BYTES;

/// Serves one connection to its end.
pub(super) async fn serve<S: Transport, R: Routes>(
    server: &Arc<Endpoint<R>>,
    stream: GuardedStream<S>,
    activity: &Arc<Activity>,
) {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_local_error_reset_streams(Some(MAX_LOCAL_RESETS));
    let handshake = timeout(server.config.bounds.header_timeout, builder.handshake(stream));
    let handshake = tokio::select! {
        handshake = handshake => handshake,
        _ = activity.close_requested() => return,
    };
    let mut connection = match handshake {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!(%error, "HTTP/2 handshake failed"),
        Err(_) => return tracing::debug!("HTTP/2 handshake took too long"),
    };
    // `None` if the client does not answer pings. A separate task, because a connection is polled several times for
    // each request, and then only reads a flag.
    let mut close_reason = tokio::spawn({
        let (activity, pings) = (Arc::clone(activity), connection.ping_pong());
        let timeout = server.config.bounds.header_timeout;
        async move {
            tokio::select! {
                close_reason = close_reason(&activity, timeout) => Some(close_reason),
                () = wait_for_missed_pong(pings, timeout) => None,
            }
        }
    });
    let ended = accept_streams(server, &mut connection, activity, &mut close_reason).await;
    close_reason.abort();
    match ended {
        None => {}
        Some(CloseReason::Evicted) => {
            connection.abrupt_shutdown(Reason::NO_ERROR);
            // The goodbye is sent only if that needs no waiting: the slot is needed now.
            let _ = poll_fn(|cx| connection.poll_closed(cx)).now_or_never();
        }
        Some(CloseReason::Graceful) => {
            // A connection that has long been silent still gets time to send the goodbye.
            activity.record_io();
            connection.graceful_shutdown();
            // Streams that the client opened before it received the goodbye are answered.
            let last_streams = async {
                while let Some(Ok((request, respond))) = connection.accept().await {
                    start_stream(server, request, respond, activity);
                }
            };
            tokio::select! {
                () = last_streams => {}
                () = activity.silent_for(CLOSE_TIMEOUT) => {}
                () = activity.evicted() => {}
            }
        }
    }
}

/// Pings the client after each `pause`; completes when the client does not answer.
async fn wait_for_missed_pong(pings: Option<PingPong>, pause: Duration) {
    let Some(mut pings) = pings else {
        return std::future::pending().await;
    };
    loop {
        sleep(pause).await;
        let pong = async {
            pings.send_ping(Ping::opaque())?;
            poll_fn(|cx| pings.poll_pong(cx)).await
        };
        if !matches!(timeout(PONG_TIMEOUT, pong).await, Ok(Ok(_))) {
            return;
        }
    }
}

/// Accepts streams until the client ends the connection or is gone (`None`), or the server ends it.
async fn accept_streams<S: Transport, R: Routes>(
    server: &Arc<Endpoint<R>>,
    connection: &mut Connection<GuardedStream<S>, ReplyPart>,
    activity: &Arc<Activity>,
    end: &mut JoinHandle<Option<CloseReason>>,
) -> Option<CloseReason> {
    loop {
        tokio::select! {
            biased;
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => start_stream(server, request, respond, activity),
                Some(Err(error)) => {
                    tracing::debug!(%error, "connection ended early");
                    return None;
                }
                None => return None,
            },
            ended = &mut *end => return ended.ok().flatten(),
        }
    }
}

fn start_stream<R: Routes>(
    server: &Arc<Endpoint<R>>,
    request: Request<RecvStream>,
    respond: SendResponse<ReplyPart>,
    activity: &Arc<Activity>,
) {
    let stream_body = |recv| StreamBody { recv, data_done: false };
    let open = activity.open(is_health_path(request.uri().path()));
    let request = request.map(|recv| Body::new(RequestBody::new(stream_body(recv), &open)));
    let write_timeout = server.config.bounds.write_timeout;
    let head_only = request.method() == Method::HEAD;
    let reply = answer(Arc::clone(server), request, Arc::clone(&open));
    tokio::spawn(async move {
        if let Err(error) = exchange(reply, respond, open, write_timeout, head_only).await {
            tracing::debug!(%error, "stream ended early");
        }
    });
}

/// Answers one stream, without a body for a HEAD request. If the client resets the stream, its work is dropped.
async fn exchange(
    reply: impl Future<Output = Response<ReplyBody>>,
    mut respond: SendResponse<ReplyPart>,
    open: Arc<OpenRequest>,
    write_timeout: Duration,
    head_only: bool,
) -> Result<(), h2::Error> {
    let mut reply = pin!(reply);
    let response = poll_fn(|cx| match reply.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Ok(response)),
        Poll::Pending => respond.poll_reset(cx).map(reset_error),
    });
    let (mut head, mut body) = response.await?.into_parts();
    head.headers.remove(CONNECTION);
    head.headers.entry(DATE).or_insert_with(date);
    let empty = body.is_end_stream();
    if let (false, Some(bytes)) = (empty, body.size_hint().exact()) {
        let length = head.headers.entry(CONTENT_LENGTH);
        length.or_insert_with(|| HeaderValue::from(bytes));
    }
    let is_whole = empty || head_only;
    let stream = respond.send_response(Response::from_parts(head, ()), is_whole)?;
    if is_whole {
        return Ok(());
    }
    let mut reply_stream = ReplyStream {
        stream,
        open,
        write_timeout,
        wait: None,
    };
    while let Some(frame) = reply_stream.next_frame(&mut body).await? {
        match frame.into_data() {
            Ok(data) => {
                let end = body.is_end_stream();
                reply_stream.send(data, end).await?;
                if end {
                    return Ok(());
                }
            }
            Err(frame) => {
                return frame
                    .into_trailers()
                    .map_or(Ok(()), |trailers| reply_stream.stream.send_trailers(trailers));
            }
        }
    }
    reply_stream.stream.send_data(ReplyPart::default(), true)
}

/// Error of a stream that its client has reset.
fn reset_error<T>(reset: Result<Reason, h2::Error>) -> Result<T, h2::Error> {
    Err(reset.map_or_else(|e| e, h2::Error::from))
}

/// A reply being sent.
struct ReplyStream {
    stream: SendStream<ReplyPart>,
    open: Arc<OpenRequest>,
    write_timeout: Duration,
    /// Set while a part waits, until it or [`PROGRESS_BYTES`] are handed over.
    wait: Option<ClientWait>,
}

struct ClientWait {
    limit: Pin<Box<Sleep>>,
    bytes: usize,
    waiting: WaitGuard,
}

impl ReplyStream {
    /// Returns the next frame of a body.
    async fn next_frame(&mut self, body: &mut ReplyBody) -> Result<Option<Frame<ReplyPart>>, h2::Error> {
        let frame = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => self.stream.poll_reset(cx).map(reset_error),
        });
        match frame.await? {
            None => Ok(None),
            Some(Ok(frame)) => Ok(Some(frame)),
            Some(Err(_)) => {
                self.stream.send_reset(Reason::INTERNAL_ERROR);
                Err(Reason::INTERNAL_ERROR.into())
            }
        }
    }

    /// Hands data to the protocol as its windows allow.
    async fn send(&mut self, mut data: ReplyPart, end: bool) -> Result<(), h2::Error> {
        while data.len() > 0 {
            self.stream.reserve_capacity(data.len().min(PIECE_BYTES));
            let capacity = match self.stream.capacity() {
                0 => self.wait_for_capacity().await?,
                capacity => capacity,
            };
            if capacity >= data.len() {
                break;
            }
            self.stream.send_data(data.split_to(capacity), false)?;
            if let Some(wait) = &mut self.wait {
                wait.bytes += capacity;
                wait.waiting.record_io();
                if wait.bytes >= PROGRESS_BYTES {
                    self.wait = None;
                }
            }
        }
        self.wait = None;
        self.stream.send_data(data, end)
    }

    /// Waits until the client has room for more. If that takes too long, resets the stream.
    async fn wait_for_capacity(&mut self) -> Result<usize, h2::Error> {
        let wait = self.wait.get_or_insert_with(|| ClientWait {
            limit: Box::pin(sleep(self.write_timeout)),
            bytes: 0,
            waiting: self.open.wait_for_capacity(),
        });
        let stream = &mut self.stream;
        let capacity = poll_fn(|cx| {
            loop {
                match stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(0))) => {}
                    Poll::Ready(Some(capacity)) => return Poll::Ready(capacity.map(Some)),
                    Poll::Ready(None) => return Poll::Ready(Err(Reason::CANCEL.into())),
                    Poll::Pending => break,
                }
            }
            wait.limit.as_mut().poll(cx).map(|()| Ok(None))
        });
        match capacity.await? {
            Some(capacity) => Ok(capacity),
            None => {
                tracing::debug!("client does not read the reply of a stream");
                self.stream.send_reset(Reason::CANCEL);
                Err(Reason::CANCEL.into())
            }
        }
    }
}

/// Body of a request.
struct StreamBody {
    recv: RecvStream,
    data_done: bool,
}

/// Converts an error of a body. A reset stream or a broken connection means that the client is gone, not that its
/// request is invalid.
fn body_error(error: h2::Error) -> Option<io::Error> {
    match error.reason() {
        // The reply was sent before the end of the body, whose rest is not needed.
        Some(Reason::NO_ERROR) => None,
        Some(Reason::CANCEL | Reason::REFUSED_STREAM) => Some(io::Error::new(io::ErrorKind::ConnectionReset, error)),
        _ if error.is_io() => Some(io::Error::new(io::ErrorKind::ConnectionReset, error)),
        _ => Some(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.data_done {
            match ready!(self.recv.poll_data(cx)) {
                Some(Ok(data)) => {
                    let _ = self.recv.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(body_error(error).map(Err)),
                None => self.data_done = true,
            }
        }
        Poll::Ready(match ready!(self.recv.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => body_error(error).map(Err),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.recv.is_end_stream()
    }
}

/// Value of the header `date`, formatted once a second.
fn date() -> HeaderValue {
    thread_local! {
        static LAST: RefCell<(u64, HeaderValue)> = const { RefCell::new((u64::MAX, HeaderValue::from_static(""))) };
    }
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let second = since.map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(last, value)| {
        if *last != second {
            let text = httpdate::fmt_http_date(now);
            *value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
            *last = second;
        }
        value.clone()
    })
}
