//! Warm-up of a cache. In: marks along a trace. Out: look-ups and seconds until it hits about as often as at the end.
//! Pure.

use super::play::Mark;

/// Distance from the final hit ratio at which the cache is warm, as a share of it.
const NEAR: f64 = 0.05;
/// Final hit ratio below which hits are coincidence, and there is no warm-up.
const LEAST: f64 = 0.01;

/// Returns the look-ups and seconds up to the first mark whose two latest sections hit within 5 % as often as the last quarter of all;
/// `None` if it never hits, or with too few look-ups.
pub(super) fn warm_up(marks: &[Mark]) -> Option<(u64, f64)> {
    let ratio = |from: &Mark, to: &Mark| {
        let lookups = to.lookups.saturating_sub(from.lookups).max(1) as f64;
        1.0 - to.misses.saturating_sub(from.misses) as f64 / lookups
    };
    if marks.len() < 4 {
        return None;
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
    let first = (1..all.len()).find(near).filter(|_| final_hit_ratio >= LEAST)?;
    Some((all[first].lookups, all[first].elapsed_s))
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
        let warm = |misses: &[u64]| warm_up(&marks(misses));
        assert_eq!(warm(&[100, 80, 50, 50, 50, 50, 50, 50]), Some((400, 4.0)));
        assert_eq!(warm(&[10, 10, 10, 10]), Some((100, 1.0)));
        assert_eq!(warm(&[100; 8]), None);
        assert_eq!(warm(&[100, 0]), None);
    }
}
