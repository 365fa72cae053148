//! Activity of a connection in any protocol: requests in progress, requests that wait for their client, unread replies,
//! and the time of the last byte sent or received; and the bodies that report their waits to it.
//!
//! In: start and end of requests, bodies of requests and replies. Out: the time for which a connection has been idle or
//! waiting for its client; the signal to close it; the same bodies, with their waits recorded: a missing next part of a
//! request, and every reply byte that is not in the socket's buffer yet.

use crate::request::{Admission, CountedBytes};
use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Reason to close a connection before its client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The server drains, or the client has been silent for too long. Requests in progress are finished.
    Graceful,
    /// Its slot or its memory is needed, and every request in progress waits for the client.
    Evicted,
}

/// State of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// Requests whose replies have not been handed to the connection.
    open: AtomicUsize,
    /// Open requests that never keep a connection open: health requests, and requests that wait for the client to send
    /// more of a body or read more of a reply.
    evictable: AtomicUsize,
    /// True while a write waits for the client.
    stalled: AtomicBool,
    /// Time of the last byte sent or received, in milliseconds since the connection was accepted.
    last_io_ms: AtomicU64,
    /// Bytes of replies that the client has not read.
    pub(super) held_bytes: AtomicUsize,
    /// True once a body was abandoned before its end.
    pub(super) body_abandoned: AtomicBool,
    evicted: AtomicBool,
    close_notify: Notify,
    admission: Arc<Admission>,
    /// True if accepted above the maximum number of connections: only health requests are answered.
    pub(super) for_health: bool,
}

impl Activity {
    pub(super) fn new(admission: Arc<Admission>, for_health: bool) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            open: AtomicUsize::new(0),
            evictable: AtomicUsize::new(0),
            stalled: AtomicBool::new(false),
            last_io_ms: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
            body_abandoned: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            close_notify: Notify::new(),
            admission,
            for_health,
        })
    }

    /// Counts a request until it is dropped; `probe` is true for a health request.
    pub(super) fn open(self: &Arc<Self>, probe: bool) -> Arc<OpenRequest> {
        self.open.fetch_add(1, Relaxed);
        let open = OpenRequest {
            activity: Arc::clone(self),
            probe,
            waits: Mutex::default(),
        };
        open.change(|_| {});
        Arc::new(open)
    }

    /// Counts bytes of a reply until the guard is dropped.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        self.held_bytes.fetch_add(bytes, Relaxed);
        self.admission.hold_reply(bytes);
        HeldBytes {
            activity: Arc::clone(self),
            bytes,
        }
    }

    /// Records the start or end of a write's wait for the client.
    pub(super) fn set_stalled(&self, stalled: bool) {
        self.stalled.store(stalled, Relaxed);
        self.record_io();
    }

    /// Records that bytes were sent or received.
    pub(super) fn record_io(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_io_ms.store(ms, Relaxed);
    }

    /// True if a write, or a part of a body or reply, waits for the client.
    pub(super) fn waits_for_client(&self) -> bool {
        self.stalled.load(Relaxed) || self.evictable.load(Relaxed) > 0
    }

    /// Time since which the server has had nothing to do for this connection: it is idle, or every request in progress
    /// waits for the client or is a health request. `None` while the server works for it.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.open.load(Relaxed) <= self.evictable.load(Relaxed)).then(|| self.last_io())
    }

    /// Time of the last byte sent or received.
    pub(super) fn last_io(&self) -> Instant {
        self.began + Duration::from_millis(self.last_io_ms.load(Relaxed))
    }

    /// Completes once there has been no request and no waiting write for `time`.
    pub(super) async fn silent_for(&self, time: Duration) {
        loop {
            // While a request is in progress, checked again after `time`: the silence cannot be long enough before.
            let idle = self.open.load(Relaxed) == 0 && !self.stalled.load(Relaxed);
            let left = match idle.then(|| self.last_io().elapsed()) {
                Some(silence) if silence >= time => return,
                Some(silence) => time - silence,
                None => time,
            };
            tokio::time::sleep(left).await;
        }
    }

    /// Asks the connection to end.
    pub(super) fn request_close(&self, close_reason: CloseReason) {
        if close_reason == CloseReason::Evicted {
            self.evicted.store(true, Relaxed);
        }
        self.close_notify.notify_one();
    }

    /// Completes when the connection is asked to end.
    pub(super) async fn close_requested(&self) -> CloseReason {
        self.close_notify.notified().await;
        match self.evicted.load(Relaxed) {
            true => CloseReason::Evicted,
            false => CloseReason::Graceful,
        }
    }

    /// Completes when the connection is evicted.
    pub(super) async fn evicted(&self) {
        while self.close_requested().await != CloseReason::Evicted {}
    }
}

