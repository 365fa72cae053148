//! Hits of caches of any size, computed from a trace. In: keys in the order of their accesses. Out: hits. Pure: no tier, no clock, no
//! random number. Every key takes one entry, and a cache starts empty.

use std::collections::BTreeSet;

/// Stack distances of a trace, which give the hits of a least recently used cache of every size in one pass (Mattson, Gecsei, Slutz and
/// Traiger, *Evaluation techniques for storage hierarchies*, IBM Systems Journal 9(2), 1970). A cache of `n` entries hits exactly those
/// accesses with fewer than `n` other keys since the last access of the same key. Counted with a tree of sums over positions (Fenwick 1994):
/// `O(length × log length)`.
#[derive(Debug)]
pub(super) struct StackDistances {
    /// Accesses with `d` or fewer other keys since the last access of the same key, at index `d`.
    cumulative: Vec<u64>,
    /// Number of different keys.
    pub(super) distinct: u64,
}

impl StackDistances {
    /// Computes the distances of a trace of at most 2^32 - 1 accesses. Memory grows with its length and its largest key.
    pub(super) fn of(keys: &[u32]) -> Self {
        let key_count = keys.iter().max().map_or(0, |&key_count| key_count as usize + 1);
        // Positions from 1; 0 is a key without an access so far.
        let mut last = vec![0_usize; key_count];
        let mut latest = MarkSums::new(keys.len());
        let mut counts: Vec<u64> = Vec::new();
        let mut distinct = 0_u64;
        for (at, &key) in (1..).zip(keys) {
            let before = std::mem::replace(&mut last[key as usize], at);
            if before == 0 {
                distinct += 1;
            } else {
                // Each key is marked at its latest access only: marks after `before` are the other keys since then.
                let distance = (distinct - latest.sum_to(before)) as usize;
                if counts.len() <= distance {
                    counts.resize(distance + 1, 0);
                }
                counts[distance] += 1;
                latest.add(before, -1);
            }
            latest.add(at, 1);
        }
        let mut sum = 0;
        for count in &mut counts {
            sum += *count;
            *count = sum;
        }
        Self {
            cumulative: counts,
            distinct,
        }
    }

    /// Returns the hits of a cache of this many entries.
    pub(super) fn hits(&self, entries: u64) -> u64 {
        match (entries, self.cumulative.last()) {
            (0, _) | (_, None) => 0,
            (entries, Some(all)) => self.cumulative.get(entries as usize - 1).copied().unwrap_or(*all),
        }
    }
}

/// Sums of marks up to a position, from 1.
struct MarkSums(Vec<u32>);

impl MarkSums {
    fn new(positions: usize) -> Self {
        Self(vec![0; positions + 1])
    }

