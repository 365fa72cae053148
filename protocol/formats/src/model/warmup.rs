//! Warm-up samples: a version's first runs.

use super::{BadModelFile, check_range, is_plain_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Runs before a version takes requests. A version is refused if a run fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmupSample {
    /// Name for messages.
    #[serde(default)]
    pub name: String,
    /// Rows of each run.
    #[serde(default = "one")]
    pub batch_size: u32,
    /// Number of runs.
    #[serde(default = "one")]
    pub count: u32,
    /// Values by input. An absent input gets zeros, with its free dimensions as 1.
    #[serde(default)]
    pub inputs: BTreeMap<String, WarmupInput>,
}

/// One input of a [`WarmupSample`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmupInput {
    /// Dimensions of one row (default: those of the graph, free ones as 1).
    #[serde(default)]
    pub dims: Option<Vec<i64>>,
    /// Elements of one row.
    pub data: WarmupData,
}

/// The elements of a [`WarmupInput`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WarmupData {
    /// Zeros; empty strings.
    Zero,
    /// Random elements: floats from 0 to 1, integers of any value.
    Random,
    /// Raw little-endian elements of one row, from this file in the model's folder `warmup`.
    File(String),
}

/// Maximum warm-up samples of a model.
const MAX_WARMUP_SAMPLES: usize = 64;
/// Maximum runs of a warm-up sample.
const MAX_WARMUP_COUNT: u32 = 10_000;

fn one() -> u32 {
    1
}

/// Checks what can be checked without the graph.
pub(super) fn check(samples: &[WarmupSample], max_batch_size: u32) -> Result<(), BadModelFile> {
    let fail = |what: String| Err(BadModelFile(what));
    check_range("warmup", samples.len(), 0, MAX_WARMUP_SAMPLES)?;
    for sample in samples {
        let name = &sample.name;
        if sample.batch_size == 0 || sample.batch_size > max_batch_size.max(1) {
            return fail(format!(
                "`warmup.batch_size` of `{name}` is {}, which is not between 1 and `max_batch_size` ({max_batch_size})",
                sample.batch_size
            ));
        }
        if sample.count == 0 || sample.count > MAX_WARMUP_COUNT {
            return fail(format!(
                "`warmup.count` of `{name}` is {}, which is not between 1 and {MAX_WARMUP_COUNT}",
                sample.count
            ));
        }
        for (input, wanted) in &sample.inputs {
            if wanted.dims.iter().flatten().any(|&dim| dim < 0) {
                return fail(format!(
                    "`warmup.inputs.{input}.dims` of `{name}` has a negative dimension"
                ));
            }
            if let WarmupData::File(file) = &wanted.data
                && !is_plain_name(file)
            {
                return fail(format!(
                    "`warmup.inputs.{input}.data` of `{name}`: invalid name of a file in `warmup/`: `{file}`"
                ));
            }
        }
    }
    Ok(())
}
