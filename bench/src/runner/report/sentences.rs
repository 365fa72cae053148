//! Sentences of a run of points: fio beside the bench, cautions, facts.

use crate::plan::Access;
use crate::report::Ran;
use crate::runner::Figures;
use crate::runner::agents::AgentFigures;
use crate::runner::summary::{Peer, Summary, Verdict};
use std::collections::BTreeSet;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{bytes, digits3, latency};

/// Sentence for each peer of each point.
pub(super) fn peers(points: &[Summary]) -> Vec<String> {
    let of_point = |point: &Summary| {
        let peers = point.peers.iter();
        peers.map(|(name, peer)| beside(point, name, peer)).collect::<Vec<_>>()
    };
    points.iter().flat_map(of_point).collect()
}

fn beside(summary: &Summary, name: &str, peer: &Peer) -> String {
    let ratio = with_ends(peer.ratio, &format!("of {name}'s rate"));
    let [own, theirs] = [summary.iops.value, peer.iops.value].map(digits3);
    let mut text = format!("{}: {ratio}, {own} beside {theirs} calls/s", summary.point);
    if let (Some(apart), Some(theirs)) = (peer.p50_apart_us, peer.p50_us) {
        let where_to = if apart.value < 0.0 { "below" } else { "above" };
        text += &format!(
            "; p50 {} {where_to} its {} [{:+.1} to {:+.1} us]",
            latency(apart.value.abs()),
            latency(theirs),
            apart.lo,
            apart.hi
        );
    }
    text
}

/// Value with its unit and the ends of its interval.
fn with_ends(of: Interval, unit: &str) -> String {
    let [value, lo, hi] = [of.value, of.lo, of.hi].map(digits3);
    format!("{value} {unit} [{lo}–{hi}]")
}

/// Sentence for each checkpoint and each restore.
pub(super) fn checkpoints(points: &[Summary]) -> Vec<String> {
    let sentence = |summary: &Summary| {
        let took = summary.took_s.filter(|_| summary.calls > 0)?;
        let all = summary.point.block_bytes * u64::from(summary.point.depth);
        let (point, all) = (&summary.point, bytes(all));
        let [took, rate] = [(took, "s"), (summary.mb_per_s, "MB/s")].map(|(of, unit)| with_ends(of, unit));
        Some(format!("{point}: {all} in {took}, {rate}"))
    };
    points.iter().filter_map(sentence).collect()
}

/// Commands of the other tools, one a line.
pub(super) fn commands(points: &[Summary]) -> String {
    let peers = points.iter().flat_map(|point| point.peers.values());
    let all: BTreeSet<&str> = peers.map(|peer| peer.command.as_str()).collect();
    all.into_iter().collect::<Vec<_>>().join("\n")
}

/// Reasons to doubt a figure.
pub(super) fn cautions(ran: &Ran, figures: &Figures) -> Vec<String> {
    let mut all = Vec::new();
    if ran.interrupted {
        all.push("The run was interrupted: points may lack repeats, or be missing".to_owned());
    }
    for summary in &figures.points {
        let point = &summary.point;
        match &summary.verdict {
            Verdict::Failed(why) => all.push(format!("{point} failed: {why}")),
            Verdict::Unknown(why) => all.push(format!("{point} says nothing of the tier: {why}")),
            Verdict::Saturated => all.push(format!(
                "{point}: the tier did not keep up ({} of {} calls/s, {} not done in time)",
                digits3(summary.iops.value),
                point.rate,
                summary.unfinished
            )),
            Verdict::Valid => {}
        }
        all.extend(summary.drift.iter().map(|drift| format!("{point}: {drift}")));
        if summary.left_out > 0 {
            all.push(format!("{point}: {} disturbed repeats are left out", summary.left_out));
        }
        let faults = summary.peer_faults.iter();
        all.extend(faults.map(|fault| format!("{point}: a peer failed: {fault}")));
    }
    all.extend(figures.peer_notes.iter().cloned());
    all
}

/// Facts about the measurement.
pub(super) fn facts(ran: &Ran, access: &Access, figures: &Figures) -> Vec<String> {
    let points = figures.points.len();
    let mut facts = vec![
        format!(
            "{points} points, windows of {} s after {} s",
            access.window.as_secs_f64(),
            access.warmup.as_secs_f64()
        ),
        format!("{} of data, seed {}", bytes(access.size), access.seed),
        format!("load average {} at the start", ran.environment.load_average),
    ];
    facts.extend(figures.agents.iter().map(AgentFigures::text));
    facts.extend(ran.environment.filesystems.values().cloned());
    facts
}
