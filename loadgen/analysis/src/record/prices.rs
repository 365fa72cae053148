//! Prices of a run.

use super::is_zero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Prices of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pricing {
    /// Instance chosen by the plan.
    pub instance: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// Dollars per hour of a GiB of the instance's memory, which is part of its price; 0 if unknown.
    #[serde(default)]
    pub usd_per_gib_hour: f64,
    /// Instances with a price, the chosen one included.
    #[serde(default)]
    pub instances: Vec<InstancePrice>,
    /// Names of the instances that support each tier.
    #[serde(default)]
    pub instances_by_tier: BTreeMap<String, Vec<String>>,
    /// Dollars per hour for provisioned capacity, by tier; tiers paid by use are absent.
    #[serde(default)]
    pub usd_per_hour_by_tier: BTreeMap<String, f64>,
    /// Number of servers of fleet variants, each paid as an instance of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub servers_by_variant: BTreeMap<String, u32>,
    /// Dollars per storage request, by tier; tiers without request prices are absent.
    pub usd_per_request: BTreeMap<String, f64>,
    /// Dollars per byte that leaves the tier, by tier.
    pub usd_per_byte: BTreeMap<String, f64>,
    /// Monthly cost terms, by variant; empty in runs without variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub terms_by_variant: BTreeMap<String, CostTerms>,
    /// Dollars per month of each variant with a copy by instance, beside the hours: the disk of the copy, unless the instance
    /// has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usd_per_month_by_instance: BTreeMap<String, BTreeMap<String, f64>>,
    /// Pricing inputs of variants, for use with another price list; absent in runs without variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced: Option<PricedVariants>,
    /// Provider, region, date and public source of every price used.
    pub sources: Vec<String>,
}

/// Pricing inputs of variants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PricedVariants {
    /// Variants in the plan's order.
    pub variants: Vec<PricedVariant>,
    /// Stored bytes, for storage paid by size.
    pub stored: StoredBytes,
}

/// Pricing inputs of one variant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PricedVariant {
    /// Name of the variant.
    pub name: String,
    /// Name of the tier in the price list's `[tiers]`.
    pub tier: String,
    /// Entry of `[storage]`, or `included`; default: the tier's entry in `[tiers]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Entry of `[instances]`; default: the plan's instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Bytes of its feature table in its own layout; default: those of [`StoredBytes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub laid_out_bytes: Option<u64>,
    /// Maximum bytes of its copy on a local disk; 0 without one.
    pub staged_bytes: u64,
    /// Bytes of its cache in memory; 0 without one.
    pub cache_bytes: u64,
    /// Number of servers, each on an instance of its own; 0 counts as 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub servers: u32,
}

/// Stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StoredBytes {
    /// Bytes of the feature tables.
    pub table_bytes: u64,
    /// Bytes of the models.
    pub model_bytes: u64,
}

impl Pricing {
    /// Returns the same prices on another instance.
    pub fn on(&self, instance: &InstancePrice) -> Self {
        let mut on = Self {
            instance: instance.name.clone(),
            usd_per_hour: instance.usd_per_hour,
            ..self.clone()
        };
        for (name, terms) in &mut on.terms_by_variant {
            let servers = self.servers_by_variant.get(name).copied().unwrap_or(1);
            terms.instance.clone_from(&instance.name);
            terms.usd_per_instance_hour = f64::from(servers) * instance.usd_per_hour;
            let months = self.usd_per_month_by_instance.get(name);
            if let Some(usd) = months.and_then(|months| months.get(&instance.name)) {
                terms.usd_per_instance_month = *usd;
            }
        }
        on
    }
}

/// Cost terms of a variant, except for the requests that one instance serves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CostTerms {
    /// Instance type with this price.
    pub instance: String,
    /// Dollars per hour of one instance, or of all instances of a fleet.
    pub usd_per_instance_hour: f64,
    /// Additional dollars per month of each instance: its staging disk, if that is not the instance's own.
    pub usd_per_instance_month: f64,
    /// Dollars per month independent of the load, by purpose: capacity by GB, provisioned throughput and operations, a
    /// server paid by the hour.
    pub fixed_usd_per_month: Vec<(String, f64)>,
    /// Dollars per storage request.
    pub usd_per_request: f64,
    /// Dollars per byte read from the tier, transfer between zones included.
    pub usd_per_byte: f64,
    /// Terms that depend on the table's size; absent if unknown, as in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_size: Option<BySize>,
}

/// Monthly costs that depend on the feature table's size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BySize {
    /// Bytes of the table in the storage's layout.
    pub table_bytes: u64,
    /// Dollars per month over the table's size as multiples of `table_bytes`, rising from 0: linear between two points,
    /// and extrapolated after the last.
    pub usd_per_month: Vec<(f64, f64)>,
    /// True if each instance pays this separately.
    pub per_instance: bool,
    /// Cost of the disk for each instance's copy, in the same form; empty if it is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy_usd_per_month: Vec<(f64, f64)>,
    /// Largest table that the instance's disk and memory hold, as a multiple, with a copy and a cache that keep their
    /// share of it; absent without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_times: Option<f64>,
}

impl BySize {
    /// Maximum size considered, as a multiple of the measured table.
    pub(crate) const MAX_TIMES: f64 = 1_000.0;

    /// Returns the largest size considered.
    pub fn largest(&self) -> f64 {
        self.largest_times.unwrap_or(Self::MAX_TIMES).min(Self::MAX_TIMES)
    }

    /// Returns dollars per month at a size, for `instances` instances.
    pub fn at(&self, times: f64, instances: f64) -> f64 {
        let paid = if self.per_instance { instances } else { 1.0 };
        paid * interpolated(&self.usd_per_month, times) + instances * interpolated(&self.copy_usd_per_month, times)
    }
}

/// Returns a curve's height: linear between two points, and extrapolated after the last; 0 without points.
fn interpolated(curve: &[(f64, f64)], at: f64) -> f64 {
    match curve {
        [] => 0.0,
        [(_, only)] => *only,
        _ => {
            let next = curve.partition_point(|(x, _)| *x <= at).clamp(1, curve.len() - 1);
            let ((from, low), (to, high)) = (curve[next - 1], curve[next]);
            low + (high - low) * (at - from) / (to - from)
        }
    }
}

/// Price of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstancePrice {
    /// Name in the price file.
    pub name: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// True if the price was checked against a published text of its month.
    pub checked: bool,
}
