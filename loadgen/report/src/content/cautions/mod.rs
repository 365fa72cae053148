//! What a reader has to know before using the numbers of a run.
//!
//! In: a summarised run. Out: a sentence for each thing to beware of, points that are not valid with their reasons among
//! them. Knows nothing of markup.

mod agents;
pub(crate) mod counters;

use super::instrument::Instrument;
use super::percentiles;
use super::point_row::Tier;
use super::words::{name, tiers};
use crate::units::{digits3, latency};
use std::collections::BTreeSet;
use tierlab_analysis::record::{DriftHow, Driven, Environment, Point, Repeat, Run, Verdict};
use tierlab_analysis::validity::closed_loop;
use tierlab_analysis::validity::disturbance::counted;
use tierlab_analysis::validity::littles_law;

/// The keys of a plan's `[limits]` that say what disturbs.
const DISTURBANCE_KEYS: &str = "`foreign_cpu_share`, `steal_share`, `foreign_disk_bytes_per_s`, `foreign_network_bytes_per_s`, \
                                `foreign_io_pressure`, `foreign_memory_pressure`";

/// What a reader has to know before using the numbers: verdicts with their reasons first, then what is odd.
pub(crate) fn cautions(run: &Run, instrument: &Instrument<'_>) -> Vec<String> {
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
            "Resumed at {} after {} finished steps, with the servers and caches of that time",
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
    cautions.extend(instrument.refused().map(|refused| format!("{refused}.")));
    for point in &run.points {
        cautions.extend(point_cautions(run, point));
    }
    cautions.extend(stand_ins(run));
    if !run.environment.shared_cores.is_empty() {
        cautions.push(format!(
            "On the same cores ran: {}.",
            run.environment.shared_cores.join(", ")
        ));
    }
    cautions.extend(agents::sentences(&run.points, &run.limits));
    cautions.extend(machine(&run.environment));
    cautions.extend(disturbed(&run.points));
    cautions.extend(unseen(&run.points));
    cautions.extend(percentiles::missing_p99(run).map(|missing| missing + "."));
    cautions.extend(percentiles::rough_p99(run).map(|rough| rough + "."));
    cautions.extend(percentiles::wide(run).map(|wide| wide + "."));
    cautions
}

/// Tiers that are not the service that they stand for.
fn stand_ins(run: &Run) -> impl Iterator<Item = String> {
    let tiers: Vec<Tier> = tiers(run).iter().map(|tier| Tier::of(run, tier)).collect();
    let kinds = [
        (
            "emulated",
            "Latencies are drawn from a distribution, not measured on a service",
        ),
        (
            "embedded",
            "Served on this machine by the project's own server, so that latencies are a floor, not a cloud's",
        ),
    ];
    kinds.into_iter().filter_map(move |(kind, what)| {
        let is_of_kind = |tier: &&Tier| tier.origin.as_ref().is_some_and(|origin| origin.kind == kind);
        let names: Vec<String> = tiers.iter().filter(is_of_kind).map(Tier::labelled).collect();
        (!names.is_empty()).then(|| format!("{what}: {}.", names.join(", ")))
    })
}

/// What of the machine would slow a run, each by itself.
fn machine(environment: &Environment) -> impl Iterator<Item = String> {
    environment
        .machine_warnings
        .iter()
        .map(|warning| format!("This machine: {warning}."))
}

