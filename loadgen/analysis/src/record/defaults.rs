//! Defaults for fields that older results lack.

/// Autocorrelation time of results made before it was measured.
pub(super) const fn independent() -> f64 {
    1.0
}
