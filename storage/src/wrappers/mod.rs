//! Wrappers: each is a tier around a tier. In: a tier, a config and the metrics. Out: the tier that a server reads
//! from.
//!
//! The order is `cache(metered(staged(emulated(tier))))`. [`open`](crate::open()) adds the inner wrappers of a tier's
//! TOML, `emulated` and `staged`. [`compose`] adds the rest. The tier's metrics count reads that reach the opened tier;
//! the cache's metrics count its own hits and misses. [`Limited`] is a wrapper without a configuration of its own.

use crate::limits::buffer_for;
pub use crate::metrics::{
    CacheMetrics, DamagedRows, DeviceMetrics, EmulatedMetrics, Registrar, Role, StagedMetrics, StorageMetrics,
    TierMetrics,
};
use crate::{ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
pub use cache::{Cache, CacheConfig};
pub use emulated::{Emulated, EmulatedConfig};
pub use metered::Metered;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use staged::{Staged, StagedConfig};
use std::ops::Range;
use std::sync::Arc;

pub mod cache;
pub mod emulated;
pub mod metered;
mod single_flight;
#[cfg(test)]
#[path = "single_flight/tests.rs"]
mod single_flight_tests;
pub mod staged;

/// Synchronisation types of `single_flight`; its tests replace them with those of a scheduler that tries thread orders.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// Wraps a tier: always metered, and cached if `cache` has a capacity.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an invalid cache configuration; names the key.
pub fn compose(
    tier: Arc<dyn Tier>,
    role: Role,
    cache: &CacheConfig,
    metrics: &StorageMetrics,
) -> Result<Arc<dyn Tier>, StorageError> {
    let kind = tier.info().kind;
    let metered: Arc<dyn Tier> = Arc::new(Metered::new(tier, metrics.tier(kind, role)));
    if cache.capacity_bytes == 0 {
        return Ok(metered);
    }
    Ok(Arc::new(Cache::new(metered, cache, metrics.cache(kind))?))
}

/// Wrappers around a tier.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WrapperConfig {
    /// A remote service emulated over the tier.
    pub emulated: Option<EmulatedConfig>,
    /// Copies of read bytes in a local folder.
    pub staged: Option<StagedConfig>,
    /// Cache in memory, for [`compose`]: only the reader knows if it reads rows or whole files.
    pub cache: Option<CacheConfig>,
}

impl WrapperConfig {
    /// Names of the wrappers' tables.
    pub(crate) const TABLES: [&str; 3] = ["emulated", "staged", "cache"];

    /// Wraps a tier as `staged(emulated(tier))`, with the configured wrappers only.
    ///
    /// # Errors
    /// Fails if a table is invalid, or if a folder cannot be used for staging; names the key.
    pub(crate) async fn wrap(
        &self,
        mut tier: Arc<dyn Tier>,
        metrics: &StorageMetrics,
    ) -> Result<Arc<dyn Tier>, StorageError> {
        let kind = tier.info().kind;
        if let Some(config) = &self.emulated {
            tier = Arc::new(Emulated::new(tier, config, metrics.emulated(kind))?);
        }
        if let Some(config) = &self.staged {
            tier = Arc::new(Staged::open(tier, config, metrics.staged(kind)).await?);
        }
        Ok(tier)
    }
}

/// Tier that rejects look-ups of objects above a size. So a size reported by a tier never causes an allocation of that
/// size.
pub struct Limited {
    inner: Arc<dyn Tier>,
    max_bytes: u64,
    key: &'static str,
}

impl Limited {
    /// Wraps a tier; `key` is the configuration's name of the limit, for the error.
    pub fn new(inner: Arc<dyn Tier>, max_bytes: u64, key: &'static str) -> Self {
        Self { inner, max_bytes, key }
    }
}

#[async_trait]
impl Tier for Limited {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        let object = self.inner.stat(path).await?;
        if object.size > self.max_bytes {
            let (size, max, key) = (object.size, self.max_bytes, self.key);
            let detail = format!("object of {size} bytes exceeds the limit of {max}; raise `{key}`");
            return Err(ErrorKind::Invalid.error(path, detail).with_public_detail());
        }
        Ok(object)
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.inner.read_many(object, ranges).await
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.inner)
    }
}

/// Bytes of extents of an object, and the cost of reading them.
#[derive(Debug, Default)]
struct Fetched {
    parts: Vec<(Range<u64>, Bytes)>,
    cost: ReadCost,
}

impl Fetched {
    /// Sorts the parts, for [`Fetched::cut`].
    fn sort(&mut self) {
        self.parts
            .sort_unstable_by_key(|(extent, _)| (extent.start, extent.end));
    }

