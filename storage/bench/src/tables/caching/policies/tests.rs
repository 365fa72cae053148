//! Policies compared with caches played entry by entry, with each other, and with cases by hand.

use super::{StackDistances, min_hits};
use proptest::prelude::*;

/// Plays a cache: `leaves` returns the index of the entry to evict. The newest entry is the last.
fn played(keys: &[u32], entries: usize, touch: bool, mut leaves: impl FnMut(&[u32], usize) -> usize) -> u64 {
    let mut held: Vec<u32> = Vec::new();
    let mut hits = 0;
    for (at, &key) in keys.iter().enumerate() {
        if let Some(place) = held.iter().position(|&one| one == key) {
            hits += 1;
            if touch {
                held.remove(place);
                held.push(key);
            }
            continue;
        }
        if entries == 0 {
            continue;
        }
        if held.len() == entries {
            held.remove(leaves(&held, at));
        }
        held.push(key);
    }
    hits
}

fn lru(keys: &[u32], entries: usize) -> u64 {
    played(keys, entries, true, |_, _| 0)
}

fn fifo(keys: &[u32], entries: usize) -> u64 {
    played(keys, entries, false, |_, _| 0)
}

fn lfu(keys: &[u32], entries: usize) -> u64 {
    played(keys, entries, true, |held, at| {
        let uses = |key: u32| keys[..at].iter().filter(|&&one| one == key).count();
        (0..held.len()).min_by_key(|&place| uses(held[place])).unwrap_or(0)
    })
}

/// Tries every sequence of admissions and evictions, only for a handful of accesses.
fn best_of_all(keys: &[u32], held: &[u32], entries: usize) -> u64 {
    let Some((&key, rest)) = keys.split_first() else {
        return 0;
    };
    let hit = u64::from(held.contains(&key));
    let mut all = held.to_vec();
    if hit == 0 {
        all.push(key);
    }
    if all.len() <= entries {
        return hit + best_of_all(rest, &all, entries);
    }
    let without = |gone: usize| {
        let mut left = all.clone();
        left.remove(gone);
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
        prop_assert_eq!(lru.distinct(), distinct);
        let hit = keys.len() as u64 - distinct;
        prop_assert_eq!([lru.hits(distinct), min_hits(&keys, distinct)], [hit, hit]);
        prop_assert_eq!(lru.hits(u64::MAX), hit);
    }
}