/// An unanswered request.
#[derive(Debug)]
pub(in crate::front) struct OpenRequest {
    pub(super) activity: Arc<Activity>,
    /// True for a health request.
    pub(super) probe: bool,
    waits: Mutex<RequestWaits>,
}

/// Number of waits of a request, by kind.
#[derive(Debug, Default)]
struct RequestWaits {
    /// Waits for the next part of its body.
    body: usize,
    /// Waits for room for the next part of its reply.
    capacity: usize,
    /// Waits for answers to messages of its stream.
    answers: usize,
    /// True if the request is counted in `Activity::evictable`.
    evictable: bool,
}

impl OpenRequest {
    fn change(&self, change: impl FnOnce(&mut RequestWaits)) {
        let mut waits = self.waits.lock();
        change(&mut waits);
        let evictable = self.probe || waits.capacity > 0 || (waits.body > 0 && waits.answers == 0);
        match (std::mem::replace(&mut waits.evictable, evictable), evictable) {
            (false, true) => self.activity.evictable.fetch_add(1, Relaxed),
            (true, false) => self.activity.evictable.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }

    fn wait(self: &Arc<Self>, counter: fn(&mut RequestWaits) -> &mut usize) -> WaitGuard {
        self.activity.record_io();
        self.change(|waits| *counter(waits) += 1);
        let open = Arc::clone(self);
        WaitGuard { open, counter }
    }

    /// Waits for the client to send more of the body.
    pub(super) fn wait_for_body(self: &Arc<Self>) -> WaitGuard {
        self.wait(|waits| &mut waits.body)
    }

    /// Waits for the client to read more of the reply.
    pub(super) fn wait_for_capacity(self: &Arc<Self>) -> WaitGuard {
        self.wait(|waits| &mut waits.capacity)
    }

    /// Waits for the server to answer a message of the request's stream, which may meanwhile wait for the client's next
    /// message.
    pub(in crate::front) fn wait_for_answer(self: &Arc<Self>) -> WaitGuard {
        self.wait(|waits| &mut waits.answers)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.activity.record_io();
        if self.waits.get_mut().evictable {
            self.activity.evictable.fetch_sub(1, Relaxed);
        }
        self.activity.open.fetch_sub(1, Relaxed);
    }
}

/// Guard of a wait, which ends when it is dropped.
#[derive(Debug)]
pub(in crate::front) struct WaitGuard {
    open: Arc<OpenRequest>,
    counter: fn(&mut RequestWaits) -> &mut usize,
}

impl WaitGuard {
    /// Records that the client has sent or read something.
    pub(super) fn record_io(&self) {
        self.open.activity.record_io();
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.record_io();
        self.open.change(|waits| *(self.counter)(waits) -= 1);
    }
}

/// Guard of reply bytes that the client has not read.
#[derive(Debug)]
pub(super) struct HeldBytes {
    activity: Arc<Activity>,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.activity.held_bytes.fetch_sub(self.bytes, Relaxed);
        self.activity.admission.release_reply(self.bytes);
    }
}

/// Approximate memory of a queued reply besides its body: stream, task and head.
const REPLY_BYTES: usize = 1 << 10;

/// Body of a request.
pub(super) struct RequestBody<B> {
    body: B,
    /// `None` after the end of the body.
    open: Option<Arc<OpenRequest>>,
    waiting: Option<WaitGuard>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> RequestBody<B> {
    pub(super) fn new(body: B, open: &Arc<OpenRequest>) -> Self {
        let open = (!body.is_end_stream()).then(|| Arc::clone(open));
        Self {
            body,
            open,
            waiting: None,
        }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Pending => {
                if let (Some(open), None) = (&self.open, &self.waiting) {
                    self.waiting = Some(open.wait_for_body());
                }
            }
            Poll::Ready(frame) => {
                self.waiting = None;
                if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
                    self.open = None;
                }
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.activity.body_abandoned.store(true, Relaxed);
        }
    }
}

/// Body of a reply. Its request stays open until the body has been handed to the connection.
pub(super) struct ReplyBody {
    pub(super) body: Body,
    pub(super) open: Arc<OpenRequest>,
}

