//! Warm-up of a cache. In: marks along a trace. Out: look-ups and seconds until it hits about as often as at the end.
//! Pure.

use super::play::Mark;
use serde::Serialize;

/// Distance from the final hit ratio at which the cache is warm, as a share of it.
const NEAR: f64 = 0.05;
/// Final hit ratio below which hits are coincidence, and there is no warm-up.
const LEAST: f64 = 0.01;

/// Warm-up of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Warm {
    /// Hit ratio of the last quarter of the look-ups.
    pub(super) final_hit_ratio: f64,
    /// Look-ups and seconds until it was warm; `None` if it never hits, or with too few look-ups.
    pub(super) after: Option<(u64, f64)>,
}

/// Returns the first mark whose two latest sections hit within 5 % as often as the last quarter of all.
pub(super) fn warm_up(marks: &[Mark]) -> Warm {
    let ratio = |from: &Mark, to: &Mark| {
        let lookups = to.lookups.saturating_sub(from.lookups).max(1) as f64;
        1.0 - to.misses.saturating_sub(from.misses) as f64 / lookups
    };
    let none = Warm {
        final_hit_ratio: 0.0,
        after: None,
    };
    if marks.len() < 4 {
        return none;
    }
    let zero = Mark {
        lookups: 0,
        elapsed_s: 0.0,
        misses: 0,
    };
    let all: Vec<Mark> = std::iter::once(zero).chain(marks.iter().copied()).collect();
    let (last, quarter) = (all[all.len() - 1], all[(all.len() - 1) * 3 / 4]);
    let final_hit_ratio = ratio(&quarter, &last).clamp(0.0, 1.0);
    let near = |at: &usize| ratio(&all[at.saturating_sub(2)], &all[*at]) >= final_hit_ratio * (1.0 - NEAR);
    let first = (1..all.len()).find(near).filter(|_| final_hit_ratio >= LEAST);
    Warm {
        final_hit_ratio,
        after: first.map(|at| (all[at].lookups, all[at].elapsed_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(misses: &[u64]) -> Vec<Mark> {
        let mut sum = 0;
        let mark = |(at, misses): (usize, &u64)| {
            sum += misses;
            Mark {
                lookups: (at as u64 + 1) * 100,
                elapsed_s: at as f64 + 1.0,
                misses: sum,
            }
        };
        misses.iter().enumerate().map(mark).collect()
    }

    #[test]
    fn warm_is_when_it_hits_as_at_the_end() {
        // 0, 20, 50, 50 ... hits of 100: two sections of 50 are complete after the fourth.
        let warm = warm_up(&marks(&[100, 80, 50, 50, 50, 50, 50, 50]));
        assert!((warm.final_hit_ratio - 0.5).abs() < 1e-12);
        assert_eq!(warm.after, Some((400, 4.0)));
        assert_eq!(warm_up(&marks(&[10, 10, 10, 10])).after, Some((100, 1.0)));
        assert_eq!(warm_up(&marks(&[100; 8])).after, None);
        assert_eq!(warm_up(&marks(&[100, 0])).after, None);
    }
}
