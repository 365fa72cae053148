//! Aligned segments of a file that cover the requested ranges. In: ranges and an alignment. Out: a [`Plan`]. Pure
//! arithmetic; knows nothing of files.

use crate::ranges;
use std::ops::Range;

/// Aligned segment of the file, read into one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Start offset: a multiple of the alignment.
    pub(crate) start: u64,
    /// End of the last requested byte.
    pub(crate) wanted_end: u64,
    /// End offset: a multiple of the alignment, possibly past the end of the file.
    pub(crate) end: u64,
}

/// Position of a requested range in the segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Index of its segment.
    pub(crate) segment: usize,
    /// Offset in the segment.
    pub(crate) offset: usize,
    /// Length in bytes; 0 for an empty range, which needs no segment.
    pub(crate) len: usize,
}

/// Segments to read, and positions of the ranges in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Segments in file order, disjoint.
    pub(crate) segments: Vec<Segment>,
    /// Position of each range, in request order.
    pub(crate) parts: Vec<Part>,
}

impl Plan {
    /// Widens each range to `align` (a power of two) and joins ranges that then touch or overlap, so that no block is
    /// read twice.
    pub(crate) fn new(ranges: &[Range<u64>], align: u64) -> Self {
        let mut segments: Vec<Segment> = Vec::new();
        let mut parts = vec![Part::default(); ranges.len()];
        for i in ranges::by_start(ranges) {
            let range = &ranges[i];
            let start = range.start & !(align - 1);
            let end = range.end.next_multiple_of(align);
            match segments.last_mut() {
                Some(last) if start <= last.end => {
                    last.end = last.end.max(end);
                    last.wanted_end = last.wanted_end.max(range.end);
                }
                _ => segments.push(Segment {
                    start,
                    wanted_end: range.end,
                    end,
                }),
            }
            let segment = segments.len() - 1;
            let offset = (range.start - segments[segment].start) as usize;
            let len = (range.end - range.start) as usize;
            parts[i] = Part { segment, offset, len };
        }
        Self { segments, parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_share_a_read() {
        let plan = Plan::new(&[512..1024, 0..512, 9000..9001, 5..5, 1000..4097], 4096);
        assert_eq!(
            plan.segments,
            [Segment {
                start: 0,
                wanted_end: 9001,
                end: 12_288
            }]
        );
        assert_eq!(
            plan.parts[2],
            Part {
                segment: 0,
                offset: 9000,
                len: 1
            }
        );
        assert_eq!(plan.parts[3].len, 0);
        assert_eq!(Plan::new(&[], 4096).segments, []);
    }

    proptest! {
        #[test]
        fn every_range_is_inside_an_aligned_segment(
            ranges in prop::collection::vec((0u64..100_000, 0u64..10_000), 0..40),
            shift in 0u32..14,
        ) {
            let align = 1u64 << shift;
            let ranges: Vec<_> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
            let plan = Plan::new(&ranges, align);
            prop_assert_eq!(plan.parts.len(), ranges.len());
            for segment in &plan.segments {
                prop_assert!(segment.start % align == 0 && segment.end % align == 0);
                prop_assert!(segment.start < segment.wanted_end && segment.wanted_end <= segment.end);
                prop_assert!(segment.end - segment.wanted_end < align);
            }
            prop_assert!(plan.segments.windows(2).all(|pair| pair[0].end < pair[1].start));
            for (part, range) in plan.parts.iter().zip(&ranges) {
                prop_assert_eq!(part.len as u64, range.end - range.start);
                if part.len > 0 {
                    let segment = plan.segments[part.segment];
                    prop_assert_eq!(segment.start + part.offset as u64, range.start);
                    prop_assert!(range.end <= segment.wanted_end);
                }
            }
            let read: u64 = plan.segments.iter().map(|s| s.end - s.start).sum();
            let asked: u64 = ranges.iter().filter(|r| !r.is_empty()).map(|r| r.end - r.start + 2 * (align - 1)).sum();
            prop_assert!(read <= asked);
        }
    }
}
