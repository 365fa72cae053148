//! Report on a run: the result in a sentence, tables, groups of curves, remarks, and the evidence.

use super::answer::AnswerText;
use super::group::{self, Group, Row};
use super::instrument::Instrument;
use super::point_row::{self, Tier};
use super::table::{Cell, Table, text};
use super::{best, labels, remarks, requests, side_tables};
use crate::units::{bytes, count_of, latency_interval, rate, thousands};
use tierlab_analysis::curves::is_valid;
use tierlab_analysis::record::{Point, Run};
use tierlab_protocol::timing::Stage;

/// Content of a report.
pub(crate) struct Report<'a> {
    pub(crate) run: &'a Run,
    /// Result in one sentence, without its full stop.
    pub(crate) sentence: String,
    /// Most important remarks, a line each, without their full stops.
    pub(crate) remarks: Vec<String>,
    /// Answer; `None` without a question.
    pub(crate) answer: Option<AnswerText>,
    /// Number of points and good replies: `12 points, 34,000 good replies`.
    pub(crate) amount: String,
    /// Requests in words, one sentence per kind.
    pub(crate) requests: Vec<String>,
    /// Number of points by verdict; verdicts without points are left out.
    pub(crate) verdicts: Vec<(&'static str, usize)>,
    /// True if the latencies of any tier come from a distribution.
    pub(crate) is_emulated: bool,
    /// Groups of curves over the rate.
    pub(crate) groups: Vec<Group<'a>>,
    /// Reason for points without a p99, with the advice.
    pub(crate) missing_p99: Option<String>,
    /// Parts of any band of latency.
    pub(crate) parts: Vec<&'static str>,
    /// Tables of everything except curves over a rate.
    pub(crate) side_tables: Vec<Table>,
    /// Table of GPUs; `None` without any.
    pub(crate) gpus: Option<Table>,
    /// Cautions before using the numbers, in sentences without full stops.
    pub(crate) cautions: Vec<String>,
    pub(crate) instrument: Instrument,
    /// Machine and software by name.
    pub(crate) environment: Vec<(String, String)>,
}

impl<'a> Report<'a> {
    /// Report on a run.
    pub(crate) fn of(run: &'a Run) -> Self {
        let instrument = Instrument::of(run);
        let answer = AnswerText::of(run);
        let groups = labels::groups(run).into_iter();
        let groups: Vec<Group<'_>> = groups.map(|(name, curves)| Group::of(run, name, curves)).collect();
        let summaries = remarks::of_requests(&run.points).filter_map(|point| point.summary.as_ref());
        let samples = summaries.map(|summary| summary.samples);
        let points = count_of(run.points.len(), "point");
        Self {
            run,
            sentence: match &answer {
                Some(answer) => answer.sentence.clone(),
                None => sentence(run, &groups),
            },
            remarks: remarks::brief(run, &instrument),
            answer,
            amount: format!("{points}, {} good replies", thousands(samples.sum())),
            requests: requests::sentences(run),
            verdicts: verdicts(run),
            is_emulated: labels::tiers(run).iter().any(|tier| labels::is_emulated(run, tier)),
            groups,
            missing_p99: remarks::missing_p99(run),
            parts: parts(run),
            side_tables: side_tables::side_tables(run),
            gpus: side_tables::gpus(run),
            cautions: remarks::cautions(run, &instrument),
            instrument,
            environment: facts(run),
        }
    }

    /// Run in one table for text: the variants of the answer, or the points if they are at most `points`, or the curves.
    pub(crate) fn overview(&self, points: usize) -> Table {
        if let Some(answer) = &self.answer {
            return answer.decision_columns();
        }
        if self.run.points.len() > points {
            return group::short_table(&self.groups);
        }
        let name = |point: &Point| {
            let name = labels::name(self.run, &point.factors);
            let at = format!(" at {} rps", rate(point.factors.offered_rps));
            vec![Cell::plain(name.strip_suffix(&at).unwrap_or(&name))]
        };
        let all: Vec<&Point> = self.run.points.iter().collect();
        point_row::short(&point_row::table(&[text("point")], name, [&all[..]]))
    }

    /// Points of a group with the figures that text has room for.
    pub(crate) fn short_points(&self, group: &Group<'_>) -> Table {
        point_row::short(&self.points(group))
    }

    /// Points of a group with all figures.
    pub(crate) fn points(&self, group: &Group<'_>) -> Table {
        let name = |point: &Point| {
            let cache = labels::cache(&point.factors);
            vec![Tier::of(self.run, point.factors.label()).cell(), Cell::plain(&cache)]
        };
        let curves = group.curves.iter().map(|curve| &curve.points[..]);
        point_row::table(&["tier", "cache"].map(text), name, curves)
    }
}

