//! Positions of a striped object's bytes. In: its size, the length of a stripe and the number of roots. Out: ranges of
//! parts, and bytes reassembled from parts. Pure arithmetic; knows nothing of files.

use bytes::Bytes;
use std::ops::Range;

/// Stripe `k` of an object, the bytes `k * stripe_bytes ..`, is in part `k % parts`, behind that part's earlier
/// stripes. So any range of the object is one range, or none, of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Length of the object.
    pub(super) size: u64,
    /// Length of a stripe, at least 1.
    pub(super) stripe_bytes: u64,
    /// Number of parts, at least 1.
    pub(super) parts: usize,
}

impl Layout {
    /// Number of the object's first `end` bytes that are in `part`.
    fn bytes_before(&self, end: u64, part: usize) -> u64 {
        let row = self.stripe_bytes * self.parts as u64;
        let in_row = (end % row).saturating_sub(part as u64 * self.stripe_bytes);
        end / row * self.stripe_bytes + in_row.min(self.stripe_bytes)
    }

    /// Length of a part.
    pub(super) fn part_size(&self, part: usize) -> u64 {
        self.bytes_before(self.size, part)
    }

    /// Range of `part` that holds the bytes of a range of the object.
    pub(super) fn part_range(&self, range: &Range<u64>, part: usize) -> Range<u64> {
        self.bytes_before(range.start, part)..self.bytes_before(range.end, part)
    }

    /// Part that holds a byte of the object.
    pub(super) const fn part_of(&self, at: u64) -> usize {
        (at / self.stripe_bytes % self.parts as u64) as usize
    }

    /// Offset in its part of the object's byte `at`.
    pub(super) fn place_in_part(&self, at: u64) -> u64 {
        self.bytes_before(at, self.part_of(at))
    }

    /// Offset in the object of a part's byte, and the number of bytes that follow it in its stripe.
    pub(super) const fn place_in_object(&self, part: usize, at: u64) -> (u64, u64) {
        let (row, in_stripe) = (at / self.stripe_bytes, at % self.stripe_bytes);
        let stripe = row * self.parts as u64 + part as u64;
        (stripe * self.stripe_bytes + in_stripe, self.stripe_bytes - in_stripe)
    }

    /// Reassembles a range from the bytes of each part's [`part_range`](Self::part_range). The second value is true if
    /// bytes were copied: a range within one stripe is not copied.
    pub(super) fn join(&self, range: &Range<u64>, pieces: &[Bytes]) -> (Bytes, bool) {
        let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
        match (filled.next(), filled.next()) {
            (None, _) => return (Bytes::new(), false),
            (Some(only), None) => return (only.clone(), false),
            _ => {}
        }
        let mut whole = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let part = self.part_of(at);
            let from = (self.place_in_part(at) - self.bytes_before(range.start, part)) as usize;
            let left_in_stripe = self.stripe_bytes - at % self.stripe_bytes;
            let len = left_in_stripe.min(range.end - at);
            whole.extend_from_slice(&pieces[part][from..from + len as usize]);
            at += len;
        }
        (whole.into(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stripes_take_turns() {
        let layout = Layout {
            size: 25,
            stripe_bytes: 4,
            parts: 3,
        };
        // 0..4 4..8 8..12 | 12..16 16..20 20..24 | 24..25
        assert_eq!([0, 1, 2].map(|part| layout.part_size(part)), [9, 8, 8]);
        assert_eq!(layout.part_range(&(3..13), 0), 3..5);
        assert_eq!(layout.part_range(&(3..13), 1), 0..4);
        assert_eq!(layout.part_range(&(3..5), 2), 0..0);
        assert_eq!((layout.part_of(17), layout.place_in_part(17)), (1, 5));
        assert_eq!(layout.place_in_object(1, 5), (17, 3));
    }

    proptest! {
        #[test]
        fn what_is_split_is_put_together_again(
            size in 0u64..3000,
            stripe_bytes in 1u64..300,
            parts in 1usize..6,
            cuts in (0.0f64..1.0, 0.0f64..1.0),
        ) {
            let layout = Layout { size, stripe_bytes, parts };
            let object: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            let mut files = vec![Vec::new(); parts];
            for (stripe, bytes) in object.chunks(stripe_bytes as usize).enumerate() {
                files[stripe % parts].extend_from_slice(bytes);
            }
            for (part, file) in files.iter().enumerate() {
                prop_assert_eq!(layout.part_size(part), file.len() as u64);
                for at in 0..file.len() as u64 {
                    let (place, left) = layout.place_in_object(part, at);
                    prop_assert_eq!(object[place as usize], file[at as usize]);
                    prop_assert_eq!((layout.part_of(place), layout.place_in_part(place)), (part, at));
                    prop_assert!((1..=stripe_bytes).contains(&left));
                }
            }
            let cut = |share: f64| (share * (size + 1) as f64) as u64;
            let range = cut(cuts.0).min(cut(cuts.1))..cut(cuts.0).max(cut(cuts.1));
            let pieces: Vec<Bytes> = files.iter().enumerate().map(|(part, file)| {
                let of = layout.part_range(&range, part);
                Bytes::copy_from_slice(&file[of.start as usize..of.end as usize])
            }).collect();
            let (joined, _) = layout.join(&range, &pieces);
            prop_assert_eq!(&joined[..], &object[range.start as usize..range.end as usize]);
        }
    }
}
