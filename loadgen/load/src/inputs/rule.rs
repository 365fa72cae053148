//! Rules for the inputs of requests, as written in a plan, before any model is known. Plain data.

use super::recorded::Recorded;
use super::records::Records;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// `[inputs]` of a plan.
#[derive(Debug, Clone, Default)]
pub struct InputRules {
    /// Order in which prepared requests are sent.
    pub order: Order,
    /// Inferences counted for one request, if the plan sets it.
    pub rows_per_request: Option<u32>,
    /// Rule of each input, by name.
    pub tensors: BTreeMap<String, TensorRule>,
    /// Recorded requests.
    pub recorded: Option<Arc<Recorded>>,
    /// Check of the replies' values.
    pub check: Option<CheckRule>,
}

/// Order in which prepared requests are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Order {
    /// One after the other, repeatedly.
    #[default]
    Sequential,
    /// All of them in a random order, then again in another.
    Shuffled,
    /// Request of rank r, in the order of the file, with a frequency proportional to r^-exponent.
    #[strum(to_string = "zipf({exponent:.2})")]
    Zipf {
        /// Exponent above 0.
        exponent: f64,
    },
}

/// `[inputs.tensor.NAME]`.
#[derive(Debug, Clone, Default)]
pub struct TensorRule {
    /// Dimensions; default: the model's own.
    pub shape: Option<Vec<Dim>>,
    /// Values of the elements.
    pub values: Option<Values>,
}

/// One dimension.
#[derive(Debug, Clone, PartialEq)]
pub enum Dim {
    /// Rows of the load: 1 in real-time mode, else the batch size.
    Rows,
    /// Fixed length.
    Fixed(u64),
    /// One of these lengths, with equal probability.
    Choices(Vec<u64>),
    /// Length drawn from a distribution.
    Draw(Lengths),
    /// Lengths from a file, one after the other.
    Listed {
        /// Name of the file.
        file: String,
        /// Lengths; at least one.
        lengths: Arc<[u64]>,
    },
    /// Length of another dimension of this or another input.
    SameAs {
        /// Name of the other input; default: this one.
        input: Option<String>,
        /// Index of the dimension, from 0.
        axis: usize,
    },
}

/// Distribution of lengths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Form of the distribution.
    pub law: Law,
    /// Lower limit: smaller draws become this.
    pub least: u64,
    /// Upper limit: larger draws become this.
    pub most: u64,
}

/// Form of a distribution of lengths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Law {
    /// Uniform from `least` to `most`.
    Uniform,
    /// exp(N(ln median, sigma²)).
    Lognormal {
        /// Median length.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl Dim {
    /// True if it is the same in every request of a step.
    pub const fn is_constant(&self) -> bool {
        // A dependent dimension changes with the other one, whose rule reports it.
        matches!(self, Self::Rows | Self::Fixed(_) | Self::SameAs { .. })
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows => f.write_str("rows"),
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Choices(sizes) => write!(f, "one of {sizes:?}"),
            Self::Draw(lengths) => match lengths.law {
                Law::Uniform => write!(f, "uniform {} to {}", lengths.least, lengths.most),
                Law::Lognormal { median, sigma } => write!(
                    f,
                    "lognormal (median {median}, sigma {sigma}, {} to {})",
                    lengths.least, lengths.most
                ),
            },
            Self::Listed { file, .. } => write!(f, "lengths of {file}"),
            Self::SameAs { input: None, axis } => write!(f, "same as {axis}"),
            Self::SameAs {
                input: Some(input),
                axis,
            } => write!(f, "same as {input}.{axis}"),
        }
    }
}

/// Values of an input's elements.
#[derive(Debug, Clone)]
pub enum Values {
    /// 0, false, or empty strings.
    Zeros,
    /// Floats, uniform in [from, to).
    Uniform {
        /// Lower end, included.
        from: f64,
        /// Upper end, excluded.
        to: f64,
    },
    /// Floats, normally distributed.
    Normal {
        /// Mean of the distribution.
        mean: f64,
        /// Standard deviation.
        sd: f64,
    },
    /// Integers, uniform between two limits.
    Integers {
        /// Smallest value.
        least: i128,
        /// Largest value.
        most: i128,
    },
    /// Text with a random number of words.
    Words {
        /// Minimum number of words.
        least: u32,
        /// Maximum number of words.
        most: u32,
    },
    /// Text with a random number of bytes.
    TextBytes {
        /// Minimum number of bytes.
        least: u32,
        /// Maximum number of bytes.
        most: u32,
    },
    /// Values from a file.
    File(Arc<Records>),
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => f.write_str("zeros"),
            Self::Uniform { from, to } => write!(f, "uniform {from} to {to}"),
            Self::Normal { mean, sd } => write!(f, "normal (mean {mean}, sd {sd})"),
            Self::Integers { least, most } => write!(f, "integers {least} to {most}"),
            Self::Words { least, most } => write!(f, "text of {least} to {most} words"),
            Self::TextBytes { least, most } => write!(f, "text of {least} to {most} bytes"),
            Self::File(records) => write!(f, "{} records of {}", records.count(), records.source),
        }
    }
}

/// `[inputs.check]`.
#[derive(Debug, Clone)]
pub struct CheckRule {
    /// Share of the replies whose values are checked, from 0 to 1.
    pub share: f64,
    /// Tolerance of a value: the maximum deviation is `tolerance × (1 + |expected|)`.
    pub tolerance: f64,
    /// Expected values; `None` uses the validation data of recorded requests.
    pub expected: Option<Arc<Expectations>>,
}

/// Expected replies, record by record.
#[derive(Debug, Clone)]
pub enum Expectations {
    /// Replies by the number of the recorded request.
    Recorded(Recorded),
    /// Records by output, in the order of rows or requests.
    Arrays(BTreeMap<String, Arc<Records>>),
}
