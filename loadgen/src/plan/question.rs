//! `[question]`: what a lab is asked. In: TOML. Out: a validated [`Question`], in which every default is written out. Knows
//! nothing of how an answer is found.

use super::check::{Base, MAX_RATE, MAX_REQUESTS_PER_STEP, within};
use super::columns::{self, Column};
use super::text::words::{self, RawShare};
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::{Demand, Limits, Minimise, Mode, Objective, Question};

/// What an answer's confidence is where the plan does not say.
const CONFIDENCE: f64 = 0.95;
/// Differences that do not matter where the plan does not say.
const TIE: f64 = 0.05;
/// How full an instance is at the peak where the plan does not say: room for what a schedule does not hold.
const UTILISATION: f64 = 0.7;
/// The highest rate that one instance is asked for where the plan does not say.
const HIGHEST_RATE: f64 = 5_000.0;
/// A peak is a mean over as many seconds of a trace.
const PEAK_S: f64 = 10.0;
/// The longest budget: a week.
const MOST_BUDGET_S: f64 = 604_800.0;

/// `[question]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuestion {
    slo: Vec<String>,
    #[serde(default)]
    demand_rps: Option<RawDemand>,
    #[serde(default)]
    minimise: Option<Minimise>,
    budget: String,
    #[serde(default)]
    confidence: Option<f64>,
    #[serde(default)]
    tie: Option<RawShare>,
    #[serde(default)]
    utilisation: Option<RawShare>,
    #[serde(default)]
    least_instances: Option<u32>,
    #[serde(default)]
    mode: Option<Mode>,
    #[serde(default)]
    batch_size: Option<u32>,
    #[serde(default)]
    max_rate: Option<f64>,
    #[serde(default)]
    pub(super) table_gib: Option<f64>,
}

/// `question.demand_rps`: one rate for both, each, or the arrivals of a trace.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RawDemand {
    Steady(f64),
    Peaks(RawPeaks),
    Trace(RawTrace),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeaks {
    average: f64,
    peak: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTrace {
    trace: PathBuf,
    #[serde(default)]
    column: Option<String>,
}

/// What a question has to agree with.
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) base: Base<'a>,
    pub(super) step_s: f64,
    pub(super) warmup_s: f64,
    pub(super) limits: &'a Limits,
    pub(super) has_prices: bool,
}

pub(super) fn validate(raw: &RawQuestion, around: &Around<'_>) -> Result<Question, String> {
    let (objectives, error_share) = objectives(&raw.slo, around.limits)?;
    let demand = raw
        .demand_rps
        .as_ref()
        .map(|demand| self::demand(demand, around.base))
        .transpose()?;
    let minimise = minimise(raw.minimise, demand.as_ref(), around.has_prices)?;
    let budget = words::time(&raw.budget).ok_or_else(|| {
        format!(
            "`question.budget` = `{}` is no time; it reads like `10m` or `90s`",
            raw.budget
        )
    })?;
    let budget_s = budget.as_secs_f64();
    within("question.budget", budget_s, 1.0, MOST_BUDGET_S)?;
    let confidence = raw.confidence.unwrap_or(CONFIDENCE);
    within("question.confidence", confidence, 0.5, 0.9999)?;
    let tie = share("question.tie", raw.tie.as_ref(), TIE)?;
    within("question.tie", tie, 0.0, 0.5)?;
    let utilisation = share("question.utilisation", raw.utilisation.as_ref(), UTILISATION)?;
    within("question.utilisation", utilisation, 0.05, 1.0)?;
    let least_instances = raw.least_instances.unwrap_or(1);
    within("question.least_instances", f64::from(least_instances), 1.0, 10_000.0)?;
    let mode = raw.mode.unwrap_or(Mode::Realtime);
    let batch_size = match (mode, raw.batch_size) {
        (Mode::Realtime, None | Some(1)) => 1,
        (Mode::Realtime, Some(_)) => {
            return Err(
                "`question.batch_size` belongs to `mode = \"batch\"`: a real-time request has one entity".into(),
            );
        }
        (Mode::Batch, Some(size)) => size,
        (Mode::Batch, None) => {
            return Err("`question.batch_size` is missing: how many entities has a batch request?".into());
        }
    };
    within("question.batch_size", f64::from(batch_size), 1.0, 65_536.0)?;
    let most = (MAX_REQUESTS_PER_STEP / (around.warmup_s + around.step_s)).min(MAX_RATE);
    let highest_rps = raw.max_rate.unwrap_or(HIGHEST_RATE.min(most));
    within("question.max_rate", highest_rps, 1.0, most)?;
    if let Some(gib) = raw.table_gib {
        within("question.table_gib", gib, 1e-6, 1e6)?;
        if !around.has_prices {
            return Err("`question.table_gib` needs `prices`: it only changes what storage costs".into());
        }
    }
    Ok(Question {
        objectives,
        error_share,
        demand,
        minimise,
        mode,
        batch_size,
        budget_s,
        confidence,
        tie,
        utilisation,
        least_instances,
        highest_rps,
    })
}

