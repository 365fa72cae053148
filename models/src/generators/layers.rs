//! Layers of the generated networks.

use crate::onnx::GraphBuilder;
use crate::onnx::graph::{int, ints};
use crate::onnx::messages::ElementType;
use crate::weights::{Weights, he_bound};

/// Half the width of the biases' interval: small against activations of order 1, large enough to matter.
const BIAS_BOUND: f32 = 0.05;

/// Graph under construction with its stream of weights. Layers take and return names of values.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) graph: GraphBuilder,
    pub(super) weights: Weights,
}

/// Square convolution with bias, with batch normalisation folded into it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conv {
    from: usize,
    to: usize,
    kernel: usize,
    stride: usize,
    gain: f32,
}

impl Conv {
    /// Creates a convolution from `from` to `to` channels, with stride 1.
    pub(super) const fn new(from: usize, to: usize, kernel: usize) -> Self {
        Self {
            from,
            to,
            kernel,
            stride: 1,
            gain: 1.0,
        }
    }

    pub(super) const fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// Sets the factor on He's weights: below 1 at the end of a residual branch.
    pub(super) const fn gain(self, gain: f32) -> Self {
        Self { gain, ..self }
    }
}

impl Net {
    pub(super) fn new(name: &str, seed: u64) -> Self {
        Self {
            graph: GraphBuilder::new(name),
            weights: Weights::new(name, seed),
        }
    }

    /// Adds a constant of floats, uniform in ±`bound`.
    pub(super) fn uniform(&mut self, name: &str, dims: &[usize], bound: f32) -> String {
        let values = self.weights.uniform(dims.iter().product(), bound);
        self.graph.constant(name, ElementType::Float, &signed(dims), values)
    }

    /// `[batch, from] -> [batch, to]`, without activation.
    pub(super) fn linear(&mut self, name: &str, input: &str, widths: [usize; 2], bound: f32) -> String {
        let weight = self.uniform(&format!("{name}.weight"), &widths, bound);
        let bias = self.uniform(&format!("{name}.bias"), &widths[1..], BIAS_BOUND);
        self.graph.node(name, "Gemm", &[input, &weight, &bias], &[])
    }

    pub(super) fn relu(&mut self, name: &str, input: &str) -> String {
        self.graph.node(&format!("{name}.relu"), "Relu", &[input], &[])
    }

    /// Linear layers of the given widths, each followed by ReLU.
    pub(super) fn perceptron(&mut self, name: &str, input: &str, widths: &[usize]) -> String {
        let mut value = input.to_owned();
        for (i, pair) in widths.windows(2).enumerate() {
            let layer = format!("{name}.{i}");
            let linear = self.linear(&layer, &value, [pair[0], pair[1]], he_bound(pair[0]));
            value = self.relu(&layer, &linear);
        }
        value
    }

    /// `[batch, from, h, w] -> [batch, to, h / stride, w / stride]`, padded to keep the size at stride 1.
    pub(super) fn conv(&mut self, name: &str, input: &str, conv: Conv) -> String {
        let kernel = conv.kernel;
        let bound = he_bound(conv.from * kernel * kernel) * conv.gain;
        let weight = self.uniform(&format!("{name}.weight"), &[conv.to, conv.from, kernel, kernel], bound);
        let bias = self.uniform(&format!("{name}.bias"), &[conv.to], BIAS_BOUND);
        let window = window(kernel, conv.stride, kernel / 2);
        self.graph.node(name, "Conv", &[input, &weight, &bias], &window)
    }
}

/// Attributes of a square sliding window.
pub(super) fn window(kernel: usize, stride: usize, pad: usize) -> [crate::onnx::messages::AttributeProto; 3] {
    let square = |name, size: usize, times| ints(name, &signed(&vec![size; times]));
    [
        square("kernel_shape", kernel, 2),
        square("pads", pad, 4),
        square("strides", stride, 2),
    ]
}

/// The `axis` attribute.
pub(super) fn axis(at: i64) -> [crate::onnx::messages::AttributeProto; 1] {
    [int("axis", at)]
}

/// Dimensions in the format's type.
pub(super) fn signed(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&dim| dim as i64).collect()
}