    /// Cuts a range out of the sorted parts that cover it: a slice if a single part holds it, else a copy.
    fn cut(&self, object: &Object, range: &Range<u64>) -> Result<Bytes, StorageError> {
        let (mut buffer, mut at) = (BytesMut::new(), range.start);
        while at < range.end {
            // Parts that begin before the range may also end before it.
            let before = self.parts.partition_point(|(extent, _)| extent.start <= at);
            let found = self.parts[..before].iter().rev().find(|(extent, _)| extent.end > at);
            let missing = || ErrorKind::Corrupt.error(&object.path, format!("missing bytes from {at}"));
            let (extent, bytes) = found.ok_or_else(missing)?;
            let to = extent.end.min(range.end);
            let piece = bytes.slice((at - extent.start) as usize..(to - extent.start) as usize);
            if at == range.start {
                if to == range.end {
                    return Ok(piece);
                }
                buffer = buffer_for(object.path.as_str(), range.end - range.start)?;
            }
            buffer.extend_from_slice(&piece);
            at = to;
        }
        Ok(buffer.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Suite;
    use crate::content::content;
    use crate::tiers::memory::MemoryTier;
    use prometheus::{Encoder, Registry, TextEncoder};
    use tierlab_protocol::metrics;

    fn value(registry: &Registry, series: &str) -> f64 {
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no `{series}` in\n{text}"))
            .parse()
            .unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_tiers_metrics_count_what_the_cache_let_through() {
        let registry = Registry::new();
        let metrics = StorageMetrics::register(&registry).unwrap();
        let cache = CacheConfig {
            capacity_bytes: 1 << 20,
            block_bytes: 4096,
            ..CacheConfig::default()
        };
        let tier = compose(Arc::new(MemoryTier::default()), Role::Feature, &cache, &metrics).unwrap();
        assert_eq!(
            tier.info().wrappers,
            ["cache(1048576 bytes, blocks of 4096)", "metered"]
        );
        let path = ObjectPath::new("x").unwrap();
        let object = tier
            .put(&path, Bytes::from(content(1, 0..100_000)).into())
            .await
            .unwrap();
        for _ in 0..3 {
            let read = tier.read(&object, 5000..5100).await.unwrap();
            assert_eq!(read.bytes, content(1, 5000..5100));
        }
        assert!(tier.read(&object, 0..100_001).await.is_err());
        let labels = r#"{role="feature",tier="memory"}"#;
        assert_eq!(value(&registry, &format!("{}{labels}", metrics::TIER_REQUESTS)), 1.0);
        assert_eq!(
            value(&registry, &format!("{}{labels}", metrics::TIER_READ_BYTES)),
            4096.0
        );
        assert_eq!(
            value(&registry, &format!("{}_count{labels}", metrics::TIER_READ_SECONDS)),
            1.0
        );
        let labels = r#"{tier="memory"}"#;
        assert_eq!(value(&registry, &format!("{}{labels}", metrics::CACHE_HITS)), 2.0);
        assert_eq!(value(&registry, &format!("{}{labels}", metrics::CACHE_MISSES)), 1.0);
        assert_eq!(
            value(&registry, &format!("{}{labels}", metrics::CACHE_CAPACITY_BYTES)),
            f64::from(1 << 20)
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn failed_reads_are_counted_by_kind() {
        let registry = Registry::new();
        let metrics = StorageMetrics::register(&registry).unwrap();
        let tier = compose(
            Arc::new(MemoryTier::default()),
            Role::Model,
            &CacheConfig::off(),
            &metrics,
        )
        .unwrap();
        let path = ObjectPath::new("x").unwrap();
        let object = tier.put(&path, Bytes::from_static(b"12345").into()).await.unwrap();
        assert!(tier.read(&object, 0..6).await.is_err());
        tier.delete(&path).await.unwrap();
        assert!(tier.read(&object, 0..5).await.is_err());
        for kind in ["out-of-range", "not-found"] {
            let labels = format!(r#"{{kind="{kind}",role="model",tier="memory"}}"#);
            assert_eq!(value(&registry, &format!("{}{labels}", metrics::TIER_ERRORS)), 1.0);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_whole_stack_conforms() {
        let scratch = tempfile::tempdir().unwrap();
        let metrics = StorageMetrics::register(&Registry::new()).unwrap();
        for (i, (capacity_bytes, block_bytes)) in [(0, 4096), (64 << 20, 4096), (100_000, 512)].into_iter().enumerate()
        {
            let cache = CacheConfig {
                capacity_bytes,
                block_bytes,
                ..CacheConfig::default()
            };
            let suite = Suite {
                tier: compose(Arc::new(MemoryTier::default()), Role::Feature, &cache, &metrics).unwrap(),
                folder: ObjectPath::new(&format!("suite{i}")).unwrap(),
                scratch: scratch.path().to_owned(),
                notices_changes: capacity_bytes == 0,
            };
            suite.run().await.unwrap();
        }
    }

    #[tokio::test]
    async fn larger_objects_are_not_looked_up() {
        let tier = Limited::new(Arc::new(MemoryTier::default()), 5, "x.max_bytes");
        let path = ObjectPath::new("a").unwrap();
        tier.put(&path, Bytes::from_static(b"12345").into()).await.unwrap();
        assert_eq!(tier.stat(&path).await.unwrap().size, 5);
        tier.put(&path, Bytes::from_static(b"123456").into()).await.unwrap();
        let error = tier.stat(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.for_clients().contains("x.max_bytes"), "{}", error.for_clients());
    }
}
