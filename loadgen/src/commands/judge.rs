//! Verdicts for scripts and CI, on a sweep and on the answer of a lab: objectives, invalid points, exit codes, JUnit XML, and the
//! comparison with an earlier run. In: a finished run. Out: an exit code, a file, a line on stderr for each failure.

use super::report::{self, load_earlier, load_summarised};
use crate::error::RunError;
use crate::plan::{self, Plan};
use crate::store::files::write_atomically;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use tierlab_analysis::curves::slo::{evidence, why_not};
use tierlab_analysis::curves::{comparison, is_valid};
use tierlab_analysis::record::{
    Answer, AnswerOutcome, Interval, MeetsObjective, Objective, Point, Question, Ranked, Run, Slo, Verdict,
};
use tierlab_report::{Case, CaseResult};

/// Exit code of an open question.
const UNDECIDED: u8 = 3;
/// Exit code if no variant meets the objective.
const UNMET: u8 = 4;

/// Failure with an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PointFailure {
    /// A point is not evidence about the server.
    Invalid,
    /// A point misses an objective, or does not decide it.
    Slo,
}

/// Checks of a sweep.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "For CI")]
pub struct PointChecks {
    /// Objective of every point of the plan, as 'p99 < 50 ms' or 'ttft p99 < 300 ms'; may be repeated
    #[arg(long, value_name = "OBJECTIVE", value_parser = plan::objective)]
    pub slo: Vec<Objective>,
    /// Failures with an exit code of their own: `slo` (a point misses an objective: 4; not decided: 3) and `invalid` (a
    /// point is not evidence: 3)
    #[arg(long, value_name = "FAILURES", value_delimiter = ',')]
    fail_on: Vec<PointFailure>,
    /// Also writes the points to this file as JUnit XML, with one case per point and objective
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Earlier run to compare with, as `compare` does: exits with 1 if anything is certainly worse, with 3 if anything
    /// is undecided
    #[arg(long, value_name = "RUN_FOLDER")]
    baseline: Option<PathBuf>,
}

impl PointChecks {
    /// Checks the options before anything is measured.
    ///
    /// # Errors
    /// Objectives without points to check, a file that cannot be written, or a baseline that cannot be read.
    pub fn check(&self, plan: &Plan) -> Result<(), RunError> {
        if self.fail_on.contains(&PointFailure::Slo) && self.slo.is_empty() {
            return Err(RunError::Usage(
                "--fail-on slo needs an objective: add --slo 'p99 < 50 ms'".into(),
            ));
        }
        if !self.slo.is_empty() && plan.search.is_some() {
            let problem = "--slo checks every rate of a plan, but a `[search]` goes above the objective on purpose; \
                           remove one of the two";
            return Err(RunError::about(&plan.file, problem));
        }
        self.junit.as_deref().map_or(Ok(()), can_write)?;
        let mut baseline = self.baseline.iter();
        baseline.try_for_each(|folder| load_earlier(folder).map(drop))
    }

    /// Prints what failed, and returns the exit code: 1 for a regression, else 4 for a missed objective, else 3 for
    /// anything undecided, else 0.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn exit_code(&self, run: &Run, folder: &Path) -> Result<u8, RunError> {
        let cases = self.cases(run);
        if let Some(file) = &self.junit {
            let cases: Vec<&Case> = cases.iter().map(|(_, case)| case).collect();
            write_atomically(file, tierlab_report::junit(run, &cases).as_bytes())?;
        }
        let diff_code = match &self.baseline {
            Some(baseline) => {
                println!("\ncompared with {}:", baseline.display());
                let comparison = report::compare_folders(baseline, folder, comparison::WITHIN)?;
                print!("{}", comparison.text());
                report::exit_code(&comparison)
            }
            None => 0,
        };
        let mut case_code = 0;
        for (kind, case) in &cases {
            let (code, why) = match &case.result {
                CaseResult::Passed => continue,
                CaseResult::Failed(why) => (UNMET, why),
                CaseResult::Skipped(why) => (UNDECIDED, why),
            };
            let fails = self.fail_on.contains(kind);
            if fails || *kind == PointFailure::Slo {
                eprintln!("{}: {why}", case.name);
            }
            if fails {
                case_code = case_code.max(code);
            }
        }
        Ok(if diff_code == 1 { 1 } else { diff_code.max(case_code) })
    }

    /// One case per point for its validity, unless only objectives are asked for, and one per point and objective.
    fn cases(&self, run: &Run) -> Vec<(PointFailure, Case)> {
        let has_validity = self.slo.is_empty() || self.fail_on.contains(&PointFailure::Invalid);
        let mut cases = Vec::new();
        for point in &run.points {
            let name = tierlab_report::point_name(run, point);
            let case = |kind, name, result| (kind, Case { name, result });
            if has_validity {
                cases.push(case(PointFailure::Invalid, name.clone(), validity(point)));
            }
            cases.extend(self.slo.iter().map(|objective| {
                let name = format!("{name}, {objective}");
                case(PointFailure::Slo, name, objective_result(point, *objective, run))
            }));
        }
        cases
    }
}

