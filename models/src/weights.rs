//! Seeded weights. They use only integer arithmetic, multiplication and square roots, so the same seed gives the same
//! bits on every machine.

use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Stream of weights, drawn in the order in which the graph is built.
#[derive(Debug)]
pub struct Weights(ChaCha8Rng);

impl Weights {
    /// Creates the stream of one model's seed. `model` separates models with the same seed.
    pub fn new(model: &str, seed: u64) -> Self {
        Self(ChaCha8Rng::from_seed(stream_seed(model, seed, 0)))
    }

    /// Returns `count` little-endian floats, uniform in [-bound, bound).
    pub fn uniform(&mut self, count: usize, bound: f32) -> Bytes {
        let mut out = Vec::with_capacity(count * size_of::<f32>());
        for _ in 0..count {
            // A float holds 24 bits, so the product is exact except for one rounding.
            let unit = (self.0.next_u32() >> 8) as f32 * (1.0 / (1 << 23) as f32) - 1.0;
            out.extend_from_slice(&(unit * bound).to_le_bytes());
        }
        out.into()
    }
}

/// Returns the bound of He's uniform initialisation for layers followed by ReLU (He et al. 2015, arXiv:1502.01852).
pub fn he_bound(fan_in: usize) -> f32 {
    (6.0 / fan_in as f32).sqrt()
}

/// Returns the bound of Xavier's uniform initialisation (Glorot & Bengio 2010).
pub fn xavier_bound(fan_in: usize, fan_out: usize) -> f32 {
    (6.0 / (fan_in + fan_out) as f32).sqrt()
}

/// Returns the 32 bytes that seed one stream: seed, id and a name, whose bytes after the 16th are folded onto the first.
pub(crate) fn stream_seed(name: &str, seed: u64, id: i64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&id.to_le_bytes());
    for (at, byte) in name.bytes().enumerate() {
        bytes[16 + at % 16] ^= byte;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn weights_fill_their_interval_evenly() {
        let values = floats(&Weights::new("mlp", 3).uniform(20_000, 0.5));
        let mean = values.iter().sum::<f32>() / 20_000.0;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / 20_000.0;
        assert!(values.iter().all(|v| (-0.5..0.5).contains(v)));
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 0.25 / 3.0).abs() < 0.002, "{variance}");
    }

    #[test]
    fn streams_differ_by_seed_and_model_and_never_change() {
        let first = |model, seed| floats(&Weights::new(model, seed).uniform(2, 1.0));
        assert_eq!(first("mlp", 3), first("mlp", 3));
        assert_ne!(first("mlp", 3), first("mlp", 4));
        assert_ne!(first("mlp", 3), first("ctr", 3));
    }
}
