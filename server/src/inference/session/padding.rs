//! Padding of batches on a GPU, for models that are planned anew whenever the number of rows changes.
//!
//! In: the sizes of a session's batches. Out: the rows to run. ONNX Runtime's CUDA provider keeps one plan for each
//! convolution, that of the last shape, since it builds plans through cuDNN's frontend (release 1.20; issue 23006 of its
//! repository). A batcher whose batches differ in size then pays for new plans in nearly every run: on an H200, 51 ms
//! beside a run of 1 ms for ten convolutions. So a session that shows such a cost repeats a row of its batch until the
//! batch is as large as the largest one so far, rounded up to a power of two. It grows a few times and then keeps its plans.

use super::engine::Engine;
use super::open::{part, run_once};
use crate::request::Part;
use std::time::{Duration, Instant};
use tierlab_formats::model::{Signature, zero_inputs};
use tierlab_protocol::tensor::TensorSpec;

/// Cost of a change of size from which batches are padded: above the noise of a run.
const WORTH_PADDING: Duration = Duration::from_millis(5);

/// Number of rows to which a session pads its batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Padding {
    /// Rows of the largest batch so far, rounded up.
    rows: usize,
    /// Maximum rows of a run.
    limit: usize,
}

impl Padding {
    /// Starts with the size of single requests.
    pub(super) fn up_to(limit: usize) -> Self {
        Self { rows: 1, limit }
    }

    /// Measures a session: `None` if a change of the number of rows costs little, or if the model does not run on zeros.
    pub(super) fn measure(engine: &mut Engine, max_batch_size: u32) -> Option<Self> {
        let limit = usize::try_from(max_batch_size).ok().filter(|&limit| limit > 1)?;
        let mut time = |rows: u32| {
            let inputs = zero_inputs(&engine.signature, rows).ok()?;
            let parts: Vec<Part> = inputs.into_iter().map(part).collect();
            let began = Instant::now();
            run_once(engine, &parts, rows as usize).ok()?;
            Some(began.elapsed())
        };
        // All sizes have run before they are timed.
        let (_, same) = (time(1)?, time(1)?);
        let (_, first) = (time(2)?, time(1)?);
        let (_, second) = (time(2)?, time(1)?);
        let changed = first.min(second);
        if changed < same * 2 + WORTH_PADDING {
            return None;
        }
        let [run_s, change_s] = [same, changed - same].map(|time| time.as_secs_f64());
        tracing::info!(
            run_s,
            change_s,
            "a change of the batch size is slow on this device: batches are padded"
        );
        Some(Self::up_to(limit))
    }

    /// Takes note of a batch, and returns the number of rows to add to it.
    pub(super) fn missing(&mut self, rows: usize) -> usize {
        let rounded = rows.next_power_of_two().min(self.limit);
        self.rows = self.rows.max(rounded);
        self.rows.saturating_sub(rows)
    }
}

/// A request of one row to pad a batch with: the first row of its first request.
pub(super) fn filler(signature: &Signature, request: &[Part], rows: usize) -> Vec<Part> {
    let first_row = |(spec, part): (&TensorSpec, &Part)| {
        let mut shape = part.shape.clone();
        shape[0] = 1;
        let data = part.data.rows(spec.dtype, rows, 0, 1);
        Part { shape, data }
    };
    signature.inputs.iter().zip(request).map(first_row).collect()
}
