//! The tiers. In: a validated [`TierConfig`]. Out: the tier it names. Knows nothing of wrappers.

pub mod flight;
pub mod gds;
pub mod memory;
pub mod nfs;
pub mod nvme;
pub mod s3;
mod source;

use crate::config::TierConfig;
use crate::error::StorageError;
use crate::tier::Tier;
use crate::wrappers::StorageMetrics;
use std::sync::Arc;

pub(crate) async fn open(config: &TierConfig, metrics: &StorageMetrics) -> Result<Arc<dyn Tier>, StorageError> {
    Ok(match config {
        TierConfig::Memory { root: None } => Arc::new(memory::MemoryTier::new()),
        TierConfig::Memory { root: Some(root) } => Arc::new(memory::MemoryTier::load(root).await?),
        TierConfig::Nvme(config) => nvme::open(config).await?,
        TierConfig::Nfs(config) => Arc::new(nfs::NfsTier::connect(config).await?),
        TierConfig::S3(config) => Arc::new(s3::S3Tier::connect(config).await?),
        TierConfig::Flight(config) => Arc::new(flight::FlightTier::connect(config).await?),
        TierConfig::Gds(config) => Arc::new(gds::GdsTier::open_counted(config, metrics).await?),
        // What lies around a tier is not this room's.
        TierConfig::Wrapped(wrapped) => Box::pin(open(&wrapped.tier, metrics)).await?,
    })
}