/// Result of a run without a question.
fn sentence(run: &Run, groups: &[Group<'_>]) -> String {
    let Some(group) = groups.first() else {
        return match (run.points.len(), run.cold_starts.len()) {
            (0, 0) => "Nothing was measured".to_owned(),
            (0, starts) => format!("{starts} cold starts were measured"),
            (points, _) => {
                let valid = run.points.iter().filter(|point| is_valid(point)).count();
                format!("{valid} of {points} points are valid")
            }
        };
    };
    let subject = |row: &Row<'_>| format!("{} {}", row.tier.printed, row.cache);
    let fastest = group.rows.iter().find(|row| row.is_fastest);
    if let (Some(fastest), Some(rps), None, 2..) = (fastest, group.common_rps, run.slo, group.rows.len()) {
        let figure = fastest.at_common.and_then(|summary| summary.percentile(group.tail));
        let against = group.rows.iter().filter_map(|row| row.against_fastest.as_ref());
        let note = match against.filter(|ratio| !group::is_distinguishable(ratio)).count() {
            0 => String::new(),
            1 => ", not distinguishable from 1 other".to_owned(),
            others => format!(", not distinguishable from {others} others"),
        };
        let (subject, tail, all) = (subject(fastest), group.tail, group.rows.len());
        let (rps, figure) = (rate(rps), latency_interval(figure.as_ref()));
        return format!("{subject} has the lowest {tail} of {all} at {rps}/s: {figure}{note}");
    }
    let rows = group.rows.iter().filter_map(|row| Some((row, row.best.as_ref()?)));
    match rows.max_by(|(_, a), (_, b)| a.rps().total_cmp(&b.rps())) {
        Some((row, best)) => {
            let (subject, best, tail) = (subject(row), best.text(), tail_at(best.point));
            format!("{subject}: {} {best}{tail}", group.best_title)
        }
        None => {
            let mut points = group.curves.iter().flat_map(|curve| curve.points.iter().copied());
            match run.slo {
                Some(slo) => format!("No rate of {} is known to meet {}", group.name, slo.objective),
                None if points.any(is_valid) => {
                    format!("No highest valid rate of {}: the lowest is not valid", group.name)
                }
                None => format!("No valid rate of {}", group.name),
            }
        }
    }
}

/// `; p99 12.3 ms [11.8–12.9] there`, with the highest percentile of the point.
fn tail_at(point: &Point) -> String {
    let tail = best::highest_percentile(&[Some(point)]);
    best::percentile_of(point, tail).map_or_else(String::new, |interval| {
        format!("; {tail} {} there", latency_interval(Some(&interval)))
    })
}

fn verdicts(run: &Run) -> Vec<(&'static str, usize)> {
    let summaries = || run.points.iter().filter_map(|point| point.summary.as_ref());
    let of = |word| summaries().filter(move |summary| labels::verdict(&summary.verdict) == word);
    let counts = ["valid", "saturated", "invalid"].map(|word| (word, of(word).count()));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn parts(run: &Run) -> Vec<&'static str> {
    let summaries = run.points.iter().filter_map(|point| point.summary.as_ref());
    let bands: Vec<_> = summaries.flat_map(|summary| &summary.bands).collect();
    let has = |name: &&str| bands.iter().any(|band| band.part_us(name) > 0.0);
    let before = ["send_lag", "network"].into_iter();
    let all = before.chain(Stage::ALL.map(Stage::as_str));
    all.chain(["unattributed", "untold"]).filter(has).collect()
}

fn facts(run: &Run) -> Vec<(String, String)> {
    let environment = &run.environment;
    let gpus = Some(environment.gpus.join(", ")).filter(|gpus| !gpus.is_empty());
    let cpu = format!("{}, {} logical cores", environment.cpu, environment.cores);
    let tierlab = format!("{}, commit {}", environment.version, environment.git_commit);
    let own = [
        ("CPU", cpu),
        ("memory", bytes(environment.memory_bytes)),
        ("kernel", environment.kernel.clone()),
        ("ONNX Runtime", environment.onnxruntime.clone()),
        ("GPUs", gpus.unwrap_or_else(|| "none".to_owned())),
        ("Tierlab", tierlab),
        ("on the same cores", environment.shared_cores.join(", ")),
    ];
    let mut facts: Vec<(String, String)> = own.map(|(name, value)| (name.to_owned(), value)).into();
    let filesystems = environment.filesystems.iter();
    facts.extend(filesystems.map(|(path, what)| (format!("file system of {path}"), what.clone())));
    let origins = environment.origins.iter();
    facts.extend(origins.map(|(tier, what)| (format!("tier {tier}"), what.clone())));
    facts.retain(|(_, value)| !value.is_empty());
    facts
}
