//! What a reader has to know before using the numbers of a run.
//!
//! In: a summarised run. Out: a sentence for each thing to beware of, points that are not valid with their reasons among
//! them. Knows nothing of markup.

use super::words::{is_emulated, name, origin, tiers};
use super::{certificate_words, percentiles};
use crate::analysis::littles_law;
use crate::record::{Point, Run, Verdict};

/// What a reader has to know before using the numbers: verdicts with their reasons first, then what is odd.
pub(crate) fn cautions(run: &Run) -> Vec<String> {
    let mut cautions = Vec::new();
    if run.interrupted {
        cautions.push("The run was stopped before its last point; what is here was finished.".to_owned());
    }
    if let Some(why) = &run.search_stopped {
        cautions.push(format!(
            "The search for the highest rate stopped before its end, for {why}: what it had not measured is unknown."
        ));
    }
    for resumed in &run.resumed {
        let mut text = format!(
            "Gone on with at {} after {} steps, servers and caches as they were then",
            resumed.at, resumed.finished_steps
        );
        for difference in &resumed.differences {
            text += &format!("; {difference}");
        }
        cautions.push(text + ".");
    }
    for failed in run.selfcheck.iter().filter(|check| !check.passed) {
        cautions.push(format!(
            "Self-check failed: {} (expected {}, measured {})",
            failed.name, failed.expected, failed.measured
        ));
    }
    cautions.extend(certificate_words::refused(run).map(|refused| refused + "."));
    for tier in tiers(run) {
        let what = match origin(run, tier) {
            _ if is_emulated(run, tier) => "latencies are drawn from a distribution, not measured on a service",
            "embedded" => "served on this machine by the project's own server: its latency is a floor, not a cloud's",
            _ => continue,
        };
        cautions.push(format!("{tier} is {}: {what}.", run.environment.origins[tier]));
    }
    if !run.environment.shared_cores.is_empty() {
        cautions.push(format!(
            "On the same cores ran: {}.",
            run.environment.shared_cores.join(", ")
        ));
    }
    cautions.extend(percentiles::missing_p99(run).map(|missing| missing + "."));
    for point in &run.points {
        cautions.extend(point_caution(run, point));
    }
    cautions
}

fn point_caution(run: &Run, point: &Point) -> Option<String> {
    let name = name(run, &point.factors);
    let Some(summary) = &point.summary else {
        return Some(format!("{name}: not summarised"));
    };
    match &summary.verdict {
        Verdict::Valid => littles_law::broken(&point.repeats).next().map(|(index, (counted, by_stays))| {
            format!(
                "{name}: in repeat {} {counted:.2} in flight counted, {by_stays:.2} by Little's law: one of them is wrong",
                index + 1
            )
        }),
        verdict => Some(format!("{name}: {verdict}")),
    }
}