/// Result of a point by its verdict.
fn validity(point: &Point) -> CaseResult {
    match point.summary.as_ref().map(|summary| &summary.verdict) {
        Some(Verdict::Valid | Verdict::Saturated(_)) => CaseResult::Passed,
        Some(invalid @ Verdict::Invalid(_)) => CaseResult::Skipped(invalid.to_string()),
        None => CaseResult::Skipped("nothing was measured".into()),
    }
}

/// Result of a point by an objective. A figure whose interval reaches across the limit does not decide it.
fn objective_result(point: &Point, objective: Objective, run: &Run) -> CaseResult {
    let slo = Slo {
        objective,
        error_share: run.limits.error_share,
        lowest_rps: 0.0,
        highest_rps: f64::INFINITY,
        resolution: 0.0,
    };
    let why = why_not(point, &slo);
    match evidence(point, &slo).map(|evidence| (evidence.answer, evidence.certain)) {
        Some((MeetsObjective::Met, true)) => CaseResult::Passed,
        Some((MeetsObjective::NotMet, true)) => CaseResult::Failed(format!("not met: {why}")),
        Some((MeetsObjective::Met | MeetsObjective::NotMet, false)) if is_valid(point) => CaseResult::Skipped(format!(
            "not decided: {why}, and its interval reaches the limit; measure longer or more repeats"
        )),
        _ => CaseResult::Skipped(format!("not decided: {why}")),
    }
}

/// Outcome with an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AnswerFailure {
    /// No variant meets the objective.
    Unmet,
    /// The question is still open.
    Undecided,
}

/// Returns 4 if no variant meets the objective and 3 if the question is open, if `fail_on` holds that outcome; else 0.
pub(super) fn answer_exit_code(run: &Run, fail_on: &[AnswerFailure]) -> u8 {
    match run.answer.as_ref().map(|answer| answer.outcome) {
        Some(AnswerOutcome::None) if fail_on.contains(&AnswerFailure::Unmet) => UNMET,
        Some(AnswerOutcome::Undecided) if fail_on.contains(&AnswerFailure::Undecided) => UNDECIDED,
        _ => 0,
    }
}

/// Checks of an answer for scripts and CI.
#[derive(Debug, Args)]
pub struct AnswerChecks {
    /// Outcomes of the question with an exit code of their own: `unmet` (no variant meets the objective) exits with 4,
    /// `undecided` with 3
    #[arg(long, value_name = "OUTCOMES", value_delimiter = ',')]
    fail_on: Vec<AnswerFailure>,
    /// Also writes the answer to this file as JUnit XML, with one case per variant
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Earlier run of the same question to compare the answer with: exits with 1 if the p99, highest rate or $/month of
    /// a variant is certainly worse, with 3 if anything cannot be compared
    #[arg(long, value_name = "RUN_FOLDER")]
    baseline: Option<PathBuf>,
}

impl AnswerChecks {
    /// Checks the options before anything is measured.
    ///
    /// # Errors
    /// A plan that cannot be read or has no question, a file that cannot be written, or a baseline without an answer.
    pub fn check(&self, plan: &Path) -> Result<(), RunError> {
        if self.fail_on.is_empty() && self.junit.is_none() && self.baseline.is_none() {
            return Ok(());
        }
        let plan = Plan::load(plan)?;
        if plan.question.is_none() {
            let problem = "--fail-on, --junit and --baseline judge an answer, and the plan has no `[question]`";
            return Err(RunError::about(&plan.file, problem));
        }
        self.junit.as_deref().map_or(Ok(()), can_write)?;
        let mut folders = self.baseline.iter();
        folders.try_for_each(|folder| baseline(folder).map(drop))
    }

