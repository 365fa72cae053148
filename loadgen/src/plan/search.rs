//! `[search]`: search for the highest rate that meets an objective. In: TOML. Out: a validated search.
//! [`tierlab_analysis::curves::search`] chooses its rates.

use super::check::PlanFacts;
use super::fault::{Fault, check_range, empty, fault, misplaced, refuse};
use super::value::{self, Within};
use anyhow::Context as _;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tierlab_analysis::curves::search::lowest_rate;
use tierlab_analysis::record::{Mode, Objective, Slo};
use tierlab_load::schedule::Load;

/// Default of `max_rate`, in requests per second.
const DEFAULT_HIGHEST_RATE: f64 = 20_000.0;
/// Default of `resolution`.
const DEFAULT_RESOLUTION: f64 = 0.05;
/// Default time for all searches of a run: an hour.
const DEFAULT_LIMIT_S: f64 = 3_600.0;

/// A validated `[search]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPlan {
    /// Objective and range of rates.
    pub slo: Slo,
    /// If true, searches begin at the plan's loads, which are not measured themselves.
    pub only: bool,
    /// Modes to search.
    pub modes: Vec<Mode>,
    /// Time limit of all searches of a run together, from the start of the first.
    pub limit: Duration,
}

/// Search for the highest rate that meets an objective, for every tier, cache state, mode and batch size, after the loads are
/// measured: by doubling and bisection, with as few repeats as the percentile needs, and with all of them at the boundary.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSearch {
    /// Objective: `p99 < 20 ms` (p50, p90, p95, p99, p99.9 or mean; us, ms or s) or `99.5 % within 20 ms`. A rate at which the
    /// instrument failed is not evidence.
    slo: String,
    /// Maximum failed share of the requests (default: `limits.error_share`).
    #[serde(default, with = "Within::<value::Ratio>")]
    error_share: Option<f64>,
    /// Lowest rate (default: the lowest whose repeats together have the samples that the percentile needs).
    min_rate: Option<f64>,
    /// Highest rate (default: 20000, or the highest that a step can send).
    max_rate: Option<f64>,
    /// Maximum distance between the highest rate that meets the objective and the next that does not, as a share (default:
    /// 0.05).
    #[serde(default, with = "Within::<value::Resolution>")]
    resolution: Option<f64>,
    /// If true, the loads are not measured: searches begin at their lowest rates.
    #[serde(default)]
    only: bool,
    /// Modes to search (default: all of the loads).
    modes: Option<Vec<Mode>>,
    /// Seconds for all searches together; rates not measured by then stay unknown (default: 3600).
    #[serde(default, with = "Within::<value::SearchLimit>")]
    limit_s: Option<f64>,
}

pub(super) fn validate(
    raw: Option<&RawSearch>,
    facts: PlanFacts<'_>,
    loads: &[Load],
) -> Result<Option<SearchPlan>, Fault> {
    let Some(raw) = raw else { return Ok(None) };
    let limits = facts.limits;
    let objective = objective(&raw.slo).map_err(|problem| Fault::new("search.slo", problem))?;
    let error_share = raw.error_share.unwrap_or(limits.error_share);
    if error_share > limits.error_share {
        refuse!(
            "search.error_share",
            "{error_share} is above `limits.error_share` = {}, where a point is saturated; raise that limit too",
            limits.error_share
        );
    }
    let (lowest_rps, highest_rps) = range(raw, objective, facts)?;
    Ok(Some(SearchPlan {
        slo: Slo {
            objective,
            error_share,
            lowest_rps,
            highest_rps,
            resolution: raw.resolution.unwrap_or(DEFAULT_RESOLUTION),
        },
        only: raw.only,
        limit: Duration::from_secs_f64(raw.limit_s.unwrap_or(DEFAULT_LIMIT_S)),
        modes: modes(raw.modes.as_deref(), loads)?,
    }))
}

/// Range of rates. A step needs the percentile's samples and has a maximum of requests.
fn range(raw: &RawSearch, objective: Objective, facts: PlanFacts<'_>) -> Result<(f64, f64), Fault> {
    let (figure, samples) = (objective.figure(), objective.samples_needed());
    let PlanFacts { repeats, step, .. } = facts;
    let fewest = lowest_rate(samples, repeats, step.step_s);
    let max_rate = step.highest_rate();
    let lowest = raw.min_rate.unwrap_or(fewest);
    let highest = raw.max_rate.unwrap_or(DEFAULT_HIGHEST_RATE.min(max_rate));
    check_range("search.max_rate", highest, 0.01, max_rate)?;
    check_range("search.min_rate", lowest, 0.01, max_rate)?;
    let all = format!("{repeats} repeats of `step_s` = {}", step.step_s);
    if lowest < fewest {
        refuse!(
            "search.min_rate",
            "{lowest} is too low: a {figure} needs {samples} samples, which {all} give from {fewest:.1} per second on"
        );
    }
    if lowest >= highest {
        refuse!(
            "search",
            "the lowest rate, {lowest:.1}, is not below the highest, {highest:.1} (a {figure} needs {samples} \
                 samples, which {all} give from {fewest:.1} per second on); raise `search.max_rate`, `step_s` or `repeats`"
        );
    }
    Ok((lowest, highest))
}

fn modes(named: Option<&[Mode]>, loads: &[Load]) -> Result<Vec<Mode>, Fault> {
    let mut modes: Vec<Mode> = loads.iter().map(|load| load.mode).collect();
    modes.sort_unstable();
    modes.dedup();
    if modes.is_empty() {
        return misplaced("search", "a `[[load]]`, whose mode it searches");
    }
    let Some(named) = named else { return Ok(modes) };
    if named.is_empty() {
        return empty("search.modes");
    }
    match named.iter().find(|mode| !modes.contains(mode)) {
        Some(mode) => Err(fault!("search.modes", "no `[[load]]` has `mode = \"{mode}\"`")),
        None => Ok(named.to_vec()),
    }
}

/// Parses an objective, as `p99 < 20 ms`.
///
/// # Errors
/// Any other text, with the form to write.
pub fn objective(text: &str) -> anyhow::Result<Objective> {
    value::objective(text).with_context(|| {
        format!(
            "`{text}` is not an objective; write it as `p99 < 20 ms` (p50, p90, p95, p99, p99.9 or mean; us, ms or s) or \
             `99.5 % within 20 ms`; of replies that stream, as `ttft p99 < 300 ms` (first_byte, ttft or gap)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn objectives_are_read_as_they_are_shown() {
        for (text, us) in [
            ("p99 < 20 ms", 20_000.0),
            ("p50<1.5s", 1.5e6),
            (" p95 < 300 µs ", 300.0),
        ] {
            let read = objective(text).unwrap();
            assert_eq!(read.limit_us(), us);
            assert_eq!(objective(&read.to_string()).unwrap(), read);
        }
        for bad in [
            "",
            "p99",
            "p99 < ",
            "p99 < 20",
            "p99 < -1 ms",
            "p99 < 0 ms",
            "p99 > 1 ms",
            "p98 < 1 ms",
            "p99 < x ms",
            "p99 < inf s",
            "fast",
        ] {
            let error = objective(bad).unwrap_err().to_string();
            assert!(error.contains("`p99 < 20 ms`") && error.contains(bad), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            if let Ok(read) = objective(&text) {
                prop_assert!(read.limit_us() > 0.0);
            }
        }
    }
}
