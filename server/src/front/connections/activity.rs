//! Activity of a connection in any protocol: requests in progress, requests that wait for their client, unread replies, and the
//! time of the last byte sent or received.
//!
//! In: start and end of requests, waits of bodies and replies. Out: whether a connection is idle or waits for its client, and
//! for how long; the signal to close it.

use crate::request::Admission;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Why a connection has to end before its client ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dismissal {
    /// The server drains, or the client has sent nothing for long: what is under way is finished.
    Finish,
    /// Its room or its memory is needed, and nothing is under way that does not wait for the client.
    Evicted,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// Requests whose replies are not handed to the connection yet.
    open: AtomicUsize,
    /// Those of them that wait for the client, for more of a body or for room to send more of a reply, or that ask for the
    /// server's health: they never keep a connection open.
    at_rest: AtomicUsize,
    /// True while a write waits for the client.
    stalled: AtomicBool,
    /// When bytes were last sent or received, in milliseconds after the beginning.
    moved_ms: AtomicU64,
    /// Bytes of replies that the client has not taken.
    pub(super) held_bytes: AtomicUsize,
    /// True once a body was left before its end.
    pub(super) body_left: AtomicBool,
    evicted: AtomicBool,
    leave: Notify,
    admission: Arc<Admission>,
    /// Let in when as many as may be were open: it may only ask for health.
    pub(super) for_health: bool,
}

impl Activity {
    pub(super) fn new(admission: Arc<Admission>, for_health: bool) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            open: AtomicUsize::new(0),
            at_rest: AtomicUsize::new(0),
            stalled: AtomicBool::new(false),
            moved_ms: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
            body_left: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            leave: Notify::new(),
            admission,
            for_health,
        })
    }

    /// Counts a request until it is dropped; `probe` says whether it asks for the server's health.
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

    /// Says whether a write waits for the client.
    pub(super) fn set_stalled(&self, stalled: bool) {
        self.stalled.store(stalled, Relaxed);
        self.touch();
    }

    /// Notes that bytes were sent or received.
    pub(super) fn touch(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(ms, Relaxed);
    }

    /// True if a write, or a part of a body or reply, waits for the client.
    pub(super) fn waits_for_client(&self) -> bool {
        self.stalled.load(Relaxed) || self.at_rest.load(Relaxed) > 0
    }

    /// Since when the server has had nothing to do for this connection: it is idle, or every request under way waits for the
    /// client or asks for health. None while the server works for it.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.open.load(Relaxed) <= self.at_rest.load(Relaxed)).then(|| self.moved())
    }

    /// When bytes were last sent or received.
    pub(super) fn moved(&self) -> Instant {
        self.began + Duration::from_millis(self.moved_ms.load(Relaxed))
    }

    /// Ends once there was no request and no waiting write for this long.
    pub(super) async fn silent_for(&self, time: Duration) {
        loop {
            // While a request is under way, checked again after `time`: it cannot be silent for long enough before.
            let left = match self.silence() {
                Some(silence) if silence >= time => return,
                Some(silence) => time - silence,
                None => time,
            };
            tokio::time::sleep(left).await;
        }
    }

    /// Asks the connection to end.
    pub(super) fn dismiss(&self, dismissal: Dismissal) {
        if dismissal == Dismissal::Evicted {
            self.evicted.store(true, Relaxed);
        }
        self.leave.notify_one();
    }

    /// Ends when the connection is asked to end.
    pub(super) async fn dismissed(&self) -> Dismissal {
        self.leave.notified().await;
        if self.evicted.load(Relaxed) {
            Dismissal::Evicted
        } else {
            Dismissal::Finish
        }
    }

    /// Ends when the connection is evicted.
    pub(super) async fn evicted(&self) {
        while self.dismissed().await != Dismissal::Evicted {}
    }

    /// Time without traffic; `None` while a request is in progress.
    fn silence(&self) -> Option<Duration> {
        let idle = self.open.load(Relaxed) == 0 && !self.stalled.load(Relaxed);
        idle.then(|| self.moved().elapsed())
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(in crate::front) struct OpenRequest {
    pub(super) activity: Arc<Activity>,
    /// True if it asks for the server's health.
    pub(super) probe: bool,
    waits: Mutex<Waits>,
}

/// Counts of the things that a request waits for.
#[derive(Debug, Default)]
struct Waits {
    /// The next part of its body.
    body: usize,
    /// Room for the next part of its reply.
    room: usize,
    /// The answers to messages of its stream.
    answers: usize,
    /// True if the request is counted as one at rest.
    at_rest: bool,
}

impl OpenRequest {
    fn change(&self, change: impl FnOnce(&mut Waits)) {
        let mut waits = self.waits.lock();
        change(&mut waits);
        let at_rest = self.probe || waits.room > 0 || (waits.body > 0 && waits.answers == 0);
        match (std::mem::replace(&mut waits.at_rest, at_rest), at_rest) {
            (false, true) => self.activity.at_rest.fetch_add(1, Relaxed),
            (true, false) => self.activity.at_rest.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }

    fn wait(self: &Arc<Self>, what: fn(&mut Waits) -> &mut usize) -> Waiting {
        self.activity.touch();
        self.change(|waits| *what(waits) += 1);
        let open = Arc::clone(self);
        Waiting { open, what }
    }

    /// Waits for the client to send more of the body.
    pub(super) fn wait_for_body(self: &Arc<Self>) -> Waiting {
        self.wait(|waits| &mut waits.body)
    }

    /// Waits for the client to take more of the reply.
    pub(super) fn wait_for_room(self: &Arc<Self>) -> Waiting {
        self.wait(|waits| &mut waits.room)
    }

    /// Waits for the server to answer a message of the request's stream, which may wait for its client's next message meanwhile.
    pub(in crate::front) fn wait_for_answer(self: &Arc<Self>) -> Waiting {
        self.wait(|waits| &mut waits.answers)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.activity.touch();
        if self.waits.get_mut().at_rest {
            self.activity.at_rest.fetch_sub(1, Relaxed);
        }
        self.activity.open.fetch_sub(1, Relaxed);
    }
}

/// A request that waits, until it is dropped.
#[derive(Debug)]
pub(in crate::front) struct Waiting {
    open: Arc<OpenRequest>,
    what: fn(&mut Waits) -> &mut usize,
}

impl Waiting {
    /// Notes that the client has sent or read something.
    pub(super) fn touch(&self) {
        self.open.activity.touch();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.touch();
        self.open.change(|waits| *(self.what)(waits) -= 1);
    }
}

/// Bytes of a reply that its client has not taken.
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