    /// Writes the answer as JUnit XML, and returns the exit code: 1 for a regression, else that of the comparison, else that
    /// of the outcome.
    ///
    /// # Errors
    /// The file cannot be written, or the run has no answer.
    pub fn exit_code(&self, run: &Run) -> Result<u8, RunError> {
        if let Some(file) = &self.junit {
            let none = || RunError::Failed(format!("{}: the run has no answer to write", run.name));
            let text = tierlab_report::answer_junit(run).ok_or_else(none)?;
            write_atomically(file, text.as_bytes())?;
        }
        let diff_code = match &self.baseline {
            Some(folder) => compare_with_baseline(folder, &baseline(folder)?, run),
            None => 0,
        };
        let answer_code = answer_exit_code(run, &self.fail_on);
        Ok(if diff_code == 1 || answer_code == 0 {
            diff_code
        } else {
            answer_code
        })
    }
}

/// Checks before measuring that a file can be written.
///
/// # Errors
/// Its folder does not exist, or must not be written to.
fn can_write(file: &Path) -> Result<(), RunError> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let refuse = |problem: String| RunError::about(file, format!("cannot be written: {problem}"));
    if file.is_dir() {
        return Err(refuse("it is a folder".into()));
    }
    let written = tempfile::tempfile_in(folder.unwrap_or(Path::new(".")));
    written.map(drop).map_err(|error| refuse(error.to_string()))
}

/// Reads the answer of an earlier run for a comparison.
///
/// # Errors
/// A folder without a run, or a run without an answer: bad usage, because exit code 1 means that a variant is worse.
fn baseline(dir: &Path) -> Result<Answer, RunError> {
    let run = load_summarised(dir)?;
    let problem = "this run has no question, so it has no answer to compare with";
    run.answer.ok_or_else(|| RunError::about(dir, problem))
}

/// Compares a run with an earlier answer and returns the exit code: 1 if a variant is certainly worse, 3 if anything
/// cannot be compared, else 0. Prints the number of compared figures, and the reasons on stderr.
fn compare_with_baseline(folder: &Path, baseline: &Answer, run: &Run) -> u8 {
    let Some(current) = &run.answer else { return UNDECIDED };
    let AnswerComparison { worse, notes, figures } = compare_answers(baseline, current);
    let [worse_count, undecided] = [&worse, &notes].map(Vec::len);
    println!(
        "\ncompared with {}: {figures} figures (p99, highest rate, $ a month), {worse_count} worse, {undecided} undecided",
        folder.display()
    );
    for line in notes.iter().chain(&worse) {
        eprintln!("{line}");
    }
    match (worse.is_empty(), notes.is_empty()) {
        (false, _) => 1,
        (true, false) => UNDECIDED,
        (true, true) => 0,
    }
}

/// Comparison of two answers, in words.
#[derive(Debug, Default, PartialEq)]
struct AnswerComparison {
    /// Figures that are certainly worse.
    worse: Vec<String>,
    /// Figures that cannot be compared.
    notes: Vec<String>,
    /// Number of figures that both answers have.
    figures: usize,
}

