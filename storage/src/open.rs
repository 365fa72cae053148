//! Opening of tiers. In: a [`TierConfig`]. Out: the tier with its wrappers. Reads no files or environment variables
//! except certificates and credentials: `object_store` reads S3's from the usual AWS variables and profile.

#[cfg(feature = "flight")]
use crate::tiers::flight::FlightTier;
#[cfg(feature = "gds")]
use crate::tiers::gds::GdsTier;
use crate::tiers::memory::MemoryTier;
use crate::tiers::object::BucketTier;
#[cfg(feature = "redis")]
use crate::tiers::redis::RedisTier;
use crate::tiers::{nfs, nvme};
use crate::wrappers::StorageMetrics;
use crate::{StorageError, Tier, TierConfig};
use std::sync::Arc;

/// Builds a tier with its inner wrappers: `[emulated]`, then `[staged]`. The caller adds metrics and cache
/// ([`compose`](crate::wrappers::compose)). Connects to the tier: a root must exist, a server must answer.
///
/// # Errors
/// Names the missing part, its place, and the remedy.
pub async fn open(config: &TierConfig) -> Result<Arc<dyn Tier>, StorageError> {
    open_counted(config, &StorageMetrics::unscraped()?).await
}

/// Same as [`open`], and counts on `metrics`.
///
/// # Errors
/// Same as [`open`].
pub async fn open_counted(config: &TierConfig, metrics: &StorageMetrics) -> Result<Arc<dyn Tier>, StorageError> {
    let tier = open_bare(config, metrics).await?;
    match config {
        TierConfig::Wrapped(wrapped) => wrapped.wrappers.wrap(tier, metrics).await,
        _ => Ok(tier),
    }
}

/// Builds the tier itself, without its wrappers.
async fn open_bare(config: &TierConfig, metrics: &StorageMetrics) -> Result<Arc<dyn Tier>, StorageError> {
    Ok(match config {
        TierConfig::Memory { root: None } => Arc::new(MemoryTier::new()),
        TierConfig::Memory { root: Some(root) } => Arc::new(MemoryTier::load(root).await?),
        TierConfig::Nvme(config) => nvme::open(config).await?,
        TierConfig::Nfs(config) => nfs::open(config).await?,
        TierConfig::Object(config) => Arc::new(BucketTier::connect(config).await?),
        #[cfg(feature = "redis")]
        TierConfig::Redis(config) => Arc::new(RedisTier::connect(config).await?),
        #[cfg(feature = "flight")]
        TierConfig::Flight(config) => Arc::new(FlightTier::connect(config).await?),
        #[cfg(feature = "gds")]
        TierConfig::Gds(config) => Arc::new(GdsTier::open_counted(config, metrics).await?),
        TierConfig::Wrapped(wrapped) => Box::pin(open_bare(&wrapped.tier, metrics)).await?,
        #[cfg(not(all(feature = "flight", feature = "gds", feature = "redis")))]
        left_out => {
            let kind = left_out.kind();
            let detail = format!("tier kind {kind} is not compiled in; run `make build`");
            return Err(crate::error::ErrorKind::Unsupported.error(kind, detail));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tier_opens_with_what_lies_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"memory\"\n[emulated]\nprofile = \"gp3\"\n[staged]\nroot = \"{}\"",
            folder.path().display()
        );
        let tier = open(&TierConfig::parse("t", &text).unwrap()).await.unwrap();
        let info = tier.info();
        assert_eq!(info.kind, "memory");
        assert!(info.wrappers[0].starts_with("staged(") && info.wrappers[1].starts_with("emulated("));
        assert_eq!(info.notes[0], "emulated: gp3");
        let bad = TierConfig::parse("t", "kind = \"memory\"\n[emulated]\nprofile = \"floppy\"");
        let error = open(&bad.unwrap()).await.err().unwrap();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, "emulated.profile"));
    }
}
