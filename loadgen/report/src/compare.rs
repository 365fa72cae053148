//! Differences between two runs: worse, better, equivalent, and undecided.
//!
//! In: two runs with their histograms. Out: a [`Comparison`], as text, Markdown or JSON, and its outcome. The figures and the
//! decisions on them are those of `tierlab_analysis::curves::comparison`. Knows nothing of files or exit codes.
//!
//! Points are matched by all their factors. If both are valid, every figure is compared; if the server held the load in
//! neither, throughput and failures. The highest rate of every curve is compared too. A load that is held in A and not
//! in B is worse. Points that are in one run only, or that the instrument or the machine spoiled, are undecided.

use crate::content::best::{Best, best, ranked, slo_finding};
use crate::content::labels;
use crate::content::table::{Cell, Table, figures, text};
use crate::units::{NONE, dollars, latency, percent, rate};
use crate::{markdown, terminal};
use serde::Serialize;
use tierlab_analysis::curves::comparison::{self, Decided, Decision, Figure, Scale, SlowShare};
use tierlab_analysis::curves::{Curve, curves, per_repeat, same_but_rate};
use tierlab_analysis::record::{
    Answer, Driven, Environment, Fault, Interval, MeetsObjective, Objective, Point, Run, SloOutcome, Verdict,
};
use tierlab_analysis::statistics::sections::Pairing;

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 1;
/// Ratio beyond which the end of an interval is not shown: so few repeats bound nothing.
const LARGEST_RATIO: f64 = 100.0;

/// Outcome of a whole comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything is certainly equivalent or better: the process exits with 0.
    NoRegression,
    /// Something is certainly worse: the process exits with 1.
    Regression,
    /// Nothing is certainly worse, but not everything is certainly equivalent: the process exits with 3.
    Undecided,
    /// No figure can be compared: the process exits with 3.
    NothingInCommon,
}

/// One figure of one point or curve in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Name of the point or the curve.
    pub point: String,
    /// Name: `p50`, `p95`, `p99`, `mean`, `errors`, `good/s`, `$/10k`, `highest rate`.
    #[serde(rename = "figure")]
    pub what: &'static str,
    /// Unit: `us`, `share`, `per_second` or `usd`.
    pub unit: &'static str,
    /// Value in A and in B; absent if either is missing.
    pub values: Option<(f64, f64)>,
    /// Mean over the repeats of the ratio B / A, for shares of the difference B − A, with the interval of the decision. Not the
    /// ratio of `values`, which are of all requests. Absent if the repeats do not determine it.
    pub difference: Option<Interval>,
    /// Smallest change that nine of ten such comparisons find: as a share of A, or of all requests.
    pub could_find: Option<f64>,
    /// Threshold in microseconds, and the shares of the requests of A and of B that are slower; only for percentiles.
    pub slower_than: Option<(f64, f64, f64)>,
    /// Decision on the figure.
    pub decision: Decision,
    /// Value in A and in B, as shown.
    #[serde(skip)]
    pub shown: [String; 2],
}

/// Two runs side by side.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Names of A and B.
    #[serde(rename = "runs")]
    pub names: (String, String),
    /// Equivalence margin of figures, as a share.
    pub within: f64,
    /// Compared figures of all points, and the highest rates.
    #[serde(rename = "figures")]
    pub changes: Vec<Change>,
    /// Points whose load the server held in A and not in B, with B's verdict.
    #[serde(rename = "no_longer_held")]
    pub lost: Vec<String>,
    /// Points and rates that cannot be compared, with the reason.
    pub not_compared: Vec<String>,
    /// Remarks: other machines, other plans, the pairing of repeats.
    pub notes: Vec<String>,
}

