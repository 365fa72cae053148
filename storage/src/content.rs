//! Content whose every byte identifies its position, for tests and measurements. In: a seed and a range. Out: bytes.

use std::ops::Range;

/// Bytes `range` of the endless content of `seed`. Different positions and seeds give different bytes.
pub fn content(seed: u64, range: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let word = mix(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (at / 8)).to_le_bytes();
        let from = (at % 8) as usize;
        let take = (8 - from).min((range.end - at) as usize);
        bytes.extend_from_slice(&word[from..from + take]);
        at += take as u64;
    }
    bytes
}

/// A 64-bit finaliser (MurmurHash3's constants): a bijection in which each input bit reaches every output bit.
pub const fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x ^= x >> 33;
    x = x.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ (x >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_from_anywhere() {
        let whole = content(7, 0..1000);
        for (start, end) in [(0, 1), (1, 9), (7, 8), (500, 1000), (333, 777)] {
            assert_eq!(content(7, start..end), whole[start as usize..end as usize]);
        }
        assert_ne!(content(8, 0..1000), whole);
    }
}
