//! What changed between two runs, what did not, and what these runs cannot tell.
//!
//! In: two runs with their histograms. Out: a [`Comparison`], as text or Markdown, and its outcome. How figures are
//! compared, `tierlab_analysis::curves::comparison` says. Knows nothing of files or exit codes.
//!
//! Points are matched by all their factors. Of points that are valid in both runs every percentile, the rate of good
//! replies and the cost are compared; failed shares of all points; and of every curve the highest rate. A point that was
//! valid in A and that the server of B does not hold any more is worse; one that B could not measure is undecided.

use crate::content::best::{Best, best};
use crate::content::words;
use crate::units::{NONE, dollars, latency, percent, rate};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use tierlab_analysis::curves::comparison::{self, Decided, Decision, Figure, Scale};
use tierlab_analysis::curves::{curves, is_valid, same_but_rate};
use tierlab_analysis::record::{Environment, Interval, Objective, Point, Run, Verdict};
use tierlab_analysis::statistics::sections::Pairing;

/// The bottom line of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is certainly equivalent or better: the process exits with 0.
    NoRegression,
    /// Something is certainly worse: the process exits with 1.
    Regression,
    /// Nothing is certainly worse, but not everything is certainly equivalent: the process exits with 3.
    Undecided,
    /// The runs have no valid point in common, so that nothing can be said: the process exits with 3.
    NothingInCommon,
}

/// One figure of one point or curve in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The point's or the curve's name.
    pub point: String,
    /// `p50`, `p95`, `p99`, `errors`, `good/s`, `$/10k`, `highest rate`.
    pub what: &'static str,
    /// In A and in B, as shown.
    pub shown: [String; 2],
    /// B over A, as shown, with the interval that decided.
    pub ratio: String,
    /// The smallest change that these runs could have found, as shown.
    pub smallest: String,
    /// What became of it.
    pub decision: Decision,
}

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Names of A and B.
    pub names: (String, String),
    /// Every figure of every point that is valid in both, and the highest rates.
    pub changes: Vec<Change>,
    /// Points valid in A that the server of B does not hold, with B's verdict.
    pub lost: Vec<String>,
    /// Points valid in A that B could not measure, with B's verdict.
    pub unmeasured: Vec<String>,
    /// What else is to be known: points of one run only, other machines, how repeats were paired.
    pub notes: Vec<String>,
    /// The share by which figures may differ and be equivalent.
    pub within: f64,
    /// Whether any point is valid in both.
    common: bool,
}

/// Compares B with A point by point. `within`: the share by which two figures may differ and be equivalent.
#[must_use]
pub fn comparison(a: &Run, b: &Run, within: f64) -> Comparison {
    let mut comparison = Comparison {
        names: (a.name.clone(), b.name.clone()),
        changes: Vec::new(),
        lost: Vec::new(),
        unmeasured: Vec::new(),
        notes: machine_notes(&a.environment, &b.environment),
        within,
        common: false,
    };
    comparison.notes.extend(plan_notes(a, b));
    let pairs = comparison.matched(a, b);
    comparison.common = !pairs.is_empty();
    let paired = pairs
        .iter()
        .filter(|pair| comparison::pairing(pair.a, pair.b) == Pairing::ByRepeat);
    let paired = paired.count();
    if !pairs.is_empty() {
        comparison.notes.push(format!(
            "repeats with the same seeds were paired at {paired} of {} points; the others were compared as independent runs",
            pairs.len()
        ));
    }
    let prices = a.pricing.as_ref().zip(b.pricing.as_ref());
    let mut figures: Vec<(String, Figure)> = Vec::new();
    for pair in &pairs {
        let of_pair = comparison::figures(pair.a, pair.b, prices).into_iter();
        figures.extend(of_pair.map(|figure| (pair.name.clone(), figure)));
    }
    // A run that fails more says so even where its points are not valid for it.
    for Pair { name, a, b } in failing(a, b) {
        figures.push((name, comparison::errors(a, b)));
    }
    // Percentiles that neither run has samples for are no figures of theirs.
    let missing = figures.len();
    figures.retain(|(_, figure)| figure.values.is_some() || figure.estimate.is_some());
    if figures.len() < missing {
        comparison.notes.push(format!(
            "{} percentiles are not compared: one of the runs, or both, have too few samples for them",
            missing - figures.len()
        ));
    }
    let all: Vec<Figure> = figures.iter().map(|(_, figure)| figure.clone()).collect();
    let error_share = a.limits.error_share.max(b.limits.error_share);
    let decided = comparison::decide(&all, within, error_share);
    comparison.changes = figures
        .iter()
        .zip(decided)
        .map(|((name, figure), decided)| change(name, figure, &decided))
        .collect();
    comparison.changes.extend(highest_rates(a, b, within));
    comparison
}

/// A point that both runs have.
struct Pair<'a> {
    name: String,
    a: &'a Point,
    b: &'a Point,
}

