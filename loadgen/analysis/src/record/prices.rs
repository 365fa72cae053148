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
    /// Dollars per storage request, by tier; tiers without request prices are absent.
    pub usd_per_request: BTreeMap<String, f64>,
    /// Dollars per byte that leaves the tier, by tier.
    pub usd_per_byte: BTreeMap<String, f64>,
    /// Provider, region, date and public source of every price used.
    pub sources: Vec<String>,
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

/// What an instance costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstancePrice {
    /// Its name in the prices' file.
    pub name: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// Whether the price was read from a text of its month, and not written down from memory.
    pub checked: bool,
}
