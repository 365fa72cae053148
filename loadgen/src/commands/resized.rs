//! Prices for a feature table of another size than the measured one. In: the variants' pricing inputs, and the size.
//! Out: their prices. Latencies stay as measured.

use crate::error::RunError;
use std::path::Path;
use tierlab_analysis::record::{PricedVariants, Pricing};
use tierlab_instrument::prices::{self, PricingError};

/// Adds the prices of variants with a table of `gib` GiB; a variant that does not fit on its instance is named on stderr and has none.
/// `key` names the size in messages.
///
/// # Errors
/// A size that is no positive number, a run without a table, and as [`prices::add_variants`].
pub(super) fn add_variants(
    pricing: &mut Pricing,
    file: &Path,
    priced: &PricedVariants,
    (key, gib): (&str, f64),
) -> Result<(), RunError> {
    let priced = with_table(priced, key, gib).map_err(RunError::Usage)?;
    for variant in &priced.variants {
        match prices::add_variants(pricing, file, std::slice::from_ref(variant), priced.stored) {
            // The other variants can still be compared.
            Err(error @ PricingError::Impossible { .. }) => eprintln!("{error}"),
            other => other?,
        }
    }
    pricing.priced = Some(priced);
    eprintln!(
        "The table is priced at {gib} GiB, with copies and caches that keep their share of it; what an instance carries is of the one \
         that was measured"
    );
    Ok(())
}

/// Returns the same variants with a table of another size, in every layout, and with copies and caches that keep their
/// share of it.
fn with_table(priced: &PricedVariants, key: &str, gib: f64) -> Result<PricedVariants, String> {
    let measured = priced.stored.table_bytes;
    if !(gib.is_finite() && gib > 0.0) {
        return Err(format!("{key} {gib}: invalid table size; use a number above 0"));
    }
    if measured == 0 {
        return Err(format!("{key}: the run had no feature table"));
    }
    let times = gib * f64::from(1 << 30) / measured as f64;
    let scaled = |bytes: u64| (bytes as f64 * times) as u64;
    let mut priced = priced.clone();
    priced.stored.table_bytes = scaled(measured);
    for variant in &mut priced.variants {
        let table_bytes = variant.laid_out_bytes.unwrap_or(measured) as f64;
        variant.staged_bytes = prices::grown(variant.staged_bytes, table_bytes, times) as u64;
        variant.cache_bytes = scaled(variant.cache_bytes);
        variant.laid_out_bytes = variant.laid_out_bytes.map(scaled);
    }
    Ok(priced)
}
