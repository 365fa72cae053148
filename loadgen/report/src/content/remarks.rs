//! Remarks on a run, to know before using its numbers.
//!
//! In: a summarised run. Out: the most important remarks in a line each, and all of them in sentences. Knows nothing of markup.

use super::instrument::Instrument;
use super::labels::{self, name, tiers};
use super::point_row::Tier;
use crate::units::{digits3, latency, percent, rate, thousands};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tierlab_analysis::curves::is_valid;
use tierlab_analysis::record::{
    AgentStart, Answer, DriftHow, Driven, Failure, Grade, Limits, MeetsObjective, Minimise, Percentile, Point, Ranked,
    Repeat, Run, Verdict, counted, failures, worst_start,
};
use tierlab_analysis::statistics::sections::spread_dominates;
use tierlab_analysis::validity::laws;

/// Reasons of failures that a remark lists.
const REASONS: usize = 3;
/// Keys of a plan's `[limits]` for disturbances.
const DISTURBANCE_KEYS: &str = "`foreign_cpu_share`, `steal_share`, `foreign_disk_bytes_per_s`, `foreign_network_bytes_per_s`, \
                                `foreign_io_pressure`, `foreign_memory_pressure`";

/// Returns the remarks of one line, the most important first, without their full stops.
pub(crate) fn brief(run: &Run, instrument: &Instrument) -> Vec<String> {
    let answer = run.answer.as_ref();
    let mut remarks: Vec<String> = interrupted(run).chain(search_stopped(run)).chain(stops(run)).collect();
    remarks.extend(undecided(answer));
    remarks.extend(disturbed(&run.points, answer));
    remarks.extend(invalid_points(run));
    remarks.extend(failed_requests(&run.points));
    remarks.extend(unproven(run, instrument));
    remarks.extend(answer.and_then(ties));
    if answer.is_some_and(|answer| answer.best.is_some() && !answer.confirmed) {
        remarks.push("not confirmed by fresh steps: the best's figures come from the steps that chose it".to_owned());
    }
    remarks.extend(unchecked_prices(run));
    remarks.extend(stand_ins(run));
    remarks.extend(missing_p99(run));
    remarks.extend(rough_p99(run));
    remarks.iter().map(|remark| first_sentence(remark)).collect()
}

/// Returns all cautions in sentences: verdicts with their reasons first.
pub(crate) fn cautions(run: &Run, instrument: &Instrument) -> Vec<String> {
    let mut cautions: Vec<String> = interrupted(run).chain(search_stopped(run)).chain(stops(run)).collect();
    cautions.extend(resumptions(run));
    cautions.extend(run.selfcheck.iter().filter(|check| !check.passed).map(|failed| {
        let (name, expected, measured) = (&failed.name, &failed.expected, &failed.measured);
        format!("Self-check failed: {name} (expected {expected}, measured {measured})")
    }));
    cautions.extend(instrument.refused.clone());
    cautions.extend(run.points.iter().flat_map(|point| point_cautions(run, point)));
    cautions.extend(stand_ins(run));
    let shared = run.environment.shared_cores.join(", ");
    cautions.extend((!shared.is_empty()).then(|| format!("On the same cores: {shared}")));
    cautions.extend(agents(&run.points, &run.limits));
    let warnings = run.environment.machine_warnings.iter();
    cautions.extend(warnings.map(|warning| format!("This machine: {warning}")));
    cautions.extend(disturbed(&run.points, None));
    cautions.extend(unseparated_load(&run.points));
    cautions.extend(missing_p99(run));
    cautions.extend(rough_p99(run));
    cautions.extend(wide_medians(run));
    cautions
}

fn interrupted(run: &Run) -> impl Iterator<Item = String> {
    let text = "The run was stopped before its last point; points may have fewer repeats than planned";
    run.interrupted.then(|| text.to_owned()).into_iter()
}

fn search_stopped(run: &Run) -> Option<String> {
    let why = run.search_stopped.as_ref()?;
    Some(format!(
        "The search for the highest rate stopped early: {why}. Unmeasured rates are unknown"
    ))
}

