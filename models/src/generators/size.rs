//! Size of a generated model.

use clap::ValueEnum;

/// Size of a generated model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// For laptops and tests: megabytes, at most about 10 ms per image on one core
    Small,
    /// Realistic depth and width: 380 MB of embeddings, ResNet-50
    Full,
}