/// What is asked in place of what was asked before, as people write it; what is absent stays.
#[derive(Debug, Clone, Default)]
pub struct Reasked {
    /// Objectives, `p99 < 50 ms` and `errors < 0.1 %`.
    pub slo: Vec<String>,
    /// Average and peak demand, in requests per second.
    pub demand_rps: Option<(f64, f64)>,
    /// What should be least.
    pub minimise: Option<String>,
    /// How often the answer must be right.
    pub confidence: Option<f64>,
    /// Differences that do not matter.
    pub tie: Option<String>,
    /// How full an instance may be.
    pub utilisation: Option<String>,
    /// Instances that there must be.
    pub least_instances: Option<u32>,
}

impl Reasked {
    /// The question as it is asked now.
    ///
    /// # Errors
    /// What is asked is no objective, no share, or contradicts itself; the text names the flag.
    pub fn of(&self, before: &Question, limits: &Limits, has_prices: bool) -> Result<Question, String> {
        let (objectives, error_share) = match &self.slo[..] {
            [] => (before.objectives.clone(), before.error_share),
            slo => objectives(slo, limits)?,
        };
        let demand = match self.demand_rps {
            None => before.demand,
            Some((average, peak)) => Some(demand(
                &RawDemand::Peaks(RawPeaks { average, peak }),
                Base::here(Path::new("")),
            )?),
        };
        let text = |text: &Option<String>| text.clone().map(RawShare::Text);
        let asked = match &self.minimise {
            None => before.minimise,
            Some(word) => Minimise::deserialize(word.as_str().into_deserializer())
                .map_err(|error: serde::de::value::Error| format!("`question.minimise`: {error}"))?,
        };
        let tie = share("question.tie", text(&self.tie).as_ref(), before.tie)?;
        within("question.tie", tie, 0.0, 0.5)?;
        let utilisation = share(
            "question.utilisation",
            text(&self.utilisation).as_ref(),
            before.utilisation,
        )?;
        within("question.utilisation", utilisation, 0.05, 1.0)?;
        let least_instances = self.least_instances.unwrap_or(before.least_instances);
        within("question.least_instances", f64::from(least_instances), 1.0, 10_000.0)?;
        let confidence = self.confidence.unwrap_or(before.confidence);
        within("question.confidence", confidence, 0.5, 0.9999)?;
        Ok(Question {
            objectives,
            error_share,
            demand,
            minimise: minimise(Some(asked), demand.as_ref(), has_prices)?,
            tie,
            utilisation,
            confidence,
            least_instances,
            ..before.clone()
        })
    }
}

fn share(key: &str, raw: Option<&RawShare>, default: f64) -> Result<f64, String> {
    match raw {
        None => Ok(default),
        Some(raw) => raw
            .share()
            .ok_or_else(|| format!("`{key}` is no share; it reads like `5 %` or `0.05`")),
    }
}

/// The latency objectives, and the share of requests that may fail.
fn objectives(slo: &[String], limits: &Limits) -> Result<(Vec<Objective>, f64), String> {
    let (mut objectives, mut error_share): (Vec<Objective>, _) = (Vec::new(), None);
    for text in slo {
        if let Some(share) = words::errors(text) {
            if error_share.replace(share).is_some() {
                return Err("`question.slo` limits `errors` twice".into());
            }
        } else if let Some(objective) = words::objective(text) {
            if objectives.iter().any(|other| other.figure() == objective.figure()) {
                return Err(format!("`question.slo` limits `{}` twice", objective.figure()));
            }
            objectives.push(objective);
        } else {
            return Err(format!(
                "`question.slo`: `{text}` is no objective; they read like `p99 < 50 ms` (p50, p90, p95, p99, p99.9 or mean; us, \
                 ms or s), `99.5 % within 50 ms` and `errors < 0.1 %`"
            ));
        }
    }
    if objectives.is_empty() {
        return Err("`question.slo` has no latency objective, such as `p99 < 50 ms`".into());
    }
    Ok((objectives, error_share.unwrap_or(limits.error_share)))
}

