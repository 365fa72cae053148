//! What a run says in words: peers beside us, and what to beware of. Every renderer shows the same.

use super::kept::Kept;
use crate::peers::Tool;
use crate::summary::{Peer, Summary, Verdict};
use std::collections::BTreeSet;
use tierlab_instrument::units::{digits3, latency};

/// A sentence for each peer of each point.
pub(super) fn peers(points: &[Summary]) -> Vec<String> {
    let each = points
        .iter()
        .flat_map(|point| point.peers.iter().map(move |peer| beside(point, peer)));
    each.collect()
}

fn beside(summary: &Summary, peer: &Peer) -> String {
    let name = match peer.tool {
        Tool::Fio => "fio",
        Tool::Elbencho => "elbencho",
    };
    let mut text = format!(
        "{}: {} of {name}'s rate [{}–{}], {} beside {} calls/s",
        summary.point,
        digits3(peer.ratio.value),
        digits3(peer.ratio.lo),
        digits3(peer.ratio.hi),
        digits3(summary.iops.value),
        digits3(peer.iops.value)
    );
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

/// The exact commands of the peers.
pub(super) fn commands(points: &[Summary]) -> Vec<String> {
    let all: BTreeSet<String> = points
        .iter()
        .flat_map(|point| &point.peers)
        .map(|peer| peer.command.clone())
        .collect();
    all.into_iter().collect()
}

/// What to beware of.
pub(super) fn cautions(kept: &Kept) -> Vec<String> {
    let mut all = Vec::new();
    if kept.interrupted {
        all.push("The run was interrupted: points may lack repeats, or be missing".to_owned());
    }
    for (name, notes) in &kept.tiers {
        all.push(format!("{name}: {}", notes.join("; ")));
    }
    for summary in &kept.points {
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
        all.extend(
            summary
                .peer_faults
                .iter()
                .map(|fault| format!("{point}: a peer failed: {fault}")),
        );
    }
    all.extend(kept.peer_notes.iter().cloned());
    all
}

/// What was done, in a line or two.
pub(super) fn facts(kept: &Kept) -> Vec<String> {
    let env = &kept.environment;
    let mut facts = vec![
        env.date.clone(),
        format!(
            "{} points, windows of {} s after {} s",
            kept.points.len(),
            kept.window_s,
            kept.warmup_s
        ),
        format!(
            "{} of data, seed {}",
            tierlab_instrument::units::bytes(kept.size_bytes),
            kept.seed
        ),
        format!("{}, {} cores, Linux {}", env.cpu, env.cores, env.kernel),
        format!("load average {} at the start", env.load_average),
    ];
    facts.extend(env.filesystems.values().cloned());
    facts
}
