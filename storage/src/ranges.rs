//! Joining and cutting of byte ranges, for every tier and wrapper. Pure; knows nothing of objects.

use std::ops::Range;

/// Indices of the non-empty ranges, sorted by start.
pub(crate) fn by_start(ranges: &[Range<u64>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|&i| !ranges[i].is_empty()).collect();
    order.sort_unstable_by_key(|&i| ranges[i].start);
    order
}

/// Pieces of a range, each at most `max` bytes, in order.
pub(crate) fn pieces(range: &Range<u64>, max: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    let starts = (range.start..end).step_by(usize::try_from(max).unwrap_or(usize::MAX).max(1));
    starts.map(move |start| start..end.min(start.saturating_add(max)))
}

/// Numbers of the blocks of `block_bytes` that cover a range; empty for an empty range.
pub(crate) const fn blocks(range: &Range<u64>, block_bytes: u64) -> Range<u64> {
    if range.start >= range.end {
        return 0..0;
    }
    range.start / block_bytes..range.end.div_ceil(block_bytes)
}

/// Range of a block in an object of `size` bytes.
pub(crate) fn block(number: u64, block_bytes: u64, size: u64) -> Range<u64> {
    number * block_bytes..((number + 1) * block_bytes).min(size)
}

/// Contiguous piece of the object, read whole, with the ranges that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) bytes: Range<u64>,
    /// Indices of the ranges inside the span.
    pub(crate) answers: Vec<usize>,
}

/// Joins ranges that overlap, touch or are at most `gap` bytes apart. Empty ranges need no read and are left out.
pub(crate) fn spans(ranges: &[Range<u64>], gap: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for i in by_start(ranges) {
        let range = &ranges[i];
        match spans.last_mut() {
            Some(span) if range.start <= span.bytes.end.saturating_add(gap) => {
                span.bytes.end = span.bytes.end.max(range.end);
                span.answers.push(i);
            }
            _ => spans.push(Span {
                bytes: range.clone(),
                answers: vec![i],
            }),
        }
    }
    spans
}

/// Consecutive ranges read as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// All bytes of the joined ranges.
    pub range: Range<u64>,
    /// Number of requested ranges joined.
    pub members: usize,
}

/// Joins consecutive ranges at most `gap` bytes apart, up to `max` bytes, in request order.
pub fn runs(ranges: &[Range<u64>], gap: u64, max: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let fits = |last: &&mut Run| {
            range.start >= last.range.end
                && range.start - last.range.end <= gap
                && range.end - last.range.start <= max
                && !range.is_empty()
                && !last.range.is_empty()
        };
        match runs.last_mut().filter(fits) {
            Some(last) => {
                last.range.end = range.end;
                last.members += 1;
            }
            None => runs.push(Run {
                range: range.clone(),
                members: 1,
            }),
        }
    }
    runs
}

/// Joins ranges that overlap or touch, given in any order. Returns them in ascending order.
pub(crate) fn merged(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    spans(ranges, 0).into_iter().map(|span| span.bytes).collect()
}

/// Joins extents if one ends where the next begins. Keeps the given ascending order.
pub(crate) fn adjacent(extents: &[Range<u64>]) -> Vec<Range<u64>> {
    runs(extents, 0, u64::MAX).into_iter().map(|run| run.range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_decide() {
        let ranges = [100..200, 0..10, 210..220, 5..5];
        let bytes = |gap| spans(&ranges, gap).into_iter().map(|s| s.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(0), [0..10, 100..200, 210..220]);
        assert_eq!(bytes(9), [0..10, 100..200, 210..220]);
        assert_eq!(bytes(10), [0..10, 100..220]);
        assert_eq!((bytes(90).len(), bytes(90)[0].clone()), (1, 0..220));
    }

    #[test]
    fn ranges_in_any_order_are_merged() {
        assert_eq!(merged(&[8..9, 0..4, 4..6, 2..3, 20..21]), [0..6, 8..9, 20..21]);
        assert_eq!((blocks(&(5..5), 4), blocks(&(3..9), 4)), (0..0, 0..3));
        assert_eq!(block(2, 4, 9), 8..9);
    }

    #[test]
    fn neighbours_are_joined() {
        let joined = |range, members| Run { range, members };
        assert_eq!(
            runs(&[0..4, 4..8, 9..10, 20..30, 25..31], 1, 100),
            [joined(0..10, 3), joined(20..30, 1), joined(25..31, 1)]
        );
        assert_eq!(runs(&[0..4, 4..8, 8..9], 0, 8), [joined(0..8, 2), joined(8..9, 1)]);
        assert_eq!(
            runs(&[0..4, 4..4, 4..8], 0, 8),
            [joined(0..4, 1), joined(4..4, 1), joined(4..8, 1)]
        );
        assert_eq!(runs(&[9..10, 8..9], 1, 100), [joined(9..10, 1), joined(8..9, 1)]);
    }

    proptest! {
        #[test]
        fn every_range_is_answered_once_and_little_more_is_read(
            ranges in prop::collection::vec((0_u64..1000, 0_u64..200).prop_map(|(at, len)| at..at + len), 0..30),
            gap in 0_u64..50,
            part_bytes in 1_u64..300,
        ) {
            let spans = spans(&ranges, gap);
            let mut answered = vec![0; ranges.len()];
            for span in &spans {
                for &i in &span.answers {
                    answered[i] += 1;
                    prop_assert!(span.bytes.start <= ranges[i].start && ranges[i].end <= span.bytes.end);
                }
                let parts: Vec<_> = pieces(&span.bytes, part_bytes).collect();
                prop_assert_eq!(parts.first().map(|p| p.start), Some(span.bytes.start));
                prop_assert_eq!(parts.last().map(|p| p.end), Some(span.bytes.end));
                prop_assert!(parts.windows(2).all(|w| w[0].end == w[1].start));
                prop_assert!(parts.iter().all(|p| !p.is_empty() && p.end - p.start <= part_bytes));
                // No run of unwanted bytes is longer than the gap.
                let mut end = span.bytes.start;
                for &i in &span.answers {
                    prop_assert!(ranges[i].start <= end + gap);
                    end = end.max(ranges[i].end);
                }
            }
            prop_assert!(spans.windows(2).all(|w| w[0].bytes.end + gap < w[1].bytes.start));
            for (i, range) in ranges.iter().enumerate() {
                prop_assert_eq!(answered[i], usize::from(!range.is_empty()));
            }
        }

        #[test]
        fn every_range_lies_in_what_it_was_joined_to(
            starts in prop::collection::vec((0..200_u64, 0..20_u64), 0..20), gap in 0..10_u64, max in 20..100_u64,
        ) {
            let mut ranges: Vec<_> = starts.into_iter().map(|(start, len)| start..start + len).collect();
            ranges.sort_by_key(|range| range.start);
            let mut rest = ranges.as_slice();
            for Run { range, members } in runs(&ranges, gap, max) {
                let (these, after) = rest.split_at(members);
                prop_assert!(these.iter().all(|one| one.start >= range.start && one.end <= range.end));
                prop_assert!(range.end - range.start <= max || members == 1);
                rest = after;
            }
            prop_assert!(rest.is_empty());
        }
    }
}
