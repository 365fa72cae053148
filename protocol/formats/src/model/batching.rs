//! Batching settings and request priorities.

use super::BadModelFile;
use serde::{Deserialize, Serialize};

/// Preferred numbers of rows at most.
pub const MAX_PREFERRED_ROWS: usize = 64;

/// Batching settings, used if `max_batch_size` allows batches, and request priorities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchingConfig {
    /// The longest that a request waits for others while every session is busy or the batch is not full, in microseconds.
    /// 0 closes a batch with whatever is queued.
    pub max_delay_us: u64,
    /// Numbers of rows that close a batch at once, as `[8, 32]` or `32`; the largest is also the most that a batch takes.
    /// Empty, or 0, means `max_batch_size`.
    #[serde(deserialize_with = "one_or_more")]
    pub preferred_rows: Vec<u32>,
    /// Rows of one request at most: it is cut into batches where it has more than `max_batch_size`, and its answers are
    /// joined again. 0 cuts nothing: such a request is refused.
    pub max_request_rows: u32,
    /// Levels of the request parameter `priority`: 1 goes first. 0 passes the parameter over.
    pub priority_levels: u32,
    /// The level of requests that name none, or one that does not exist; 0 means the middle one.
    pub default_priority_level: u32,
    /// Delay by which a request may arrive later and still run before one of the next lower level, in microseconds. It limits
    /// how long higher levels delay lower ones.
    pub priority_step_us: u64,
}

/// Levels of priority at most.
pub const MAX_PRIORITY_LEVELS: u32 = 64;

fn one_or_more<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Rows {
        One(u32),
        Several(Vec<u32>),
    }
    Ok(match Rows::deserialize(deserializer)? {
        Rows::One(0) => Vec::new(),
        Rows::One(rows) => vec![rows],
        Rows::Several(rows) => rows,
    })
}

/// The default of `batching.max_delay_us`.
const MAX_DELAY_US: u64 = 500;

impl Default for BatchingConfig {
    fn default() -> Self {
        Self {
            max_delay_us: MAX_DELAY_US,
            preferred_rows: Vec::new(),
            max_request_rows: 0,
            priority_levels: 0,
            default_priority_level: 0,
            priority_step_us: 100_000,
        }
    }
}

impl BatchingConfig {
    pub(super) fn check(&self, max_batch_size: u32) -> Result<(), BadModelFile> {
        if max_batch_size == 0 {
            self.check_unbatched()?;
        }
        if let Some(rows) = self
            .preferred_rows
            .iter()
            .find(|&&rows| rows == 0 || rows > max_batch_size)
        {
            return Err(BadModelFile(format!(
                "`batching.preferred_rows` has {rows}, which is not between 1 and `max_batch_size` ({max_batch_size})"
            )));
        }
        if self.preferred_rows.len() > MAX_PREFERRED_ROWS {
            return Err(BadModelFile(format!(
                "`batching.preferred_rows` has {} numbers, the most is {MAX_PREFERRED_ROWS}",
                self.preferred_rows.len()
            )));
        }
        if self.max_request_rows > 0 && self.max_request_rows < max_batch_size {
            return Err(BadModelFile(format!(
                "`batching.max_request_rows` ({}) is below `max_batch_size` ({max_batch_size})",
                self.max_request_rows
            )));
        }
        if self.priority_levels > MAX_PRIORITY_LEVELS {
            return Err(BadModelFile(format!(
                "`batching.priority_levels` is {}, the most is {MAX_PRIORITY_LEVELS}",
                self.priority_levels
            )));
        }
        if self.default_priority_level > self.priority_levels {
            return Err(BadModelFile(format!(
                "`batching.default_priority_level` ({}) is above `batching.priority_levels` ({})",
                self.default_priority_level, self.priority_levels
            )));
        }
        Ok(())
    }

    /// Keys that shape batches mean nothing without batches: whoever sets them expects some.
    fn check_unbatched(&self) -> Result<(), BadModelFile> {
        let set = [
            ("max_delay_us", ![0, MAX_DELAY_US].contains(&self.max_delay_us)),
            ("preferred_rows", !self.preferred_rows.is_empty()),
            ("max_request_rows", self.max_request_rows > 0),
        ];
        match set.iter().find(|(_, set)| *set) {
            Some((key, _)) => Err(BadModelFile(format!(
                "`batching.{key}` is set, and `max_batch_size` is not, without which requests are never batched: set it \
                 to the most rows of a run, or leave `batching.{key}` out"
            ))),
            None => Ok(()),
        }
    }
}
