//! Record of a cold start: the time of each part, and the time of the first reply.

use super::one;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Cause of a cold start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ColdWay {
    /// Model unloaded, and loaded by the repository API of a running server.
    Load,
    /// New server process.
    Restart,
}

impl fmt::Display for ColdWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// State of the files in the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageCache {
    /// Unknown: recently read or written data is cached, except for direct reads (`O_DIRECT`).
    #[default]
    AsIs,
    /// Dropped just before (`posix_fadvise`, `POSIX_FADV_DONTNEED`).
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

/// Cold start of one server, or of several started together. Times are seconds from the due start of the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ColdStart {
    /// Tier of model and features.
    pub tier: String,
    /// Cause of the cold start.
    pub way: ColdWay,
    /// Index among the cold starts of its tier and cause, from 0.
    pub index: u32,
    /// State of the page cache below the tier's files.
    pub page_cache: PageCache,
    /// Number of servers started together.
    #[serde(default = "one")]
    pub servers: u32,
    /// Range over which the starts are spread at random, in seconds.
    #[serde(default)]
    pub jitter_s: f64,
    /// Stages of the load in order, as the server timed them; unreported stages are left out. With several servers,
    /// those of the last to reply.
    pub stages_s: Vec<(String, f64)>,
    /// Time from the call, or the start of the process, until the model was ready; with several servers, of the last to
    /// reply.
    pub ready_s: f64,
    /// Time from the send of the first request to its complete reply; with several servers, of the last to reply.
    pub first_reply_s: f64,
    /// Time until the first server had replied. Absent in older results.
    #[serde(default)]
    pub earliest_reply_s: Option<f64>,
    /// Bytes that all servers read from the tier, without copies on a local folder. Absent in older results.
    #[serde(default)]
    pub tier_bytes: Option<u64>,
}
