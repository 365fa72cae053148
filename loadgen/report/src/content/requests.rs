//! Requests in words, for the heading of a report: number of different ones, sizes, shapes, and the meaning of a row.
//!
//! In: the points of a run. Out: a sentence for each kind of request. Knows nothing of markup.

use super::labels::trimmed;
use crate::units::{bytes, percent, thousands};
use tierlab_analysis::curves::grouped;
use tierlab_analysis::record::{Run, SentInput, SentRequests, Spread};

/// Shapes of an input that a sentence lists.
const SHAPES: usize = 4;

/// Returns a sentence per model, mode and batch size with a record of its requests.
pub(crate) fn sentences(run: &Run) -> Vec<String> {
    let sent = run.points.iter().filter_map(|point| {
        let factors = &point.factors;
        let sent = point.repeats.iter().find_map(|repeat| repeat.sent.as_ref())?;
        let kind = format!("{} {}×{}", factors.model, factors.mode, factors.batch_size);
        Some((kind, sent))
    });
    let kinds = grouped(sent).into_iter();
    let sentences = kinds.map(|(kind, sent)| format!("Requests to {kind}: {}", sentence(sent[0])));
    sentences.collect()
}

fn sentence(sent: &SentRequests) -> String {
    let inferences = format!("{:.2}", sent.inferences_per_request);
    let inferences = trimmed(&inferences);
    let inputs: String = sent.inputs.iter().map(|one| input(one) + "; ").collect();
    let mut text = format!(
        "{} different, {}, {} order; {inputs}rows: {}; {inferences} inference{} per request",
        thousands(sent.distinct),
        spread(sent.bytes),
        sent.order,
        sent.rows_by,
        if inferences == "1" { "" } else { "s" },
    );
    if let Some(checked) = sent.checked {
        let (share, requests, tolerance) = (percent(checked.share), thousands(checked.requests), checked.tolerance);
        text += &format!(
            "; values of {share} of the replies checked (tolerance {tolerance}, absolute and relative), for {requests} requests with \
             known replies"
        );
    }
    text
}

fn spread(spread: Spread) -> String {
    let [min, median, max] = [spread.min, spread.median, spread.max].map(bytes);
    match spread.min == spread.max {
        true => min,
        false => format!("{min} to {max} (median {median})"),
    }
}

fn input(input: &SentInput) -> String {
    let shapes = shapes(input);
    format!("`{}` {} {shapes}, {}", input.name, input.datatype, input.values)
}

fn shapes(input: &SentInput) -> String {
    if let ([only], 1) = (&input.shapes[..], input.distinct_shapes) {
        return format!("{:?}", only.shape);
    }
    let listed = input.shapes.iter().take(SHAPES);
    let listed = listed.map(|one| format!("{:?} {}", one.shape, percent(one.share)));
    let listed: Vec<String> = listed.collect();
    let others = input.distinct_shapes.saturating_sub(listed.len() as u64);
    let mut text = listed.join(", ");
    if others > 0 {
        let Spread { min, median, max } = input.elements;
        let [others, min, median, max] = [others, min, median, max].map(thousands);
        text += &format!(" and {others} others ({min} to {max} elements, median {median})");
    }
    text
}

/// An input's shapes for a cell of a table: `image [1, 3, 224, 224] 0.5, [1, 3, 320, 320] 0.5`.
pub(crate) fn input_shapes(input: &SentInput) -> String {
    let listed = input.shapes.iter().take(SHAPES);
    let listed: Vec<String> = listed.map(|one| format!("{:?} {:.3}", one.shape, one.share)).collect();
    let has_more = input.distinct_shapes > listed.len() as u64;
    let more = if has_more { ", …" } else { "" };
    format!("{} {}{more}", input.name, listed.join(", "))
}
