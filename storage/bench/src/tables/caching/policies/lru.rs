//! Least recently used, for all sizes in one pass: stack distances (Mattson, Gecsei, Slutz and Traiger, *Evaluation
//! techniques for storage hierarchies*, IBM Systems Journal 9(2), 1970). A cache of `n` entries hits exactly the
//! accesses with fewer than `n` distinct other keys since the last access of the same key. Counted with a tree of sums
//! over positions (Fenwick 1994): `O(length × log length)`.

/// Distribution of the stack distances of a trace.
#[derive(Debug)]
pub(in crate::tables::caching) struct StackDistances {
    /// At `d`: accesses with `d` or fewer other keys since the last access of their own.
    cumulative: Vec<u64>,
    distinct: u64,
}

impl StackDistances {
    /// Computes the distances of a trace of at most 2^32 - 1 accesses; memory grows with its length and its largest
    /// key.
    pub(in crate::tables::caching) fn of(keys: &[u32]) -> Self {
        let most = keys.iter().max().map_or(0, |&most| most as usize + 1);
        // Positions from 1; 0 is a key without an access so far.
        let mut last = vec![0_usize; most];
        let mut latest = Sums::new(keys.len());
        let mut counts: Vec<u64> = Vec::new();
        let mut distinct = 0_u64;
        for (at, &key) in (1..).zip(keys) {
            let before = std::mem::replace(&mut last[key as usize], at);
            if before == 0 {
                distinct += 1;
            } else {
                // Each key is marked at its latest access only: marks after `before` are the other keys since then.
                let distance = (distinct - latest.upto(before)) as usize;
                if counts.len() <= distance {
                    counts.resize(distance + 1, 0);
                }
                counts[distance] += 1;
                latest.add(before, false);
            }
            latest.add(at, true);
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
    pub(in crate::tables::caching) fn hits(&self, entries: u64) -> u64 {
        match (entries, self.cumulative.last()) {
            (0, _) | (_, None) => 0,
            (entries, Some(all)) => self.cumulative.get(entries as usize - 1).copied().unwrap_or(*all),
        }
    }

    /// Returns the number of distinct keys.
    pub(in crate::tables::caching) const fn distinct(&self) -> u64 {
        self.distinct
    }
}

/// Sums of marks up to a position, from 1.
struct Sums(Vec<u32>);

impl Sums {
    fn new(positions: usize) -> Self {
        Self(vec![0; positions + 1])
    }

    fn add(&mut self, mut at: usize, more: bool) {
        while at < self.0.len() {
            match more {
                true => self.0[at] += 1,
                false => self.0[at] -= 1,
            }
            at += at & at.wrapping_neg();
        }
    }

    fn upto(&self, mut at: usize) -> u64 {
        let mut sum = 0;
        while at > 0 {
            sum += u64::from(self.0[at]);
            at &= at - 1;
        }
        sum
    }
}
