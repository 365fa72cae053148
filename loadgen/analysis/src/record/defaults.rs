//! Defaults for fields that older results lack.

/// Autocorrelation time of older results, which did not measure it.
pub(super) const fn independent() -> f64 {
    1.0
}
