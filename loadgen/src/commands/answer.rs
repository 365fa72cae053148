//! What an answer means to who called: exit codes, JUnit XML, and another run to hold it against. In: a run with an answer. Out: a
//! code, a file, a line on stderr for each that is worse.

use crate::error::RunError;
use crate::plan::Plan;
use crate::store::atomic::write_atomically;
use crate::store::folder;
use clap::ValueEnum;
use std::path::Path;
use tierlab_analysis::record::{Answer, AnswerOutcome, Interval, Ranked, Run};

/// The exit code of an open question.
const UNDECIDED: u8 = 3;
/// The exit code where no variant meets the objective.
const UNMET: u8 = 4;

/// An outcome that ends with an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// No variant meets the objective.
    Unmet,
    /// The question is still open.
    Undecided,
}

/// 4 where no variant meets the objective, 3 where the question is open, each where asked for; else 0.
#[must_use]
pub fn exit_code(run: &Run, fail_on: &[FailOn]) -> u8 {
    match run.answer.as_ref().map(|answer| answer.outcome) {
        Some(AnswerOutcome::None) if fail_on.contains(&FailOn::Unmet) => UNMET,
        Some(AnswerOutcome::Undecided) if fail_on.contains(&FailOn::Undecided) => UNDECIDED,
        _ => 0,
    }
}

/// A plan without a question has no answer to judge.
///
/// # Errors
/// A plan that cannot be read, or without a question.
pub fn needs_question(plan: &Path) -> Result<(), RunError> {
    let plan = Plan::load(plan)?;
    match plan.question {
        Some(_) => Ok(()),
        None => Err(RunError::Usage(format!(
            "{}: --fail-on, --junit and --baseline judge an answer, and the plan has no `[question]`",
            plan.file.display()
        ))),
    }
}

/// Writes the answer as JUnit XML.
///
/// # Errors
/// The file cannot be written, or the run has no answer.
pub fn write_junit(run: &Run, file: &Path) -> Result<(), RunError> {
    match tierlab_report::junit(run) {
        Some(text) => Ok(write_atomically(file, text.as_bytes())?),
        None => Err(RunError::Unsound(format!(
            "{}: the run has no answer to write",
            run.name
        ))),
    }
}

/// The answer of a run to hold another against.
///
/// # Errors
/// A folder that is no run, or one without an answer.
pub fn baseline(dir: &Path) -> Result<Answer, RunError> {
    let mut run = folder::load(dir)?;
    tierlab_analysis::conclude(&mut run);
    run.answer.ok_or_else(|| {
        RunError::Usage(format!(
            "{}: this run was asked no question, so it has no answer to hold another against",
            dir.display()
        ))
    })
}

/// Whether any variant of both answers is certainly worse than before: the two intervals of its p99, its highest rate or its month
/// lie apart by more than the tie. Says which on stderr.
#[must_use]
pub fn is_worse(before: &Answer, run: &Run) -> bool {
    let Some(now) = &run.answer else { return false };
    let tie = now.question.tie;
    let mut is_worse = false;
    for ranked in &now.ranking {
        let Some(old) = before.ranking.iter().find(|old| old.variant == ranked.variant) else {
            continue;
        };
        for (what, then, now, more_is_worse) in pairs(old, ranked) {
            let (Some(then), Some(now)) = (then, now) else { continue };
            let worse = if more_is_worse {
                now.lo > then.hi * (1.0 + tie)
            } else {
                now.hi < then.lo * (1.0 - tie)
            };
            if worse {
                eprintln!(
                    "{}: {what} was {:.4} [{:.4}-{:.4}] and is {:.4} [{:.4}-{:.4}]: worse than the baseline",
                    ranked.variant, then.value, then.lo, then.hi, now.value, now.lo, now.hi
                );
                is_worse = true;
            }
        }
    }
    is_worse
}

type Pair = (&'static str, Option<Interval>, Option<Interval>, bool);

fn pairs(old: &Ranked, new: &Ranked) -> [Pair; 3] {
    let interval = |value: Option<f64>, lo: Option<f64>, hi: Option<f64>| {
        Some(Interval {
            value: value?,
            lo: lo?,
            hi: hi.or(value)?,
        })
    };
    // At another rate it is another percentile.
    let at_one_rate = old.at_rps == new.at_rps;
    let p99 = |one: &Ranked| interval(one.p99_us, one.p99_us_lo, one.p99_us_hi).filter(|_| at_one_rate);
    let highest = |one: &Ranked| {
        interval(
            one.highest_rps,
            one.highest_rps_lo,
            one.highest_rps_hi.or(Some(f64::INFINITY)),
        )
    };
    let month = |one: &Ranked| interval(one.usd_per_month, one.usd_per_month_lo, one.usd_per_month_hi);
    [
        ("p99 in microseconds", p99(old), p99(new), true),
        (
            "the highest rate under the objective",
            highest(old),
            highest(new),
            false,
        ),
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

    #[test]
    fn only_what_lies_apart_is_worse() {
        let apart = |old: [f64; 3], new: [f64; 3]| {
            let (old, new) = (ranked(old), ranked(new));
            let [(_, then, now, _), ..] = pairs(&old, &new);
            now.unwrap().lo > then.unwrap().hi * 1.05
        };
        assert!(apart([10.0, 9.0, 11.0], [20.0, 18.0, 22.0]));
        assert!(!apart([10.0, 9.0, 11.0], [12.0, 10.0, 14.0]));
        let mut elsewhere = ranked([20.0, 18.0, 22.0]);
        elsewhere.at_rps = Some(50.0);
        let [(_, then, ..), ..] = pairs(&ranked([10.0, 9.0, 11.0]), &elsewhere);
        assert_eq!(then, None);
    }
}
