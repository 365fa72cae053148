//! Metrics of a tier. In: a registry, a tier and its role. Out: the same tier, counted. Owns the metrics of this crate;
//! their names are in `tierlab_protocol::metrics`.

use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadCost, ReadMany, Tier, TierInfo};
use async_trait::async_trait;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tierlab_protocol::metrics as names;

/// Upper ends of the read-time buckets, in seconds: 20 us to 10 s, three to a decade.
const READ_BUCKETS: [f64; 18] = [
    20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1.0, 2.0, 5.0,
    10.0,
];

/// What a tier is read for: the `role` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Model files.
    Model,
    /// Feature rows.
    Feature,
}

impl Role {
    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Feature => "feature",
        }
    }
}

/// The metrics of every tier and cache of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StorageMetrics {
    requests: IntCounterVec,
    wire_bytes: IntCounterVec,
    read_bytes: IntCounterVec,
    retries: IntCounterVec,
    errors: IntCounterVec,
    read_seconds: HistogramVec,
    cache_hits: IntCounterVec,
    cache_misses: IntCounterVec,
    cache_joined: IntCounterVec,
    cache_evictions: IntCounterVec,
    cache_bytes: IntGaugeVec,
    cache_capacity_bytes: IntGaugeVec,
}

impl StorageMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// One of the names is taken in this registry.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let of_tier = ["tier", "role"];
        let of_cache = ["tier"];
        let counter = |name, help, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name, help, labels: &[&str]| {
            let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let read_seconds = HistogramOpts::new(names::TIER_READ_SECONDS, "Time of a read call of a tier.");
        let read_seconds = HistogramVec::new(read_seconds.buckets(READ_BUCKETS.to_vec()), &of_tier)?;
        registry.register(Box::new(read_seconds.clone()))?;
        Ok(Self {
            requests: counter(
                names::TIER_REQUESTS,
                "Requests made of a tier's device or server.",
                &of_tier,
            )?,
            wire_bytes: counter(
                names::TIER_WIRE_BYTES,
                "Bytes that came from a tier, over-read included.",
                &of_tier,
            )?,
            read_bytes: counter(names::TIER_READ_BYTES, "Bytes asked of a tier.", &of_tier)?,
            retries: counter(names::TIER_RETRIES, "Retries of a tier.", &of_tier)?,
            errors: counter(names::TIER_ERRORS, "Failed reads of a tier.", &["tier", "role", "kind"])?,
            read_seconds,
            cache_hits: counter(names::CACHE_HITS, "Blocks that the cache had.", &of_cache)?,
            cache_misses: counter(names::CACHE_MISSES, "Blocks that the cache had not.", &of_cache)?,
            cache_joined: counter(
                names::CACHE_JOINED,
                "Misses that joined a read already under way.",
                &of_cache,
            )?,
            cache_evictions: counter(
                names::CACHE_EVICTIONS,
                "Blocks that left the cache to make room or because of their age.",
                &of_cache,
            )?,
            cache_bytes: gauge(names::CACHE_BYTES, "Bytes held by the cache.", &of_cache)?,
            cache_capacity_bytes: gauge(names::CACHE_CAPACITY_BYTES, "Bytes that the cache may hold.", &of_cache)?,
        })
    }

    /// The metrics of one tier in one role.
    #[must_use]
    pub fn tier(&self, tier: &str, role: Role) -> TierMetrics {
        let labels = [tier, role.as_str()];
        TierMetrics {
            requests: self.requests.with_label_values(&labels),
            wire_bytes: self.wire_bytes.with_label_values(&labels),
            read_bytes: self.read_bytes.with_label_values(&labels),
            retries: self.retries.with_label_values(&labels),
            errors: ErrorKind::ALL.map(|kind| self.errors.with_label_values(&[tier, role.as_str(), kind.as_str()])),
            read_seconds: self.read_seconds.with_label_values(&labels),
        }
    }

    /// The metrics of the cache over one tier.
    #[must_use]
    pub fn cache(&self, tier: &str) -> CacheMetrics {
        CacheMetrics {
            hits: self.cache_hits.with_label_values(&[tier]),
            misses: self.cache_misses.with_label_values(&[tier]),
            joined: self.cache_joined.with_label_values(&[tier]),
            evictions: self.cache_evictions.with_label_values(&[tier]),
            bytes: self.cache_bytes.with_label_values(&[tier]),
            capacity_bytes: self.cache_capacity_bytes.with_label_values(&[tier]),
        }
    }
}

/// The metrics of one tier in one role.
#[derive(Debug, Clone)]
pub struct TierMetrics {
    requests: IntCounter,
    wire_bytes: IntCounter,
    read_bytes: IntCounter,
    retries: IntCounter,
    /// In the order of [`ErrorKind::ALL`].
    errors: [IntCounter; ErrorKind::ALL.len()],
    read_seconds: Histogram,
}

impl TierMetrics {
    fn record(&self, asked: u64, cost: &ReadCost) {
        self.read_bytes.inc_by(asked);
        self.wire_bytes.inc_by(cost.wire_bytes);
        self.requests.inc_by(u64::from(cost.requests));
        self.retries.inc_by(u64::from(cost.retries));
    }

    fn record_error(&self, error: &StorageError) {
        for (kind, counter) in ErrorKind::ALL.iter().zip(&self.errors) {
            if *kind == error.kind() {
                counter.inc();
            }
        }
    }
}

/// The metrics of the cache over one tier.
#[derive(Debug, Clone)]
pub struct CacheMetrics {
    pub(super) hits: IntCounter,
    pub(super) misses: IntCounter,
    pub(super) joined: IntCounter,
    pub(super) evictions: IntCounter,
    pub(super) bytes: IntGauge,
    pub(super) capacity_bytes: IntGauge,
}

/// A tier whose reads are counted and timed. Reads whose future is dropped are neither.
pub struct Metered {
    inner: Arc<dyn Tier>,
    metrics: TierMetrics,
}

impl Metered {
    /// Wraps a tier.
    #[must_use]
    pub fn new(inner: Arc<dyn Tier>, metrics: TierMetrics) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl Tier for Metered {
    fn info(&self) -> TierInfo {
        let mut info = self.inner.info();
        info.wrappers.insert(0, "metered".to_owned());
        info
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.inner.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let started = Instant::now();
        let read = self.inner.read_many(object, ranges).await;
        self.metrics.read_seconds.observe(started.elapsed().as_secs_f64());
        match &read {
            Ok(many) => self
                .metrics
                .record(many.parts.iter().map(|part| part.len() as u64).sum(), &many.cost),
            Err(error) => self.metrics.record_error(error),
        }
        read
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        self.inner.list(prefix).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.inner.put(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.inner.delete(path).await
    }
}
