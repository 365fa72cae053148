//! The prices that a run was costed with.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The prices that a run was costed with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pricing {
    /// The instance the plan chose.
    pub instance: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// Dollars per hour of a GiB of the instance's memory, which is part of its price; 0 where that is not known.
    #[serde(default)]
    pub usd_per_gib_hour: f64,
    /// Every instance that has a price, the chosen one among them.
    #[serde(default)]
    pub instances: Vec<InstancePrice>,
    /// The names of the instances that a tier can be had on, by tier.
    #[serde(default)]
    pub instances_by_tier: BTreeMap<String, Vec<String>>,
    /// Dollars per hour for capacity that the tier itself provisions, by tier; tiers paid by use are absent.
    #[serde(default)]
    pub usd_per_hour_by_tier: BTreeMap<String, f64>,
    /// Servers of the variants that are fleets: each is paid as an instance of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub servers_by_variant: BTreeMap<String, u32>,
    /// Dollars per storage request, by tier; tiers without request prices are absent.
    pub usd_per_request: BTreeMap<String, f64>,
    /// Dollars per byte that leaves the tier, by tier.
    pub usd_per_byte: BTreeMap<String, f64>,
    /// Monthly cost terms, by variant; empty in runs without variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub terms_by_variant: BTreeMap<String, CostTerms>,
    /// Pricing inputs of variants, for use with another price list; absent in runs without variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced: Option<PricedVariants>,
    /// Provider, region, date and public source of every price used.
    pub sources: Vec<String>,
}

/// Pricing inputs of variants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PricedVariants {
    /// Each of them.
    pub variants: Vec<PricedVariant>,
    /// Bytes on their storage, which is paid by size.
    pub stored: StoredBytes,
}

/// A variant of a lab, as far as it decides what is paid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PricedVariant {
    /// Its name.
    pub name: String,
    /// Its tier's name in the price list's `[tiers]`.
    pub tier: String,
    /// An entry of `[storage]`, or `included`; what `[tiers]` says of the tier where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// An entry of `[instances]`; the plan's where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Bytes of its feature table, where it lies in another layout than others; those of [`StoredBytes`] where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub laid_out_bytes: Option<u64>,
    /// Bytes that its copy on a local disk may hold; 0 without one.
    pub staged_bytes: u64,
    /// Bytes of its cache in memory; 0 without one.
    pub cache_bytes: u64,
    /// Servers of it, each on an instance of its own; 0 is one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub servers: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(servers: &u32) -> bool {
    *servers == 0
}

/// Stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoredBytes {
    /// Feature tables.
    pub table_bytes: u64,
    /// Models.
    pub model_bytes: u64,
}

impl Pricing {
    /// The same prices on another instance.
    #[must_use]
    pub fn on(&self, instance: &InstancePrice) -> Self {
        Self {
            instance: instance.name.clone(),
            usd_per_hour: instance.usd_per_hour,
            ..self.clone()
        }
    }
}

/// Cost terms of a variant, except for the requests that one instance serves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CostTerms {
    /// The instance type it is priced on.
    pub instance: String,
    /// Dollars an hour of one instance, or of all of a fleet.
    pub usd_per_instance_hour: f64,
    /// Dollars a month beside it for each instance: its staging disk, where that is not the instance's own.
    pub usd_per_instance_month: f64,
    /// Dollars a month that do not depend on the load, by what they are for: capacity by GB, provisioned throughput and
    /// operations, a server paid by the hour.
    pub fixed_usd_per_month: Vec<(String, f64)>,
    /// Dollars per storage request.
    pub usd_per_request: f64,
    /// Dollars per byte read from the tier, transfer between zones included.
    pub usd_per_byte: f64,
    /// Terms that depend on the table's size; absent if unknown, as in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_size: Option<BySize>,
}

/// Terms of a month that depend on the feature table's size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BySize {
    /// Bytes of the table as it lies on the storage.
    pub table_bytes: u64,
    /// Dollars a month over its size as multiples of that, rising from 0: straight between two points, and behind the last as before it.
    pub usd_per_month: Vec<(f64, f64)>,
    /// True if each instance pays this for itself.
    pub per_instance: bool,
    /// Disk of each instance's copy, likewise; empty if it is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy_usd_per_month: Vec<(f64, f64)>,
    /// The largest table that the instance's disk and memory hold, as a multiple, with a copy and a cache that keep their share of it;
    /// absent where nothing bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_times: Option<f64>,
}

impl BySize {
    /// Range of considered sizes, as multiples of the measured table.
    const REACH: f64 = 1_000.0;

    /// The largest size that is looked at.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.largest_times.unwrap_or(Self::REACH).min(Self::REACH)
    }

    /// Dollars a month at a size, of so many instances.
    #[must_use]
    pub fn at(&self, times: f64, instances: f64) -> f64 {
        let paid = if self.per_instance { instances } else { 1.0 };
        paid * along(&self.usd_per_month, times) + instances * along(&self.copy_usd_per_month, times)
    }
}

/// A curve's height at a place: straight between two points, and behind the last as before it; 0 where there are none.
fn along(curve: &[(f64, f64)], at: f64) -> f64 {
    match curve {
        [] => 0.0,
        [(_, only)] => *only,
        _ => {
            let next = curve
                .partition_point(|(place, _)| *place <= at)
                .clamp(1, curve.len() - 1);
            let ((from, low), (to, high)) = (curve[next - 1], curve[next]);
            low + (high - low) * (at - from) / (to - from)
        }
    }
}

/// Price of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstancePrice {
    /// Its name in the prices' file.
    pub name: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// True if the price was read from a published text of its month.
    pub checked: bool,
}
