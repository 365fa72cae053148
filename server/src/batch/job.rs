//! Request in the queue, and its answer. A request with more rows than a run takes is cut into pieces of similar size.
//! The pieces share its memory, may run in different batches and sessions, and their answers are joined.

use crate::request::{Part, Refusal};
use crate::telemetry::trace::RequestScope;
use anyhow::{Context as _, Result, bail};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::TensorSpec;
use tokio::sync::oneshot;

/// Result of a session.
#[derive(Debug)]
pub(crate) struct JobOutput {
    /// All outputs of the model, in the graph's order.
    pub(crate) outputs: Vec<Tensor>,
    /// Time at which the batch was laid out and ONNX Runtime started.
    pub(crate) run_started: Instant,
    /// Time at which ONNX Runtime finished.
    pub(crate) run_ended: Instant,
    /// Number of rows of the whole batch.
    pub(crate) batch_rows: usize,
}

/// Answer to a request.
pub(crate) type Answer = Result<JobOutput, Refusal>;

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct Job {
    /// One part per input of the graph, in its order.
    pub(crate) parts: Vec<Part>,
    /// Rows of the request; 1 if the model has no batch dimension.
    pub(crate) rows: usize,
    pub(crate) enqueued: Instant,
    /// Order in the queue: time of queueing plus the delay of its priority.
    pub(crate) rank: Instant,
    pub(crate) deadline: Instant,
    /// End of its time in the queue, at the latest its deadline, unless a run of its request has begun.
    pub(crate) start_by: Instant,
    pub(crate) scope: RequestScope,
    /// Time at which a session started its run; shared with its request, which reports it if it gives up.
    pub(crate) run_began: Arc<OnceLock<Instant>>,
    /// `None` during the run: the session's active run then holds it.
    pub(crate) reply: Option<oneshot::Sender<Answer>>,
}

impl Job {
    /// True if no client waits for the answer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// True if its time is over: the wait for the first run of its request, or the deadline.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let limit = self.run_began.get().map_or(self.start_by, |_| self.deadline);
        limit <= now
    }

    /// Refuses the job. Sends nothing if the client has gone away.
    pub(crate) fn refuse(self, refusal: Refusal) {
        if let Some(reply) = self.reply {
            let _ = reply.send(Err(refusal));
        }
    }

    /// True if both can run in one batch: their shapes are equal apart from the batch dimension.
    pub(super) fn can_batch_with(&self, other: &Self) -> bool {
        let mut pairs = self.parts.iter().zip(&other.parts);
        self.parts.len() == other.parts.len() && pairs.all(|(a, b)| a.shape.get(1..) == b.shape.get(1..))
    }
}

/// Cuts parts of `rows` rows into the fewest pieces of at most `max_rows`. Returns each piece with its number of rows.
pub(crate) fn cut(parts: &[Part], inputs: &[TensorSpec], rows: usize, max_rows: usize) -> Vec<(Vec<Part>, usize)> {
    let pieces = rows.div_ceil(max_rows.max(1));
    let start_row = |piece: usize| rows * piece / pieces;
    let piece = |index: usize| {
        let (from, to) = (start_row(index), start_row(index + 1));
        let share = parts.iter().zip(inputs).map(|(part, input)| {
            let mut shape = part.shape.clone();
            shape[0] = i64::try_from(to - from).unwrap_or(i64::MAX);
            Part {
                shape,
                data: part.data.rows(input.dtype, rows, from, to),
            }
        });
        (share.collect(), to - from)
    };
    (0..pieces).map(piece).collect()
}