/// Ramps that ended early, rates that were left out, and waits for connections.
fn stops(run: &Run) -> impl Iterator<Item = String> {
    let ramps = run.points.iter().filter_map(|point| {
        let stopped = point.repeats.iter().filter_map(|repeat| repeat.driver.ramp()?.stopped_rps);
        let lowest = stopped.clone().min_by(f64::total_cmp)?;
        Some(format!(
            "{}: in {} of {} repeats the ramp stopped, at {}/s or more, because every user had been busy for a second: the server does not \
             reach this rate",
            labels::name(run, &point.factors),
            stopped.count(),
            point.repeats.len(),
            rate(lowest)
        ))
    });
    let waits = |point: &&Point| {
        let mut repeats = point.repeats.iter();
        repeats.any(|repeat| repeat.in_flight_limit_hit && repeat.pool.is_some())
    };
    let waited = run.points.iter().filter(waits).count();
    let waited = (waited > 0).then(|| {
        format!(
            "In {waited} of {} points requests waited for one of the plan's `connections`, and the latency includes these waits",
            run.points.len()
        )
    });
    ramps.chain(run.left_out.iter().cloned()).chain(waited)
}

fn resumptions(run: &Run) -> impl Iterator<Item = String> {
    run.resumed.iter().map(|resumed| {
        let differences = resumed.differences.iter();
        let differences: String = differences.map(|difference| format!("; {difference}")).collect();
        let (at, steps) = (&resumed.at, resumed.finished_steps);
        format!(
            "Resumed at {at} after {steps} finished steps, with the servers and caches as they were then{differences}"
        )
    })
}

/// Tiers that stand in for a service.
fn stand_ins(run: &Run) -> impl Iterator<Item = String> {
    let tiers: Vec<Tier> = tiers(run).iter().map(|tier| Tier::of(run, tier)).collect();
    let kinds = [
        ("emulated", "Drawn from a distribution, not measured on a service", ""),
        (
            "embedded",
            "Served by this machine",
            ". The project's own server: latencies are a floor, not a cloud's",
        ),
    ];
    kinds.into_iter().filter_map(move |(kind, what, more)| {
        let is_of_kind = |tier: &&Tier| tier.origin.as_ref().is_some_and(|origin| origin.kind == kind);
        let names: Vec<String> = tiers.iter().filter(is_of_kind).map(Tier::labelled).collect();
        (!names.is_empty()).then(|| format!("{what}: {}{more}", names.join(", ")))
    })
}

/// Disturbed steps: their number, the most frequent cause, and their use.
fn disturbed<'a>(points: &'a [Point], answer: Option<&Answer>) -> Option<String> {
    let of = |point: &'a Point| point.repeats.iter().map(move |repeat| (point, repeat));
    let steps = || points.iter().flat_map(of);
    let by = steps().filter_map(|(_, repeat)| repeat.disturbed.as_ref().or(repeat.disturbed_before.last()));
    let Some(by) = most_frequent(by.map(String::as_str)) else {
        let answer = answer.filter(|answer| answer.disturbed_steps > 0)?;
        let (disturbed, steps) = (answer.disturbed_steps, answer.steps);
        return Some(format!("{disturbed} of {steps} steps disturbed by other activity"));
    };
    let is_still = |repeat: &Repeat| repeat.disturbed.is_some();
    let (mut again, mut counts, mut left_out) = (0, 0, 0);
    for (point, repeat) in steps() {
        match (is_still(repeat), repeat.disturbed_before.is_empty()) {
            (true, _) if counted(&point.repeats).iter().any(is_still) => counts += 1,
            (true, _) => left_out += 1,
            (false, false) => again += 1,
            (false, true) => {}
        }
    }
    let outcomes = [
        (again, "measured again without a disturbance"),
        (left_out, "left out, because enough others remained"),
        (counts, "still disturbed, so that their points are invalid"),
    ];
    let outcomes = outcomes.into_iter().filter(|(count, _)| *count > 0);
    let outcomes: Vec<String> = outcomes.map(|(count, what)| format!("{count} {what}")).collect();
    let (disturbed, all, outcomes) = (again + counts + left_out, steps().count(), outcomes.join(", "));
    Some(format!(
        "{disturbed} of {all} steps disturbed: {by}. Of these {outcomes}. Stop the other activity, or raise the \
         limit in the plan's [limits]: {DISTURBANCE_KEYS}"
    ))
}