/// How many steps something foreign disturbed, by what, and what became of them.
fn disturbed(points: &[Point]) -> Option<String> {
    let steps: Vec<(&Point, &Repeat)> = points
        .iter()
        .flat_map(|point| point.repeats.iter().map(move |repeat| (point, repeat)))
        .collect();
    let is_still = |repeat: &Repeat| repeat.disturbed.is_some();
    let of =
        |wanted: &dyn Fn(&Point, &Repeat) -> bool| steps.iter().filter(|(point, repeat)| wanted(point, repeat)).count();
    let all = of(&|_, repeat| is_still(repeat) || !repeat.disturbed_before.is_empty());
    let by = steps
        .iter()
        .find_map(|(_, repeat)| repeat.disturbed.as_ref().or(repeat.disturbed_before.last()))?;
    let again = of(&|_, repeat| !is_still(repeat) && !repeat.disturbed_before.is_empty());
    let counts = of(&|point, repeat| is_still(repeat) && counted(&point.repeats).iter().any(is_still));
    let left_out = all - again - counts;
    let became: Vec<String> = [
        (again, "measured again without a disturbance"),
        (left_out, "left out, since enough others remained"),
        (counts, "still disturbed, so that their points are invalid"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    Some(format!(
        "Something foreign disturbed {all} of {} steps, as: {by}. Of these {}. End it, or raise the limit in the plan's \
         [limits]: {DISTURBANCE_KEYS}.",
        steps.len(),
        became.join(", ")
    ))
}

/// Foreign load that was not seen beside a step.
fn unseen(points: &[Point]) -> Option<String> {
    let machines = points.iter().flat_map(|point| &point.repeats);
    let machines = machines.filter_map(|repeat| repeat.machine.as_ref());
    let kinds: BTreeSet<&str> = machines
        .flat_map(|machine| &machine.unseen)
        .map(String::as_str)
        .collect();
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
    (!kinds.is_empty())
        .then(|| format!("Foreign {kinds} cannot be told from the run's own here: no step counts as disturbed by it."))
}

fn point_cautions(run: &Run, point: &Point) -> Vec<String> {
    let name = name(run, &point.factors);
    let Some(summary) = &point.summary else {
        return vec![format!("{name}: not summarised")];
    };
    let mut cautions = Vec::new();
    if summary.verdict == Verdict::Valid {
        cautions.extend(littles_law::broken(&point.repeats).next().map(|(index, (counted, by_stays))| {
            format!(
                "{name}: in repeat {} {counted:.2} in flight counted, {by_stays:.2} by Little's law: one of them is wrong",
                index + 1
            )
        }));
    } else {
        cautions.push(format!("{name}: {}{}", summary.verdict, resumed_between(run, point)));
    }
    cautions.extend(counters::cautions(&name, point));
    if let Some(Driven::ClosedLoop { users, .. }) = point.factors.driven
        && let Some(by_law) = closed_loop::broken(users, &counted(&point.repeats))
    {
        cautions.push(format!(
            "{name}: {by_law:.2} users by the law users = rate × (response + pause), where there were {users}: requests were lost or \
             users idle, so that the throughput is not that of {users}"
        ));
    }
    cautions.extend(summary.gaps.iter().map(|gap| {
        let hits = summary.cache_hit_ratio.map_or_else(String::new, |hits| {
            format!(" (hit ratio {:.1} %)", 100.0 * hits)
        });
        format!(
            "{name}: the {} lies on a gap of the distribution: {:.1} % of the requests take at most {}, the next {}{hits}. It \
             belongs to either side, and its interval reaches over the gap",
            gap.percentile,
            100.0 * gap.share,
            latency(gap.from_us),
            latency(gap.to_us)
        )
    }));
    cautions.extend(summary.tail.as_ref().and_then(|tail| tail.exceeds).map(|times| {
        format!(
            "{name}: the stages that the server tells sum to {} times the latency of the slowest requests: its Server-Timing \
             is wrong, or another clock's; where their time went is not known",
            digits3(times)
        )
    }));
    cautions
}

/// Where repeats change at once just where a run was resumed, that is likely why.
fn resumed_between(run: &Run, point: &Point) -> String {
    let drifts = point.summary.iter().flat_map(|summary| &summary.drifts);
    let changes = drifts.filter_map(|drift| match drift.how {
        DriftHow::After(count) => Some(count as usize),
        DriftHow::Within | DriftHow::Across => None,
    });
    let mut repeats: Vec<&Repeat> = point.repeats.iter().collect();
    repeats.sort_by_key(|repeat| repeat.index);
    for place in changes {
        // Times are written alike, so that they are in the order of their text.
        let between = |at: &str| {
            let (before, after) = (repeats.get(place.wrapping_sub(1)), repeats.get(place));
            before.is_some_and(|repeat| repeat.started_at.as_str() < at)
                && after.is_some_and(|repeat| at <= repeat.started_at.as_str())
        };
        if let Some(resumed) = run.resumed.iter().find(|resumed| between(&resumed.at)) {
            return format!(
                "; between the two the run was resumed ({}): the server or the machine is not what it was, measure anew",
                resumed.at
            );
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::{Factors, Mode};

    fn point(repeats: &[(Option<&str>, &[&str])]) -> Point {
        let repeats = (0..).zip(repeats).map(|(index, (disturbed, before))| Repeat {
            index,
            disturbed: disturbed.map(str::to_owned),
            disturbed_before: before.iter().map(|by| (*by).to_owned()).collect(),
            ..Repeat::empty()
        });
        Point {
            factors: Factors {
                variant: String::new(),
                tier: "t".into(),
                cache: "off".into(),
                cache_share: 0.0,
                model: "m".into(),
                mode: Mode::Realtime,
                batch_size: 1,
                offered_rps: 10.0,
                arrivals: "constant".into(),
                keys: "uniform".into(),
                mix: None,
                driven: None,
            },
            repeats: repeats.collect(),
            summary: None,
        }
    }

    #[test]
    fn what_the_machine_has_wrong_is_told() {
        let environment = Environment {
            machine_warnings: vec!["CPU governor: powersave".to_owned()],
            ..Environment::default()
        };
        assert_eq!(
            machine(&environment).collect::<Vec<_>>(),
            ["This machine: CPU governor: powersave."]
        );
    }

    #[test]
    fn disturbed_steps_are_counted_by_what_became_of_them() {
        let quiet = (None, &[][..]);
        assert_eq!(disturbed(&[point(&[quiet, quiet])]), None);
        let (a, b) = ("a compiler", "a backup");
        let left_out = point(&[(Some(a), &[a, a]), quiet, quiet, quiet]);
        let again = point(&[(None, &[b]), quiet]);
        let invalid = point(&[(Some(a), &[]), (Some(a), &[]), quiet]);
        let text = disturbed(&[left_out, again, invalid]).unwrap();
        for part in [
            "disturbed 4 of 9 steps, as: a compiler",
            "1 measured again",
            "1 left out",
            "2 still disturbed",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
