//! Admission: a limit of requests in flight, with a share of it for each model, and a limit of the bytes that requests
//! hold.
//!
//! In: requests, and the bytes of their bodies, tensors and replies. Out: guards that release on drop, or an immediate
//! refusal: nothing waits here.
//!
//! Share: a model may have as many requests in flight as [`FREE_SHARE`] times the free ones, the dynamic threshold of
//! shared switch buffers (Choudhury and Hahne, 1998). Alone, a model gets eight ninths of the limit. A second model
//! always finds room, and two busy models end with the same share, without a list of models or weights.

use crate::Millis;
use crate::host::memory::can_allocate;
use crate::request::refusal::{Reason, Refusal};
use bytes::Bytes;
use prometheus::IntGauge;
use schemars::JsonSchema;
use serde::Deserialize;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tierlab_protocol::infer::MemoryBudget;
use tokio::sync::Notify;

/// Requests that a model may have in flight for each free one.
const FREE_SHARE: usize = 8;

/// Size below which a run's outputs are not counted.
const HELD_BYTES: usize = 64 << 10;

/// Size from which the memory of a request is requested from the allocator before use, in steps of this size.
const LARGE_BYTES: usize = 1 << 20;

/// Limits of requests: their number, their bytes and their time.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Maximum requests between admission and reply.
    pub(crate) max_in_flight: usize,
    /// Maximum bytes of a body, as received and when decompressed.
    pub(crate) max_body_bytes: usize,
    /// Maximum bytes held by all requests: bodies, data derived from them, tensors, and replies being written. In the
    /// configuration, 0 stands for a share of the available memory.
    pub(crate) max_buffered_bytes: usize,
    /// Time limit of a request from its body to its reply, unless it asks for a shorter one, and of a body's arrival,
    /// in milliseconds.
    #[serde(rename = "timeout_ms", with = "Millis")]
    pub(crate) timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
            max_body_bytes: 64 << 20,
            max_buffered_bytes: 0,
            timeout: Duration::from_secs(10),
        }
    }
}

/// Counts that are checked against the [`Limits`].
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) limits: Limits,
    in_flight: AtomicUsize,
    buffered: AtomicUsize,
    /// Bytes of replies that their clients have not read.
    replies: AtomicUsize,
    /// Notified when replies exceed the byte limit.
    replies_full: Notify,
    gauge: IntGauge,
    /// Requests admitted since the start.
    admitted: AtomicU64,
}

/// Requests of a model in flight.
#[derive(Debug, Default)]
pub(crate) struct ModelShare(AtomicUsize);

impl Admission {
    pub(crate) fn new(limits: Limits, gauge: IntGauge) -> Arc<Self> {
        Arc::new(Self {
            limits,
            in_flight: AtomicUsize::new(0),
            buffered: AtomicUsize::new(0),
            replies: AtomicUsize::new(0),
            replies_full: Notify::new(),
            gauge,
            admitted: AtomicU64::new(0),
        })
    }

    /// Checks that a request of a model would be admitted now, before its body is read.
    pub(crate) fn has_room(&self, share: &ModelShare) -> Result<(), Refusal> {
        self.check(self.in_flight.load(Relaxed), share.0.load(Relaxed))
    }

    /// Admits a request of a model, until the guard is dropped.
    pub(crate) fn admit(self: &Arc<Self>, share: &Arc<ModelShare>) -> Result<Admitted, Refusal> {
        let all = self.in_flight.fetch_add(1, Relaxed);
        let model_count = share.0.fetch_add(1, Relaxed);
        if let Err(refusal) = self.check(all, model_count) {
            self.in_flight.fetch_sub(1, Relaxed);
            share.0.fetch_sub(1, Relaxed);
            return Err(refusal);
        }
        self.gauge.inc();
        self.admitted.fetch_add(1, Relaxed);
        Ok(Admitted {
            admission: Arc::clone(self),
            share: Arc::clone(share),
        })
    }

    fn check(&self, all: usize, model_count: usize) -> Result<(), Refusal> {
        let limit = self.limits.max_in_flight;
        let message = match limit.checked_sub(all) {
            None | Some(0) => format!("{limit} requests are in flight, the limit"),
            Some(free) if model_count >= free.saturating_mul(FREE_SHARE) => {
                format!("{model_count} requests of this model are in flight, its share of {limit}")
            }
            Some(_) => return Ok(()),
        };
        Err(Refusal::new(Reason::Full, message))
    }

