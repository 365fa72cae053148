//! Generated models: their graphs, seeded weights and default configs. No files, no tiers.
//!
//! Weights are random, not trained: the lab measures the cost of reads and computation, not the quality of answers.

mod ctr;
mod layers;
mod vision;

pub use ctr::{CARDINALITIES, CTR_CATEGORICAL, CTR_DENSE};
pub use vision::{CLASSES, IMAGE_SHAPE};

use crate::onnx::ModelProto;
use crate::onnx::messages::ElementType;
use crate::weights::xavier_bound;
use clap::ValueEnum;
use layers::Net;
use std::fmt;
use strum::Display;
use tierlab_formats::model::{InstanceConfig, JoinedInput, ModelConfig};

/// Default seed.
pub const DEFAULT_SEED: u64 = 1;

/// Version of the generators, raised whenever a change alters a generated file, so that older files are written again.
/// A test checks the files' sums.
pub const REVISION: u32 = 1;

/// Kind of generated model; its name in the repository is the lower-case name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Display)]
#[strum(serialize_all = "lowercase")]
pub enum ModelKind {
    /// 64-256-256-1 perceptron: next to no work, for measuring overhead
    Mlp,
    /// DLRM-shaped click prediction: 13 dense and 26 categorical features
    Ctr,
    /// ResNet-shaped image classification over 3x224x224 uint8
    Vision,
}

impl ModelKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Mlp, Self::Ctr, Self::Vision];
}

/// Size of a generated model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// For laptops and tests: megabytes, at most about 10 ms per image on one core
    Small,
    /// Realistic depth and width: 380 MB of embeddings, ResNet-50
    Full,
}

/// Model to generate. `mlp` has one size only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Kind of model.
    pub kind: ModelKind,
    /// Size of the model.
    pub size: Size,
    /// Seed of the weights.
    pub seed: u64,
}

/// Arguments that generate this model again.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generate --model {}", self.kind)?;
        match (self.kind, self.size) {
            (ModelKind::Mlp, _) => {}
            (_, Size::Small) => f.write_str(" --size small")?,
            (_, Size::Full) => f.write_str(" --size full")?,
        }
        write!(f, " --seed {}", self.seed)
    }
}

impl Request {
    /// Builds the graph with its weights. The same request gives the same model, bit by bit.
    pub fn build(&self) -> ModelProto {
        match self.kind {
            ModelKind::Mlp => mlp(self.seed),
            ModelKind::Ctr => ctr::build(self.size, self.seed),
            ModelKind::Vision => vision::build(self.size, self.seed),
        }
    }

    /// Returns the default config. No request waits for others by default: requests gather anyway while the session is
    /// busy, and a delay would be part of every reported latency. There is one session of one thread on every machine,
    /// so that comparisons do not depend on the number of cores.
    pub fn config(&self) -> ModelConfig {
        let (max_batch_size, table, columns): (u32, &str, &[&str]) = match self.kind {
            ModelKind::Mlp => (256, "", &[]),
            ModelKind::Ctr => (1024, "ctr", &["dense", "categorical"]),
            ModelKind::Vision => (32, "vision", &["image"]),
        };
        let join = |&column: &&str| {
            let joined = JoinedInput {
                table: table.to_owned(),
                column: Some(column.to_owned()),
            };
            (column.to_owned(), joined)
        };
        let mut config = ModelConfig {
            max_batch_size,
            instances: Some(InstanceConfig::default()),
            joined: columns.iter().map(join).collect(),
            ..ModelConfig::default()
        };
        config.batching.max_delay_us = 0;
        config
    }
}

/// Builds a 64-256-256-1 perceptron, `input` FP32 [-1, 64] to `output` FP32 [-1, 1]. It takes microseconds, so a request for
/// it measures the overhead.
fn mlp(seed: u64) -> ModelProto {
    const INPUT: usize = 64;
    const HIDDEN: usize = 256;
    let mut net = Net::new("mlp", seed);
    let input = net.graph.input("input", ElementType::Float, &[-1, INPUT as i64]);
    let hidden = net.perceptron("hidden", &input, &[INPUT, HIDDEN, HIDDEN]);
    let output = net.linear("output", &hidden, [HIDDEN, 1], xavier_bound(HIDDEN, 1));
    net.graph.output(&output, ElementType::Float, &[-1, 1]);
    net.graph
        .finish("A 64-256-256-1 perceptron with random weights: the overhead probe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_command_lines() {
        let request = |kind, size| Request { kind, size, seed: 9 }.to_string();
        assert_eq!(request(ModelKind::Mlp, Size::Full), "generate --model mlp --seed 9");
        assert_eq!(
            request(ModelKind::Ctr, Size::Full),
            "generate --model ctr --size full --seed 9"
        );
    }

    #[test]
    fn default_configs_are_valid_and_join_their_tables() {
        for kind in ModelKind::ALL {
            let config = Request {
                kind,
                size: Size::Small,
                seed: 1,
            }
            .config();
            let read = ModelConfig::parse(&toml::to_string(&config).unwrap()).unwrap();
            assert_eq!(read, config);
            assert_eq!(read.instances, Some(InstanceConfig::default()), "not the machine's");
            assert_eq!(read.joined.is_empty(), kind == ModelKind::Mlp);
        }
    }
}
