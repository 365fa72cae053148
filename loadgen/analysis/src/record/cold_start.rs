//! Record of a cold start: the time of each part, and the time of the first reply.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Way in which a model came to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColdWay {
    /// Unloaded, and loaded by the repository API of a server that runs.
    Load,
    /// With a server that was started for it.
    Restart,
}

impl fmt::Display for ColdWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Load => "load",
            Self::Restart => "restart",
        })
    }
}

/// State of the files in the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageCache {
    /// Nobody looked: what was read or written a moment ago is there, but for reads past it (`O_DIRECT`).
    #[default]
    AsIs,
    /// Dropped on purpose just before (`posix_fadvise`, `POSIX_FADV_DONTNEED`).
    Dropped,
}

impl fmt::Display for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AsIs => "as is",
            Self::Dropped => "dropped",
        })
    }
}

/// One cold start, of a server or of several that are started together. Times are seconds, from when the start of the first is due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColdStart {
    /// The tier that model and features come from.
    pub tier: String,
    /// Way.
    pub way: ColdWay,
    /// Its index among those of its tier and way, from 0.
    pub index: u32,
    /// The page cache below the tier's files.
    pub page_cache: PageCache,
    /// Servers that are started together.
    #[serde(default = "one")]
    pub servers: u32,
    /// Their starts are spread over so long, at random.
    #[serde(default)]
    pub jitter_s: f64,
    /// The load's stages, in order, as the server timed them, those left out that it does not tell; of several servers, of the one
    /// that replied last.
    pub stages_s: Vec<(String, f64)>,
    /// From the call, or the start of the process, until the model was said to be ready; of the same server.
    pub ready_s: f64,
    /// The first request, from its send to its whole reply; of the same server.
    pub first_reply_s: f64,
    /// Until the first of the servers had replied. Absent in older results.
    #[serde(default)]
    pub earliest_reply_s: Option<f64>,
    /// Bytes that all of them read from the tier, copies on a local folder left out. Absent in older results.
    #[serde(default)]
    pub tier_bytes: Option<u64>,
}

const fn one() -> u32 {
    1
}
