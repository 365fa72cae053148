//! Metrics of this crate. In: a registry. Out: counters and gauges labelled with one tier, for the wrappers. Their
//! names are in `tierlab_protocol::metrics`.

use crate::error::KINDS;
use crate::{ErrorKind, ReadCost, StorageError};
use prometheus::core::{Atomic, Collector, GenericCounterVec, GenericGauge, GenericGaugeVec};
use prometheus::{
    Counter, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    Result,
};
use std::time::Duration;
use tierlab_protocol::metrics as names;

/// Upper bounds of the read-time buckets, in seconds: 20 us to 10 s, three per decade.
const READ_BUCKETS: [f64; 18] = [
    20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1.0, 2.0, 5.0,
    10.0,
];

/// Use of a tier: the `role` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Model files.
    Model,
    /// Feature rows.
    Feature,
}

impl Role {
    /// Value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Feature => "feature",
        }
    }
}

/// Metrics of all tiers and wrappers of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StorageMetrics {
    requests: IntCounterVec,
    wire_bytes: IntCounterVec,
    read_bytes: IntCounterVec,
    retries: IntCounterVec,
    hedges: IntCounterVec,
    errors: IntCounterVec,
    read_seconds: HistogramVec,
    damaged_rows: IntCounterVec,
    cache: CacheMetrics<IntCounterVec, IntGaugeVec>,
    staged: StagedMetrics<IntCounterVec, IntGaugeVec>,
    emulated_faults: IntCounterVec,
    device_reads: IntCounterVec,
    device_path: IntGaugeVec,
}

/// Creates metrics and adds them to a registry.
pub struct Registrar<'a>(
    /// Registry that takes the metrics.
    pub &'a Registry,
);

impl Registrar<'_> {
    fn add<C: Collector + Clone + 'static>(&self, metric: Result<C>) -> Result<C> {
        let metric = metric?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// Registers a counter without labels.
    ///
    /// # Errors
    /// Fails if the name is already registered.
    pub fn counter(&self, name: &str, help: &str) -> Result<Counter> {
        self.add(Counter::new(name, help))
    }

    /// Registers a gauge without labels.
    ///
    /// # Errors
    /// Fails if the name is already registered.
    pub fn gauge<P: Atomic + 'static>(&self, name: &str, help: &str) -> Result<GenericGauge<P>> {
        self.add(GenericGauge::new(name, help))
    }

    /// Registers counters by labels.
    ///
    /// # Errors
    /// Fails if the name is already registered.
    pub fn counters<P: Atomic + 'static>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<GenericCounterVec<P>> {
        self.add(GenericCounterVec::new(Opts::new(name, help), labels))
    }

    /// Registers gauges by labels.
    ///
    /// # Errors
    /// Fails if the name is already registered.
    pub fn gauges<P: Atomic + 'static>(&self, name: &str, help: &str, labels: &[&str]) -> Result<GenericGaugeVec<P>> {
        self.add(GenericGaugeVec::new(Opts::new(name, help), labels))
    }

    /// Registers histograms by labels; `buckets` are the upper bounds.
    ///
    /// # Errors
    /// Fails if the name is already registered.
    pub fn histograms(&self, name: &str, help: &str, buckets: &[f64], labels: &[&str]) -> Result<HistogramVec> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(HistogramVec::new(opts, labels))
    }
}