/// Points of both runs of which B's is not valid, and of which either failed at all.
fn failing<'a>(a: &'a Run, b: &'a Run) -> Vec<Pair<'a>> {
    let failed = |point: &Point| point.repeats.iter().any(|repeat| !repeat.errors.is_empty());
    let other = |point: &Point| b.points.iter().find(|other| other.factors == point.factors);
    a.points
        .iter()
        .filter(|point| is_valid(point))
        .filter_map(|point| {
            Some(Pair {
                name: words::name(a, &point.factors),
                a: point,
                b: other(point)?,
            })
        })
        .filter(|pair| !is_valid(pair.b) && (failed(pair.a) || failed(pair.b)))
        .collect()
}

/// The highest rate of every curve that both runs have.
fn highest_rates(a: &Run, b: &Run, within: f64) -> Vec<Change> {
    if objective(a) != objective(b) {
        return Vec::new();
    }
    let of_b = curves(&b.points);
    curves(&a.points)
        .iter()
        .filter_map(|curve| {
            let other = of_b
                .iter()
                .find(|other| same_but_rate(other.factors(), curve.factors()))?;
            let (best_a, best_b) = (best(a, curve)?, best(b, other)?);
            let decision = match (best_a.at_least, best_b.at_least) {
                // At the measured rates there is no difference.
                _ if best_a.rps() == best_b.rps() => Decision::Equivalent,
                (_, true) if best_b.rps() < reach(&best_a, curve.points.as_slice()).hi => Decision::Undecided,
                (true, _) if best_b.rps() > best_a.rps() => Decision::Undecided,
                _ => comparison::highest_rates(
                    reach(&best_a, curve.points.as_slice()),
                    reach(&best_b, other.points.as_slice()),
                    within,
                ),
            };
            let factors = curve.factors();
            Some(Change {
                point: format!(
                    "{} {} {} {} ×{}",
                    words::tier(a, factors.label()),
                    words::cache(factors),
                    factors.mode,
                    factors.model,
                    factors.batch_size
                ),
                what: "highest rate",
                shown: [best_a.text(), best_b.text()],
                ratio: format!("{:.2}", best_b.rps() / best_a.rps()),
                smallest: NONE.to_owned(),
                decision,
            })
        })
        .collect()
}

/// Where the boundary lies: as a search found it, or from the rate that was held to just below the next that was asked.
fn reach(best: &Best<'_>, points: &[&Point]) -> Interval {
    let value = best.rps();
    let next = points
        .iter()
        .map(|point| point.factors.offered_rps)
        .find(|rps| *rps > value);
    best.interval.unwrap_or(Interval {
        value,
        lo: value,
        hi: match next {
            Some(next) => value.max(next.next_down()),
            None if best.at_least => f64::INFINITY,
            None => value,
        },
    })
}

fn change(name: &str, figure: &Figure, decided: &Decided) -> Change {
    let show = |value: f64| match (figure.scale, figure.what) {
        (Scale::Share, _) => percent(value),
        (Scale::LessIsWorse, _) => rate(value),
        (_, "$/10k") => dollars(value),
        _ => latency(value),
    };
    let shown = figure
        .values
        .map_or_else(|| [NONE.to_owned(), NONE.to_owned()], |(a, b)| [show(a), show(b)]);
    let ratio = decided.interval.map_or_else(
        || NONE.to_owned(),
        |of| match figure.scale {
            Scale::Share => format!(
                "{:+.2} % [{:+.2} to {:+.2}]",
                100.0 * of.value,
                100.0 * of.lo,
                100.0 * of.hi
            ),
            _ => format!("{:.2} [{:.2}–{:.2}]", of.value, of.lo, of.hi),
        },
    );
    Change {
        point: name.to_owned(),
        what: figure.what,
        shown,
        ratio,
        smallest: decided.smallest.map_or_else(|| NONE.to_owned(), percent_above),
        decision: decided.decision,
    }
}

/// A share that may lie above the whole.
fn percent_above(share: f64) -> String {
    if share < 1.0 {
        percent(share)
    } else {
        format!("{:.0} %", 100.0 * share)
    }
}

fn verdict_of(point: &Point) -> String {
    point
        .summary
        .as_ref()
        .map_or_else(|| "not summarised".to_owned(), |summary| summary.verdict.to_string())
}

fn machine_notes(a: &Environment, b: &Environment) -> Vec<String> {
    let cores = |e: &Environment| e.cores.to_string();
    let facts = [
        ("CPU", a.cpu.clone(), b.cpu.clone()),
        ("cores", cores(a), cores(b)),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("ONNX Runtime", a.onnxruntime.clone(), b.onnxruntime.clone()),
        ("GPUs", a.gpus.join(", "), b.gpus.join(", ")),
    ];
    let differing = facts.into_iter().filter(|(_, a, b)| a != b);
    differing
        .map(|(what, a, b)| format!("the machines differ in {what}: `{a}` and `{b}`"))
        .collect()
}

/// What a highest rate is one under.
fn objective(run: &Run) -> Option<(Objective, f64)> {
    run.slo.as_ref().map(|slo| (slo.objective, slo.error_share))
}