    /// Opens an account for the bytes of a request.
    pub(crate) fn open_account(self: &Arc<Self>) -> Account {
        Account {
            admission: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Opens an account for a run's outputs of `bytes` bytes in total: they are in memory as made by ONNX Runtime, and
    /// are copied from there. `None` if they are too small to count. `job_bytes` is the minimum held by the run's only
    /// request; 0 if it has several.
    ///
    /// # Errors
    /// Fails if there is no room for them.
    pub(crate) fn hold_outputs(self: &Arc<Self>, bytes: usize, job_bytes: usize) -> Result<Option<Account>, Refusal> {
        if bytes < HELD_BYTES {
            return Ok(None);
        }
        let mut account = self.open_account();
        let total = bytes.saturating_mul(2);
        let added = account.add(total);
        let limit = self.limits.max_buffered_bytes;
        let exceeds_limit = total.saturating_add(job_bytes) > limit;
        added.map(|()| Some(account)).map_err(|refusal| match refusal.reason {
            Reason::TooLarge | Reason::Full if exceeds_limit => {
                let message = format!(
                    "the outputs of {bytes} bytes need {total} while they are read, but `admission.max_buffered_bytes` is \
                     {limit} bytes for all: ask for fewer rows, or raise it"
                );
                Refusal::new(Reason::ReplyTooLarge, message)
            }
            _ => refusal,
        })
    }

    /// Counts bytes of a reply that waits for its client.
    pub(crate) fn hold_reply(&self, bytes: usize) {
        let limit = self.limits.max_buffered_bytes;
        let before = self.replies.fetch_add(bytes, Relaxed);
        if before <= limit && before.saturating_add(bytes) > limit {
            self.replies_full.notify_waiters();
        }
    }

    /// Removes bytes counted by [`hold_reply`](Self::hold_reply).
    pub(crate) fn release_reply(&self, bytes: usize) {
        self.replies.fetch_sub(bytes, Relaxed);
    }

    /// True if replies alone exceed the byte limit.
    pub(crate) fn replies_are_full(&self) -> bool {
        self.replies.load(Relaxed) > self.limits.max_buffered_bytes
    }

    /// Waits until replies exceed the byte limit.
    pub(crate) async fn replies_full(&self) {
        let replies_full = self.replies_full.notified();
        if !self.replies_are_full() {
            replies_full.await;
        }
    }

    /// Number of requests admitted since the start, and of those settled: answered, refused or given up by the client.
    pub(crate) fn tally(&self) -> (u64, u64) {
        let (admitted, open) = (self.admitted.load(Relaxed), self.in_flight.load(Relaxed) as u64);
        (admitted, admitted.saturating_sub(open))
    }
}

/// Admitted request.
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    share: Arc<ModelShare>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.share.0.fetch_sub(1, Relaxed);
        self.admission.in_flight.fetch_sub(1, Relaxed);
        self.admission.gauge.dec();
    }
}

/// Bytes held by a request.
pub(crate) struct Account {
    admission: Arc<Admission>,
    bytes: usize,
}