/// Compares two answers. A variant is worse if it met the objective and no longer does, or if the two intervals of its
/// p99, its highest rate or its monthly cost are apart by more than the tie margin. Rates under another objective and
/// monthly costs at another demand are not compared.
fn compare_answers(baseline: &Answer, latest: &Answer) -> AnswerComparison {
    let mut result = AnswerComparison::default();
    // Rates under the same objective can be compared, and monthly costs at the same demand.
    let (a, b) = (&baseline.question, &latest.question);
    let kind = |question: &Question| (question.mode, question.batch_size);
    let has_objective = kind(a) == kind(b) && a.objectives == b.objectives && a.error_share == b.error_share;
    let has_demand = a.demand == b.demand && a.utilisation == b.utilisation && a.least_instances == b.least_instances;
    let has_month = has_objective && has_demand;
    if !has_month {
        let figure = match has_objective {
            true => "monthly costs are",
            false => "objectives, highest rates and monthly costs are",
        };
        let note = format!("the baseline has another question: {figure} not compared");
        result.notes.push(note);
    }
    for old in &baseline.ranking {
        let Some(new) = latest.ranking.iter().find(|new| new.variant == old.variant) else {
            let note = format!("{}: in the baseline, but not measured now", old.variant);
            result.notes.push(note);
            continue;
        };
        match (old.outcome, new.outcome) {
            (MeetsObjective::Met, MeetsObjective::NotMet) if has_objective => result.worse.push(format!(
                "{}: it no longer meets the objective ({}): worse than the baseline",
                new.variant, new.why
            )),
            (MeetsObjective::Met, MeetsObjective::Unknown) if has_objective => {
                let note = format!("{}: it met the objective, which is now unknown", new.variant);
                result.notes.push(note);
            }
            _ => {}
        }
        let comparable = [true, has_objective, has_month];
        for (pair, _) in figures(old, new).into_iter().zip(comparable).filter(|(_, can)| *can) {
            result.worse.extend(regression(&new.variant, pair, latest.question.tie));
            let (figure, before, now, is_higher_worse) = pair;
            result.figures += usize::from(before.is_some() && now.is_some());
            let note = match (before, now) {
                (Some(_), None) | (None, Some(_)) => "is known in only one of the two answers",
                (Some(before), Some(now)) if is_higher_worse && before.hi.is_infinite() && now.lo > before.value => {
                    "looks higher, and the baseline has no upper bound of it"
                }
                _ => continue,
            };
            result.notes.push(format!("{}: {figure} {note}", new.variant));
        }
    }
    result
}

/// Describes a figure that is certainly worse.
fn regression(variant: &str, (figure, old, new, is_higher_worse): FigurePair, tie: f64) -> Option<String> {
    let (old, new) = (old?, new?);
    let is_worse = match is_higher_worse {
        true => new.lo > old.hi * (1.0 + tie),
        false => new.hi < old.lo * (1.0 - tie),
    };
    let text = |of: Interval| match of.hi.is_finite() {
        true => format!("{:.4} [{:.4}-{:.4}]", of.value, of.lo, of.hi),
        false => format!("{:.4} [≥ {:.4}]", of.value, of.lo),
    };
    let (before, now) = (text(old), text(new));
    is_worse.then(|| format!("{variant}: {figure} was {before} and is {now}: worse than the baseline"))
}

