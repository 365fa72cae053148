//! Clocks of several machines: their offsets, with uncertainties, and the common start.
//!
//! In: round trips. Out: an offset and its uncertainty; the number of processes asked at once, and the lead of the start message. The peer
//! reads its clock at an unknown moment of the trip: the middle, plus or minus half of the trip (as in NTP, RFC 5905, section 8).
//! The shortest of several trips is the most accurate.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Round trips to each process; the shortest is the most accurate.
pub const TRIPS: usize = 16;
/// Number of processes asked for their time at once: with more, answers queue in this process, and look
/// like slow trips.
pub const CONCURRENT_ESTIMATES: usize = 8;
/// Additional lead of the start message, in which a process reads it.
const READ_ALLOWANCE: Duration = Duration::from_millis(50);
/// Upper bound of the time for sending one start message.
const SEND_TIME: Duration = Duration::from_micros(100);
/// Maximum trip time that the lead allows for.
const MAX_TRIP: Duration = Duration::from_secs(5);

/// Returns the lead of the start message to `size` processes, the slowest trip to which took `slowest`.
pub fn lead(size: usize, slowest: Duration) -> Duration {
    let send_time = SEND_TIME.saturating_mul(u32::try_from(size).unwrap_or(u32::MAX));
    READ_ALLOWANCE + send_time + slowest.min(MAX_TRIP)
}

/// Clock that shows the time of day at its creation, and then follows the monotonic clock: setting the system's clock
/// during a run has no effect.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    created_at: Instant,
    created_ns: i64,
}

impl WallClock {
    /// Creates a clock of the system's time with an offset in milliseconds, other than 0 for tests only.
    pub fn with_offset_ms(ms: i64) -> Self {
        let now_ns = nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        Self {
            created_at: Instant::now(),
            created_ns: now_ns.saturating_add(ms.saturating_mul(1_000_000)),
        }
    }

    /// Returns nanoseconds since 1970.
    pub fn now_ns(&self) -> i64 {
        self.created_ns.saturating_add(nanos(self.created_at.elapsed()))
    }

    /// Returns the monotonic instant of a time, not before the clock's creation.
    pub fn instant(&self, ns: i64) -> Instant {
        let ahead = ns.saturating_sub(self.created_ns);
        let distance = Duration::from_nanos(ahead.unsigned_abs());
        let instant = if ahead < 0 {
            self.created_at.checked_sub(distance)
        } else {
            self.created_at.checked_add(distance)
        };
        instant.unwrap_or(self.created_at)
    }
}

pub(crate) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Question and answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trip {
    /// Time of the question on the asking clock.
    pub sent_ns: i64,
    /// Time on the other clock.
    pub peer_ns: i64,
    /// Arrival of the answer on the asking clock.
    pub received_ns: i64,
}

impl Trip {
    /// Duration of the trip.
    pub const fn took_ns(&self) -> u64 {
        self.received_ns.abs_diff(self.sent_ns)
    }
}

/// Offset of another clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// Lead in nanoseconds; negative if it is behind.
    pub ns: i64,
    /// Uncertainty in nanoseconds, for any division of the trip's time.
    pub uncertainty_ns: u64,
}

/// Returns the combined result of trips; `None` without trips.
pub fn offset(trips: &[Trip]) -> Option<Offset> {
    let best = trips.iter().min_by_key(|trip| trip.took_ns())?;
    let took = best.took_ns();
    let middle_ns = best.sent_ns.saturating_add_unsigned(took / 2);
    Some(Offset {
        ns: best.peer_ns.saturating_sub(middle_ns),
        uncertainty_ns: took.div_ceil(2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_truth_lies_within_the_uncertainty(ahead in -10_000_000_000_i64..10_000_000_000,
                                                  ways in prop::collection::vec((0_i64..50_000_000, 0_i64..50_000_000), 1..20)) {
            let trips: Vec<Trip> = (0..).zip(&ways).map(|(at, (there, back))| {
                let sent_ns = at * 1_000_000_000;
                Trip { sent_ns, peer_ns: sent_ns + there + ahead, received_ns: sent_ns + there + back }
            }).collect();
            let found = offset(&trips).unwrap();
            prop_assert!(found.ns.abs_diff(ahead) <= found.uncertainty_ns, "{:?}, truth {}", found, ahead);
            let shortest = ways.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert_eq!(found.uncertainty_ns, (shortest as u64).div_ceil(2));
        }

        #[test]
        fn any_readings_give_an_offset(readings in any::<(i64, i64, i64)>()) {
            let (sent_ns, peer_ns, received_ns) = readings;
            let _ = offset(&[Trip { sent_ns, peer_ns, received_ns }]);
            let _ = WallClock::with_offset_ms(peer_ns).instant(sent_ns);
        }
    }

    #[test]
    fn more_of_them_and_longer_ways_take_a_longer_lead() {
        assert_eq!(lead(1, Duration::ZERO), Duration::from_micros(50_100));
        assert_eq!(lead(10_000, Duration::from_millis(20)), Duration::from_millis(1_070));
        assert!(lead(1, Duration::from_secs(3_600)) < Duration::from_secs(6));
    }

    #[test]
    fn no_trip_says_nothing() {
        assert_eq!(offset(&[]), None);
    }

    #[test]
    fn a_clock_goes_to_moments_and_back() {
        let clock = WallClock::with_offset_ms(-3_600_000);
        let now_ns = clock.now_ns();
        let later = clock.instant(now_ns + 5_000_000_000) - clock.instant(now_ns);
        assert_eq!(later, Duration::from_secs(5));
        assert_eq!(
            clock.instant(now_ns) - clock.instant(now_ns - 7),
            Duration::from_nanos(7)
        );
    }
}