impl Account {
    /// Counts bytes before they are allocated.
    ///
    /// # Errors
    /// Fails if there is no room for them. The account then releases everything it holds in the same step, so that of
    /// two requests that do not fit together only one is refused.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        let limit = self.admission.limits.max_buffered_bytes;
        let total = self.bytes.saturating_add(bytes);
        if total / LARGE_BYTES > self.bytes / LARGE_BYTES && !can_allocate(bytes) {
            self.set(0);
            let text = format!("no memory for {bytes} more bytes of a request: lower `admission.max_buffered_bytes`");
            return Err(Refusal::new(Reason::Full, text));
        }
        let available = limit.saturating_sub(self.admission.replies.load(Relaxed));
        let fits = |current: usize| current.checked_add(bytes).filter(|&sum| sum <= available);
        let step = |current: usize| Some(fits(current).unwrap_or(current - self.bytes));
        let before = self.admission.buffered.fetch_update(Relaxed, Relaxed, step);
        if fits(before.unwrap_or_else(|same| same)).is_some() {
            self.bytes += bytes;
            return Ok(());
        }
        let total = std::mem::take(&mut self.bytes).saturating_add(bytes);
        if total > limit {
            let message = format!(
                "reading and running the request needs at least {total} bytes of memory, but `admission.max_buffered_bytes` is \
                    {limit} bytes for all: send less at once, or raise it"
            );
            return Err(Refusal::new(Reason::TooLarge, message));
        }
        let message = format!(
            "requests hold {limit} bytes of bodies, tensors and replies, the limit of `admission.max_buffered_bytes`"
        );
        Err(Refusal::new(Reason::Full, message))
    }

    /// Replaces the count by `bytes`, for data that already exist.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.admission.buffered.fetch_add(bytes, Relaxed);
        self.admission.buffered.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes;
    }

    /// Counts an output as long as any part of it is in memory.
    pub(crate) fn hold(self, data: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes {
            bytes: data,
            _count: self,
        })
    }

    /// Counts `bytes` less: they are now counted elsewhere.
    pub(crate) fn release(&mut self, bytes: usize) {
        drop(self.split(bytes));
    }

    /// Moves `bytes` of the count to a separate account.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            admission: Arc::clone(&self.admission),
            bytes,
        }
    }

    /// Moves the whole count to a separate account.
    pub(crate) fn split_all(&mut self) -> Self {
        self.split(self.bytes)
    }

    /// Account as the budget of a reader or writer.
    pub(crate) fn budget(&mut self, writing: Option<Writing>) -> AccountBudget<'_> {
        AccountBudget {
            writing,
            account: RefCell::new(self),
            refusal: RefCell::default(),
        }
    }
}

/// Reply being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing {
    /// Time by which it must be done.
    pub(crate) deadline: Instant,
    /// Bytes of its outputs, which were counted when they were read.
    pub(crate) output_bytes: usize,
}

/// Memory account of one request's reader or writer.
pub(crate) struct AccountBudget<'a> {
    writing: Option<Writing>,
    account: RefCell<&'a mut Account>,
    /// Reason of a refusal.
    refusal: RefCell<Option<Refusal>>,
}

impl AccountBudget<'_> {
    /// Reason of the refusal, if any.
    pub(crate) fn into_refusal(self) -> Option<Refusal> {
        self.refusal.into_inner()
    }
}

impl MemoryBudget for AccountBudget<'_> {
    fn take(&self, bytes: usize) -> bool {
        let (mut account, mut refusal) = (self.account.borrow_mut(), self.refusal.borrow_mut());
        if refusal.is_some() {
            return false;
        }
        if self.writing.is_some_and(|writing| writing.deadline <= Instant::now()) {
            let message = "the request's time ended while its reply was written";
            *refusal = Some(Refusal::new(Reason::Deadline, message));
            return false;
        }
        let written = account.bytes.saturating_add(bytes);
        let limit = account.admission.limits.max_buffered_bytes;
        let total = self
            .writing
            .map_or(0, |writing| written.saturating_add(writing.output_bytes));
        *refusal = account.add(bytes).err().map(|refused| {
            // A reply that would not fit beside its own outputs even alone will not fit later.
            if total <= limit {
                return refused;
            }
            let message = format!(
                "writing the reply needs at least {total} bytes of memory, including its outputs, but \
                    `admission.max_buffered_bytes` is {limit} bytes for all: ask for fewer rows or for binary data, or raise it"
            );
            Refusal::new(Reason::ReplyTooLarge, message)
        });
        refusal.is_none()
    }
}

/// Bytes counted as long as any part of them is in memory.
pub(crate) struct CountedBytes<C> {
    pub(crate) bytes: Bytes,
    pub(crate) _count: C,
}