/// Kinds of foreign load that the machine does not show.
fn unseparated_load(points: &[Point]) -> Option<String> {
    let machines = points.iter().flat_map(|point| &point.repeats);
    let machines = machines.filter_map(|repeat| repeat.machine.as_ref());
    let kinds = machines.flat_map(|machine| &machine.unseen);
    let kinds: BTreeSet<&str> = kinds.map(String::as_str).collect();
    let kinds = Vec::from_iter(kinds).join(", ");
    (!kinds.is_empty()).then(|| {
        format!("Foreign {kinds} cannot be separated from the run's own on this machine, so it disturbs no step")
    })
}

fn point_cautions(run: &Run, point: &Point) -> Vec<String> {
    let name = name(run, &point.factors);
    let Some(summary) = &point.summary else {
        return vec![format!("{name}: not summarised")];
    };
    let mut cautions = Vec::new();
    if summary.verdict == Verdict::Valid {
        cautions.extend(laws::violations(&point.repeats).next().map(|(index, (counted, by_stays))| {
            format!(
                "{name}: in repeat {} {counted:.2} in flight counted, {by_stays:.2} by Little's law: one of them is wrong",
                index + 1
            )
        }));
    } else {
        cautions.push(format!("{name}: {}{}", summary.verdict, resumed_between(run, point)));
    }
    cautions.extend(counters(&name, point));
    if let Some(Driven::ClosedLoop { users, .. }) = point.factors.driven
        && let Some(by_law) = laws::differing_users(users, &counted(&point.repeats))
    {
        cautions.push(format!(
            "{name}: {by_law:.2} users by the law users = rate × (response + pause) instead of {users}: requests were lost or users idle, \
             so the throughput is not that of {users}"
        ));
    }
    cautions.extend(summary.gaps.iter().map(|gap| {
        let hits = summary.cache_hit_ratio.map_or_else(String::new, |hits| {
            format!(" (hit ratio {:.1} %)", 100.0 * hits)
        });
        format!(
            "{name}: the {} lies on a gap of the distribution: {:.1} % of the requests take at most {}, the next {}{hits}. It may belong to \
             either side; its interval spans the gap",
            gap.percentile,
            100.0 * gap.share,
            latency(gap.from_us),
            latency(gap.to_us)
        )
    }));
    cautions.extend(summary.tail.as_ref().and_then(|tail| tail.exceeds).map(|times| {
        format!(
            "{name}: the stages that the server reports sum to {} times the latency of the slowest requests: its Server-Timing is wrong or \
             uses another clock; their composition is unknown",
            digits3(times)
        )
    }));
    cautions
}

/// Resumption between two repeats that differ: the likely cause of the difference; empty if there is none.
fn resumed_between(run: &Run, point: &Point) -> String {
    let drifts = point.summary.iter().flat_map(|summary| &summary.drifts);
    let repeats = counted(&point.repeats);
    let mut resumed = drifts.filter_map(|drift| {
        let DriftHow::After(number) = drift.how else {
            return None;
        };
        let (before, after): (Vec<&Repeat>, Vec<&Repeat>) = repeats.iter().partition(|repeat| repeat.index < number);
        let last = before.into_iter().max_by_key(|repeat| repeat.index)?;
        let first = after.into_iter().min_by_key(|repeat| repeat.index)?;
        // Times have one format, so that text order is chronological.
        let mut resumed = run.resumed.iter();
        resumed.find(|resumed| last.started_at < resumed.at && resumed.at <= first.started_at)
    });
    resumed.next().map_or_else(String::new, |resumed| {
        let at = &resumed.at;
        format!("; the run was resumed between the two ({at}): the server or the machine changed, measure again")
    })
}

