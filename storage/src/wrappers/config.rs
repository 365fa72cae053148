//! The wrapper tables of a tier's TOML, and the order in which they are wrapped. In: `[emulated]`, `[staged]` and
//! `[cache]`. Out: the wrapped tier. Knows nothing of the kinds of tiers.

use super::cache::CacheConfig;
use super::emulated::{Emulated, EmulatedConfig};
use super::metrics::StorageMetrics;
use super::staged::{Staged, StagedConfig};
use crate::error::StorageError;
use crate::tier::Tier;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Wrappers around a tier.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrapperConfig {
    /// A remote service emulated over the tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<EmulatedConfig>,
    /// Copies of read bytes on a local folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<StagedConfig>,
    /// A cache in memory, for [`compose`](super::compose): whoever reads from the tier knows if rows or whole files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheConfig>,
}

impl WrapperConfig {
    /// The names of the tables.
    pub(crate) const TABLES: [&str; 3] = ["emulated", "staged", "cache"];

    /// Wraps a tier as `staged(emulated(tier))`, with the configured wrappers only.
    ///
    /// # Errors
    /// Fails if a table is invalid, or if a folder cannot be used for staging; the error names the key.
    pub(crate) async fn wrap(
        &self,
        tier: Arc<dyn Tier>,
        metrics: &StorageMetrics,
    ) -> Result<Arc<dyn Tier>, StorageError> {
        let kind = tier.info().kind;
        let mut tier = tier;
        if let Some(config) = &self.emulated {
            tier = Arc::new(Emulated::new(tier, config, metrics.emulated(kind))?);
        }
        if let Some(config) = &self.staged {
            tier = Arc::new(Staged::open(tier, config, metrics.staged(kind)).await?);
        }
        Ok(tier)
    }
}
