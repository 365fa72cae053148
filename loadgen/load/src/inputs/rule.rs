//! Rules for the inputs of requests, as written in a plan, before any model is known. Plain data.

use super::recorded::Recorded;
use super::records::Records;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// `[inputs]` of a plan.
#[derive(Debug, Clone, Default)]
pub struct InputRules {
    /// In which order prepared requests are sent.
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

/// In which order prepared requests are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Order {
    /// One after the other, over and over.
    #[default]
    Sequential,
    /// All of them in a random order, then again in another.
    Shuffled,
    /// The one of rank r, in the order of the file, with a frequency proportional to r^-exponent.
    Zipf {
        /// The exponent, above 0.
        exponent: f64,
    },
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => f.write_str("sequential"),
            Self::Shuffled => f.write_str("shuffled"),
            Self::Zipf { exponent } => write!(f, "zipf({exponent:.2})"),
        }
    }
}

/// `[inputs.tensor.NAME]`.
#[derive(Debug, Clone, Default)]
pub struct TensorRule {
    /// Its dimensions; the model's own where left out.
    pub shape: Option<Vec<Dim>>,
    /// Values of the elements.
    pub values: Option<Values>,
}

/// One dimension.
#[derive(Debug, Clone, PartialEq)]
pub enum Dim {
    /// The load's rows: 1 in real-time mode, else the batch size.
    Rows,
    /// Always this.
    Fixed(u64),
    /// One of these, each as often.
    Choices(Vec<u64>),
    /// Drawn from a distribution.
    Draw(Lengths),
    /// Those of a file, one after the other.
    Listed {
        /// The file's name.
        file: String,
        /// At least one.
        lengths: Arc<[u64]>,
    },
    /// Another dimension of this input or of another one.
    SameAs {
        /// The other input; this one where there is none.
        input: Option<String>,
        /// Which of its dimensions, from 0.
        axis: usize,
    },
}

/// A distribution of lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// Its shape.
    pub law: Law,
    /// Lower limit: smaller draws become this.
    pub least: u64,
    /// Upper limit: larger draws become this.
    pub most: u64,
}

/// The shape of a distribution of lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// Each length from `least` to `most` as often.
    Uniform,
    /// exp(N(ln median, sigma²)).
    Lognormal {
        /// Half of the lengths are below it.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl Dim {
    /// True if it is the same in every request of a step.
    #[must_use]
    pub const fn is_constant(&self) -> bool {
        // What follows another changes with that one, which says so.
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
    /// Floats of [from, to), each as often.
    Uniform {
        /// The smallest.
        from: f64,
        /// Above the largest.
        to: f64,
    },
    /// Floats of a normal distribution.
    Normal {
        /// Its mean.
        mean: f64,
        /// Its standard deviation.
        sd: f64,
    },
    /// Whole numbers, each as often.
    Integers {
        /// The smallest.
        least: i128,
        /// The largest.
        most: i128,
    },
    /// Text of so many words.
    Words {
        /// The fewest.
        least: u32,
        /// The most.
        most: u32,
    },
    /// Text of so many bytes.
    TextBytes {
        /// The fewest.
        least: u32,
        /// The most.
        most: u32,
    },
    /// Those of a file.
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
            Self::File(records) => write!(f, "{} records of {}", records.len(), records.source()),
        }
    }
}

/// `[inputs.check]`.
#[derive(Debug, Clone)]
pub struct CheckRule {
    /// Share of the replies whose values are checked, from 0 to 1.
    pub share: f64,
    /// A value may be off by this much, and by this share of itself.
    pub tolerance: f64,
    /// Expected values; `None` uses the validation data of recorded requests.
    pub expected: Option<Arc<Expectations>>,
}

/// Expected replies, record by record.
#[derive(Debug, Clone)]
pub enum Expectations {
    /// For the n-th recorded request the n-th of these.
    Recorded(Recorded),
    /// By output: for the n-th row or request the n-th record.
    Arrays(BTreeMap<String, Arc<Records>>),
}