fn demand(raw: &RawDemand, base: Base<'_>) -> Result<Demand, String> {
    let demand = match raw {
        RawDemand::Steady(rps) => Demand {
            average_rps: *rps,
            peak_rps: *rps,
        },
        RawDemand::Peaks(RawPeaks { average, peak }) => Demand {
            average_rps: *average,
            peak_rps: *peak,
        },
        RawDemand::Trace(RawTrace { trace, column }) => {
            let column = Column {
                key: "question.demand_rps.trace",
                name: column.clone().unwrap_or_else(|| "timestamp".into()),
            };
            let times = columns::numbers(&base.path(trace), &column)?;
            of_trace(times).ok_or("`question.demand_rps.trace`: fewer than two arrivals, or all at one time")?
        }
    };
    within("question.demand_rps", demand.average_rps, 0.001, 1e7)?;
    within("question.demand_rps", demand.peak_rps, 0.001, 1e7)?;
    if demand.peak_rps < demand.average_rps {
        return Err(format!(
            "`question.demand_rps`: the peak, {}, lies below the average, {}",
            demand.peak_rps, demand.average_rps
        ));
    }
    Ok(demand)
}

/// Mean rate of a trace, and the highest over [`PEAK_S`] seconds, or over all where it is shorter. Times in seconds.
fn of_trace(mut times: Vec<f64>) -> Option<Demand> {
    times.sort_by(f64::total_cmp);
    let (first, last) = (*times.first()?, *times.last()?);
    let length = last - first;
    if length <= 0.0 {
        return None;
    }
    let window = PEAK_S.min(length);
    let mut from = 0;
    let mut most = 0;
    for (index, time) in times.iter().enumerate() {
        while time - times[from] >= window {
            from += 1;
        }
        most = most.max(index - from + 1);
    }
    let average_rps = times.len() as f64 / length;
    Some(Demand {
        average_rps,
        peak_rps: (most as f64 / window).max(average_rps),
    })
}

fn minimise(asked: Option<Minimise>, demand: Option<&Demand>, has_prices: bool) -> Result<Minimise, String> {
    let minimise = asked.unwrap_or(match (demand, has_prices) {
        (Some(_), true) => Minimise::UsdPerMonth,
        _ => Minimise::Instances,
    });
    match (minimise, demand, has_prices) {
        (Minimise::UsdPerMonth | Minimise::P99, None, _) => Err(format!(
            "`question.minimise` = \"{minimise}\" needs a `demand_rps`; without one, ask for `instances` (the highest rate wins) \
             or `usd_per_10k`"
        )),
        (Minimise::UsdPerMonth | Minimise::UsdPer10k, _, false) => Err(format!(
            "`question.minimise` = \"{minimise}\" needs `prices` and `instance`"
        )),
        _ => Ok(minimise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Question, String> {
        let raw: RawQuestion = toml::from_str(text).map_err(|error| error.to_string())?;
        validate(
            &raw,
            &Around {
                base: Base::here(Path::new("")),
                step_s: 1.5,
                warmup_s: 0.2,
                limits: &Limits::default(),
                has_prices: true,
            },
        )
    }

    #[test]
    fn a_question_is_read_with_its_defaults() {
        let asked = read(
            "slo = [\"p99 < 50 ms\", \"errors < 0.1 %\"]\ndemand_rps = 300\nbudget = \"10m\"\ntie = \"5 %\"\nconfidence = 0.9",
        )
        .unwrap();
        assert_eq!(asked.objectives[0].limit_us(), Some(50_000.0));
        assert!((asked.error_share - 0.001).abs() < 1e-12);
        assert_eq!(asked.demand.unwrap().peak_rps, 300.0);
        assert_eq!(
            (asked.minimise, asked.budget_s, asked.tie),
            (Minimise::UsdPerMonth, 600.0, 0.05)
        );
        assert_eq!(
            (asked.mode, asked.batch_size, asked.least_instances),
            (Mode::Realtime, 1, 1)
        );
        let no_demand = read("slo = [\"p95 < 2 ms\"]\nbudget = \"90s\"").unwrap();
        assert_eq!(no_demand.minimise, Minimise::Instances);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("slo = [\"errors < 1 %\"]\nbudget = \"1m\"", "no latency objective"),
            (
                "slo = [\"p98 < 1 ms\"]\nbudget = \"1m\"",
                "`p98 < 1 ms` is no objective",
            ),
            (
                "slo = [\"p99 < 1 ms\", \"p99 < 2 ms\"]\nbudget = \"1m\"",
                "limits `p99` twice",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"soon\"",
                "`question.budget` = `soon`",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\nminimise = \"usd_per_month\"",
                "needs a `demand_rps`",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\ndemand_rps = { average = 9, peak = 3 }",
                "below the average",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\nmode = \"batch\"",
                "`question.batch_size`",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\ntie = \"much\"",
                "`question.tie`",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_trace_has_a_mean_and_a_peak() {
        let mut times: Vec<f64> = (0..100).map(f64::from).collect();
        times.extend((0..50).map(|i| 40.0 + f64::from(i) / 10.0));
        let demand = of_trace(times).unwrap();
        assert!((demand.average_rps - 150.0 / 99.0).abs() < 1e-9);
        assert!((5.5..=6.5).contains(&demand.peak_rps), "{demand:?}");
        assert!(of_trace(vec![1.0, 1.0]).is_none());
    }
}
