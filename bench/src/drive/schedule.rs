//! Due times of calls. In: a rate and a seed. Out: times from the beginning, fixed before the first call.

use crate::chance::Random;
use crate::plan::Arrivals;
use std::time::Duration;

/// Maximum calls of one repeat.
const MOST_CALLS: f64 = 20e6;

/// Returns the due times up to an end.
///
/// # Errors
/// More calls than a repeat may have.
pub(super) fn due_times(rate: u32, arrivals: Arrivals, seed: u64, end: Duration) -> anyhow::Result<Vec<Duration>> {
    let expected = f64::from(rate) * end.as_secs_f64();
    anyhow::ensure!(
        expected <= MOST_CALLS,
        "{expected:.0} calls in a repeat are more than {MOST_CALLS:.0}"
    );
    let mut random = Random::new(seed, 0x0073_6368_6564);
    let mut due = Vec::with_capacity(expected as usize + 1);
    let mut at = 0.0;
    loop {
        at += match arrivals {
            // The inverse of the exponential distribution; 1 - share is never 0.
            Arrivals::Poisson => -(1.0 - random.share()).ln() / f64::from(rate),
            Arrivals::Constant => 1.0 / f64::from(rate),
        };
        let moment = Duration::from_secs_f64(at);
        if moment >= end {
            return Ok(due);
        }
        due.push(moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_the_moments_and_the_rate_is_kept() {
        let end = Duration::from_secs(20);
        let poisson = due_times(1000, Arrivals::Poisson, 1, end).unwrap();
        assert_eq!(poisson, due_times(1000, Arrivals::Poisson, 1, end).unwrap());
        assert_ne!(poisson, due_times(1000, Arrivals::Poisson, 2, end).unwrap());
        // Four standard deviations of a Poisson count.
        assert!((poisson.len() as f64 - 20_000.0).abs() < 4.0 * 20_000_f64.sqrt());
        assert!(poisson.is_sorted());
        assert_eq!(
            due_times(100, Arrivals::Constant, 1, Duration::from_secs(1))
                .unwrap()
                .len(),
            99
        );
        assert!(due_times(4_000_000_000, Arrivals::Constant, 1, end).is_err());
    }
}
