//! Time of requests by part: bands of latency, the reads behind them, and the dominant part of the slowest.

use super::Interval;
use serde::{Deserialize, Serialize};

/// Mean composition of the latency of requests between two percentiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// `p0-50`, `p50-90`, `p90-99`, `p99-100`.
    pub name: String,
    /// Number of requests in the band.
    pub count: u64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Mean latency with its 95 % interval, in microseconds, over at least two repeats; absent in a single repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_repeats_us: Option<Interval>,
    /// Mean microseconds by part, in the order of the request: `send_lag`, `network`, then the server's stages.
    pub parts_us: Vec<(String, f64)>,
    /// Reads behind the replies of the band.
    #[serde(default)]
    pub reads: Reads,
}

/// The reads behind the requests of a band, as means per request that carried a server timing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// Time that the tier's longest read waited for a slot or a connection, in microseconds. Reads overlap, so the
    /// three parts need not sum to the tier stage.
    pub queue_us: f64,
    /// Time of that read in the device or the remote side, in microseconds.
    pub device_us: f64,
    /// Time of copies after its bytes had arrived, in microseconds.
    pub copy_us: f64,
    /// Rows found in the cache.
    pub cache_hits: f64,
    /// Rows not found in the cache.
    pub cache_misses: f64,
    /// Requests to the tier.
    pub tier_requests: f64,
}

/// Dominant parts of a point's slowest requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// Slowest band with requests: `p99-100`, unless there were too few for it.
    pub band: String,
    /// Parts by falling share of the band's mean latency, each with the interval over the repeats; with a single repeat
    /// the interval is the share alone.
    pub parts: Vec<(String, Interval)>,
    /// True if the first part is clearly the largest: larger than the second in every repeat, and certainly so or more
    /// than half.
    pub clear: bool,
    /// Excess of the parts' sum over the latency, if it is certain. Such a server's stages do not show the division of
    /// the time, and the shares are of the parts' sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeds: Option<f64>,
}
