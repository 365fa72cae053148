//! Rows of the `vision` table: images of 49 seeded patches with added noise, generated at memory speed.

use crate::generators::IMAGE_SHAPE;
use crate::weights::stream_seed;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use tierlab_protocol::tensor::DataType;

/// Column of the `vision` table.
pub(super) const COLUMNS: [(&str, DataType, &[i64]); 1] = [("image", DataType::Uint8, &IMAGE_SHAPE)];
/// Bytes of an image: 3 × 224 × 224.
pub const IMAGE_BYTES: usize = 3 * SIDE * SIDE;
const SIDE: usize = 224;
/// Side of a patch. Patches, unlike noise alone, survive a network's pooling, so that images get different answers.
const PATCH: usize = 32;
const PATCHES: usize = SIDE / PATCH;
/// Bits of a pixel that are noise; a patch's level lies below 256 less this.
const NOISE: u8 = 31;

/// Returns the pixels of entity `id` in the table of `seed`: channel, row, column.
pub fn row_values(seed: u64, id: i64) -> Vec<u8> {
    let mut pixels = vec![0; IMAGE_BYTES];
    paint(seed, id, &mut pixels);
    pixels
}

/// Writes the pixels of entity `id`.
pub(super) fn paint(seed: u64, id: i64, pixels: &mut [u8]) {
    let mut rng = ChaCha8Rng::from_seed(stream_seed("vision.rows", seed, id));
    let mut levels = [0; 3 * PATCHES * PATCHES];
    rng.fill_bytes(&mut levels);
    rng.fill_bytes(pixels);
    for (line, row) in pixels.chunks_exact_mut(SIDE).enumerate() {
        let first = line / PATCH * PATCHES;
        for (part, &level) in row.chunks_exact_mut(PATCH).zip(&levels[first..]) {
            let level = level & !NOISE;
            for pixel in part {
                *pixel = level | (*pixel & NOISE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_seeded_and_have_patches() {
        let image = row_values(1, 5);
        assert_eq!(image, row_values(1, 5));
        assert_ne!(image, row_values(1, 6));
        assert_ne!(image, row_values(2, 5));
        for x in 0..PATCH {
            assert_eq!(image[x] & !NOISE, image[0] & !NOISE);
        }
        let distinct: std::collections::BTreeSet<u8> = image.iter().copied().collect();
        assert_eq!(distinct.len(), 256);
    }
}
