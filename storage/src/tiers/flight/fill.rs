//! Ranges split into DoGets, and the bytes received for them. In: ranges and bounds, then bytes in order. Out: for each
//! DoGet the missing ranges, and finally the parts. Pure; knows nothing of the wire.

use crate::limits::{buffer, rejoin, split_front};
use bytes::{Bytes, BytesMut};
use std::ops::Range;

/// Piece of a range, read by one DoGet.
#[derive(Debug)]
struct Piece {
    /// The index of the range.
    of: usize,
    bytes: Range<u64>,
    into: BytesMut,
}

impl Piece {
    fn missing(&self) -> Range<u64> {
        self.bytes.start + self.into.len() as u64..self.bytes.end
    }
}

/// Contents of one DoGet request.
#[derive(Debug, Default)]
pub(super) struct Fill {
    pieces: Vec<Piece>,
    /// The first piece that is not whole.
    at: usize,
}

/// Splits ranges into DoGets of at most `part_bytes` bytes and `count` pieces. Empty ranges need none. `None` if a
/// range exceeds memory.
pub(super) fn cut(ranges: &[Range<u64>], part_bytes: u64, count: usize) -> Option<Vec<Fill>> {
    let mut fills: Vec<Fill> = Vec::new();
    let mut room = 0;
    for (of, range) in ranges.iter().enumerate() {
        // One allocation per range, split between its pieces, so that joining them copies nothing.
        let mut rest = buffer(usize::try_from(range.end - range.start).ok()?)?;
        let mut start = range.start;
        while start < range.end {
            if room == 0 || fills.last().is_none_or(|fill| fill.pieces.len() >= count) {
                fills.push(Fill::default());
                room = part_bytes;
            }
            let end = range.end.min(start.saturating_add(room));
            let len = usize::try_from(end - start).ok()?;
            let into = split_front(&mut rest, len);
            room -= end - start;
            if let Some(fill) = fills.last_mut() {
                fill.pieces.push(Piece {
                    of,
                    bytes: start..end,
                    into,
                });
            }
            start = end;
        }
    }
    Some(fills)
}

impl Fill {
    /// The ranges that are still missing, in the order in which their bytes are taken.
    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        self.pieces[self.at..].iter().map(Piece::missing).collect()
    }

    /// True if every byte has arrived.
    pub(super) fn is_full(&self) -> bool {
        self.at == self.pieces.len()
    }

    /// Takes the next bytes; `false` if more bytes arrive than were requested.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> bool {
        while let Some(piece) = self.pieces.get_mut(self.at) {
            let missing = piece.missing();
            let take = usize::try_from(missing.end - missing.start)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let (now, later) = bytes.split_at(take);
            piece.into.extend_from_slice(now);
            bytes = later;
            if !piece.missing().is_empty() {
                return true;
            }
            self.at += 1;
        }
        bytes.is_empty()
    }
}

/// The parts of `count` ranges, once all DoGets are full; in the order in which they were cut.
pub(super) fn parts(fills: Vec<Fill>, count: usize) -> Vec<Bytes> {
    let mut parts: Vec<BytesMut> = vec![BytesMut::new(); count];
    for piece in fills.into_iter().flat_map(|fill| fill.pieces) {
        rejoin(&mut parts[piece.of], piece.into);
    }
    parts.into_iter().map(BytesMut::freeze).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::content;
    use proptest::prelude::*;

    #[test]
    fn a_range_that_no_memory_has_is_refused() {
        assert!(cut(&[0..10, 0..1 << 62], 8 << 20, 100).is_none());
    }

    proptest! {
        #[test]
        fn parts_are_the_ranges_however_they_come(
            ranges in proptest::collection::vec((0_u64..5000, 0_u64..900), 0..40),
            part_bytes in 1_u64..2000,
            count in 1_usize..10,
            chunk in 1_usize..700,
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
            let mut fills = cut(&ranges, part_bytes, count).unwrap();
            for fill in &mut fills {
                let asked = fill.missing();
                prop_assert!(!asked.is_empty() && asked.len() <= count);
                prop_assert!(asked.iter().map(|range| range.end - range.start).sum::<u64>() <= part_bytes);
                // Broken off once and resumed, as after a failure.
                let bytes: Vec<u8> = asked.into_iter().flat_map(|range| content(1, range)).collect();
                let half = bytes.len() / 2;
                for chunk in bytes[..half].chunks(chunk) {
                    prop_assert!(fill.feed(chunk) && !fill.is_full());
                }
                let rest: Vec<u8> = fill.missing().into_iter().flat_map(|range| content(1, range)).collect();
                prop_assert_eq!(&rest, &bytes[half..]);
                for chunk in rest.chunks(chunk) {
                    prop_assert!(fill.feed(chunk));
                }
                prop_assert!(fill.is_full() && fill.feed(&[]) && !fill.feed(&[0]));
            }
            for (range, part) in ranges.iter().zip(parts(fills, ranges.len())) {
                prop_assert_eq!(part, content(1, range.clone()));
            }
        }
    }
}
