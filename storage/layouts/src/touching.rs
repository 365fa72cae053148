//! Reads with adjacent ranges joined, such as rows of a scan. This helps every tier, even a tier that joins no ranges
//! itself.

use bytes::Bytes;
use std::ops::Range;
use tierlab_storage::{Object, ReadCost, StorageError, Tier};

/// Maximum bytes of a joined read.
const MOST: u64 = 64 << 20;

/// Reads ranges; returns one part per range, in request order.
pub(crate) async fn read(
    tier: &dyn Tier,
    object: &Object,
    ranges: &[Range<u64>],
) -> Result<(Vec<Bytes>, ReadCost), StorageError> {
    let joined = joined(ranges);
    let wholes: Vec<Range<u64>> = joined.iter().map(|(whole, _)| whole.clone()).collect();
    let read = tier.read_many(object, &wholes).await?;
    let mut parts = Vec::with_capacity(ranges.len());
    for ((whole, of), bytes) in joined.iter().zip(&read.parts) {
        for range in &ranges[of.clone()] {
            let at = |offset: u64| (offset - whole.start) as usize;
            parts.push(bytes.slice(at(range.start)..at(range.end)));
        }
    }
    Ok((parts, read.cost))
}

/// Joined reads, and the ranges that each of them holds.
fn joined(ranges: &[Range<u64>]) -> Vec<(Range<u64>, Range<usize>)> {
    let mut out: Vec<(Range<u64>, Range<usize>)> = Vec::new();
    for (at, range) in ranges.iter().enumerate() {
        match out.last_mut() {
            Some((whole, of)) if whole.end == range.start && range.end - whole.start <= MOST => {
                whole.end = range.end;
                of.end = at + 1;
            }
            _ => out.push((range.clone(), at..at + 1)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_joined_and_nothing_else() {
        let found = joined(&[0..4, 4..8, 9..10, 10..10, 8..9, 9..9 + MOST]);
        assert_eq!(found, [(0..8, 0..2), (9..10, 2..4), (8..9, 4..5), (9..9 + MOST, 5..6)]);
    }
}
