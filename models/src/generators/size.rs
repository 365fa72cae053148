//! How large a generated model is.

use clap::ValueEnum;

/// How large a model is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// For laptops and tests: megabytes, about 10 ms per image at most on one core
    Small,
    /// The real depth and width: 380 MB of embeddings, ResNet-50
    Full,
}
