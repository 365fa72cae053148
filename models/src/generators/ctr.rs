//! `ctr`: click prediction in the shape of DLRM (Naumov et al. 2019, "Deep Learning Recommendation Model for
//! Personalization and Recommendation Systems", arXiv:1906.00091).
//!
//! 13 dense features pass a bottom MLP, and each of 26 categorical features an embedding table. Pairwise dot products
//! combine the 27 vectors, and a top MLP converts them to a probability.
//!
//! The graph folds category ids into each table by modulo, as DLRM's reference code does with `--max-ind-range`. So one
//! feature table serves both sizes, and no id from a client (negative ids included, because ONNX `Mod` takes the
//! divisor's sign) can reach outside a table.

use super::Size;
use super::layers::{Net, axis, signed};
use crate::onnx::ModelProto;
use crate::onnx::messages::ElementType;
use crate::weights::xavier_bound;

/// Dense features of a row.
pub const CTR_DENSE: usize = 13;
/// Categorical features of a row.
pub const CTR_CATEGORICAL: usize = 26;
/// Distinct categories of each feature: those of the Criteo Kaggle display-advertising data as DLRM's benchmark uses
/// them, capped at the rows of the full size. Ids in the feature table lie below these.
pub const CARDINALITIES: [u32; CTR_CATEGORICAL] = capped(FULL.rows);

const CRITEO_KAGGLE: [u32; CTR_CATEGORICAL] = [
    1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194, 27, 14_992, 5_461_306,
    10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
];

/// Widths of one size.
struct CtrShape {
    /// Maximum rows of an embedding table.
    rows: u32,
    /// Length of a vector.
    width: usize,
    bottom: &'static [usize],
    top: &'static [usize],
}

/// 120 thousand vectors, 7.7 MB.
const SMALL: CtrShape = CtrShape {
    rows: 10_000,
    width: 16,
    bottom: &[64, 32],
    top: &[128, 64],
};
/// 1.5 million vectors, 380 MB; widths of DLRM's Kaggle configuration.
const FULL: CtrShape = CtrShape {
    rows: 200_000,
    width: 64,
    bottom: &[512, 256],
    top: &[512, 256],
};

const fn capped(rows: u32) -> [u32; CTR_CATEGORICAL] {
    let mut out = CRITEO_KAGGLE;
    let mut i = 0;
    while i < out.len() {
        if out[i] > rows {
            out[i] = rows;
        }
        i += 1;
    }
    out
}

/// `dense` FP32 [-1, 13] and `categorical` INT64 [-1, 26] to `probability` FP32 [-1, 1].
pub(super) fn build(size: Size, seed: u64) -> ModelProto {
    let shape = match size {
        Size::Small => SMALL,
        Size::Full => FULL,
    };
    let mut net = Net::new("ctr", seed);
    let dense = net.graph.input("dense", ElementType::Float, &[-1, CTR_DENSE as i64]);
    let categorical = net
        .graph
        .input("categorical", ElementType::Int64, &[-1, CTR_CATEGORICAL as i64]);
    let bottom = bottom_mlp(&mut net, &dense, &shape);
    let vectors = embeddings(&mut net, &categorical, &shape);
    let joined = interaction(&mut net, &bottom, &vectors, shape.width);

    let pairs = (CTR_CATEGORICAL + 1) * CTR_CATEGORICAL / 2;
    let widths = [&[pairs + shape.width][..], shape.top].concat();
    let last = widths[widths.len() - 1];
    let hidden = net.perceptron("top", &joined, &widths);
    let logit = net.linear("logit", &hidden, [last, 1], xavier_bound(last, 1));
    let probability = net.graph.node("probability", "Sigmoid", &[&logit], &[]);
    net.graph.output(&probability, ElementType::Float, &[-1, 1]);
    net.graph
        .finish("Click prediction in the shape of DLRM (arXiv:1906.00091) with random weights")
}

/// `[batch, 13] -> [batch, width]`. The inputs are raw counts, which the graph scales by log(1 + x), as DLRM's
/// preprocessing does.
fn bottom_mlp(net: &mut Net, dense: &str, shape: &CtrShape) -> String {
    let one = net.graph.floats("one", &[1], &[1.0]);
    let positive = net.graph.node("dense.positive", "Relu", &[dense], &[]);
    let shifted = net.graph.node("dense.shifted", "Add", &[&positive, &one], &[]);
    let log_scaled = net.graph.node("dense.log", "Log", &[&shifted], &[]);
    let widths = [&[CTR_DENSE][..], shape.bottom, &[shape.width]].concat();
    net.perceptron("bottom", &log_scaled, &widths)
}

/// `[batch, 26]` ids to 26 vectors `[batch, 1, width]`.
fn embeddings(net: &mut Net, categorical: &str, shape: &CtrShape) -> Vec<String> {
    let rows = capped(shape.rows);
    let limits = net.graph.ints("rows", &[CTR_CATEGORICAL as i64], &rows.map(i64::from));
    let folded = net.graph.node("folded", "Mod", &[categorical, &limits], &[]);
    let ids = net
        .graph
        .node_with_outputs("ids", "Split", &[&folded], &axis(1), CTR_CATEGORICAL);
    // A vector's length is about 1, so that dot products are neither negligible nor dominant.
    let bound = (3.0 / shape.width as f32).sqrt();
    let vector = |(i, (id, rows)): (usize, (&String, u32))| {
        let table = net.uniform(&format!("table.{i}"), &[rows as usize, shape.width], bound);
        let name = format!("vector.{i}");
        net.graph.node(&name, "Gather", &[&table, id], &axis(0))
    };
    ids.iter().zip(rows).enumerate().map(vector).collect()
}

/// Appends the dot products of all pairs of the 27 vectors to the bottom MLP's output.
fn interaction(net: &mut Net, bottom: &str, vectors: &[String], width: usize) -> String {
    use crate::onnx::graph::ints;
    let count = vectors.len() + 1;
    let flat = net.graph.ints("stacked.bottom.shape", &[3], &signed(&[0, 1, width]));
    let bottom_vector = net.graph.node("stacked.bottom", "Reshape", &[bottom, &flat], &[]);
    let all = std::iter::once(&bottom_vector).chain(vectors);
    let all: Vec<&str> = all.map(String::as_str).collect();
    let stacked = net.graph.node("stacked", "Concat", &all, &axis(1));
    let transposed = net
        .graph
        .node("turned", "Transpose", &[&stacked], &[ints("perm", &[0, 2, 1])]);
    let dots = net.graph.node("dots", "MatMul", &[&stacked, &transposed], &[]);
    let flat = net.graph.ints("dots.shape", &[2], &signed(&[0, count * count]));
    let dots = net.graph.node("dots.flat", "Reshape", &[&dots, &flat], &[]);
    // Strictly below the diagonal: each pair once, no vector with itself.
    let lower_pairs = (0..count).flat_map(|i| (0..i).map(move |j| (i * count + j) as i64));
    let lower_pairs: Vec<i64> = lower_pairs.collect();
    let lower_pairs = net.graph.ints("pairs.index", &[lower_pairs.len() as i64], &lower_pairs);
    let pairs = net.graph.node("pairs", "Gather", &[&dots, &lower_pairs], &axis(1));
    net.graph.node("interaction", "Concat", &[bottom, &pairs], &axis(1))
}
