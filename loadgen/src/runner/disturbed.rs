//! Repeats with a foreign disturbance: detected, recorded, and measured again a bounded number of times.
//!
//! In: a repeat, and the machine's activity during it. Out: the repeat with its disturbance; the need for another
//! attempt. Knows nothing of how a step is measured.

use super::ledger::{Attempt, Ledger};
use tierlab_analysis::record::{Factors, Limits, Repeat};
use tierlab_instrument::machine::disturbance::disturbance;
use tierlab_instrument::machine::watch::Watched;
use tierlab_load::schedule::step_seed;

/// Maximum number of repetitions of a disturbed step of a plan's own loads. A longer disturbance needs action: free the
/// machine, or raise the limit.
pub(super) const AGAIN: u32 = 2;
/// Distance between the seeds of successive attempts at a step, above the repeats of any plan.
const ATTEMPT: u32 = 1_000;

/// Adds the machine's activity to a repeat, with the disturbances of the earlier attempts that it replaces.
pub(super) fn beside(repeat: Repeat, watched: Option<&Watched>, earlier: Option<&Repeat>, limits: &Limits) -> Repeat {
    let disturbed_before = earlier.map_or_else(Vec::new, |earlier| {
        let mut before = earlier.disturbed_before.clone();
        before.extend(earlier.disturbed.clone());
        before
    });
    Repeat {
        machine: watched.map(|watched| watched.machine.clone()),
        disturbed: watched.and_then(|watched| disturbance(&watched.machine, limits, watched.server_is_known)),
        disturbed_before,
        ..repeat
    }
}

/// True if an existing repeat was disturbed and this attempt is missing.
pub(super) fn is_wanted_again(ledger: &Ledger, factors: &Factors, attempt: Attempt) -> bool {
    let there = ledger.points.step(factors, attempt.index);
    attempt.attempt > 0 && there.is_some_and(|there| there.disturbed.is_some() && there.attempt < attempt.attempt)
}

/// Returns the seed of an attempt; each has another, because a cache still holds the entities of the last attempt.
pub(super) fn seed_of(seed: u64, index: u32, attempt: u32, of_load: usize) -> u64 {
    step_seed(seed, index + attempt * ATTEMPT, of_load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::MachineUse;

    #[test]
    fn a_repeat_says_what_disturbed_it_and_the_attempts_before() {
        let watched = |share| Watched {
            machine: MachineUse {
                samples: 50,
                foreign_cpu_share: share,
                ..MachineUse::default()
            },
            server_is_known: true,
        };
        let limits = Limits::default();
        let first = beside(Repeat::empty(), Some(&watched(0.5)), None, &limits);
        assert!(first.disturbed.as_ref().unwrap().contains("50 %") && first.disturbed_before.is_empty());
        assert_eq!(first.machine.as_ref().unwrap().foreign_cpu_share, 0.5);
        let second = beside(Repeat::empty(), Some(&watched(0.3)), Some(&first), &limits);
        let third = beside(Repeat::empty(), Some(&watched(0.01)), Some(&second), &limits);
        assert_eq!(third.disturbed, None);
        assert_eq!(third.disturbed_before.len(), 2);
        assert!(third.disturbed_before[0].contains("50 %") && third.disturbed_before[1].contains("30 %"));
        let unseen = beside(Repeat::empty(), None, None, &limits);
        assert_eq!((unseen.machine, unseen.disturbed), (None, None));
    }
}