/// Omitted counters with the reason, and restarted servers.
fn counters(name: &str, point: &Point) -> Vec<String> {
    let servers = || point.repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let doubts: Vec<&str> = servers().filter_map(|server| server.doubt.as_deref()).collect();
    let mut cautions = Vec::new();
    if let Some(first) = doubts.first() {
        let (omitted, steps) = (doubts.len(), point.repeats.len());
        cautions.push(format!(
            "{name}: server counters omitted in {omitted} of {steps} steps: {first}"
        ));
    }
    let restarts: u32 = servers().map(|server| server.restarts).sum();
    if restarts > 0 {
        cautions.push(format!(
            "{name}: servers restarted {restarts} times during its steps; earlier counts are lost"
        ));
    }
    cautions
}

/// Agents that sent the requests, their worst start, and lost agents.
fn agents(points: &[Point], limits: &Limits) -> Vec<String> {
    let repeats = || points.iter().flat_map(|point| &point.repeats);
    let starts: Vec<AgentStart> = repeats().flat_map(|repeat| repeat.agents.clone()).collect();
    let mut sentences = Vec::new();
    if let Some(worst) = worst_start(&starts) {
        let names: BTreeSet<&str> = starts.iter().map(|start| start.agent.as_str()).collect();
        let late = match worst.late_us > 0.0 {
            true => format!(", of which it was {} late", latency(worst.late_us)),
            false => String::new(),
        };
        let (agents, agent) = (names.len(), &worst.agent);
        let [skew, limit] = [worst.skew_us(), limits.start_skew_us as f64].map(latency);
        sentences.push(format!(
            "Sent by {agents} agents, each with a share of one schedule: at worst {agent} started within {skew} \
             of the common start{late} (limit {limit})"
        ));
    }
    let lost: Vec<&Repeat> = repeats().filter(|repeat| !repeat.lost_before.is_empty()).collect();
    if let Some(example) = lost.iter().find_map(|repeat| repeat.lost_before.first()) {
        sentences.push(format!(
            "An agent was lost during {} of {} steps, for example: {example}. Its requests are ignored; the steps were measured again with \
             other arrivals",
            lost.len(),
            repeats().count()
        ));
    }
    sentences
}

fn undecided(answer: Option<&Answer>) -> impl Iterator<Item = String> {
    let open = answer.into_iter().flat_map(|answer| &answer.open);
    open.map(|open| format!("open: {}", labels::open(open)))
}

/// Variants that cost as much as the best, within the tie margin.
fn ties(answer: &Answer) -> Option<String> {
    let is_by_month = answer.question.minimise == Minimise::UsdPerMonth;
    let best = answer.best().filter(|_| is_by_month)?;
    let (usd, margin) = (best.usd_per_month?, 1.0 + answer.question.tie);
    let is_within = |other: f64| other <= usd * margin && usd <= other * margin;
    let is_tied =
        |ranked: &&Ranked| ranked.outcome == MeetsObjective::Met && ranked.usd_per_month.is_some_and(is_within);
    let others = answer.ranking.iter().filter(|ranked| ranked.variant != best.variant);
    let tied: Vec<&str> = others.filter(is_tied).map(|ranked| ranked.variant.as_str()).collect();
    let within = percent(answer.question.tie);
    (!tied.is_empty()).then(|| format!("costs the same within {within}: {}", tied.join(", ")))
}

/// Points where the instrument or the machine failed; a saturated server is a result.
fn invalid_points(run: &Run) -> Option<String> {
    let reason = |point: &Point| match &point.summary.as_ref()?.verdict {
        Verdict::Invalid(reasons) => Some(first_clause(reasons.first()?)),
        Verdict::Valid | Verdict::Saturated(_) => None,
    };
    let reasons: Vec<String> = run.points.iter().filter_map(reason).collect();
    let (invalid, all) = (reasons.len(), run.points.len());
    let by = most_frequent(reasons.iter().map(String::as_str))?;
    Some(format!("{invalid} of {all} points invalid: {by}"))
}

/// The most frequent of some reasons, in the words of its first occurrence. Reasons that differ in figures alone are one.
fn most_frequent<'a>(reasons: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for reason in reasons {
        let kind = reason.replace(|sign: char| sign.is_ascii_digit() || sign == '.', "");
        kinds.entry(kind).or_insert((0, reason)).0 += 1;
    }
    let most = kinds.into_values().max_by_key(|(count, _)| *count);
    most.map(|(_, reason)| reason)
}