impl HttpBody for ReplyBody {
    type Data = ReplyPart;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ReplyPart>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map_ok(|frame| frame.map_data(|data| ReplyPart::new(data, &self.open.activity)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Part of a reply, counted until all of it is in the socket's buffer.
#[derive(Debug, Default)]
pub(super) struct ReplyPart {
    bytes: Bytes,
    /// `None` if the bytes themselves carry the count, or if there are no bytes.
    holding: Option<HeldBytes>,
}

impl ReplyPart {
    pub(super) fn new(bytes: Bytes, activity: &Arc<Activity>) -> Self {
        let holding = activity.hold(bytes.len() + REPLY_BYTES);
        Self {
            bytes,
            holding: Some(holding),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Splits off the first `at` bytes. All pieces share memory, which stays counted until the last of them is dropped.
    pub(super) fn split_to(&mut self, at: usize) -> Self {
        if let Some(holding) = self.holding.take() {
            let bytes = std::mem::take(&mut self.bytes);
            self.bytes = Bytes::from_owner(CountedBytes { bytes, _count: holding });
        }
        Self {
            bytes: self.bytes.split_to(at),
            holding: None,
        }
    }
}

impl Buf for ReplyPart {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Admission, Limits};
    use futures::StreamExt;
    use prometheus::IntGauge;
    use std::time::Duration;

    fn activity() -> (Arc<Admission>, Arc<Activity>) {
        let limits = Limits {
            max_in_flight: 1,
            max_body_bytes: 1,
            max_buffered_bytes: 5000,
            timeout: Duration::from_secs(1),
        };
        let admission = Admission::new(limits, IntGauge::new("a", "a").unwrap());
        (Arc::clone(&admission), Activity::new(admission, false))
    }

    #[test]
    fn replies_of_every_size_are_counted_until_their_last_piece_is_gone() {
        let (admission, activity) = activity();
        let small = ReplyPart::new(Bytes::from_static(b"small"), &activity);
        assert_eq!(activity.held_bytes.load(Relaxed), 5 + REPLY_BYTES);
        let mut large = ReplyPart::new(Bytes::from(vec![7; 4000]), &activity);
        assert!(admission.replies_are_full());
        let (first, second) = (large.split_to(10), large.split_to(3000));
        assert_eq!((first.len(), second.len(), large.len()), (10, 3000, 990));
        drop((small, first, large));
        assert_eq!(activity.held_bytes.load(Relaxed), 4000 + REPLY_BYTES);
        assert_eq!(second.chunk(), vec![7; 3000]);
        drop(second);
        assert_eq!(activity.held_bytes.load(Relaxed), 0);
        assert!(!admission.replies_are_full());
    }

    #[tokio::test]
    async fn a_body_waits_for_its_client_until_its_next_part_is_there() {
        use futures::FutureExt;
        use http_body_util::BodyExt;
        let (_, activity) = activity();
        let (mut client, body) = futures::channel::mpsc::channel(1);
        let body = Body::from_stream(body.map(Ok::<Bytes, std::io::Error>));
        let open = activity.open(false);
        let mut received = RequestBody::new(body, &open);
        assert!(activity.idle_since().is_none());
        assert!(received.frame().now_or_never().is_none());
        assert!(activity.waits_for_client() && activity.idle_since().is_some());
        client.try_send(Bytes::from_static(b"a")).unwrap();
        received.frame().await.unwrap().unwrap();
        assert!(!activity.waits_for_client());
        drop(client);
        assert!(received.frame().await.is_none());
        assert!(!activity.waits_for_client() && activity.idle_since().is_none());
        drop((open, received));
        assert!(activity.idle_since().is_some());
    }

    #[test]
    fn a_stream_is_at_work_while_a_message_is_answered_and_its_client_takes_replies() {
        let (_, activity) = activity();
        let (stream, working) = (activity.open(false), activity.open(false));
        let body = stream.wait_for_body();
        let answers = [(); 2].map(|()| stream.wait_for_answer());
        drop(working);
        assert!(activity.idle_since().is_none());
        let capacity = stream.wait_for_capacity();
        assert!(activity.idle_since().is_some(), "its client does not take replies");
        drop(capacity);
        let [first, second] = answers;
        drop(first);
        assert!(activity.idle_since().is_none());
        drop(second);
        assert!(activity.idle_since().is_some(), "its client sends nothing");
        drop(body);
        assert!(activity.idle_since().is_none());
    }

    #[test]
    fn a_request_that_waits_twice_hides_no_other() {
        let (_, activity) = activity();
        let (stream, working) = (activity.open(false), activity.open(false));
        let _waits = (stream.wait_for_body(), stream.wait_for_capacity());
        assert!(activity.idle_since().is_none());
        drop(working);
        assert!(activity.idle_since().is_some());
    }
}
