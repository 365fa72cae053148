//! Random numbers for the choice of blocks. In: a seed. Out: numbers, the same everywhere for the same seed.

/// Stream of random numbers: SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*,
/// 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates one of several independent streams of a seed.
    pub(crate) const fn new(seed: u64, stream: u64) -> Self {
        let mut own = Self(seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95));
        own.next();
        own
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number in [0, 1): the upper 53 bits fill a double's mantissa.
    pub(crate) const fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Shuffles a slice (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_its_numbers_and_an_order_keeps_everything() {
        let draw = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert!(draw(1, 2) != draw(1, 3) && draw(1, 2) != draw(2, 2));
        let mut things: Vec<u32> = (0..50).collect();
        Random::new(3, 0).shuffle(&mut things);
        assert_ne!(things, (0..50).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..50).collect::<Vec<_>>());
        let mut random = Random::new(9, 9);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.share())));
    }
}
