//! HTTP side of faults: a service and a body that follow a plan. In: the requests of the S3 service. Out: its replies,
//! delayed, paced, broken off or of another version. Independent of folders.

use super::faults::{Fault, FaultDraw, FaultPlan, Faults};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER};
use hyper::service::Service;
use hyper::{Method, Request, Response};
use s3s::service::S3Service;
use s3s::{Body, HttpError, StdError};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Bytes of a paced body released at a time.
const PACED_BYTES: usize = 64 << 10;
/// Pause before a body breaks off, so that the bytes before it are sent.
const FLUSH_PAUSE: Duration = Duration::from_millis(2);

/// S3 service of one connection, with the faults of a plan.
pub(super) struct Shaped {
    pub(super) inner: S3Service,
    pub(super) faults: Faults,
    /// Flag of the requests' connection.
    pub(super) reset: Arc<AtomicBool>,
}

impl Service<Request<Incoming>> for Shaped {
    type Response = Response<ShapedBody>;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, HttpError>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (is_get, is_head) = (request.method() == Method::GET, request.method() == Method::HEAD);
        // `/bucket/key`, or with the bucket in the host's name `/key`. Some SDKs add `x-id=GetObject`; a listing has
        // another query.
        let of_object = request.uri().query().is_none_or(|q| q.starts_with("x-id=")) && request.uri().path().len() > 1;
        let (plan, draw) = self.faults.next((is_get || is_head) && of_object);
        let inner = self.inner.clone();
        let reset = Arc::clone(&self.reset);
        Box::pin(async move {
            let mut wait_ms = plan.first_byte_ms;
            if draw.fault == Some(Fault::Slow) {
                wait_ms += plan.slow_ms;
            }
            if wait_ms > 0 {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            }
            if let Some(Fault::Status(status)) = draw.fault {
                return Ok(refusal(status, plan.retry_after_s).map(|body| ShapedBody::plain(body, reset)));
            }
            let mut reply = inner.call(request.map(Body::from)).await?;
            let changed = is_get && draw.fault == Some(Fault::Change) && reply.status().is_success();
            if changed {
                reply
                    .headers_mut()
                    .insert(ETAG, HeaderValue::from_static("\"another-version\""));
            }
            let shaped = is_get && reply.status().is_success();
            Ok(reply.map(|body| {
                let mut body = ShapedBody::plain(body, reset);
                body.inverted = changed;
                if shaped {
                    body.shape(&plan, draw);
                }
                body
            }))
        })
    }
}

fn refusal(status: u16, retry_after_s: Option<u32>) -> Response<Body> {
    let code = match status {
        503 | 429 => "SlowDown",
        _ => "InternalError",
    };
    let text = format!("<Error><Code>{code}</Code><Message>injected fault</Message></Error>");
    let mut reply = Response::new(Body::from(text));
    *reply.status_mut() = status.try_into().unwrap_or_default();
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    if let Some(seconds) = retry_after_s {
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    reply
}

/// Paced body, with the position at which it breaks off.
pub(super) struct ShapedBody {
    inner: Body,
    /// Bytes from `inner`, not yet released.
    held: Bytes,
    sent: u64,
    began: Option<Instant>,
    bytes_per_s: Option<f64>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Fault, and the number of bytes before it.
    break_at: Option<(Fault, u64)>,
    paused: bool,
    inverted: bool,
    reset: Arc<AtomicBool>,
}

impl ShapedBody {
    fn plain(inner: Body, reset: Arc<AtomicBool>) -> Self {
        Self {
            inner,
            held: Bytes::new(),
            sent: 0,
            began: None,
            bytes_per_s: None,
            pause: None,
            break_at: None,
            paused: false,
            inverted: false,
            reset,
        }
    }

    fn shape(&mut self, plan: &FaultPlan, draw: FaultDraw) {
        self.bytes_per_s = plan.mb_per_s.map(|mb| mb * 1e6);
        let breaking = |fault: &Fault| matches!(fault, Fault::Stall | Fault::Truncate | Fault::Reset);
        if let Some(fault) = draw.fault.filter(breaking) {
            let len = self.inner.size_hint().exact().unwrap_or(0);
            // Below the length, so that something is always missing.
            self.break_at = Some((fault, (len as f64 * draw.at) as u64));
        }
    }

    /// Ends the body at the fault's position.
    fn abort(&mut self, fault: Fault, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        if !self.paused {
            self.paused = true;
            let mut pause = Box::pin(tokio::time::sleep(FLUSH_PAUSE));
            let pending = pause.as_mut().poll(cx).is_pending();
            self.pause = pending.then_some(pause);
            return Poll::Pending;
        }
        match fault {
            // No event wakes this body again; it ends with its connection.
            Fault::Stall => return Poll::Pending,
            Fault::Reset => self.reset.store(true, Ordering::Relaxed),
            _ => {}
        }
        Poll::Ready(Some(Err("injected fault".into())))
    }

    /// Returns the maximum bytes to release now.
    fn max_piece(&self) -> usize {
        let paced = self.bytes_per_s.map_or(usize::MAX, |_| PACED_BYTES);
        let unbroken = self.break_at.map_or(usize::MAX, |(_, at)| {
            usize::try_from(at - self.sent).unwrap_or(usize::MAX)
        });
        paced.min(unbroken)
    }
}

impl HttpBody for ShapedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if let Some((fault, at)) = self.break_at
            && self.sent >= at
        {
            return self.abort(fault, cx);
        }
        if self.held.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(cx)?) else {
                return Poll::Ready(None);
            };
            match frame.into_data() {
                Ok(data) if self.inverted => self.held = data.iter().map(|byte| !byte).collect(),
                Ok(data) => self.held = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let longest = self.max_piece().min(self.held.len());
        let piece = self.held.split_to(longest);
        self.sent += piece.len() as u64;
        if let Some(rate) = self.bytes_per_s {
            let began = *self.began.get_or_insert_with(Instant::now);
            let due = began + Duration::from_secs_f64(self.sent as f64 / rate);
            self.pause = Some(Box::pin(tokio::time::sleep_until(due)));
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.break_at.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint().exact().map_or_else(SizeHint::default, |rest| {
            SizeHint::with_exact(rest + self.held.len() as u64)
        })
    }
}