type FigurePair = (&'static str, Option<Interval>, Option<Interval>, bool);

fn figures(old: &Ranked, new: &Ranked) -> [FigurePair; 3] {
    let interval = |value: Option<f64>, lo: Option<f64>, hi: Option<f64>| {
        Some(Interval::new(value?, lo?, hi.unwrap_or(f64::INFINITY)))
    };
    // The p99 at another rate cannot be compared.
    let at_one_rate = old.at_rps == new.at_rps;
    let p99 = |ranked: &Ranked| interval(ranked.p99_us, ranked.p99_us_lo, ranked.p99_us_hi).filter(|_| at_one_rate);
    let highest = |ranked: &Ranked| interval(ranked.highest_rps, ranked.highest_rps_lo, ranked.highest_rps_hi);
    let month = |ranked: &Ranked| interval(ranked.usd_per_month, ranked.usd_per_month_lo, ranked.usd_per_month_hi);
    let rate = "the highest rate under the objective";
    [
        ("p99 in microseconds", p99(old), p99(new), true),
        (rate, highest(old), highest(new), false),
        ("$ a month", month(old), month(new), true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(p99: [f64; 3]) -> Ranked {
        serde_json::from_value(serde_json::json!({
            "variant": "a", "tier": "nvme", "outcome": "met", "at_rps": 100.0, "p99_us": p99[0], "p99_us_lo": p99[1],
            "p99_us_hi": p99[2], "highest_rps": null, "highest_rps_lo": null, "highest_rps_hi": null, "instances": 1,
            "usd_per_month": null, "usd_per_month_lo": null, "usd_per_month_hi": null, "usd_per_10k": null,
            "dominant_part": null, "dominant_share": null, "why": "", "steps": 1
        }))
        .unwrap()
    }

    fn answer(outcome: &str, limit_us: f64, peak_rps: f64) -> Answer {
        let ranked = serde_json::json!({
            "variant": "a", "tier": "nvme", "outcome": outcome, "at_rps": 100.0, "p99_us": null, "p99_us_lo": null, "p99_us_hi": null,
            "highest_rps": 50.0, "highest_rps_lo": 40.0, "highest_rps_hi": 60.0, "instances": 1, "usd_per_month": 9.0,
            "usd_per_month_lo": 8.0, "usd_per_month_hi": 10.0, "usd_per_10k": null, "dominant_part": null, "dominant_share": null,
            "why": "errors", "steps": 1
        });
        serde_json::from_value(serde_json::json!({
            "question": {
                "objectives": [{"percentile": "p99", "limit_us": limit_us}], "error_share": 0.001,
                "demand": {"average_rps": 10.0, "peak_rps": peak_rps}, "minimise": "usd_per_month", "mode": "realtime",
                "batch_size": 1, "budget_s": 60.0, "confidence": 0.95, "tie": 0.05, "utilisation": 0.7, "least_instances": 1,
                "highest_rps": 1000.0
            },
            "outcome": "none", "best": null, "confidence": 0.95, "confirmed": false, "spent_s": 1.0, "steps": 1,
            "disturbed_steps": 0, "ranking": [ranked]
        }))
        .unwrap()
    }

    #[test]
    fn what_met_the_objective_and_does_not_any_more_is_worse() {
        let [met, not, unknown] = ["met", "not_met", "unknown"].map(|outcome| answer(outcome, 5e4, 20.0));
        let is_worse = |before: &Answer, now: &Answer| compare_answers(before, now).worse.len();
        assert_eq!(
            [
                is_worse(&met, &not),
                is_worse(&met, &unknown),
                is_worse(&not, &met),
                is_worse(&not, &not)
            ],
            [1, 0, 0, 0]
        );
        assert!(compare_answers(&met, &unknown).notes[0].contains("which is now unknown"));
        // Neither answer has a p99.
        let same = AnswerComparison {
            figures: 2,
            ..AnswerComparison::default()
        };
        assert_eq!(compare_answers(&met, &met), same);
        let mut rough = met.clone();
        (rough.ranking[0].usd_per_month_hi, rough.question.tie) = (None, 0.0);
        let mut dear = rough.clone();
        dear.ranking[0].usd_per_month_lo = Some(9.5);
        let unbounded = compare_answers(&rough, &dear);
        assert!(
            unbounded.worse.is_empty() && unbounded.notes[0].contains("$ a month looks higher"),
            "{unbounded:?}"
        );
        let mut silent = met.clone();
        silent.ranking[0].usd_per_month = None;
        assert!(compare_answers(&met, &silent).notes[0].contains("$ a month is known in only one of the two answers"));
        let gone = Answer {
            ranking: Vec::new(),
            ..not
        };
        assert!(compare_answers(&met, &gone).notes[0].contains("not measured now"));
    }

    #[test]
    fn figures_of_another_question_are_not_held_against_it() {
        let before = answer("met", 5e4, 20.0);
        let mut now = answer("not_met", 1e3, 20.0);
        (now.ranking[0].highest_rps_lo, now.ranking[0].highest_rps_hi) = (Some(1.0), Some(2.0));
        now.ranking[0].usd_per_month_lo = Some(900.0);
        let other = compare_answers(&before, &now);
        assert!(
            other.worse.is_empty() && other.notes[0].contains("another question"),
            "{other:?}"
        );
        now.question = before.question.clone();
        assert_eq!(compare_answers(&before, &now).worse.len(), 3);
        now.question.demand = answer("met", 5e4, 900.0).question.demand;
        assert_eq!(compare_answers(&before, &now).worse.len(), 2);
    }

    #[test]
    fn only_what_lies_apart_is_worse() {
        let apart = |old: [f64; 3], new: [f64; 3]| {
            let (old, new) = (ranked(old), ranked(new));
            let [(_, then, now, _), ..] = figures(&old, &new);
            now.unwrap().lo > then.unwrap().hi * 1.05
        };
        assert!(apart([10.0, 9.0, 11.0], [20.0, 18.0, 22.0]));
        assert!(!apart([10.0, 9.0, 11.0], [12.0, 10.0, 14.0]));
        let mut elsewhere = ranked([20.0, 18.0, 22.0]);
        elsewhere.at_rps = Some(50.0);
        let [(_, then, ..), ..] = figures(&ranked([10.0, 9.0, 11.0]), &elsewhere);
        assert_eq!(then, None);
    }
}
