//! Best possible policy: MIN (L. A. Belady, *A study of replacement algorithms for a virtual-storage computer*, IBM
//! Systems Journal 5(2), 1966), which knows the future and evicts the entry with the latest next access. A new entry
//! with a later next access than all others is not admitted: the real cache may refuse new entries too, and no policy,
//! with or without that right, hits more often.

use std::collections::BTreeSet;

/// Position after the end.
const NEVER: u32 = u32::MAX;

/// Returns the hits of MIN with this many entries, over a trace of at most 2^32 - 2 accesses: `O(length × log
/// entries)`.
pub(in crate::tables::caching) fn min_hits(keys: &[u32], entries: u64) -> u64 {
    let next = next_uses(keys);
    // Entries by their next access; no two keys are accessed at the same time.
    let mut held: BTreeSet<u32> = BTreeSet::new();
    let mut hits = 0;
    for (at, &next) in (0_u32..).zip(&next) {
        // A held entry that is accessed now has the earliest next access.
        let hit = held.first() == Some(&at);
        if hit {
            held.pop_first();
            hits += 1;
        }
        if next == NEVER || entries == 0 {
            continue;
        }
        held.insert(next);
        if held.len() as u64 > entries {
            held.pop_last();
        }
    }
    hits
}

/// Returns for each access the next access of the same key.
fn next_uses(keys: &[u32]) -> Vec<u32> {
    let most = keys.iter().max().map_or(0, |&most| most as usize + 1);
    let mut seen = vec![NEVER; most];
    let mut next = vec![NEVER; keys.len()];
    for (at, &key) in keys.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut seen[key as usize], at as u32);
    }
    next
}