/// Points with requests of their own; those of a whole journey are its steps'.
pub(super) fn of_requests(points: &[Point]) -> impl Iterator<Item = &Point> {
    let is_own = |point: &&Point| !matches!(point.factors.driven, Some(Driven::Journey { step: None, .. }));
    points.iter().filter(is_own)
}

/// Failed requests by reason, the most frequent first, with an example of it. Requests still open at a step's end are
/// not counted for a saturated server, and requests of a disturbed step never.
fn failed_requests(points: &[Point]) -> Option<String> {
    // Failures of a journey's steps are those of the whole, which names the step.
    let is_named = |point: &&Point| !matches!(point.factors.driven, Some(Driven::Journey { step: Some(_), .. }));
    let named = || points.iter().filter(is_named);
    let drain_limit = Failure::DrainLimit.to_string();
    let unfinished = |point: &Point| -> u64 {
        let summary = point.summary.as_ref();
        let is_saturated = summary.is_some_and(|summary| matches!(summary.verdict, Verdict::Saturated(_)));
        let repeats = point.repeats.iter();
        let repeats = repeats.filter(|repeat| is_saturated || repeat.disturbed.is_some());
        repeats.filter_map(|repeat| repeat.errors.get(&drain_limit)).sum()
    };
    let unfinished: u64 = named().map(unfinished).sum();
    let mut failures = failures(named().flat_map(|point| &point.repeats));
    for (_, count, _) in failures.iter_mut().filter(|(reason, ..)| *reason == drain_limit) {
        *count -= unfinished;
    }
    failures.retain(|(_, count, _)| *count > 0);
    failures.sort_by_key(|(_, count, _)| Reverse(*count));
    let (_, _, example) = failures.first()?;
    let failed: u64 = failures.iter().map(|(_, count, _)| count).sum();
    let sent = of_requests(points).flat_map(|point| &point.repeats);
    let scheduled: u64 = sent.map(|repeat| repeat.scheduled).sum();
    let describe = |(reason, count, _): &(&str, u64, Option<&str>)| format!("{} × {reason}", thousands(*count));
    let reasons: Vec<String> = failures.iter().take(REASONS).map(describe).collect();
    let reasons = reasons.join(", ");
    let example = example.map_or_else(String::new, |example| format!(" ({example})"));
    let (failed, scheduled) = (thousands(failed), thousands(scheduled));
    let open = match unfinished {
        0 => String::new(),
        _ => format!("; {} more still open at the end of a step", thousands(unfinished)),
    };
    Some(format!(
        "{failed} of {scheduled} requests failed: {reasons}{example}{open}"
    ))
}

/// Failed or missing proof of the instrument.
fn unproven(run: &Run, instrument: &Instrument) -> Option<String> {
    let failed = run.selfcheck.iter().filter(|check| !check.passed).count();
    if failed > 0 {
        let all = run.selfcheck.len();
        return Some(format!("{failed} of {all} self-checks of the instrument failed"));
    }
    (!instrument.refused.is_empty())
        .then(|| "the instrument's certificate is not valid for this run: run `tierlab-loadgen selfcheck`".to_owned())
}

fn unchecked_prices(run: &Run) -> Option<String> {
    let names: Vec<&str> = run.pricing.iter().flat_map(labels::unchecked).collect();
    (!names.is_empty()).then(|| format!("prices not checked: {}", names.join(", ")))
}

/// Half of an interval beyond which a median is called wide, as a share.
const WIDE: f64 = 0.1;

/// Number of valid points whose median has a wide interval because repeats differ, with the remedy; `None` if there are none.
fn wide_medians(run: &Run) -> Option<String> {
    let valid: Vec<&Point> = run.points.iter().filter(|point| is_valid(point)).collect();
    let spread = valid.iter().filter(|point| spread_dominates(point));
    let medians = spread.filter_map(|point| point.summary.as_ref()?.p50_us);
    let halves = medians.map(|us| (us.hi / us.lo.max(1e-9)).sqrt() - 1.0);
    let widths: Vec<f64> = halves.filter(|half| *half > WIDE && half.is_finite()).collect();
    let widest = widths.iter().copied().fold(0.0, f64::max);
    let (percent, wide, valid) = (100.0 * widest, widths.len(), valid.len());
    (wide > 0).then(|| {
        format!(
            "The p50 is known only within ±{percent:.0} % at {wide} of {valid} valid points because repeats differ: \
             raise `repeats`; longer ones do not help"
        )
    })
}

