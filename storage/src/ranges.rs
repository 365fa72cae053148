//! Which GETs answer a set of ranges. In: ranges, the gap worth reading over, the size of a GET. Out: [`Span`]s to
//! read, each cut into GETs, and where each range lies in them. Pure.

use std::ops::Range;

/// A contiguous piece of the object that is read whole, and the ranges that it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    /// The bytes read.
    pub(super) bytes: Range<u64>,
    /// Indices of the ranges that lie in it.
    pub(super) answers: Vec<usize>,
}

impl Span {
    /// The span cut into GETs of at most `part_bytes`, in order.
    pub(super) fn parts(&self, part_bytes: u64) -> impl Iterator<Item = Range<u64>> {
        let end = self.bytes.end;
        let starts = (self.bytes.start..end).step_by(usize::try_from(part_bytes).unwrap_or(usize::MAX).max(1));
        starts.map(move |start| start..end.min(start.saturating_add(part_bytes)))
    }
}

/// Joins ranges that overlap, touch or lie at most `gap` bytes apart. Empty ranges need no read and are left out.
pub(super) fn spans(ranges: &[Range<u64>], gap: u64) -> Vec<Span> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|&i| !ranges[i].is_empty()).collect();
    order.sort_unstable_by_key(|&i| ranges[i].start);
    let mut spans: Vec<Span> = Vec::new();
    for i in order {
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
                let parts: Vec<_> = span.parts(part_bytes).collect();
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
    }
}
