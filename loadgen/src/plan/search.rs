//! `[search]`: the objective that the highest rate is searched under. In: TOML. Out: a validated search. Knows nothing
//! of how rates are chosen; [`tierlab_analysis::curves::search`] does.

use super::check::{MAX_RATE, MAX_REQUESTS_PER_STEP, within};
use serde::Deserialize;
use std::time::Duration;
use tierlab_analysis::curves::search::lowest_rate;
use tierlab_analysis::record::{Limits, Mode, Objective, Slo};
use tierlab_load::load::Load;

/// The highest rate asked where the plan names none, in requests per second.
const HIGHEST_RATE: f64 = 20_000.0;
const RESOLUTION: f64 = 0.05;
/// How long searches may take where the plan does not say: an hour; and at most: a week.
const LIMIT_S: f64 = 3_600.0;
/// See `LIMIT_S`.
const MOST_LIMIT_S: f64 = 604_800.0;

/// A validated `[search]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPlan {
    /// What must hold, and where it is searched.
    pub slo: Slo,
    /// Whether the plan's loads are only where searches begin, and are not measured themselves.
    pub only: bool,
    /// The modes in which it is searched.
    pub modes: Vec<Mode>,
    /// How long all searches of a run together may take, from their beginning.
    pub limit: Duration,
}

/// `[search]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSearch {
    slo: String,
    error_share: Option<f64>,
    min_rate: Option<f64>,
    max_rate: Option<f64>,
    resolution: Option<f64>,
    #[serde(default)]
    only: bool,
    modes: Option<Vec<Mode>>,
    limit_s: Option<f64>,
}

/// What a search has to agree with.
pub(super) struct Steps<'a> {
    pub(super) warmup_s: f64,
    pub(super) step_s: f64,
    pub(super) repeats: u32,
    pub(super) limits: &'a Limits,
    pub(super) loads: &'a [Load],
}

pub(super) fn validate(raw: RawSearch, steps: &Steps<'_>) -> Result<SearchPlan, String> {
    let objective = objective(&raw.slo)?;
    let error_share = raw.error_share.unwrap_or(steps.limits.error_share);
    within("search.error_share", error_share, 0.0, 1.0)?;
    if error_share > steps.limits.error_share {
        return Err(format!(
            "`search.error_share` = {error_share} lies above `limits.error_share` = {}, from which on a point is saturated; raise \
             that one too",
            steps.limits.error_share
        ));
    }
    let resolution = raw.resolution.unwrap_or(RESOLUTION);
    within("search.resolution", resolution, 0.01, 1.0)?;
    let limit_s = raw.limit_s.unwrap_or(LIMIT_S);
    within("search.limit_s", limit_s, 1.0, MOST_LIMIT_S)?;
    let (lowest_rps, highest_rps) = range(&raw, objective, steps)?;
    Ok(SearchPlan {
        slo: Slo {
            objective,
            error_share,
            lowest_rps,
            highest_rps,
            resolution,
        },
        only: raw.only,
        limit: Duration::from_secs_f64(limit_s),
        modes: modes(raw.modes, steps.loads)?,
    })
}

/// The range of rates: a step must have the samples that the percentile needs, and not more than a step may have.
fn range(raw: &RawSearch, objective: Objective, steps: &Steps<'_>) -> Result<(f64, f64), String> {
    let (figure, samples) = (objective.figure(), objective.samples_needed());
    let fewest = lowest_rate(samples, steps.repeats, steps.step_s);
    let most = (MAX_REQUESTS_PER_STEP / (steps.warmup_s + steps.step_s)).min(MAX_RATE);
    let lowest = raw.min_rate.unwrap_or(fewest);
    let highest = raw.max_rate.unwrap_or(HIGHEST_RATE.min(most));
    within("search.max_rate", highest, 0.01, most)?;
    within("search.min_rate", lowest, 0.01, MAX_RATE)?;
    let has = format!("{} repeats of `step_s` = {}", steps.repeats, steps.step_s);
    if lowest < fewest {
        return Err(format!(
            "`search.min_rate` = {lowest}: a {figure} needs {samples} samples, which {has} give from {fewest:.1} per second on"
        ));
    }
    if lowest >= highest {
        return Err(format!(
            "`search`: nothing lies between the lowest rate, {lowest:.1}, and the highest, {highest:.1} (a {figure} needs \
             {samples} samples, which {has} give from {fewest:.1} per second on); raise `search.max_rate`, `step_s` or `repeats`"
        ));
    }
    Ok((lowest, highest))
}

fn modes(given: Option<Vec<Mode>>, loads: &[Load]) -> Result<Vec<Mode>, String> {
    let mut there: Vec<Mode> = loads.iter().map(|load| load.mode).collect();
    there.sort_unstable();
    there.dedup();
    let Some(given) = given else { return Ok(there) };
    if given.is_empty() {
        return Err("`search.modes` is empty: nothing would be searched".into());
    }
    match given.iter().find(|mode| !there.contains(mode)) {
        Some(mode) => Err(format!("`search.modes`: no `[[load]]` has `mode = \"{mode}\"`")),
        None => Ok(given),
    }
}

/// `p99 < 20 ms`
fn objective(text: &str) -> Result<Objective, String> {
    super::text::words::objective(text).ok_or_else(|| {
        format!(
            "`search.slo` = `{text}` is no objective; it reads like `p99 < 20 ms` (p50, p90, p95, p99, p99.9 or mean; \
             us, ms or s) or `99.5 % within 20 ms`"
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
            assert_eq!(read.limit_us(), Some(us));
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
            let error = objective(bad).unwrap_err();
            assert!(error.contains("`p99 < 20 ms`") && error.contains(bad), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            if let Ok(read) = objective(&text) {
                prop_assert!(read.limit_us().unwrap() > 0.0);
            }
        }
    }
}