    fn add(&mut self, mut at: usize, change: i32) {
        while at < self.0.len() {
            self.0[at] = self.0[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    fn sum_to(&self, mut at: usize) -> u64 {
        let mut sum = 0;
        while at > 0 {
            sum += u64::from(self.0[at]);
            at &= at - 1;
        }
        sum
    }
}

/// Time after the end of a trace.
const NEVER: u32 = u32::MAX;

/// Returns the hits of MIN with `entries` entries, over a trace of at most 2^32 - 2 accesses: `O(length × log entries)`. MIN is optimal
/// (L. A. Belady, *A study of replacement algorithms for a virtual-storage computer*, IBM Systems Journal 5(2), 1966). It knows the
/// future and evicts the entry with the latest next access. A new entry with the latest next access is not admitted: the real cache may
/// also refuse admission, and no policy, with or without admission control, hits more often.
pub(super) fn min_hits(keys: &[u32], entries: u64) -> u64 {
    let next = next_uses(keys);
    // Entries by the time of their next access; no two keys are accessed at the same time.
    let mut cached: BTreeSet<u32> = BTreeSet::new();
    let mut hits = 0;
    for (at, &next) in (0_u32..).zip(&next) {
        // An entry accessed now has the earliest next access.
        let hit = cached.first() == Some(&at);
        if hit {
            cached.pop_first();
            hits += 1;
        }
        if next == NEVER || entries == 0 {
            continue;
        }
        cached.insert(next);
        if cached.len() as u64 > entries {
            cached.pop_last();
        }
    }
    hits
}

/// Returns the next access of the same key, for each access.
fn next_uses(keys: &[u32]) -> Vec<u32> {
    let key_count = keys.iter().max().map_or(0, |&key_count| key_count as usize + 1);
    let mut seen = vec![NEVER; key_count];
    let mut next = vec![NEVER; keys.len()];
    for (at, &key) in keys.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut seen[key as usize], at as u32);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Plays a cache: `evict` returns the index of the entry to evict. The newest entry is the last.
    fn simulated(keys: &[u32], entries: usize, touch: bool, mut evict: impl FnMut(&[u32], usize) -> usize) -> u64 {
        let mut cached: Vec<u32> = Vec::new();
        let mut hits = 0;
        for (at, &key) in keys.iter().enumerate() {
            if let Some(index) = cached.iter().position(|&one| one == key) {
                hits += 1;
                if touch {
                    cached.remove(index);
                    cached.push(key);
                }
                continue;
            }
            if entries == 0 {
                continue;
            }
            if cached.len() == entries {
                cached.remove(evict(&cached, at));
            }
            cached.push(key);
        }
        hits
    }

    fn lru(keys: &[u32], entries: usize) -> u64 {
        simulated(keys, entries, true, |_, _| 0)
    }

    fn fifo(keys: &[u32], entries: usize) -> u64 {
        simulated(keys, entries, false, |_, _| 0)
    }

    fn lfu(keys: &[u32], entries: usize) -> u64 {
        simulated(keys, entries, true, |cached, at| {
            let uses = |key: u32| keys[..at].iter().filter(|&&one| one == key).count();
            (0..cached.len()).min_by_key(|&index| uses(cached[index])).unwrap_or(0)
        })
    }

    /// Tries every sequence of admissions and evictions, only for a handful of accesses.
    fn best_of_all(keys: &[u32], cached: &[u32], entries: usize) -> u64 {
        let Some((&key, rest)) = keys.split_first() else {
            return 0;
        };
        let hit = u64::from(cached.contains(&key));
        let mut all = cached.to_vec();
        if hit == 0 {
            all.push(key);
        }
        if all.len() <= entries {
            return hit + best_of_all(rest, &all, entries);
        }
        let without = |evicted: usize| {
            let mut left = all.clone();
            left.remove(evicted);
            best_of_all(rest, &left, entries)
        };
        hit + (0..all.len()).map(without).max().unwrap_or(0)
    }

    #[test]
    fn cases_by_hand() {
        // The string of Belady, Nelson and Shedler's anomaly (1969). With three entries LRU has 10 faults of 12. MIN has 7
        // if each new entry must be admitted; the right to refuse an entry without a next access changes nothing here.
        let keys = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
        assert_eq!(
            [lru(&keys, 3), StackDistances::of(&keys).hits(3), min_hits(&keys, 3)],
            [2, 2, 5]
        );
        // A loop one longer than the cache: LRU always evicts the next key, MIN retains as many as it can.
        let looped: Vec<u32> = (0..40).map(|at| at % 4).collect();
        assert_eq!(StackDistances::of(&looped).hits(3), 0);
        assert_eq!(min_hits(&looped, 3), 27);
        assert_eq!(StackDistances::of(&looped).hits(4), 36);
        // No accesses, no room, and one key again and again.
        assert_eq!((StackDistances::of(&[]).hits(3), min_hits(&[], 3)), (0, 0));
        assert_eq!((StackDistances::of(&[7; 9]).hits(0), min_hits(&[7; 9], 0)), (0, 0));
        assert_eq!((StackDistances::of(&[7; 9]).hits(1), min_hits(&[7; 9], 1)), (8, 8));
    }

    proptest! {
        #[test]
        fn no_policy_hits_more_often_than_min(keys in prop::collection::vec(0_u32..20, 0..200), entries in 0_usize..22) {
            let best = min_hits(&keys, entries as u64);
            for policy in [lru, fifo, lfu] {
                prop_assert!(policy(&keys, entries) <= best);
            }
        }

        #[test]
        fn min_is_as_good_as_everything_tried(keys in prop::collection::vec(0_u32..5, 0..9), entries in 0_usize..4) {
            prop_assert_eq!(min_hits(&keys, entries as u64), best_of_all(&keys, &[], entries));
        }

        #[test]
        fn stack_distances_are_lru_of_every_size_at_once(keys in prop::collection::vec(0_u32..30, 0..200)) {
            let all = StackDistances::of(&keys);
            for entries in 0..32 {
                prop_assert_eq!(all.hits(entries as u64), lru(&keys, entries));
            }
        }

        #[test]
        fn more_entries_never_hit_less_often_and_all_of_them_miss_only_what_is_new(
            keys in prop::collection::vec(0_u32..30, 1..200),
        ) {
            let lru = StackDistances::of(&keys);
            for entries in 0..32 {
                prop_assert!(lru.hits(entries) <= lru.hits(entries + 1));
                prop_assert!(min_hits(&keys, entries) <= min_hits(&keys, entries + 1));
            }
            let distinct = keys.iter().collect::<std::collections::HashSet<_>>().len() as u64;
            prop_assert_eq!(lru.distinct, distinct);
            let hit = keys.len() as u64 - distinct;
            prop_assert_eq!([lru.hits(distinct), min_hits(&keys, distinct)], [hit, hit]);
            prop_assert_eq!(lru.hits(u64::MAX), hit);
        }
    }
}