/// In what the plans differ beyond the points that they ask for: what is found may be that.
fn plan_notes(a: &Run, b: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    if a.protocol != b.protocol {
        notes.push(format!("A was measured over {}, B over {}", a.protocol, b.protocol));
    }
    if objective(a) != objective(b) {
        let text = |run: &Run| {
            run.slo
                .as_ref()
                .map_or_else(|| "none".to_owned(), |slo| slo.objective.to_string())
        };
        notes.push(format!(
            "highest rates are not compared: they are under different objectives, {} and {}",
            text(a),
            text(b)
        ));
    }
    let mut lines = a.plan_toml.lines().zip(b.plan_toml.lines());
    if let Some((in_a, in_b)) = lines.find(|(in_a, in_b)| in_a != in_b) {
        notes.push(format!("the plans differ, first in `{in_a}` and `{in_b}`"));
    } else if a.plan_toml.lines().count() != b.plan_toml.lines().count() {
        notes.push("the plans differ: one goes on where the other ends".to_owned());
    }
    notes
}

impl Comparison {
    /// The points that are valid in both runs; what became of the others is noted.
    fn matched<'a>(&mut self, a: &'a Run, b: &'a Run) -> Vec<Pair<'a>> {
        let mut pairs = Vec::new();
        for point in &a.points {
            let name = words::name(a, &point.factors);
            match b.points.iter().find(|other| other.factors == point.factors) {
                // What was to come is neither equivalent nor better.
                None if b.interrupted && is_valid(point) => {
                    self.unmeasured.push(format!("{name}: the run was stopped before it"));
                }
                None => self.notes.push(format!("only in A: {name}")),
                Some(_) if !is_valid(point) => self.notes.push(format!("not compared, not valid in A: {name}")),
                Some(other) if is_valid(other) => pairs.push(Pair {
                    name,
                    a: point,
                    b: other,
                }),
                Some(other) => {
                    let told = format!("{name}: {}", verdict_of(other));
                    let saturated = other
                        .summary
                        .as_ref()
                        .is_some_and(|summary| matches!(summary.verdict, Verdict::Saturated(_)));
                    if saturated {
                        self.lost.push(told);
                    } else {
                        self.unmeasured.push(told);
                    }
                }
            }
        }
        for point in &b.points {
            if !a.points.iter().any(|other| other.factors == point.factors) {
                self.notes
                    .push(format!("only in B: {}", words::name(b, &point.factors)));
            }
        }
        pairs
    }

    /// How many figures were decided so.
    #[must_use]
    pub fn count(&self, decision: Decision) -> usize {
        self.changes.iter().filter(|change| change.decision == decision).count()
    }

    /// The bottom line.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if !self.lost.is_empty() || self.count(Decision::Worse) > 0 {
            Outcome::Regression
        } else if !self.common {
            Outcome::NothingInCommon
        } else if self.count(Decision::Undecided) > 0 || !self.unmeasured.is_empty() {
            Outcome::Undecided
        } else {
            Outcome::NoRegression
        }
    }

    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = self.table();
        table.load_style(crate::text_style::STYLE);
        crate::text_style::shown(&self.around(&table, "  "))
    }

    /// For a pull request.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut table = self.table();
        table.load_style(ASCII_MARKDOWN);
        self.around(&table, "- ")
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header([
            "point",
            "",
            "A",
            "B",
            "B / A [90 %, adjusted]",
            "could find",
            "decision",
        ]);
        for change in &self.changes {
            let decision = match change.decision {
                Decision::Worse => "WORSE",
                Decision::Better => "better",
                Decision::Equivalent => "equivalent",
                Decision::Undecided => "undecided",
            };
            let [a, b] = &change.shown;
            table.add_row([
                change.point.as_str(),
                change.what,
                a,
                b,
                &change.ratio,
                &change.smallest,
                decision,
            ]);
        }
        for index in 2..6 {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn around(&self, table: &Table, bullet: &str) -> String {
        let mut text = format!("A: {}\nB: {}\n\n{table}\n\n", self.names.0, self.names.1);
        text += &match self.outcome() {
            Outcome::NothingInCommon => "Nothing to compare: no point is valid in both runs.".to_owned(),
            _ => format!(
                "{} worse, {} better, {} equivalent (within {}), {} undecided; {} no longer held, {} not measured.\n{EXPLAINED}",
                self.count(Decision::Worse),
                self.count(Decision::Better),
                self.count(Decision::Equivalent),
                percent(self.within),
                self.count(Decision::Undecided),
                self.lost.len(),
                self.unmeasured.len()
            ),
        };
        text.push('\n');
        let lost = self.lost.iter().map(|lost| format!("no longer held: {lost}"));
        let unmeasured = self.unmeasured.iter().map(|told| format!("not measured in B: {told}"));
        for line in lost.chain(unmeasured).chain(self.notes.iter().cloned()) {
            text += &format!("{bullet}{line}\n");
        }
        text
    }
}

/// Below every table.
const EXPLAINED: &str = "Undecided: these runs cannot tell; more repeats narrow the interval. Could find: the smallest change that nine of ten \
                         such comparisons find. Over all figures together each side is wrongly called in at most 5 % (Holm).";
