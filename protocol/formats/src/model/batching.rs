//! Batching settings and request priorities.

use super::check_range;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of preferred row counts.
const MAX_PREFERRED: usize = 64;

/// Batching settings, used if `max_batch_size` allows batches, request priorities and the limits of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchingConfig {
    /// Maximum time that a request waits for others while every session is busy or the batch is not full, in
    /// microseconds. 0 closes a batch with the requests queued at that moment.
    pub max_delay_us: u64,
    /// Row counts that close a batch at once, as `[8, 32]` or `32`; the largest is also the maximum of a batch. Empty,
    /// or 0, means `max_batch_size`.
    #[serde(deserialize_with = "one_or_more")]
    pub preferred_rows: Vec<u32>,
    /// Maximum rows of one request. A request of more than `max_batch_size` rows is cut into batches, and its answers
    /// are joined. 0 refuses such requests.
    pub max_request_rows: u32,
    /// Levels of the request parameter `priority`: 1 goes first. 0 ignores the parameter.
    pub priority_levels: u32,
    /// Level of requests without a level, or with one that does not exist; 0 means the middle one.
    pub default_priority_level: u32,
    /// Delay by which a request may arrive later and still run before one of the next lower level, in microseconds. It limits
    /// how long higher levels delay lower ones.
    pub priority_step_us: u64,
    /// Maximum waiting requests, counting each part of a cut one: at least the parts of the largest; another is refused with
    /// 503. 0 leaves the limit to `admission.max_in_flight`.
    pub queue_limit: u32,
    /// Maximum time that a request waits for a session, in microseconds; then it is refused with 504. 0 sets no limit
    /// besides the request's own.
    pub queue_timeout_us: u64,
    /// If true, the request parameter `timeout` limits the time of its request; if false, it is ignored.
    pub allow_timeout_override: bool,
}

/// Maximum number of priority levels.
const MAX_PRIORITY_LEVELS: usize = 64;

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

/// Default of `batching.max_delay_us`.
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
            queue_limit: 0,
            queue_timeout_us: 0,
            allow_timeout_override: true,
        }
    }
}

impl BatchingConfig {
    pub(super) fn check(&self, max_batch_size: u32) -> Result<(), String> {
        if max_batch_size == 0 {
            self.check_unbatched()?;
        }
        let is_row_count = |rows: &u32| (1..=max_batch_size).contains(rows);
        check_range("batching.preferred_rows", self.preferred_rows.len(), 0, MAX_PREFERRED)?;
        let (limit, rows) = (self.queue_limit, self.max_request_rows);
        let parts = rows.div_ceil(max_batch_size.max(1));
        let (levels, default_level) = (self.priority_levels, self.default_priority_level);
        check_range("batching.priority_levels", levels as usize, 0, MAX_PRIORITY_LEVELS)?;
        let what = if let Some(rows) = self.preferred_rows.iter().find(|rows| !is_row_count(rows)) {
            format!(
                "`batching.preferred_rows` has {rows}, which is not between 1 and `max_batch_size` ({max_batch_size})"
            )
        } else if (1..max_batch_size).contains(&rows) {
            format!("`batching.max_request_rows` ({rows}) is below `max_batch_size` ({max_batch_size})")
        } else if (1..parts).contains(&limit) {
            format!(
                "`batching.queue_limit` ({limit}) is below the {parts} parts of a request with `batching.max_request_rows` \
                 ({rows}): raise it, or lower `batching.max_request_rows`"
            )
        } else if default_level > levels {
            format!(
                "`batching.default_priority_level` ({default_level}) is above `batching.priority_levels` ({levels})"
            )
        } else {
            return Ok(());
        };
        Err(what)
    }

    /// Refuses keys that shape batches if batching is disabled, because they would have no effect.
    fn check_unbatched(&self) -> Result<(), String> {
        let set = [
            ("max_delay_us", ![0, MAX_DELAY_US].contains(&self.max_delay_us)),
            ("preferred_rows", !self.preferred_rows.is_empty()),
            ("max_request_rows", self.max_request_rows > 0),
        ];
        match set.iter().find(|(_, set)| *set) {
            Some((key, _)) => Err(format!(
                "`batching.{key}` has no effect without `max_batch_size`: set `max_batch_size` \
                 to the maximum rows of a run, or remove `batching.{key}`"
            )),
            None => Ok(()),
        }
    }
}
