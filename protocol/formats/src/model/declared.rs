//! What a model's config may say of the graph and of its first runs: tensors that it must have, and warm-up samples.

use super::BadModelFile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tierlab_protocol::tensor::DataType;

/// A tensor that the graph must have. Where the graph leaves a dimension free, a number here narrows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredTensor {
    /// Its name.
    pub name: String,
    /// Its data type.
    pub datatype: DataType,
    /// Its dimensions; -1 is a free one. Without the batch dimension, unless `max_batch_size` is 0.
    pub dims: Vec<i64>,
}

/// Where a model's sessions run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceKind {
    /// Where the server's `[runtime] device` says.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU, or the model is refused.
    Gpu,
}

impl InstanceKind {
    /// Whether the server decides.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Runs before a version takes requests. A version that fails one of them is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmupSample {
    /// A name for messages.
    #[serde(default)]
    pub name: String,
    /// Rows of each run.
    #[serde(default = "one")]
    pub batch_size: u32,
    /// Runs.
    #[serde(default = "one")]
    pub count: u32,
    /// What goes in, by input. An input that is not here gets zeros, its free dimensions as 1.
    #[serde(default)]
    pub inputs: BTreeMap<String, WarmupInput>,
}

/// One input of a [`WarmupSample`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmupInput {
    /// The dimensions of one row; left out, those of the graph with free ones as 1.
    #[serde(default)]
    pub dims: Option<Vec<i64>>,
    /// The elements.
    pub data: WarmupData,
}

/// The elements of a [`WarmupInput`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WarmupData {
    /// Zeros; empty strings.
    Zero,
    /// Random ones: floats from 0 to 1, integers of any value.
    Random,
    /// The raw little-endian elements of one row, from this file in the model's folder `warmup`.
    File(String),
}

/// Warm-up samples of one model at most.
pub const MAX_WARMUP_SAMPLES: usize = 64;
/// Runs of one warm-up sample at most.
pub const MAX_WARMUP_COUNT: u32 = 10_000;

fn one() -> u32 {
    1
}

/// Checks what can be checked without the graph.
pub(super) fn check(samples: &[WarmupSample], max_batch_size: u32) -> Result<(), BadModelFile> {
    let fail = |what: String| Err(BadModelFile(what));
    if samples.len() > MAX_WARMUP_SAMPLES {
        return fail(format!(
            "`warmup`: {} samples, the most is {MAX_WARMUP_SAMPLES}",
            samples.len()
        ));
    }
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
                && !super::is_plain_name(file)
            {
                return fail(format!(
                    "`warmup.inputs.{input}.data` of `{name}`: `{file}` is no plain name of a file in `warmup/`"
                ));
            }
        }
    }
    Ok(())
}
