//! Rows of the `ctr` table: dense counts with a long tail, categories with a few hot ones.
//!
//! Logarithms and exponentials come from the `libm` crate, so the same seed gives the same bits on every machine.

use crate::generators::{CARDINALITIES, CTR_CATEGORICAL, CTR_DENSE};
use crate::weights::stream_seed;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use tierlab_formats::table::TableSchema;
use tierlab_protocol::tensor::DataType;

/// Logarithm of the median of a dense value.
const DENSE_MEDIAN_LN: f64 = 1.1;
/// Standard deviation of a dense value's logarithm.
const DENSE_SIGMA: f64 = 1.5;

/// Values of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct CtrRow {
    /// Counts, log-normal-like, above 0.
    pub dense: [f32; CTR_DENSE],
    /// Category ids, each in `0..CARDINALITIES[i]`.
    pub categorical: [i64; CTR_CATEGORICAL],
}

/// Returns the values of entity `id` in the table of `seed`.
pub fn row_values(seed: u64, id: i64) -> CtrRow {
    let mut rng = ChaCha8Rng::from_seed(stream_seed("ctr.rows", seed, id));
    CtrRow {
        dense: std::array::from_fn(|_| dense(&mut rng)),
        categorical: CARDINALITIES.map(|n| category(&mut rng, n)),
    }
}

/// Draws a log-normal-like value: the normal is the sum of four uniforms (Irwin-Hall), scaled to variance 1.
fn dense(rng: &mut ChaCha8Rng) -> f32 {
    let words = [rng.next_u64(), rng.next_u64()];
    let halves = words.iter().flat_map(|w| [w >> 32, w & 0xffff_ffff]);
    let sum: f64 = halves.map(|bits| bits as f64 / 4_294_967_296.0).sum();
    // Each uniform has variance 1/12, so four have 1/3.
    let normal = (sum - 2.0) * 1.732_050_807_568_877_2;
    libm::exp(DENSE_MEDIAN_LN + DENSE_SIGMA * normal) as f32
}

/// Draws a category in `0..n`, category k with probability ln((k + 2) / (k + 1)) / ln(n + 1): Zipf's law with exponent
/// 1 in the log-uniform form of TensorFlow's candidate samplers.
fn category(rng: &mut ChaCha8Rng, n: u32) -> i64 {
    let unit = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let drawn = libm::exp(unit * libm::log(f64::from(n) + 1.0)) as i64 - 1;
    drawn.clamp(0, i64::from(n) - 1)
}

/// Columns of the `ctr` table.
pub(super) const COLUMNS: [(&str, DataType, &[i64]); 2] = [
    ("dense", DataType::Fp32, &[CTR_DENSE as i64]),
    ("categorical", DataType::Int64, &[CTR_CATEGORICAL as i64]),
];

/// Writes the values of entity `id` into its row, laid out as `schema` says.
pub(super) fn fill(seed: u64, id: i64, schema: &TableSchema, row: &mut [u8]) {
    let values = row_values(seed, id);
    let [dense, categorical] = [0, 1].map(|column| schema.columns[column].offset as usize);
    for (slot, value) in row[dense..].chunks_exact_mut(4).zip(values.dense) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
    for (slot, value) in row[categorical..].chunks_exact_mut(8).zip(values.categorical) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_depends_on_seed_and_id_alone() {
        assert_eq!(row_values(1, 5), row_values(1, 5));
        assert_ne!(row_values(1, 5), row_values(1, 6));
        assert_ne!(row_values(1, 5), row_values(2, 5));
    }

    #[test]
    fn values_keep_their_ranges_and_have_their_shape() {
        let rows: Vec<CtrRow> = (0..4_000).map(|id| row_values(1, id)).collect();
        let mut logs: Vec<f64> = rows
            .iter()
            .flat_map(|row| row.dense)
            .map(|v| f64::from(v).ln())
            .collect();
        assert!(logs.iter().all(|v| v.is_finite()));
        logs.sort_by(f64::total_cmp);
        assert!((logs[logs.len() / 2] - DENSE_MEDIAN_LN).abs() < 0.05);
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let variance = logs.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / logs.len() as f64;
        assert!((variance.sqrt() - DENSE_SIGMA).abs() < 0.05, "{variance}");
        for (i, &n) in CARDINALITIES.iter().enumerate() {
            let ids = || rows.iter().map(|row| row.categorical[i]);
            assert!(ids().all(|id| (0..i64::from(n)).contains(&id)));
            // Category 0 has ln 2 / ln(n + 1) of the rows.
            let hot = ids().filter(|&id| id == 0).count() as f64 / rows.len() as f64;
            let expected = std::f64::consts::LN_2 / (f64::from(n) + 1.0).ln();
            assert!((hot - expected).abs() < 0.04, "column {i}: {hot} is not {expected}");
        }
    }
}
