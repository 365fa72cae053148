//! Engines for tests: the generated `mlp` on the CPU, as it is and bound as on a GPU.

use super::engine::{Engine, RunControl};
use super::open::{SessionSpec, Warmup, open};
use super::pinned::PinnedRun;
use super::{Fault, RunError};
use crate::inference::runtime::{Graph, GraphSource, Provider, Providers, Runtime, Threads};
use crate::request::Part;
use ort::memory::AllocationDevice;
use std::sync::Arc;
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::onnx;

/// The model's only input.
pub(super) const INPUT: &str = "input";
/// Elements of a row of it, FP32.
pub(super) const WIDTH: usize = 64;

/// The input for so many rows.
pub(super) fn parts(rows: usize, seed: f32) -> Vec<Part> {
    let elements = (0..rows * WIDTH).map(|i| (i as f32 * 0.37 + seed).sin());
    let data: Vec<u8> = elements.flat_map(f32::to_le_bytes).collect();
    vec![Part {
        shape: vec![rows as i64, WIDTH as i64],
        data: data.into(),
    }]
}

/// One engine as it is; one that is bound, with plain memory in the place of pinned memory and of the device's.
pub(super) fn engines() -> [Engine; 2] {
    let runtime = Runtime::load([("", None); 2], Providers::default()).unwrap();
    let request = Request {
        kind: ModelKind::Mlp,
        size: Size::Small,
        seed: 1,
    };
    let mut model = Vec::new();
    onnx::write_model(&request.build(), &mut model).unwrap();
    let recipe = SessionSpec {
        runtime,
        graph: Graph::self_contained("mlp/1".into(), model.into()),
        source: GraphSource::Original,
        provider: Provider::Cpu,
        threads: Threads {
            intra_op: 1,
            inter_op: 1,
            spinning: false,
        },
        max_batch_size: 256,
        warmup: Arc::new(Warmup::default()),
        measure: None,
    };
    let recipe = Arc::new(recipe);
    let open = || {
        let built = tokio::sync::oneshot::channel().0;
        open(Arc::clone(&recipe), RunControl::new(0).unwrap(), built).unwrap().0
    };
    let plain = open();
    let mut bound = open();
    let (inputs, outputs) = (&bound.signature.inputs, &bound.signature.outputs);
    let plain_memory = (AllocationDevice::CPU, AllocationDevice::CPU, 0);
    bound.pinned = PinnedRun::new(&bound.session, inputs, outputs, plain_memory).unwrap();
    assert!(bound.pinned.is_some());
    [plain, bound]
}

#[test]
fn a_failed_run_is_not_called_a_refusal_of_its_inputs() {
    let message = |fault| RunError::new(fault, "why").refusal("m").message;
    assert_eq!(message(Fault::Input), "the model refuses these inputs: why");
    assert_eq!(message(Fault::Run), "the model's run failed: why");
}

/// Messages of ONNX Runtime 1.31.
#[test]
fn inputs_of_wrong_shapes_are_told_apart_from_failures() {
    // An error is ONNX Runtime's, which has to be loaded.
    let _runtime = Runtime::load([("", None); 2], Providers::default()).unwrap();
    let fault = |message: &str| RunError::from(ort::Error::new(message)).fault;
    for message in [
        "running Add node. Attempting to broadcast an axis by a dimension other than 1. 3 by 4",
        "running MatMul node. matmul_helper.h:59 Compute MatMul dimension mismatch",
        "running Concat node. Non concat axis dimensions must match: Axis 1 has mismatched dimensions of 4 and 3",
        "running Reshape node. The input tensor cannot be reshaped to the requested shape. Input shape:{4}",
        "running Conv node. Input channels C is not equal to kernel channels * group. C: 2 kernel channels: 3",
        "running Div node. element_wise_ops.cc:692 Compute Integer division by zero",
    ] {
        assert_eq!(fault(message), Fault::Input, "{message}");
    }
    let memory = "OutputMLValue(int, const TensorShape&) Failed to allocate memory for requested buffer of size 400";
    assert_eq!(fault(memory), Fault::Run);
}