/// Number of valid points without a p99, and the requests that they lack; `None` if all have one.
pub(super) fn missing_p99(run: &Run) -> Option<String> {
    let valid: Vec<&Point> = run.points.iter().filter(|point| is_valid(point)).collect();
    let needed = Percentile::P99.samples_needed();
    let summaries = valid.iter().filter_map(|point| point.summary.as_ref());
    let without = summaries.filter(|summary| summary.p99_us.is_none());
    let without: Vec<u64> = without.map(|summary| summary.samples).collect();
    let (fewest, most) = (without.iter().min()?, without.iter().max()?);
    let [least, most] = [most, fewest].map(|samples| digits3(needed as f64 / (*samples).max(1) as f64));
    let times = match least == most {
        true => most,
        false => format!("{least} to {most}"),
    };
    let (without, valid, needed) = (without.len(), valid.len(), thousands(needed));
    Some(format!(
        "No p99 at {without} of {valid} valid points. It needs {needed} requests over all repeats, {times} times \
         as many as there were. Raise `repeats` or `step_s` in the plan, or run the long lab (`make lab-full`)"
    ))
}

/// Number of rough p99 of valid points, with the advice that makes them solid; `None` if there are none.
fn rough_p99(run: &Run) -> Option<String> {
    let valid = run.points.iter().filter(|point| is_valid(point));
    let grades = valid.filter_map(|point| point.summary.as_ref()?.grades.p99_grade);
    let grades: Vec<Grade> = grades.collect();
    let rough = grades.iter().filter(|grade| **grade == Grade::Rough).count();
    (rough > 0).then(|| {
        format!(
            "{rough} of {} p99 are rough (~). Their upper bound is unknown, because requests queue or fewer than 15 in 10 repeats lie \
             beyond them. More or longer repeats make them solid",
            grades.len()
        )
    })
}

/// Text up to its first full stop.
fn first_sentence(text: &str) -> String {
    text.split(". ").next().unwrap_or(text).to_owned()
}

