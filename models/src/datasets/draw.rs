//! Rows in chunks, and one row's draws. In: the data set, the seed and the row's number. Out: numbers, the same on every machine.

use crate::weights::stream_seed;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Rows made at a time.
const CHUNK_ROWS: u64 = 1 << 14;

/// The numbers of rows, in chunks of [`CHUNK_ROWS`] at most.
pub(super) fn chunks(rows: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let firsts = (0..rows).step_by(CHUNK_ROWS as usize);
    firsts.map(move |first| first..rows.min(first + CHUNK_ROWS))
}

/// The stream of one row.
pub(super) struct Draw(ChaCha8Rng);

impl Draw {
    pub(super) fn of(dataset: &str, seed: u64, row: u64) -> Self {
        Self(ChaCha8Rng::from_seed(stream_seed(dataset, seed, row.cast_signed())))
    }

    /// Uniform in [0, 1), in steps of 2^-32.
    pub(super) fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / 4_294_967_296.0
    }

    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// Uniform in `0..n`.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        // Its bias is n / 2^32 at most.
        ((u64::from(self.0.next_u32()) * u64::from(n)) >> 32) as u32
    }

    /// Exponential, with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }
}