/// Compares B with A point by point. `within` is the equivalence margin, as a share.
pub fn comparison(a: &Run, b: &Run, within: f64) -> Comparison {
    let mut comparison = Comparison {
        names: (a.name.clone(), b.name.clone()),
        within,
        notes: machine_notes(&a.environment, &b.environment),
        ..Comparison::default()
    };
    comparison.notes.extend(plan_notes(a, b));
    let pairs = comparison.matched(a, b);
    let common = || pairs.iter().filter(|pair| pair.compared != Compared::Errors);
    if common().count() > 0 {
        let is_paired = |pair: &&Pair<'_>| per_repeat::pairing(pair.a, pair.b) == Pairing::ByRepeat;
        comparison.notes.push(format!(
            "repeats with the same seeds were paired at {} of {} points; the others were compared as independent runs",
            common().filter(is_paired).count(),
            common().count()
        ));
    }
    let prices = [a.pricing.as_ref(), b.pricing.as_ref()];
    let figures = |pair: &Pair<'_>| match pair.compared {
        Compared::All => per_repeat::figures(pair.a, pair.b, prices),
        Compared::Throughput => per_repeat::throughput(pair.a, pair.b),
        Compared::Errors => vec![per_repeat::errors(pair.a, pair.b)],
    };
    let figures: Vec<Vec<Figure>> = pairs.iter().map(figures).collect();
    // However many failures a plan allows, more of them than the margin are a difference.
    let error_share = a.limits.error_share.max(b.limits.error_share).min(within);
    let decided = comparison::decide(&figures, within, error_share);
    for ((pair, figures), decided) in pairs.iter().zip(&figures).zip(decided) {
        let decided = figures.iter().zip(decided);
        let changes = decided.map(|(figure, decided)| change(&pair.name, figure, &decided));
        comparison.changes.extend(changes);
    }
    comparison.highest_rates(a, b);
    comparison
}

/// Point that both runs have.
struct Pair<'a> {
    name: String,
    a: &'a Point,
    b: &'a Point,
    compared: Compared,
}

/// Compared figures of a pair of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Every figure: both are valid.
    All,
    /// Throughput and failures: the server held the load in neither.
    Throughput,
    /// Failures only: more failures are a finding even if they make a point invalid.
    Errors,
}

/// Finding of a point about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// The server held the load.
    Held,
    /// The server did not keep up, or failed more requests than the plan allows.
    NotHeld,
    /// The instrument or the machine failed.
    Unknown,
}

impl Load {
    fn of(point: &Point) -> Self {
        let Some(summary) = &point.summary else {
            return Self::Unknown;
        };
        let of_failures = |fault: &Fault| matches!(fault, Fault::Errors | Fault::Replies);
        match summary.verdict {
            Verdict::Valid => Self::Held,
            Verdict::Saturated(_) => Self::NotHeld,
            // Failed requests are the server's fault, and so are the missing replies.
            _ if summary.faults.contains(&Fault::Errors) && summary.faults.iter().all(of_failures) => Self::NotHeld,
            _ => Self::Unknown,
        }
    }
}

fn verdict(point: &Point) -> String {
    let verdict = point.summary.as_ref().map(|summary| summary.verdict.to_string());
    verdict.unwrap_or_else(|| "not summarised".to_owned())
}

/// True if no rate of the curve meets the objective, and a measured one is at most `rps`.
fn misses_up_to(run: &Run, curve: &Curve<'_>, rps: f64) -> bool {
    let is_missed = match ranked(run, curve) {
        Some(ranked) => ranked.outcome == MeetsObjective::NotMet,
        None => slo_finding(run, curve).is_some_and(|slo| slo.outcome == SloOutcome::NeverMet),
    };
    is_missed && curve.factors().offered_rps <= rps
}

/// Decision on two highest rates, and B over A with the interval from the bounds of both.
fn judge_highest(a: (&Best<'_>, &Curve<'_>), b: (&Best<'_>, &Curve<'_>), within: f64) -> (Decision, Interval) {
    let (edge_a, edge_b) = (boundary(a.0, &a.1.points), boundary(b.0, &b.1.points));
    let (rps_a, rps_b) = (a.0.rps(), b.0.rps());
    let ratio = Interval::new(rps_b / rps_a, edge_b.lo / edge_a.hi, edge_b.hi / edge_a.lo);
    match (a.0.at_least, b.0.at_least) {
        // At the measured rates there is no difference.
        (in_a, in_b) if in_a == in_b && rps_a == rps_b => (Decision::Equivalent, Interval::exact(1.0)),
        (_, true) if rps_b < edge_a.hi => (Decision::Undecided, ratio),
        (true, _) if rps_b >= rps_a => (Decision::Undecided, ratio),
        _ => (comparison::highest_rates(edge_a, edge_b, within), ratio),
    }
}

/// Boundary of the rates that are held: by the search, or from the highest held rate to just below the next measured one.
/// Without an upper end if the rate is only a lower bound.
fn boundary(best: &Best<'_>, points: &[&Point]) -> Interval {
    let value = best.rps();
    let mut rates = points.iter().map(|point| point.factors.offered_rps);
    let next = rates.find(|rps| *rps > value);
    let hi = next.map_or(value, |next| value.max(next.next_down()));
    let interval = best.interval.unwrap_or(Interval::new(value, value, hi));
    let hi = if best.at_least { f64::INFINITY } else { interval.hi };
    Interval { hi, ..interval }
}

