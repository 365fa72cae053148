//! Prices of a lab's variants. In: the plan's price list, and how much the lab keeps. Out: prices by variant, or by tier
//! where there are no variants.

use super::data::Prepared;
use crate::commands::resized;
use crate::error::RunError;
use crate::plan::{LabPlan, Plan, VariantPlan};
use std::path::Path;
use tierlab_analysis::record::{PricedVariant, Pricing, StoredBytes};
use tierlab_instrument::prices;

/// The prices of a plan; `None` where it names none.
pub(super) fn of_variants(plan: &Plan, lab: &LabPlan, prepared: &Prepared) -> Result<Option<Pricing>, RunError> {
    let Some((file, instance)) = &plan.prices else {
        return Ok(None);
    };
    let named: Vec<PricedVariant> = lab
        .variants
        .iter()
        .filter(|variant| !variant.name.is_empty())
        .map(|variant| priced(variant, prepared))
        .collect();
    let tiers: Vec<String> = if named.is_empty() {
        lab.tiers.iter().map(|tier| tier.name.clone()).collect()
    } else {
        Vec::new()
    };
    let mut pricing = prices::load(file, instance, &tiers)?;
    if !named.is_empty() {
        let stored = StoredBytes {
            table_bytes: prepared.table_bytes,
            model_bytes: bytes_below(&prepared.repository.join(&plan.model)),
        };
        prices::add_variants(&mut pricing, file, &named, stored)?;
        if let Some(gib) = plan.table_gib
            && let Some(priced) = pricing.priced.take()
        {
            pricing.terms_by_variant.clear();
            resized::add_variants(&mut pricing, file, &priced, ("`question.table_gib`", gib))?;
        }
    }
    Ok(Some(pricing))
}

fn priced(variant: &VariantPlan, prepared: &Prepared) -> PricedVariant {
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

/// A server that runs already and names no storage is paid by its instance.
fn paid_by_instance(variant: &VariantPlan) -> Option<String> {
    let target = variant.target.as_deref()?;
    target
        .price
        .clone()
        .or_else(|| target.tier.is_none().then(|| prices::INCLUDED.to_owned()))
}

/// Bytes of all files below a folder; what cannot be read counts nothing.
fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_below(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |metadata| metadata.len()),
            _ => 0,
        })
        .sum()
}
