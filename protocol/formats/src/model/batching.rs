//! Batching settings and request priorities, and the check that the first dimensions of a graph's tensors can be one batch
//! axis. A graph does not say whether its rows are independent of each other.

use super::BadModelFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Preferred numbers of rows at most.
pub const MAX_PREFERRED_ROWS: usize = 64;

/// Batching settings, used if `max_batch_size` allows batches, request priorities and the limits of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Requests, and parts of requests that are cut, that wait for a session at most; another one is refused with 503 at once.
    /// 0 leaves the limit to `admission.max_in_flight`.
    pub queue_limit: u32,
    /// The longest that a request waits for a session, in microseconds; then it is refused with 504. 0 sets no limit beside
    /// the request's own time.
    pub queue_timeout_us: u64,
    /// If true, the request parameter `timeout` limits the time of its request; if false, it is passed over.
    pub allow_timeout_override: bool,
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
            queue_limit: 0,
            queue_timeout_us: 0,
            allow_timeout_override: true,
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

/// The first dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstDim<'a> {
    /// There is none: the tensor has no dimensions, or the graph does not say which.
    None,
    /// A size that the graph fixes.
    Fixed(i64),
    /// Any size. Dimensions of one name (ONNX's `dim_param`) have one size; without a name the graph says nothing of it.
    Free(&'a str),
}

impl<'a> FirstDim<'a> {
    /// Dimension of a shape as ONNX Runtime reports it: a free size is negative and may have a name among `symbols`.
    #[must_use]
    pub fn of(shape: &[i64], symbols: &'a [String]) -> Self {
        match shape.first() {
            Some(&size) if size >= 0 => Self::Fixed(size),
            Some(_) => Self::Free(symbols.first().map_or("", String::as_str)),
            None => Self::None,
        }
    }
}

/// Name prefix that tf2onnx (`make_onnx_shape`) and ONNX's shape inference give to unknown dimensions, followed by a number.
/// Two such dimensions may be equal.
const UNKNOWN: &str = "unk__";

/// Looks for what keeps the first dimensions of `inputs` and `outputs`, by name, from being one batch axis.
///
/// # Errors
/// The first tensor whose first dimension is missing, fixed, or has another name than that of the first one with a name.
pub fn check_batch_axis<'a>(
    inputs: impl IntoIterator<Item = (&'a str, FirstDim<'a>)>,
    outputs: impl IntoIterator<Item = (&'a str, FirstDim<'a>)>,
) -> Result<(), String> {
    let inputs = inputs.into_iter().map(|tensor| ("input", tensor));
    let outputs = outputs.into_iter().map(|tensor| ("output", tensor));
    let mut batch: Option<(&str, &str, &str)> = None;
    for (role, (name, first)) in inputs.chain(outputs) {
        match first {
            FirstDim::None => return Err(format!("{role} `{name}` has no first dimension")),
            FirstDim::Fixed(size) => {
                return Err(format!("the first dimension of {role} `{name}` is fixed at {size}"));
            }
            FirstDim::Free(symbol) if symbol.is_empty() || symbol.starts_with(UNKNOWN) => {}
            FirstDim::Free(symbol) => match batch {
                Some((_, _, batch)) if batch == symbol => {}
                Some((other_role, other, batch)) => {
                    return Err(format!(
                        "the first dimension of {role} `{name}` is `{symbol}`, that of {other_role} `{other}` is `{batch}`"
                    ));
                }
                None => batch = Some((role, name, symbol)),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FirstDim::{Fixed, Free};
    use super::*;

    fn refused(inputs: &[FirstDim<'_>], output: FirstDim<'_>) -> String {
        let names = ["a", "b", "c"];
        let inputs = names.into_iter().zip(inputs.iter().copied());
        check_batch_axis(inputs, [("y", output)]).err().unwrap_or_default()
    }

    #[test]
    fn names_that_differ_are_no_batch_axis_and_unknown_ones_say_nothing() {
        for (inputs, output) in [
            (&[Free("N"), Free("N")][..], Free("N")),
            (&[Free(""), Free("N")], Free("")),
            (&[Free("unk__7")], Free("unk__9")),
            (&[Free("")], Free("batch")),
        ] {
            assert_eq!(refused(inputs, output), "", "{inputs:?} {output:?}");
        }
        for (inputs, output, told) in [
            (
                &[Free("N"), Free("M")][..],
                Free("N"),
                "input `b` is `M`, that of input `a` is `N`",
            ),
            (
                &[Free("N"), Free("")],
                Free("K"),
                "output `y` is `K`, that of input `a` is `N`",
            ),
            (&[Free("N"), Fixed(3)], Free("N"), "input `b` is fixed at 3"),
            (&[Free("N")], Fixed(1), "output `y` is fixed at 1"),
            (&[Free("N")], FirstDim::None, "output `y` has no first dimension"),
        ] {
            let error = refused(inputs, output);
            assert!(error.contains(told), "{error} should say {told}");
        }
    }
}