fn change(name: &str, figure: &Figure, decided: &Decided) -> Change {
    let (unit, show): (_, fn(f64) -> String) = match (figure.scale, figure.what) {
        (Scale::Share, _) => ("share", percent),
        (Scale::LessIsWorse, _) => ("per_second", rate),
        (_, "$/10k") => ("usd", dollars),
        _ => ("us", latency),
    };
    let none = || [NONE; 2].map(str::to_owned);
    let shown = figure.values.map_or_else(none, |(a, b)| [show(a), show(b)]);
    let slower_than = |slow: SlowShare| (slow.beyond_us, slow.shares.0, slow.shares.1);
    Change {
        point: name.to_owned(),
        what: figure.what,
        unit,
        values: figure.values,
        difference: decided.interval,
        could_find: decided.smallest,
        slower_than: figure.slow.map(slower_than),
        decision: decided.decision,
        shown,
    }
}

impl Change {
    /// Difference as shown: B / A, or B − A for shares. A percentile decided by its share of slow requests shows that
    /// too.
    fn difference_text(&self) -> String {
        let Some(of) = self.difference else {
            return NONE.to_owned();
        };
        if self.unit == "share" {
            let [value, lo, hi] = [of.value, of.lo, of.hi].map(|share| 100.0 * share);
            return format!("{value:+.2} % [{lo:+.2} to {hi:+.2}]");
        }
        let ratio = match (of.lo * LARGEST_RATIO >= 1.0, of.hi <= LARGEST_RATIO) {
            (true, true) if of.lo == of.hi => format!("{:.2}", of.value),
            (_, true) => format!("{:.2} [{:.2}–{:.2}]", of.value, of.lo, of.hi),
            (true, false) => format!("{:.2} [≥ {:.2}]", of.value, of.lo),
            (false, false) => format!("{:.2}", of.value),
        };
        let by_share = match self.decision {
            Decision::Worse => of.lo <= 1.0,
            Decision::Better => of.hi >= 1.0,
            Decision::Equivalent | Decision::Undecided => false,
        };
        match self.slower_than {
            Some((us, a, b)) if by_share => {
                format!("{ratio}; {} and {} above {}", percent(a), percent(b), latency(us))
            }
            _ => ratio,
        }
    }
}

fn machine_notes(a: &Environment, b: &Environment) -> Vec<String> {
    let facts = [
        ("CPU", a.cpu.clone(), b.cpu.clone()),
        ("cores", a.cores.to_string(), b.cores.to_string()),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("ONNX Runtime", a.onnxruntime.clone(), b.onnxruntime.clone()),
        ("GPUs", a.gpus.join(", "), b.gpus.join(", ")),
    ];
    let differing = facts.into_iter().filter(|(_, a, b)| a != b);
    let lines = differing.map(|(what, a, b)| format!("the machines differ in {what}: `{a}` and `{b}`"));
    lines.collect()
}

/// Objectives and error limit of a curve's highest rate: of the question, or else of the search; `None` without either.
fn objective(run: &Run, curve: &Curve<'_>) -> Option<(Vec<Objective>, f64)> {
    let answer = ranked(run, curve).and(run.answer.as_ref());
    let of_question = |Answer { question, .. }: &Answer| (question.objectives.clone(), question.error_share);
    let of_question = answer.map(of_question);
    of_question.or_else(|| run.slo.map(|slo| (vec![slo.objective], slo.error_share)))
}

/// Objectives and error limit as shown: `p99 < 20 ms, errors < 0.1 %`.
fn objective_text(objective: Option<&(Vec<Objective>, f64)>) -> String {
    let Some((objectives, error_share)) = objective else {
        return "none".to_owned();
    };
    let mut terms: Vec<String> = objectives.iter().map(ToString::to_string).collect();
    terms.push(format!("errors < {}", percent(*error_share)));
    terms.join(", ")
}

