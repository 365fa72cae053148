//! Verdicts on a sweep for scripts and CI: objectives, invalid points, JUnit XML, and the comparison with an earlier run.
//! In: a finished run. Out: an exit code, a file, a line on stderr for each failure.

use super::answer::{UNDECIDED, UNMET, can_write};
use super::report;
use crate::error::RunError;
use crate::plan::{self, Plan};
use crate::store::files::write_atomically;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use tierlab_analysis::curves::comparison;
use tierlab_analysis::curves::slo::{evidence, why_not};
use tierlab_analysis::record::{MeetsObjective, Objective, Point, Run, Slo, Verdict};
use tierlab_report::{Case, CaseResult};

/// Failure with an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A point is not evidence about the server.
    Invalid,
    /// A point misses an objective, or does not decide it.
    Slo,
}

/// Checks of a sweep.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "For CI")]
pub struct Judge {
    /// Objective of every point of the plan, as 'p99 < 50 ms' or 'ttft p99 < 300 ms'; may be repeated
    #[arg(long, value_name = "OBJECTIVE", value_parser = plan::objective)]
    pub slo: Vec<Objective>,
    /// Failures with an exit code of their own: `slo` (a point misses an objective: 4; not decided: 3) and `invalid` (a
    /// point is not evidence: 3)
    #[arg(long, value_name = "FAILURES", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Also writes the points to this file as JUnit XML, with one case per point and objective
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Earlier run to compare with, as `compare` does: exits with 1 if anything is certainly worse, with 3 if anything
    /// is undecided
    #[arg(long, value_name = "RUN_FOLDER")]
    baseline: Option<PathBuf>,
}

impl Judge {
    /// Checks the options before anything is measured.
    ///
    /// # Errors
    /// Objectives without points to check, a file that cannot be written, or a baseline that cannot be read.
    pub fn check(&self, plan: &Plan) -> Result<(), RunError> {
        if self.fail_on.contains(&FailOn::Slo) && self.slo.is_empty() {
            return Err(RunError::Usage(
                "--fail-on slo needs an objective: add --slo 'p99 < 50 ms'".into(),
            ));
        }
        if !self.slo.is_empty() && plan.search.is_some() {
            return Err(RunError::Usage(format!(
                "--slo checks every rate of a plan, but {} has a `[search]`, which goes above the objective on purpose; \
                 remove one of the two",
                plan.file.display()
            )));
        }
        self.junit.as_deref().map_or(Ok(()), can_write)?;
        self.baseline
            .as_deref()
            .map_or(Ok(()), |folder| report::earlier(folder).map(drop))
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
        let compared = match &self.baseline {
            Some(baseline) => {
                println!("\ncompared with {}:", baseline.display());
                let comparison = report::compared(baseline, folder, comparison::WITHIN)?;
                print!("{}", comparison.text());
                report::exit_code(&comparison)
            }
            None => 0,
        };
        let mut judged = 0;
        for (kind, case) in &cases {
            let (code, why) = match &case.result {
                CaseResult::Passed => continue,
                CaseResult::Failed(why) => (UNMET, why),
                CaseResult::Skipped(why) => (UNDECIDED, why),
            };
            let fails = self.fail_on.contains(kind);
            if fails || *kind == FailOn::Slo {
                eprintln!("{}: {why}", case.name);
            }
            if fails {
                judged = judged.max(code);
            }
        }
        Ok(match (compared, judged) {
            (1, _) => 1,
            (compared, judged) => compared.max(judged),
        })
    }

    /// One case per point for its validity, unless only objectives are asked for, and one per point and objective.
    fn cases(&self, run: &Run) -> Vec<(FailOn, Case)> {
        let has_validity = self.slo.is_empty() || self.fail_on.contains(&FailOn::Invalid);
        let mut cases = Vec::new();
        for point in &run.points {
            let name = tierlab_report::point_name(run, point);
            let case = |kind, name, result| (kind, Case { name, result });
            if has_validity {
                cases.push(case(FailOn::Invalid, name.clone(), validity(point)));
            }
            cases.extend(self.slo.iter().map(|objective| {
                let name = format!("{name}, {objective}");
                case(FailOn::Slo, name, held_against(point, *objective, run))
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
fn held_against(point: &Point, objective: Objective, run: &Run) -> CaseResult {
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
        Some((MeetsObjective::Met | MeetsObjective::NotMet, false)) => CaseResult::Skipped(format!(
            "not decided: {why}, and its interval reaches the limit; measure longer or more repeats"
        )),
        Some((MeetsObjective::Unknown, _)) | None => CaseResult::Skipped(format!("not decided: {why}")),
    }
}
