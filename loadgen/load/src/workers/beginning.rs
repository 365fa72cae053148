//! Common start of load processes: the time between a step's order and its start. In: the number of processes and the slowest
//! trip to them. Out: the number asked at once, and the lead of the start message.

use std::time::Duration;

/// Round trips to each process, of which the shortest is the most accurate.
pub const TRIPS: usize = 16;
/// Number of processes asked for their time at once: with more, answers wait for each other in this process, and look
/// like slow trips.
pub const ASKED_AT_ONCE: usize = 8;
/// Additional lead of the start message, for a process to read it.
const LEAD: Duration = Duration::from_millis(50);
/// Upper bound of the time for sending one start message.
const TELLING: Duration = Duration::from_micros(100);
/// Maximum trip time that the lead allows for.
const LONGEST_WAY: Duration = Duration::from_secs(5);

/// Returns the lead of the start message to `size` processes, the slowest trip to which took `slowest`.
#[must_use]
pub fn lead(size: usize, slowest: Duration) -> Duration {
    let telling = TELLING.saturating_mul(u32::try_from(size).unwrap_or(u32::MAX));
    LEAD + telling + slowest.min(LONGEST_WAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_of_them_and_longer_ways_take_a_longer_lead() {
        assert_eq!(lead(1, Duration::ZERO), Duration::from_micros(50_100));
        assert_eq!(lead(10_000, Duration::from_millis(20)), Duration::from_millis(1_070));
        assert!(lead(1, Duration::from_secs(3_600)) < Duration::from_secs(6));
    }
}
