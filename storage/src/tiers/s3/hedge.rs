//! Decision to hedge a GET. In: latencies of first bytes. Out: the wait before a second GET, and permission to send it
//! within the allowance. Pure but for its counters; sends nothing.

use crate::error::{ErrorKind, StorageError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Replies that the quantile is taken over.
const WINDOW: usize = 256;
/// Replies seen before the first hedge.
const WARM: u64 = 32;
/// Replies between two computations of the quantile.
const EVERY: u64 = 16;

/// Hedging state of a bucket.
#[derive(Debug)]
pub(super) struct Hedging {
    quantile: f64,
    max_share: f64,
    /// The latest waits for a first byte, in microseconds, as a ring.
    recent: Mutex<Vec<u64>>,
    replies: AtomicU64,
    /// Wait in microseconds; 0 until it is known.
    delay_us: AtomicU64,
    sent: AtomicU64,
    hedged: AtomicU64,
}

impl Hedging {
    /// Hedging as configured; none without a quantile.
    pub(super) fn new(bucket: &str, quantile: Option<f64>, max_share: f64) -> Result<Option<Self>, StorageError> {
        let invalid = |what: &str| {
            StorageError::new(
                ErrorKind::Invalid,
                format!("s3://{bucket}"),
                format!("`{what}` must lie between 0 and 1"),
            )
        };
        if !(0.0..=1.0).contains(&max_share) {
            return Err(invalid("hedge_max_share"));
        }
        let Some(quantile) = quantile else { return Ok(None) };
        if !(quantile > 0.0 && quantile < 1.0) {
            return Err(invalid("hedge_after_quantile"));
        }
        Ok(Some(Self {
            quantile,
            max_share,
            recent: Mutex::new(Vec::with_capacity(WINDOW)),
            replies: AtomicU64::new(0),
            delay_us: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            hedged: AtomicU64::new(0),
        }))
    }

    /// Counts a GET and returns the wait before a second GET; `None` while too few reply times are known.
    pub(super) fn begin(&self) -> Option<Duration> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        match self.delay_us.load(Ordering::Relaxed) {
            0 => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// Returns true, and counts the request, if a second GET stays within the share.
    pub(super) fn allow(&self) -> bool {
        let most = (self.sent.load(Ordering::Relaxed) as f64 * self.max_share) as u64;
        let more = |hedged| (hedged < most).then_some(hedged + 1);
        self.hedged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// A reply began after this long.
    pub(super) fn record(&self, first_byte: Duration) {
        let us = u64::try_from(first_byte.as_micros()).unwrap_or(u64::MAX).max(1);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = self.replies.fetch_add(1, Ordering::Relaxed);
        if recent.len() < WINDOW {
            recent.push(us);
        } else {
            // Below WINDOW, so it fits.
            recent[(nth % WINDOW as u64) as usize] = us;
        }
        if nth + 1 >= WARM && (nth + 1).is_multiple_of(EVERY) {
            let mut sorted = recent.clone();
            drop(recent);
            let rank = ((sorted.len() as f64 * self.quantile).ceil() as usize).clamp(1, sorted.len()) - 1;
            let (_, delay, _) = sorted.select_nth_unstable(rank);
            self.delay_us.store(*delay, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_follows_the_quantile_of_the_recent_replies() {
        let hedging = Hedging::new("b", Some(0.95), 1.0).unwrap().unwrap();
        for ms in 1..32 {
            hedging.record(Duration::from_millis(ms));
            assert_eq!(hedging.begin(), None);
        }
        hedging.record(Duration::from_millis(32));
        assert_eq!(hedging.begin(), Some(Duration::from_millis(31)));
        for _ in 0..WINDOW {
            hedging.record(Duration::from_millis(5));
        }
        assert_eq!(hedging.begin(), Some(Duration::from_millis(5)));
    }

    #[test]
    fn second_gets_stay_within_their_share() {
        let hedging = Hedging::new("b", Some(0.5), 0.1).unwrap().unwrap();
        let mut allowed = 0;
        for _ in 0..1000 {
            hedging.begin();
            allowed += u64::from(hedging.allow());
        }
        assert_eq!(allowed, 100);
    }

    #[test]
    fn settings_out_of_range_are_named() {
        for (quantile, share, named) in [
            (Some(0.0), 0.1, "hedge_after_quantile"),
            (Some(1.0), 0.1, "hedge_after_quantile"),
            (Some(f64::NAN), 0.1, "hedge_after_quantile"),
            (None, -0.1, "hedge_max_share"),
            (Some(0.9), 1.1, "hedge_max_share"),
        ] {
            let error = Hedging::new("b", quantile, share).unwrap_err();
            assert!(error.detail().contains(named), "{error}");
        }
        assert!(Hedging::new("b", None, 0.05).unwrap().is_none());
    }
}
