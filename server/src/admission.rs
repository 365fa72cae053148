//! Who gets in: a bound on requests in flight and one on the bytes of bodies in memory.
//!
//! In: requests and body chunks. Out: guards that count back when they are dropped, or a refusal at once: nothing waits
//! here.

use crate::refusal::{Reason, Refusal};
use prometheus::IntGauge;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Requests between admission and reply.
    pub(crate) max_in_flight: usize,
    /// Bytes of one body, as received and when decompressed.
    pub(crate) max_body_bytes: usize,
    /// Bytes of all bodies being received or worked on.
    pub(crate) max_buffered_bytes: usize,
    /// The time of a request from its body to its reply, where it asks for no shorter one, and of a body to arrive.
    pub(crate) timeout: Duration,
}

/// The counts held against the [`Limits`].
pub(crate) struct Admission {
    pub(crate) limits: Limits,
    in_flight: AtomicUsize,
    buffered: AtomicUsize,
    gauge: IntGauge,
    /// Requests admitted, and admitted requests whose fate is decided: answered, refused or given up by the client.
    admitted: AtomicU64,
    settled: AtomicU64,
}

impl Admission {
    pub(crate) fn new(limits: Limits, gauge: IntGauge) -> Arc<Self> {
        Arc::new(Self {
            limits,
            in_flight: AtomicUsize::new(0),
            buffered: AtomicUsize::new(0),
            gauge,
            admitted: AtomicU64::new(0),
            settled: AtomicU64::new(0),
        })
    }

    /// Lets a request in, until the guard is dropped.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<Admitted, Refusal> {
        let limit = self.limits.max_in_flight;
        if self.in_flight.fetch_add(1, Relaxed) >= limit {
            self.in_flight.fetch_sub(1, Relaxed);
            return Err(Refusal::new(
                Reason::Full,
                format!("{limit} requests are in flight, the most admitted"),
            ));
        }
        self.gauge.inc();
        self.admitted.fetch_add(1, Relaxed);
        Ok(Admitted(Arc::clone(self)))
    }

    /// An account for the bytes of one body.
    pub(crate) fn open_account(self: &Arc<Self>) -> BodyAccount {
        BodyAccount {
            admission: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Requests admitted, and how many of them are settled.
    pub(crate) fn tally(&self) -> (u64, u64) {
        (self.admitted.load(Relaxed), self.settled.load(Relaxed))
    }
}

/// A request that is in.
pub(crate) struct Admitted(Arc<Admission>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
        self.0.gauge.dec();
        self.0.settled.fetch_add(1, Relaxed);
    }
}

/// The bytes of one body in memory.
pub(crate) struct BodyAccount {
    admission: Arc<Admission>,
    bytes: usize,
}

impl BodyAccount {
    /// Counts bytes that are about to be kept.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        let limit = self.admission.limits.max_buffered_bytes;
        self.bytes += bytes;
        if self.admission.buffered.fetch_add(bytes, Relaxed).saturating_add(bytes) > limit {
            return Err(Refusal::new(
                Reason::Full,
                format!("{limit} bytes of bodies are in memory, the most kept"),
            ));
        }
        Ok(())
    }
}

impl Drop for BodyAccount {
    fn drop(&mut self) {
        self.admission.buffered.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Arc<Admission> {
        let limits = Limits {
            max_in_flight: 2,
            max_body_bytes: 10,
            max_buffered_bytes: 100,
            timeout: Duration::from_secs(1),
        };
        Admission::new(limits, IntGauge::new("a", "a").unwrap())
    }

    #[test]
    fn what_is_over_the_limit_is_refused_and_room_comes_back() {
        let admission = admission();
        let first = admission.admit().unwrap();
        let _second = admission.admit().unwrap();
        assert_eq!(admission.admit().err().unwrap().reason, Reason::Full);
        drop(first);
        assert_eq!(admission.gauge.get(), 1);
        let _third = admission.admit().unwrap();
        assert_eq!(admission.tally(), (3, 1));
    }

    #[test]
    fn bytes_are_counted_back_even_when_refused() {
        let admission = admission();
        let mut first = admission.open_account();
        first.add(60).unwrap();
        let mut second = admission.open_account();
        second.add(40).unwrap();
        assert_eq!(second.add(1).unwrap_err().reason, Reason::Full);
        drop(first);
        drop(second);
        assert_eq!(admission.buffered.load(Relaxed), 0);
        admission.open_account().add(100).unwrap();
    }
}