impl StorageMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// Fails if a name is already registered in this registry.
    pub fn register(registry: &Registry) -> Result<Self> {
        let on = Registrar(registry);
        let of_tier = ["tier", "role"];
        let read_seconds = "Time of a read call of a tier.";
        let requests = "Requests to a tier's device or server.";
        let wire_bytes = "Bytes received from a tier, including over-read.";
        let hedges = "Hedged requests, sent because the first reply was slow.";
        let damaged = "Rows that failed their checksum, by outcome of a second read.";
        let faults = "Faults injected by an emulated service.";
        let device_reads = "Reads of cuFile by the path taken, from its own counters.";
        let device_path = "Configured path to device memory, and what it lacks; 1 if cuFile counts reads.";
        Ok(Self {
            requests: on.counters(names::TIER_REQUESTS, requests, &of_tier)?,
            wire_bytes: on.counters(names::TIER_WIRE_BYTES, wire_bytes, &of_tier)?,
            read_bytes: on.counters(names::TIER_READ_BYTES, "Bytes requested from a tier.", &of_tier)?,
            retries: on.counters(names::TIER_RETRIES, "Retries of a tier.", &of_tier)?,
            hedges: on.counters(names::TIER_HEDGES, hedges, &of_tier)?,
            errors: on.counters(names::TIER_ERRORS, "Failed reads of a tier.", &["tier", "role", "kind"])?,
            read_seconds: on.histograms(names::TIER_READ_SECONDS, read_seconds, &READ_BUCKETS, &of_tier)?,
            damaged_rows: on.counters(names::DAMAGED_ROWS, damaged, &["tier", "outcome"])?,
            cache: CacheMetrics::register(&on)?,
            staged: StagedMetrics::register(&on)?,
            emulated_faults: on.counters(names::EMULATED_FAULTS, faults, &["tier", "kind"])?,
            device_reads: on.counters(names::DEVICE_READS, device_reads, &["tier", "way"])?,
            device_path: on.gauges(names::DEVICE_PATH, device_path, &["tier", "path", "missing"])?,
        })
    }

    /// Creates metrics that are never scraped.
    ///
    /// # Errors
    /// None expected: the registry is new.
    pub fn unscraped() -> std::result::Result<Self, StorageError> {
        Self::register(&Registry::new()).map_err(|e| ErrorKind::Invalid.error("the storage metrics", e.to_string()))
    }

    /// Metrics of a tier in a role.
    pub fn tier(&self, tier: &str, role: Role) -> TierMetrics {
        let labels = [tier, role.as_str()];
        TierMetrics {
            requests: self.requests.with_label_values(&labels),
            wire_bytes: self.wire_bytes.with_label_values(&labels),
            read_bytes: self.read_bytes.with_label_values(&labels),
            retries: self.retries.with_label_values(&labels),
            hedges: self.hedges.with_label_values(&labels),
            errors: KINDS.map(|(_, kind, _)| self.errors.with_label_values(&[tier, role.as_str(), kind])),
            read_seconds: self.read_seconds.with_label_values(&labels),
        }
    }

    /// Metrics of the cache over a tier.
    pub fn cache(&self, tier: &str) -> CacheMetrics {
        self.cache.of(tier)
    }

    /// Metrics of the stage of a tier.
    pub fn staged(&self, tier: &str) -> StagedMetrics {
        self.staged.of(tier)
    }

    /// Metrics of the service emulated over a tier.
    pub fn emulated(&self, tier: &str) -> EmulatedMetrics {
        EmulatedMetrics {
            faults: KINDS.map(|(_, kind, _)| self.emulated_faults.with_label_values(&[tier, kind])),
        }
    }

    /// Metrics of a tier's reads into device memory over `path`. `missing` is the detected obstacle to GPUDirect
    /// Storage; `counts` is true if cuFile reports the path of each read.
    pub fn device(&self, tier: &str, path: &str, missing: &str, counts: bool) -> DeviceMetrics {
        self.device_path
            .with_label_values(&[tier, path, missing])
            .set(i64::from(counts));
        let way = |way: &str| self.device_reads.with_label_values(&[tier, way]);
        DeviceMetrics {
            peer_to_peer: way("p2p"),
            nvidia_fs: way("nvfs"),
            posix: way("posix"),
        }
    }

    /// Counters of a tier's damaged rows.
    pub fn damaged_rows(&self, tier: &str) -> DamagedRows {
        DamagedRows {
            mended: self.damaged_rows.with_label_values(&[tier, "mended"]),
            refused: self.damaged_rows.with_label_values(&[tier, "refused"]),
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
    hedges: IntCounter,
    /// In the order of [`KINDS`].
    errors: [IntCounter; KINDS.len()],
    read_seconds: Histogram,
}

impl TierMetrics {
    pub(super) fn time(&self, elapsed: Duration) {
        self.read_seconds.observe(elapsed.as_secs_f64());
    }

    pub(super) fn record(&self, requested: u64, cost: &ReadCost) {
        self.read_bytes.inc_by(requested);
        self.wire_bytes.inc_by(cost.wire_bytes);
        self.requests.inc_by(u64::from(cost.requests));
        self.retries.inc_by(u64::from(cost.retries));
        self.hedges.inc_by(u64::from(cost.hedges));
    }

    pub(super) fn record_error(&self, error: &StorageError) {
        self.errors[error.kind() as usize].inc();
    }
}

/// Defines metrics whose only label is a tier, each with its name and help: counters, then gauges.
macro_rules! metrics_of_tiers {
    ($(#[$doc:meta])* $metrics:ident
        { $($counter:ident: $counter_name:ident, $counter_help:literal;)* }
        { $($gauge:ident: $gauge_name:ident, $gauge_help:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $metrics<Counter = IntCounter, Gauge = IntGauge> {
            $(pub(super) $counter: Counter,)*
            $(pub(super) $gauge: Gauge,)*
        }

        impl $metrics<IntCounterVec, IntGaugeVec> {
            fn register(on: &Registrar<'_>) -> Result<Self> {
                Ok(Self {
                    $($counter: on.counters(names::$counter_name, $counter_help, &["tier"])?,)*
                    $($gauge: on.gauges(names::$gauge_name, $gauge_help, &["tier"])?,)*
                })
            }

            fn of(&self, tier: &str) -> $metrics {
                $metrics {
                    $($counter: self.$counter.with_label_values(&[tier]),)*
                    $($gauge: self.$gauge.with_label_values(&[tier]),)*
                }
            }
        }
    };
}

metrics_of_tiers! {
    /// Metrics of the cache over a tier. With vectors instead of single counters and gauges: of all tiers.
    CacheMetrics {
        hits: CACHE_HITS, "Blocks found in the cache.";
        misses: CACHE_MISSES, "Blocks missing from the cache.";
        joined: CACHE_JOINED, "Misses that joined a read in progress.";
        evictions: CACHE_EVICTIONS, "Blocks evicted from the cache, for room or because of their age.";
    } {
        bytes: CACHE_BYTES, "Bytes held by the cache.";
        capacity_bytes: CACHE_CAPACITY_BYTES, "Capacity of the cache in bytes.";
    }
}

metrics_of_tiers! {
    /// Metrics of the stage of a tier. With vectors instead of single counters and gauges: of all tiers.
    StagedMetrics {
        hits: STAGED_HITS, "Blocks read from the stage.";
        misses: STAGED_MISSES, "Blocks missing from the stage.";
        neighbours: STAGED_NEIGHBOURS, "Blocks missing from the stage but found in another process's stage.";
        written: STAGED_WRITTEN, "Blocks written to the stage.";
        evicted: STAGED_EVICTED, "Blocks evicted from the stage.";
        torn: STAGED_TORN, "Staged blocks that failed their checksum or could not be read; read from the tier instead.";
        skipped: STAGED_SKIPPED, "Blocks not staged: too many waiting, or a recent write failed.";
        failures: STAGED_FAILURES, "Writes to the stage that failed.";
    } {
        bytes: STAGED_BYTES, "Bytes held by the stage.";
        capacity_bytes: STAGED_CAPACITY_BYTES, "Capacity of the stage in bytes.";
    }
}

/// Metrics of the service emulated over a tier.
#[derive(Debug, Clone)]
pub struct EmulatedMetrics {
    /// In the order of [`KINDS`].
    faults: [IntCounter; KINDS.len()],
}

impl EmulatedMetrics {
    pub(super) fn count(&self, fault: ErrorKind) {
        self.faults[fault as usize].inc();
    }
}

/// Reads of cuFile into device memory, by path taken.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "gds"), expect(dead_code, reason = "only the gds tier counts"))]
pub struct DeviceMetrics {
    peer_to_peer: IntCounter,
    nvidia_fs: IntCounter,
    posix: IntCounter,
}

#[cfg(feature = "gds")]
impl DeviceMetrics {
    pub(crate) fn count(&self, peer_to_peer: u64, nvidia_fs: u64, posix: u64) {
        self.peer_to_peer.inc_by(peer_to_peer);
        self.nvidia_fs.inc_by(nvidia_fs);
        self.posix.inc_by(posix);
    }
}

/// Rows of a tier that failed their checksum.
#[derive(Debug, Clone)]
pub struct DamagedRows {
    /// Rows that were correct when read again.
    pub mended: IntCounter,
    /// Rows that failed again and were refused.
    pub refused: IntCounter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_counter() {
        let metrics = StorageMetrics::unscraped().unwrap().emulated("x");
        for (kind, ..) in KINDS {
            metrics.count(kind);
        }
        assert!(metrics.faults.iter().all(|counter| counter.get() == 1));
    }
}
