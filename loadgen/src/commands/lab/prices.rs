//! Prices of a lab's variants. In: the plan's price list, and the sizes of the lab's data. Out: prices by variant, or
//! by tier without variants.

use super::context::{LabContext, PreparedData};
use super::data::files_below;
use crate::error::RunError;
use crate::plan::VariantPlan;
use anyhow::ensure;
use std::path::Path;
use tierlab_analysis::record::{PricedVariant, PricedVariants, Pricing, StoredBytes};
use tierlab_instrument::prices::{self, PricingError};

/// Returns the prices of a plan's variants; `None` without a price list.
pub(super) fn of_variants(context: &LabContext<'_>) -> Result<Option<Pricing>, RunError> {
    let (plan, lab, prepared) = (&context.plan, &context.lab, &context.prepared);
    let Some((file, instance)) = &plan.prices else {
        return Ok(None);
    };
    let named = lab.variants.iter().filter(|variant| !variant.name.is_empty());
    let named: Vec<PricedVariant> = named.map(|variant| priced(variant, prepared)).collect();
    let tiers = lab.tiers.iter().filter(|_| named.is_empty());
    let tiers: Vec<String> = tiers.map(|tier| tier.name.clone()).collect();
    let mut pricing = prices::load(file, instance, &tiers)?;
    if !named.is_empty() {
        let model = files_below(&prepared.repository.join(&plan.model));
        let stored = StoredBytes {
            table_bytes: prepared.table_bytes,
            model_bytes: model.iter().map(|(_, file)| file.len()).sum(),
        };
        prices::add_variants(&mut pricing, file, &named, stored)?;
        if let Some(gib) = plan.table_gib
            && let Some(priced) = pricing.priced.take()
        {
            pricing.terms_by_variant.clear();
            resize(&mut pricing, file, &priced, ("`question.table_gib`", gib))?;
        }
    }
    Ok(Some(pricing))
}

fn priced(variant: &VariantPlan, prepared: &PreparedData) -> PricedVariant {
    PricedVariant {
        name: variant.name.clone(),
        tier: variant.tier.name.clone(),
        price: variant.price.clone().or_else(|| paid_by_instance(variant)),
        instance: variant.instance.clone(),
        servers: variant.servers,
        laid_out_bytes: prepared.laid_out_bytes_of(variant),
        staged_bytes: variant.staged.map_or(0, |stage| stage.capacity_bytes),
        cache_bytes: (prepared.table_bytes as f64 * variant.cache.share) as u64,
    }
}

/// Returns the price entry of an existing server; without named storage its instance includes it.
fn paid_by_instance(variant: &VariantPlan) -> Option<String> {
    let target = variant.target.as_deref()?;
    let included = || target.tier.is_none().then(|| prices::INCLUDED.to_owned());
    target.price.clone().or_else(included)
}

/// Adds the prices of variants with a table of `gib` GiB; a variant that does not fit on its instance is reported on
/// stderr and gets no price. `key` names the size in messages.
///
/// # Errors
/// A size that is not positive, a run without a table, and those of [`prices::add_variants`].
pub(in crate::commands) fn resize(
    pricing: &mut Pricing,
    file: &Path,
    priced: &PricedVariants,
    (key, gib): (&str, f64),
) -> Result<(), RunError> {
    let priced = with_table(priced, key, gib).map_err(RunError::usage)?;
    for variant in &priced.variants {
        match prices::add_variants(pricing, file, std::slice::from_ref(variant), priced.stored) {
            // The other variants can still be compared.
            Err(error @ PricingError::Impossible(_)) => eprintln!("{error}"),
            other => other?,
        }
    }
    pricing.priced = Some(priced);
    eprintln!(
        "The table is priced at {gib} GiB, with copies and caches that keep their share of it; the rate of an instance is that of the table \
         that was measured"
    );
    Ok(())
}

/// Returns the same variants with a table of another size, in every layout, and with copies and caches that keep their
/// share of it.
fn with_table(priced: &PricedVariants, key: &str, gib: f64) -> anyhow::Result<PricedVariants> {
    let measured = priced.stored.table_bytes;
    ensure!(gib.is_finite() && gib > 0.0, "{key} {gib}: use a number above 0");
    ensure!(measured != 0, "{key}: the run had no feature table");
    let times = gib * f64::from(1 << 30) / measured as f64;
    let scaled = |bytes: u64| (bytes as f64 * times) as u64;
    let mut priced = priced.clone();
    priced.stored.table_bytes = scaled(measured);
    for variant in &mut priced.variants {
        let table_bytes = variant.laid_out_bytes.unwrap_or(measured) as f64;
        variant.staged_bytes = prices::scaled_copy_bytes(variant.staged_bytes, table_bytes, times) as u64;
        variant.cache_bytes = scaled(variant.cache_bytes);
        variant.laid_out_bytes = variant.laid_out_bytes.map(scaled);
    }
    Ok(priced)
}
