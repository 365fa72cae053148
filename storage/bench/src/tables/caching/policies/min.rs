//! The best that any policy can do: MIN (L. A. Belady, *A study of replacement algorithms for a virtual-storage computer*, IBM Systems Journal
//! 5(2), 1966), which knows the future and lets that entry go which is asked for latest. A newcomer that is asked for later than all that is held is
//! not kept: the real cache may refuse newcomers too, and no policy, with or without that right, hits more often.

use std::collections::BTreeSet;

/// After the end.
const NEVER: u32 = u32::MAX;

/// Hits of MIN with so many entries, over a trace of at most 2^32 - 2 accesses: `O(length × log entries)`.
pub(in crate::tables::caching) fn min_hits(keys: &[u32], entries: u64) -> u64 {
    let next = next_uses(keys);
    // What is held, by when it is asked for next; no two keys are asked for at the same time.
    let mut held: BTreeSet<u32> = BTreeSet::new();
    let mut hits = 0;
    for (at, &next) in (0_u32..).zip(&next) {
        // Whatever is held and asked for now is the first to be asked for.
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

/// For each access the next one of the same key.
fn next_uses(keys: &[u32]) -> Vec<u32> {
    let most = keys.iter().max().map_or(0, |&most| most as usize + 1);
    let mut seen = vec![NEVER; most];
    let mut next = vec![NEVER; keys.len()];
    for (at, &key) in keys.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut seen[key as usize], at as u32);
    }
    next
}
