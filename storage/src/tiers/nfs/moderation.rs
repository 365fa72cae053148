//! Wake-up moderation for replies, like the interrupt moderation of network cards.
//!
//! In: the bytes received so far with their times, and the bytes still expected. Out: the number of bytes that must
//! arrive before the receiver wakes (the socket's low-water mark). If many small replies arrive fast, a wake-up for
//! each costs more than the reply itself, both for client and server on one machine.
//!
//! Three bounds keep the mark from delaying replies: half of the bytes that the calls in flight will bring, the bytes
//! that arrive within [`MOMENT`] at the current rate, and the caller's timer, which drops a mark that is not reached.
//! Knows nothing of sockets.

use std::time::{Duration, Instant};

/// Maximum time that a reply waits for others, at the current rate.
const MOMENT: Duration = Duration::from_micros(100);
/// Minimum time over which the rate is measured.
const RATE_WINDOW: Duration = Duration::from_millis(1);
/// Age after which a measured rate is ignored.
const STALE: Duration = Duration::from_millis(10);
/// Minimum mark: fewer bytes are not worth a system call.
const LEAST_BYTES: usize = 8 << 10;
/// Maximum mark: more gains nothing. A socket's buffer holds far more.
const MOST_BYTES: usize = 64 << 10;
/// Size of a small reply without its data, in bytes.
pub(super) const REPLY_HEAD_BYTES: usize = 128;
/// Mark that wakes at once.
pub(super) const AT_ONCE: usize = 1;

/// Rate of arrival, and current mark.
#[derive(Debug)]
pub(super) struct Moderation {
    mark: usize,
    since: Instant,
    /// Bytes received in the current window.
    bytes: usize,
    /// Bytes per [`MOMENT`], over the previous window.
    per_moment: usize,
    refused: bool,
}

impl Moderation {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            mark: AT_ONCE,
            since: now,
            bytes: 0,
            per_moment: 0,
            refused: false,
        }
    }

    /// True if a mark is set, so that data may be waiting below it.
    pub(super) fn is_on(&self) -> bool {
        self.mark > AT_ONCE
    }

    /// Records received bytes.
    pub(super) fn heard(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes;
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= RATE_WINDOW {
            let share = MOMENT.as_secs_f64() / elapsed.as_secs_f64();
            self.per_moment = if elapsed < STALE {
                (self.bytes as f64 * share) as usize
            } else {
                0
            };
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// Returns a new mark if it should change. `expected` is the minimum number of bytes that small replies in flight
    /// will bring.
    pub(super) fn choose(&mut self, expected: usize) -> Option<usize> {
        if self.refused {
            return None;
        }
        let wanted = (expected / 4).min(self.per_moment).min(MOST_BYTES);
        // Left unchanged while it is about right: each change is a system call.
        if self.is_on() && (wanted / 2..=wanted.saturating_mul(2)).contains(&self.mark) {
            return None;
        }
        self.set(if wanted < LEAST_BYTES { AT_ONCE } else { wanted })
    }

    /// Handles a mark that could not be set: every reply wakes from now on.
    pub(super) fn refuse(&mut self) {
        self.refused = true;
        self.mark = AT_ONCE;
    }

    /// Handles a mark that was not reached in time: nothing waits until the rate is measured again.
    pub(super) fn calm(&mut self) -> Option<usize> {
        self.per_moment = 0;
        self.set(AT_ONCE)
    }

    fn set(&mut self, mark: usize) -> Option<usize> {
        (std::mem::replace(&mut self.mark, mark) != mark).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// After a while at a rate, in bytes per millisecond.
    fn at_rate(bytes_per_ms: usize) -> (Moderation, Instant) {
        let start = Instant::now();
        let mut moderation = Moderation::new(start);
        let later = start + Duration::from_millis(2);
        moderation.heard(later, bytes_per_ms * 2);
        (moderation, later)
    }

    #[test]
    fn fast_replies_are_bundled_and_slow_ones_are_not() {
        let (mut fast, _) = at_rate(400_000);
        assert_eq!(fast.choose(32 * 4200), Some(32 * 4200 / 4));
        assert_eq!(fast.choose(25 * 4200), None, "about right");
        assert_eq!(fast.choose(3 * 4200), Some(AT_ONCE), "few calls under way");
        let (mut slow, _) = at_rate(20_000);
        assert_eq!(slow.choose(32 * 4200), None);
        let (mut few, _) = at_rate(400_000);
        assert_eq!(few.choose(4 * 4200), None);
    }

    #[test]
    fn a_kernel_that_refuses_is_not_asked_again() {
        let (mut moderation, _) = at_rate(400_000);
        assert!(moderation.choose(200_000).is_some());
        moderation.refuse();
        assert!(!moderation.is_on());
        assert_eq!(moderation.choose(200_000), None);
    }

    #[test]
    fn a_stall_ends_it_until_the_rate_is_back() {
        let (mut moderation, now) = at_rate(400_000);
        assert!(moderation.choose(200_000).is_some_and(|mark| mark > AT_ONCE));
        assert_eq!(moderation.calm(), Some(AT_ONCE));
        assert_eq!(moderation.calm(), None);
        assert_eq!(moderation.choose(200_000), None);
        moderation.heard(now + Duration::from_secs(1), 400_000_000);
        assert_eq!(moderation.choose(200_000), None, "a rate over a pause is none");
        moderation.heard(now + Duration::from_millis(1002), 800_000);
        assert!(moderation.choose(200_000).is_some());
    }

    proptest! {
        #[test]
        fn the_mark_never_exceeds_half_of_what_will_come(
            steps in prop::collection::vec((0..3000_u64, 0..2_000_000_usize, 0..1_000_000_usize), 1..50)
        ) {
            let mut now = Instant::now();
            let mut moderation = Moderation::new(now);
            let mut mark = AT_ONCE;
            for (micros, bytes, expected) in steps {
                now += Duration::from_micros(micros);
                moderation.heard(now, bytes);
                mark = moderation.choose(expected).unwrap_or(mark);
                prop_assert!(mark == AT_ONCE || mark <= expected / 2);
                prop_assert!(mark <= 2 * MOST_BYTES);
                prop_assert_eq!(moderation.is_on(), mark != AT_ONCE);
            }
        }
    }
}