impl<C> AsRef<[u8]> for CountedBytes<C> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.admission.buffered.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn admission(max_in_flight: usize) -> Arc<Admission> {
        let limits = Limits {
            max_in_flight,
            max_body_bytes: 10,
            max_buffered_bytes: 100,
            timeout: Duration::from_secs(1),
        };
        Admission::new(limits, IntGauge::new("a", "a").unwrap())
    }

    #[test]
    fn what_is_over_the_limit_is_refused_and_room_comes_back() {
        let (admission, share) = (admission(2), Arc::default());
        let first = admission.admit(&share).unwrap();
        let _second = admission.admit(&share).unwrap();
        assert_eq!(admission.has_room(&share).unwrap_err().reason, Reason::Full);
        assert_eq!(admission.admit(&share).err().unwrap().reason, Reason::Full);
        drop(first);
        assert_eq!(admission.gauge.get(), 1);
        admission.has_room(&share).unwrap();
        let _third = admission.admit(&share).unwrap();
        assert_eq!(admission.tally(), (3, 1), "admitted and settled");
    }

    #[test]
    fn a_hot_model_leaves_room_and_two_hot_ones_share_alike() {
        let admission = admission(900);
        let fill = |share: &Arc<ModelShare>, held: &mut Vec<Admitted>| {
            while let Ok(admitted) = admission.admit(share) {
                held.push(admitted);
            }
        };
        let (hot, cold) = (Arc::default(), Arc::default());
        let (mut of_hot, mut of_cold) = (Vec::new(), Vec::new());
        fill(&hot, &mut of_hot);
        assert_eq!(of_hot.len(), 800);
        admission.has_room(&cold).unwrap();
        // The hot one's requests end one by one, and both take what they may.
        for _ in 0..2000 {
            of_hot.pop();
            fill(&cold, &mut of_cold);
            fill(&hot, &mut of_hot);
        }
        assert!(
            of_hot.len().abs_diff(of_cold.len()) <= 16,
            "{} and {}",
            of_hot.len(),
            of_cold.len()
        );
    }

    proptest! {
        #[test]
        fn the_bound_holds_and_an_idle_model_always_finds_room_below_it(
            limit in 1_usize..40, steps in prop::collection::vec((0_usize..3, any::<bool>()), 0..300),
        ) {
            let admission = admission(limit);
            let shares: [Arc<ModelShare>; 3] = Default::default();
            let mut held: [Vec<Admitted>; 3] = Default::default();
            for (model, enter) in steps {
                if enter {
                    held[model].extend(admission.admit(&shares[model]));
                } else {
                    held[model].pop();
                }
                let total: usize = held.iter().map(Vec::len).sum();
                prop_assert!(total <= limit);
                for (share, held) in shares.iter().zip(&held) {
                    prop_assert!(!held.is_empty() || total == limit || admission.has_room(share).is_ok());
                }
            }
            drop(held);
            prop_assert_eq!(admission.in_flight.load(Relaxed), 0);
        }
    }

    #[test]
    fn bytes_are_counted_back_even_when_refused() {
        let admission = admission(1);
        let mut first = admission.open_account();
        first.add(60).unwrap();
        let mut second = admission.open_account();
        second.add(40).unwrap();
        assert_eq!(second.add(1).unwrap_err().reason, Reason::Full);
        second.set(500);
        assert_eq!(admission.buffered.load(Relaxed), 560);
        drop(first);
        drop(second);
        assert_eq!(admission.buffered.load(Relaxed), 0);
        admission.open_account().add(100).unwrap();
    }

    #[test]
    fn a_reply_that_does_not_fit_beside_its_outputs_is_not_to_be_tried_again() {
        let admission = admission(1);
        let refused = |other: usize, outputs: usize, reply: usize| {
            let (mut others, mut held, mut account) = (
                admission.open_account(),
                admission.open_account(),
                admission.open_account(),
            );
            others.add(other).unwrap();
            held.add(outputs).unwrap();
            let budget = account.budget(Some(Writing {
                deadline: Instant::now() + Duration::from_secs(60),
                output_bytes: outputs,
            }));
            let _ = (0..reply).all(|_| budget.take(1));
            budget.into_refusal().map(|refusal| refusal.reason)
        };
        assert_eq!(refused(0, 40, 60), None);
        assert_eq!(refused(0, 40, 61), Some(Reason::ReplyTooLarge));
        assert_eq!(refused(30, 40, 60), Some(Reason::Full));
    }

    #[test]
    fn of_two_that_do_not_fit_together_only_one_is_refused() {
        let admission = admission(1);
        let (mut first, mut second) = (admission.open_account(), admission.open_account());
        first.add(60).unwrap();
        second.add(30).unwrap();
        assert_eq!(second.add(20).unwrap_err().reason, Reason::Full);
        // The second one is still on its way out.
        first.add(40).unwrap();
        drop(second);
        assert_eq!(admission.buffered.load(Relaxed), 100);
    }

    #[test]
    fn replies_that_wait_leave_less_for_requests() {
        let admission = admission(1);
        admission.hold_reply(60);
        admission.open_account().add(40).unwrap();
        assert_eq!(admission.open_account().add(41).unwrap_err().reason, Reason::Full);
        assert!(!admission.replies_are_full());
        admission.hold_reply(41);
        assert!(admission.replies_are_full());
        admission.release_reply(101);
        admission.open_account().add(100).unwrap();
    }
}