/// Text up to its first colon with a space, semicolon or full stop.
fn first_clause(text: &str) -> String {
    let end = [": ", "; ", ". "].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::{Factors, Mode, Summary};

    fn point(repeats: Vec<Repeat>) -> Point {
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
            repeats,
            summary: None,
        }
    }

    /// Returns a point with its repeats' disturbances: those that remain, and those of earlier attempts.
    fn disturbed_point(repeats: &[(Option<&str>, &[&str])]) -> Point {
        let repeats = (0..).zip(repeats).map(|(index, (disturbed, before))| Repeat {
            index,
            disturbed: disturbed.map(str::to_owned),
            disturbed_before: before.iter().map(|by| (*by).to_owned()).collect(),
            ..Repeat::empty()
        });
        point(repeats.collect())
    }

    #[test]
    fn disturbed_steps_are_counted_by_what_became_of_them() {
        let quiet = (None, &[][..]);
        assert_eq!(disturbed(&[disturbed_point(&[quiet, quiet])], None), None);
        let (a, b) = ("a compiler", "a backup");
        let left_out = disturbed_point(&[(Some(a), &[a, a]), quiet, quiet, quiet]);
        let again = disturbed_point(&[(None, &[b]), quiet]);
        let invalid = disturbed_point(&[(Some(a), &[]), (Some(a), &[]), quiet]);
        let text = disturbed(&[left_out, again, invalid], None).unwrap();
        assert_eq!(first_sentence(&text), "4 of 9 steps disturbed: a compiler");
        for part in ["1 measured again", "1 left out", "2 still disturbed"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    fn start(agent: &str, uncertainty_us: f64, late_us: f64) -> AgentStart {
        AgentStart {
            agent: agent.to_owned(),
            offset_us: 9e9,
            uncertainty_us,
            late_us,
            requests: 5,
        }
    }

    #[test]
    fn the_worst_start_and_lost_agents_are_said() {
        let limits = Limits::default();
        assert_eq!(agents(&[point(vec![Repeat::empty()])], &limits), [""; 0]);
        let sent = Repeat {
            agents: vec![start("agent a:1", 200.0, 0.0), start("agent b:1", 300.0, 1_200.0)],
            ..Repeat::empty()
        };
        let anew = Repeat {
            agents: vec![start("agent a:1", 400.0, 0.0), start("agent b:1", 100.0, 0.0)],
            lost_before: vec!["agent b:1 is lost: the connection ended".to_owned()],
            ..Repeat::empty()
        };
        let text = agents(&[point(vec![sent, anew])], &limits).join("\n");
        for part in [
            "2 agents",
            "agent b:1 started within 1.50 ms",
            "it was 1.20 ms late",
            "limit 2.00 ms",
            "1 of 2 steps, for example: agent b:1 is lost",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_most_frequent_reason_is_said_whatever_its_figures() {
        let reasons = [
            "foreign processes used 10.3 %",
            "the hypervisor gave 6 %",
            "the hypervisor gave 14 %",
        ];
        assert_eq!(most_frequent(reasons.into_iter()), Some(reasons[1]));
        assert_eq!(most_frequent([].into_iter()), None);
    }

    #[test]
    fn requests_owed_by_a_saturated_server_are_no_failures() {
        let errors = |counts: &[(&str, u64)]| {
            counts
                .iter()
                .map(|(reason, count)| ((*reason).to_owned(), *count))
                .collect()
        };
        let repeat = |counts| Repeat {
            scheduled: 1_000,
            errors: errors(counts),
            ..Repeat::empty()
        };
        let mut saturated = point(vec![repeat(&[("drain-limit", 300), ("503", 2)])]);
        let summary = tierlab_analysis::summary(&saturated, &Limits::default(), None);
        saturated.summary = Some(Summary {
            verdict: Verdict::Saturated(Vec::new()),
            ..summary
        });
        let disturbed = Repeat {
            disturbed: Some("stolen".to_owned()),
            ..repeat(&[("drain-limit", 50)])
        };
        let points = [
            saturated,
            point(vec![repeat(&[("drain-limit", 1)])]),
            point(vec![disturbed]),
        ];
        assert_eq!(
            failed_requests(&points).unwrap(),
            "3 of 3,000 requests failed: 2 × 503, 1 × drain-limit; 350 more still open at the end of a step"
        );
    }

    #[test]
    fn failures_of_a_journey_are_those_of_its_steps() {
        let of = |step: Option<&str>, (scheduled, reason): (u64, &str)| {
            let mut point = point(vec![Repeat {
                scheduled,
                errors: BTreeMap::from([(reason.to_owned(), 4)]),
                ..Repeat::empty()
            }]);
            point.factors.driven = Some(Driven::Journey {
                name: "j".into(),
                step: step.map(str::to_owned),
            });
            point
        };
        let points = [of(None, (50, "503 at rank")), of(Some("rank"), (50, "503"))];
        assert_eq!(
            failed_requests(&points).unwrap(),
            "4 of 50 requests failed: 4 × 503 at rank"
        );
    }

    #[test]
    fn a_missing_p99_names_the_requests_that_it_lacks() {
        let of = |samples: u64| {
            let mut point = point(vec![Repeat::empty()]);
            let summary = tierlab_analysis::summary(&point, &Limits::default(), None);
            point.summary = Some(Summary {
                verdict: Verdict::Valid,
                samples,
                ..summary
            });
            point
        };
        let text = |samples: &[u64]| {
            let points = samples.iter().map(|samples| of(*samples)).collect();
            missing_p99(&Run {
                points,
                ..Run::default()
            })
        };
        let one = text(&[800]).unwrap();
        assert!(
            one.contains("1,000 requests over all repeats, 1.25 times as many"),
            "{one}"
        );
        let several = text(&[800, 100]).unwrap();
        assert!(several.contains("1.25 to 10.0 times as many"), "{several}");
    }

    #[test]
    fn a_reason_is_cut_at_its_figures() {
        assert_eq!(first_clause("drifts: p50 is 0.5 ms; sent late"), "drifts");
        assert_eq!(first_clause("sent late"), "sent late");
    }
}
