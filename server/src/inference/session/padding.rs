//! Padding of batches on a GPU, for models that are planned again whenever the number of rows changes.
//!
//! In: a session. Out: the rows that each of its runs shall have. ONNX Runtime's CUDA provider keeps one plan for each
//! convolution, that of the last shape, since it builds plans through cuDNN's frontend (release 1.20; issue 23006 of its
//! repository). Batches that differ in size then cost new plans in nearly every run: 98 ms beside a run of 3 ms, for
//! ResNet-50 on an H200, and a p50 of 146 ms at 50 requests a second. If a session shows such a cost, and the largest
//! batch runs in less time, all its batches are padded to that size: it keeps its plans, and its times do not depend on
//! the batches before.

use crate::request::Part;
use std::time::Duration;
use tierlab_formats::model::Signature;
use tierlab_protocol::tensor::TensorSpec;

/// Cost of a change of size from which batches are padded: above the noise of a run.
const WORTH_PADDING: Duration = Duration::from_millis(5);

/// Returns the rows to pad a session's batches to; `None` if a change of the number of rows costs less than that. `time`
/// runs so many rows of zeros; it returns `None` if the model does not run on them.
pub(super) fn padded_rows(max_batch_size: u32, mut time: impl FnMut(u32) -> Option<Duration>) -> Option<usize> {
    if max_batch_size < 2 {
        return None;
    }
    // Each size has run before it is timed.
    let (_, same) = (time(1)?, time(1)?);
    let (_, first) = (time(2)?, time(1)?);
    let (_, second) = (time(2)?, time(1)?);
    let changed = first.min(second);
    if changed < same * 2 + WORTH_PADDING {
        return None;
    }
    let (_, padded) = (time(max_batch_size)?, time(max_batch_size)?);
    let pads = padded < changed;
    let [run_s, changed_s, padded_s] = [same, changed, padded].map(|time| time.as_secs_f64());
    tracing::info!(run_s, changed_s, padded_s, pads, "a change of the batch size is slow");
    pads.then_some(max_batch_size as usize)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a session that takes so many milliseconds for a row, and for a change of the number of rows.
    fn decide(row_ms: u32, change_ms: u32) -> Option<usize> {
        let mut last = 0;
        padded_rows(32, |rows| {
            let change = if rows == last { 0 } else { change_ms };
            last = rows;
            Some(Duration::from_millis((rows * row_ms + change).into()))
        })
    }

    #[test]
    fn batches_are_padded_if_a_change_costs_more_than_the_largest() {
        assert_eq!(decide(1, 100), Some(32));
        assert_eq!(decide(5, 100), None, "the largest batch takes 160 ms");
        assert_eq!(decide(1, 4), None, "within the noise");
        assert_eq!(padded_rows(1, |_| unreachable!()), None);
        assert_eq!(padded_rows(32, |_| None), None);
    }
}