/// Differences of the plans and prices, which may explain differences of the figures.
fn plan_notes(a: &Run, b: &Run) -> Vec<String> {
    let protocols = || format!("A was measured over {}, B over {}", a.protocol, b.protocol);
    let mut notes = Vec::from_iter((a.protocol != b.protocol).then(protocols));
    let sources = [a, b].map(|run| run.pricing.as_ref().map(|pricing| &pricing.sources));
    notes.extend((sources[0] != sources[1]).then(|| "the prices differ, and so may every $/10k".to_owned()));
    let [of_a, of_b] = [a, b].map(Run::data);
    if of_a != of_b && !of_a.is_empty() && !of_b.is_empty() {
        notes.push(format!(
            "the data differ, {of_a} and {of_b}: differences may come from that"
        ));
    }
    let mut lines = a.plan_toml.lines().zip(b.plan_toml.lines());
    if let Some((in_a, in_b)) = lines.find(|(in_a, in_b)| in_a != in_b) {
        notes.push(format!("the plans differ, first in `{in_a}` and `{in_b}`"));
    } else if a.plan_toml.lines().count() != b.plan_toml.lines().count() {
        notes.push("the plans differ: one continues after the end of the other".to_owned());
    }
    notes
}

impl Comparison {
    /// Returns points that both runs have, with the figures to compare. Other points are listed as not compared.
    fn matched<'a>(&mut self, a: &'a Run, b: &'a Run) -> Vec<Pair<'a>> {
        let mut pairs = Vec::new();
        // Its rate is the throughput of the closed loop, which is compared.
        let is_beside = |point: &Point| matches!(point.factors.driven, Some(Driven::BesideClosedLoop { .. }));
        for point in &a.points {
            let name = labels::name(a, &point.factors);
            match b.points.iter().find(|other| other.factors == point.factors) {
                None if is_beside(point) => self
                    .notes
                    .push(format!("{name}: not compared, since its rate is measured")),
                None if b.interrupted => self.not_compared.push(format!("{name}: the run was stopped before it")),
                None => self.not_compared.push(format!("{name}: only in A")),
                Some(other) => {
                    let compared = self.matched_point(&name, point, other);
                    let failed = |point: &Point| point.repeats.iter().any(|repeat| !repeat.errors.is_empty());
                    if compared != Compared::Errors || failed(point) || failed(other) {
                        let (a, b) = (point, other);
                        pairs.push(Pair { name, a, b, compared });
                    }
                }
            }
        }
        let is_in_a = |point: &&Point| a.points.iter().any(|other| other.factors == point.factors);
        let only_in_b = b.points.iter().filter(|point| !is_in_a(point) && !is_beside(point));
        let lines = only_in_b.map(|point| format!("{}: only in B", labels::name(b, &point.factors)));
        self.not_compared.extend(lines);
        pairs
    }

    fn matched_point(&mut self, name: &str, a: &Point, b: &Point) -> Compared {
        match (Load::of(a), Load::of(b)) {
            (Load::Held, Load::Held) => return Compared::All,
            (Load::NotHeld, Load::NotHeld) => {
                self.notes.push(format!(
                    "{name}: not held in either run, so only throughput and failures are compared"
                ));
                return Compared::Throughput;
            }
            (Load::Held, Load::NotHeld) => self.lost.push(format!("{name}: {}", verdict(b))),
            (Load::NotHeld, Load::Held) => self.notes.push(format!("{name}: held in B and not in A")),
            _ => {
                let unknown = [("A", a), ("B", b)].into_iter();
                let unknown = unknown.filter(|(_, point)| Load::of(point) == Load::Unknown);
                let reasons = unknown.map(|(run, point)| format!("{name}: in {run} {}", verdict(point)));
                self.not_compared.extend(reasons);
            }
        }
        Compared::Errors
    }

    /// Compares the highest rate of every curve that both runs have under one objective.
    fn highest_rates(&mut self, a: &Run, b: &Run) {
        let of_b = curves(&b.points);
        for curve in curves(&a.points) {
            let is_same = |other: &&Curve<'_>| same_but_rate(other.factors(), curve.factors());
            let Some(other) = of_b.iter().find(is_same) else {
                continue;
            };
            let objectives = [objective(a, &curve), objective(b, other)];
            if objectives[0] == objectives[1] {
                self.changes.extend(self.highest_rate((a, &curve), (b, other)));
                continue;
            }
            let [of_a, of_b] = objectives.each_ref().map(|one| objective_text(one.as_ref()));
            let text = format!("highest rates: the objectives differ, {of_a} and {of_b}");
            if !self.not_compared.contains(&text) {
                self.not_compared.push(text);
            }
        }
    }

