//! `vision`: an image classifier in the shape of ResNet (He et al. 2015, arXiv:1512.03385; stride in the 3x3
//! convolution as in version 1.5). Batch normalisation is folded into the convolutions, as in deployed graphs.

use super::Size;
use super::layers::{Net, axis, window};
use crate::onnx::ModelProto;
use crate::onnx::messages::ElementType;
use crate::weights::xavier_bound;
use std::f32::consts::FRAC_1_SQRT_2;

/// Channels, height and width of an image.
pub const IMAGE_SHAPE: [i64; 3] = [3, 224, 224];
/// Number of classes.
pub const CLASSES: usize = 1000;

/// Mean and standard deviation of ImageNet's pixels, on 0..255, by channel.
const MEAN: [f32; 3] = [123.675, 116.28, 103.53];
const STD: [f32; 3] = [58.395, 57.12, 57.375];
/// Factor on He's weights at the end of a residual branch, so that activations keep their size over depth.
const BRANCH_GAIN: f32 = 0.5;

/// Layout of one size.
struct VisionShape {
    /// Channels of the stem and width of each stage.
    widths: [usize; 4],
    /// Blocks of each stage.
    blocks: [usize; 4],
    /// If true, blocks are 1x1-3x3-1x1 with four times the channels, else 3x3-3x3.
    bottleneck: bool,
}

/// ResNet-18 at half its width: 3 million parameters, 12 MB.
const SMALL: VisionShape = VisionShape {
    widths: [32, 64, 128, 256],
    blocks: [2, 2, 2, 2],
    bottleneck: false,
};
/// ResNet-50: 25.5 million parameters, 102 MB.
const FULL: VisionShape = VisionShape {
    widths: [64, 128, 256, 512],
    blocks: [3, 4, 6, 3],
    bottleneck: true,
};

/// `image` UINT8 [-1, 3, 224, 224] to `logits` FP32 [-1, 1000].
pub(super) fn build(size: Size, seed: u64) -> ModelProto {
    let shape = match size {
        Size::Small => SMALL,
        Size::Full => FULL,
    };
    let mut net = Net::new("vision", seed);
    let [channels, height, width] = IMAGE_SHAPE;
    let dims = [-1, channels, height, width];
    let image = net.graph.input("image", ElementType::Uint8, &dims);
    let mut value = stem(&mut net, &image, shape.widths[0]);
    let mut from = shape.widths[0];
    for (stage, (&width, &blocks)) in shape.widths.iter().zip(&shape.blocks).enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let to = if shape.bottleneck { 4 * width } else { width };
            let name = format!("stage{stage}.block{block}");
            let plain = [([from, to], (3, stride)), ([to, to], (3, 1))];
            let bottleneck = [
                ([from, width], (1, 1)),
                ([width, width], (3, stride)),
                ([width, to], (1, 1)),
            ];
            let layers = if shape.bottleneck { &bottleneck[..] } else { &plain[..] };
            let branch = branch(&mut net, &name, &value, layers);
            let shortcut = if from == to && stride == 1 {
                value
            } else {
                // No ReLU follows, so He's bound is too wide by the square root of two.
                let layer = format!("{name}.shortcut");
                net.conv(&layer, &value, [from, to], (1, stride), FRAC_1_SQRT_2)
            };
            let sum = format!("{name}.sum");
            let sum = net.graph.node(&sum, "Add", &[&branch, &shortcut], &[]);
            value = net.relu(&name, &sum);
            from = to;
        }
    }
    let pooled = net.graph.node("pooled", "GlobalAveragePool", &[&value], &[]);
    let flat = net.graph.node("flat", "Flatten", &[&pooled], &axis(1));
    let logits = net.linear("logits", &flat, [from, CLASSES], xavier_bound(from, CLASSES));
    net.graph.output(&logits, ElementType::Float, &[-1, CLASSES as i64]);
    net.graph
        .finish("An image classifier in the shape of ResNet (arXiv:1512.03385) with random weights")
}

/// Converts pixels to normalised floats, then adds the 7x7 convolution and pooling: `[batch, 3, 224, 224] -> [batch,
/// to, 56, 56]`.
fn stem(net: &mut Net, image: &str, to: usize) -> String {
    let float = crate::onnx::graph::int("to", i64::from(i32::from(ElementType::Float)));
    let pixels = net.graph.node("pixels", "Cast", &[image], &[float]);
    let mean = net.graph.floats("mean", &[1, 3, 1, 1], &MEAN);
    let std = net.graph.floats("std", &[1, 3, 1, 1], &STD);
    let centred = net.graph.node("centred", "Sub", &[&pixels, &mean], &[]);
    let normal = net.graph.node("normal", "Div", &[&centred, &std], &[]);
    let conv = net.conv("stem", &normal, [3, to], (7, 2), 1.0);
    let active = net.relu("stem", &conv);
    net.graph.node("stem.pool", "MaxPool", &[&active], &window(3, 2, 1))
}

/// Adds convolutions one after another, each followed by ReLU except the last.
fn branch(net: &mut Net, name: &str, input: &str, layers: &[([usize; 2], (usize, usize))]) -> String {
    let mut value = input.to_owned();
    for (i, &(channels, window)) in layers.iter().enumerate() {
        let layer = format!("{name}.conv{i}");
        if i + 1 == layers.len() {
            return net.conv(&layer, &value, channels, window, BRANCH_GAIN);
        }
        value = net.conv(&layer, &value, channels, window, 1.0);
        value = net.relu(&layer, &value);
    }
    value
}