/// Joins the answers to the pieces, in order. The run lasts from the start of the first to the end of the last.
///
/// # Errors
/// Fails without pieces, or if an output's row shape differs between pieces, as when a graph pads to the longest row.
pub(crate) fn join(pieces: Vec<JobOutput>) -> Result<JobOutput> {
    let mut pieces = pieces.into_iter();
    let mut joined = pieces.next().context("request has no rows")?;
    let mut rest: Vec<JobOutput> = pieces.collect();
    for (index, output) in joined.outputs.iter_mut().enumerate() {
        let other = rest.iter().map(|piece| &piece.outputs[index].shape);
        if let Some(other) = other.into_iter().find(|shape| shape.get(1..) != output.shape.get(1..)) {
            let Tensor { name, shape, .. } = output;
            bail!(
                "output `{name}` has shape {shape:?} for one part of the request and {other:?} for another, which cannot \
                 be joined: send at most `max_batch_size` rows, and remove `batching.max_request_rows` from the model's config"
            );
        }
        for piece in &mut rest {
            let share = std::mem::take(&mut piece.outputs[index].data);
            share.pieces().for_each(|piece| output.data.push(piece.clone()));
            output.shape[0] += piece.outputs[index].shape[0];
        }
        // Elements of fixed size need no conversion: the pieces are concatenated.
        if output.dtype.size().is_none() {
            output.data = std::mem::take(&mut output.data).into_whole().into();
        }
    }
    for piece in rest {
        joined.run_started = joined.run_started.min(piece.run_started);
        joined.run_ended = joined.run_ended.max(piece.run_ended);
        joined.batch_rows = joined.batch_rows.max(piece.batch_rows);
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::time::Instant;
    use tierlab_protocol::infer::Tensor;
    use tierlab_protocol::tensor::DataType;

    fn text(rows: usize) -> Vec<u8> {
        let element = |row: usize| [&(row as u32 % 5).to_le_bytes()[..], &vec![b'x'; row % 5]].concat();
        (0..rows).flat_map(element).collect()
    }

    fn spec(name: &str, dtype: DataType) -> TensorSpec {
        TensorSpec {
            name: name.into(),
            dtype,
            shape: vec![-1, 1],
        }
    }

    #[test]
    fn rows_of_another_width_are_not_put_behind_each_other() {
        let now = Instant::now();
        let part = |rows: usize, width: usize| JobOutput {
            outputs: vec![Tensor {
                name: "y".into(),
                dtype: DataType::Uint8,
                shape: vec![rows as i64, width as i64],
                data: vec![7; rows * width].into(),
            }],
            run_started: now,
            run_ended: now,
            batch_rows: rows,
        };
        let joined = join(vec![part(3, 2), part(2, 2)]).unwrap();
        assert_eq!(
            (&joined.outputs[0].shape[..], joined.outputs[0].data.len()),
            (&[5, 2][..], 10)
        );
        let refused = join(vec![part(3, 2), part(2, 5)]).unwrap_err().to_string();
        assert!(
            refused.contains("output `y` has shape [3, 2]") && refused.contains("[2, 5]"),
            "{refused}"
        );
        assert!(join(Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn pieces_fit_and_join_to_what_was_cut(rows in 1_usize..200, max_rows in 1_usize..64) {
            let inputs = [spec("a", DataType::Uint16), spec("b", DataType::Bytes)];
            let numbers: Bytes = (0..rows as u16).flat_map(u16::to_le_bytes).collect();
            let shape = vec![rows as i64, 1];
            let parts = [
                Part { shape: shape.clone(), data: numbers.into() },
                Part { shape: shape.clone(), data: text(rows).into() },
            ];
            let pieces = cut(&parts, &inputs, rows, max_rows);
            prop_assert_eq!(pieces.len(), rows.div_ceil(max_rows));
            prop_assert!(pieces.iter().all(|piece| (1..=max_rows).contains(&piece.1)));
            let now = Instant::now();
            let done = pieces.into_iter().map(|(parts, rows)| JobOutput {
                outputs: parts.into_iter().zip(&inputs).map(|(part, spec)| Tensor {
                    name: spec.name.clone(), dtype: spec.dtype, shape: part.shape, data: part.data.host().unwrap().clone(),
                }).collect(),
                run_started: now,
                run_ended: now,
                batch_rows: rows,
            });
            let joined = join(done.collect()).unwrap();
            for (output, part) in joined.outputs.iter().zip(&parts) {
                prop_assert_eq!(&output.shape, &shape);
                prop_assert_eq!(&output.data, part.data.host().unwrap());
            }
        }
    }
}