    /// Returns the highest rates of a curve; `None` if neither run has one, and the points that could have been are
    /// compared by themselves.
    fn highest_rate(&self, a: (&Run, &Curve<'_>), b: (&Run, &Curve<'_>)) -> Option<Change> {
        let best = [best(a.0, a.1), best(b.0, b.1)];
        let misses = |of: (&Run, &Curve<'_>), rps| misses_up_to(of.0, of.1, rps);
        let (decision, difference) = match &best {
            [Some(of_a), Some(of_b)] => {
                let (decision, ratio) = judge_highest((of_a, a.1), (of_b, b.1), self.within);
                (decision, Some(ratio))
            }
            [Some(of_a), None] if misses(b, of_a.rps()) => (Decision::Worse, None),
            [None, Some(of_b)] if misses(a, of_b.rps()) => (Decision::Better, None),
            [None, None] if misses(a, f64::INFINITY) == misses(b, f64::INFINITY) => return None,
            _ => (Decision::Undecided, None),
        };
        Some(Change {
            point: labels::curve_name(a.0, a.1.factors()),
            what: "highest rate",
            unit: "per_second",
            values: best[0].zip(best[1]).map(|(a, b)| (a.rps(), b.rps())),
            difference,
            could_find: None,
            slower_than: None,
            decision,
            shown: best.map(|best| best.map_or_else(|| NONE.to_owned(), |best| best.text())),
        })
    }

    /// Number of figures with a decision.
    pub fn count(&self, decision: Decision) -> usize {
        self.changes.iter().filter(|change| change.decision == decision).count()
    }

    /// Outcome of the whole comparison.
    pub fn outcome(&self) -> Outcome {
        if !self.lost.is_empty() || self.count(Decision::Worse) > 0 {
            Outcome::Regression
        } else if self.changes.is_empty() {
            Outcome::NothingInCommon
        } else if self.count(Decision::Undecided) > 0 || !self.not_compared.is_empty() {
            Outcome::Undecided
        } else {
            Outcome::NoRegression
        }
    }

    /// Text for a terminal.
    pub fn text(&self) -> String {
        let table = terminal::text_table(&self.table()).join("\n");
        terminal::shown(&self.document(&table, "  "))
    }

    /// JSON for programs.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            schema_version: u32,
            outcome: Outcome,
            #[serde(flatten)]
            comparison: &'a Comparison,
        }
        let document = Document {
            schema_version: SCHEMA_VERSION,
            outcome: self.outcome(),
            comparison: self,
        };
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }

    /// Markdown for a pull request.
    pub fn markdown(&self) -> String {
        self.document(&markdown::table(&self.table()), "- ")
    }

    fn table(&self) -> Table {
        let columns = [text("point"), text("figure")].into_iter();
        let columns = columns.chain(["A", "B", "B / A over repeats [90 %, adjusted]", "could find"].map(figures));
        let rows = self.changes.iter().map(|change| {
            let decision = match change.decision {
                Decision::Worse => "WORSE",
                Decision::Better => "better",
                Decision::Equivalent => "equivalent",
                Decision::Undecided => "undecided",
            };
            let [a, b] = &change.shown;
            let could_find = change.could_find.filter(|share| *share <= LARGEST_RATIO);
            let could_find = could_find.map_or_else(|| NONE.to_owned(), percent);
            let difference = change.difference_text();
            let texts = [&change.point, change.what, a, b, &difference, &could_find, decision];
            texts.map(Cell::plain).into()
        });
        Table::new(columns.chain([text("decision")]), rows)
    }

    fn document(&self, table: &str, bullet: &str) -> String {
        let mut text = format!("A: {}\nB: {}\n\n{table}\n\n", self.names.0, self.names.1);
        text += &match self.outcome() {
            Outcome::NothingInCommon => {
                "Nothing to compare: no figure of any point is evidence about both servers.".to_owned()
            }
            _ => format!(
                "{} worse, {} better, {} equivalent (within {}), {} undecided; {} no longer held, {} not compared.\n{EXPLANATION}",
                self.count(Decision::Worse),
                self.count(Decision::Better),
                self.count(Decision::Equivalent),
                percent(self.within),
                self.count(Decision::Undecided),
                self.lost.len(),
                self.not_compared.len()
            ),
        };
        text.push('\n');
        let lost = self.lost.iter().map(|lost| format!("no longer held: {lost}"));
        let not_compared = self.not_compared.iter().map(|reason| format!("not compared: {reason}"));
        for line in lost.chain(not_compared).chain(self.notes.iter().cloned()) {
            text += &format!("{bullet}{line}\n");
        }
        text
    }
}

/// Explanation below every table.
const EXPLANATION: &str = "Undecided: the interval is too wide; more repeats narrow it. Could find: the smallest change that nine of ten such \
                         comparisons find. Over all figures together, each direction is called wrongly in at most 5 % of comparisons \
                         (Hommel within a point, Holm over the points).";
