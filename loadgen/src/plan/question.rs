//! `[question]`: the question to a lab. In: TOML. Out: a validated [`Question`] with every default filled in.

use super::check::{Base, PlanFacts};
use super::fault::{Fault, check_range, duplicate, fault, misplaced, missing, refuse};
use super::search::objective;
use super::value::{self, Period, Share, Within, not_a_share};
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use tierlab_analysis::record::{Demand, Limits, Minimise, Mode, Objective, Question};
use tierlab_load::recording::RecordingSpec;

/// Default confidence of an answer.
const DEFAULT_CONFIDENCE: f64 = 0.95;
/// Default share of differences that do not matter.
const DEFAULT_TIE: f64 = 0.05;
/// Default utilisation of an instance at the peak: room for bursts that a schedule does not have.
const DEFAULT_UTILISATION: f64 = 0.7;
/// Default highest rate of one instance, in requests per second.
const DEFAULT_HIGHEST_RATE: f64 = 5_000.0;
/// Length of a peak in a trace, in seconds.
const PEAK_S: f64 = 10.0;
/// Longest budget, in seconds: a week.
const MAX_BUDGET_S: f64 = 604_800.0;

/// Question to the lab, which chooses by itself what to measure for the answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuestion {
    /// Objectives: latency percentiles or the mean (`p99 < 50 ms`), goodput (`99.5 % within 50 ms`), and the share of failed
    /// requests (`errors < 0.1 %`).
    slo: Vec<String>,
    /// Requests per second of all instances together: the average is paid for, the peak must be held. A number is both; `{
    /// trace = "arrivals.csv" }` reads them. Without it, the highest rate of one instance is asked for.
    demand_rps: Option<RawDemand>,
    /// Figure to minimise (default: "usd_per_month" with a demand and `prices`, else "instances").
    minimise: Option<Minimise>,
    /// Time for measuring, the loads included, such as "10m". It ends after that, answered or not.
    budget: Period,
    /// Probability that the answer must be right, 0.5 to 0.9999 (default: 0.95).
    confidence: Option<f64>,
    /// Difference within which variants tie, up to 50 % (default: 5 %).
    tie: Option<Share>,
    /// Maximum utilisation of an instance at the peak, from 5 % (default: 70 %); ignored with `minimise = "p99"`.
    utilisation: Option<Share>,
    /// Minimum number of instances (default: 1).
    least_instances: Option<u32>,
    /// Kind of request: "realtime", or "batch" with its size (default: "realtime").
    mode: Option<Mode>,
    /// Entities per request, with "batch".
    batch_size: Option<u32>,
    /// Highest rate to send to one instance (default: 5000, or the highest that a step can send).
    max_rate: Option<f64>,
    /// Size of the feature table that storage is priced for, in GiB (default: the measured one).
    #[serde(default, with = "Within::<value::TableGib>")]
    pub(super) table_gib: Option<f64>,
}

/// `question.demand_rps`: one rate, `{ average = 120, peak = 300 }`, or the arrivals of a trace.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
enum RawDemand {
    Steady(f64),
    Peaks(RawPeaks),
    Trace(RawTrace),
}

impl<'de> Deserialize<'de> for RawDemand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        match value {
            toml::Value::Table(ref table) if table.contains_key("trace") => value::part(value).map(Self::Trace),
            toml::Value::Table(_) => value::part(value).map(Self::Peaks),
            rate => value::part(rate).map(Self::Steady),
        }
    }
}

/// Average and peak of a demand.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawPeaks {
    /// Average rate, which is paid for.
    average: f64,
    /// Peak rate, which must be held.
    peak: f64,
}

/// Demand of recorded arrivals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawTrace {
    /// CSV file of times, in seconds.
    trace: PathBuf,
    /// Column of times (default: "timestamp").
    column: Option<String>,
}

pub(super) fn validate(raw: &RawQuestion, facts: PlanFacts<'_>) -> Result<Question, Fault> {
    let (objectives, error_share) = objectives(&raw.slo, facts.limits)?;
    let demand = raw.demand_rps.as_ref().map(|demand| self::demand(demand, facts.base));
    let demand = demand.transpose()?;
    let budget_s = raw.budget.0.as_secs_f64();
    check_range("question.budget", budget_s, 1.0, MAX_BUDGET_S)?;
    let mode = raw.mode.unwrap_or(Mode::Realtime);
    let max_rate = facts.step.highest_rate();
    let highest_rps = raw.max_rate.unwrap_or(DEFAULT_HIGHEST_RATE.min(max_rate));
    check_range("question.max_rate", highest_rps, 1.0, max_rate)?;
    if raw.table_gib.is_some() && !facts.has_prices {
        return misplaced("question.table_gib", "`prices`: it only changes what storage costs");
    }
    let question = check_numbers(Question {
        objectives,
        error_share,
        minimise: minimise(raw.minimise, demand.as_ref(), facts.has_prices)?,
        demand,
        mode,
        batch_size: batch_size(mode, raw.batch_size)?,
        budget_s,
        confidence: raw.confidence.unwrap_or(DEFAULT_CONFIDENCE),
        tie: raw.tie.map_or(DEFAULT_TIE, |tie| tie.0),
        utilisation: raw.utilisation.map_or(DEFAULT_UTILISATION, |share| share.0),
        least_instances: raw.least_instances.unwrap_or(1),
        highest_rps,
    })?;
    let share = demand.map(|demand| demand.peak_rps / f64::from(question.least_instances));
    let step_s = facts.step.step_s;
    if let Some(rps) = share.filter(|rps| rps * step_s < 1.0) {
        refuse!(
            "question.demand_rps",
            "{rps}/s on each instance is less than one request in a step of {step_s} s; raise it, or `step_s`"
        );
    }
    Ok(question)
}

/// Checks the numbers that can be asked again.
fn check_numbers(question: Question) -> Result<Question, Fault> {
    check_range("question.confidence", question.confidence, 0.5, 0.9999)?;
    check_range("question.tie", question.tie, 0.0, 0.5)?;
    check_range("question.utilisation", question.utilisation, 0.05, 1.0)?;
    let least_instances = f64::from(question.least_instances);
    check_range("question.least_instances", least_instances, 1.0, 10_000.0)?;
    Ok(question)
}

fn batch_size(mode: Mode, requested: Option<u32>) -> Result<u32, Fault> {
    const KEY: &str = "question.batch_size";
    match (mode, requested) {
        (Mode::Realtime, None | Some(1)) => Ok(1),
        (Mode::Realtime, Some(_)) => misplaced(KEY, "`mode = \"batch\"`"),
        (Mode::Batch, Some(size)) => check_range(KEY, f64::from(size), 1.0, 65_536.0).map(|()| size),
        (Mode::Batch, None) => missing(KEY, "the number of entities of a batch request"),
    }
}

/// End of the steps of a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// The budget is used up, for curves and percentiles of every variant
    #[default]
    Budget,
    /// The answer is decided and confirmed, or the budget is used up
    Answered,
}

/// Changes to a run's question; the rest stays.
#[derive(Debug, Clone, Default, Args)]
pub struct QuestionChanges {
    /// Objective, as `p99 < 50 ms` or `errors < 0.1 %`; may be repeated
    #[arg(long, value_name = "OBJECTIVE")]
    slo: Vec<String>,
    /// Demand in requests per second over all instances, on average and at the peak
    #[arg(long, value_name = "RPS", allow_negative_numbers = true)]
    demand_rps: Option<f64>,
    /// Peak demand, if it differs from the average
    #[arg(long, value_name = "RPS", requires = "demand_rps", allow_negative_numbers = true)]
    peak_rps: Option<f64>,
    /// Figure to minimise: usd_per_month, usd_per_10k, p99 or instances
    #[arg(long, value_name = "WHAT")]
    minimise: Option<String>,
    /// Probability that the answer must be right, as 0.95
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    confidence: Option<f64>,
    /// Difference within which two variants tie, as `5 %`
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    tie: Option<String>,
    /// Maximum utilisation of an instance at the peak, as `70 %`
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    utilisation: Option<String>,
    /// Minimum number of instances
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    least_instances: Option<u32>,
}

impl QuestionChanges {
    /// Returns the changed question.
    ///
    /// # Errors
    /// Invalid objectives or shares, or a contradiction; the message names the option.
    pub fn apply(&self, prior: &Question, limits: &Limits, has_prices: bool) -> Result<Question, Fault> {
        self.changed(prior, limits, has_prices).map_err(|fault| {
            let key = fault.key.replace("demand_rps.peak", "peak_rps").replace('_', "-");
            let name = key.trim_start_matches("question.").split('[').next();
            fault.of_option(&format!("--{}", name.unwrap_or_default()))
        })
    }

    fn changed(&self, prior: &Question, limits: &Limits, has_prices: bool) -> Result<Question, Fault> {
        let (objectives, error_share) = match &self.slo[..] {
            [] => (prior.objectives.clone(), prior.error_share),
            slo => objectives(slo, limits)?,
        };
        let demand = match self.demand_rps {
            None => prior.demand,
            Some(average) => Some(checked_demand(average, self.peak_rps.unwrap_or(average))?),
        };
        let minimise_figure = match &self.minimise {
            None => prior.minimise,
            Some(name) => Minimise::deserialize(name.as_str().into_deserializer())
                .map_err(|error: serde::de::value::Error| Fault::new("question.minimise", error.to_string()))?,
        };
        check_numbers(Question {
            objectives,
            error_share,
            minimise: minimise(Some(minimise_figure), demand.as_ref(), has_prices)?,
            demand,
            tie: share("question.tie", self.tie.as_deref(), prior.tie)?,
            utilisation: share("question.utilisation", self.utilisation.as_deref(), prior.utilisation)?,
            confidence: self.confidence.unwrap_or(prior.confidence),
            least_instances: self.least_instances.unwrap_or(prior.least_instances),
            ..prior.clone()
        })
    }
}

fn share(key: &str, text: Option<&str>, default: f64) -> Result<f64, Fault> {
    let Some(text) = text else { return Ok(default) };
    let share = Share::parse(text).ok_or_else(|| Fault::new(key, not_a_share(text)))?;
    Ok(share.0)
}

/// Latency objectives, and the share of requests that may fail.
fn objectives(slo: &[String], limits: &Limits) -> Result<(Vec<Objective>, f64), Fault> {
    let (mut objectives, mut error_share): (Vec<Objective>, _) = (Vec::new(), None);
    for (i, text) in slo.iter().enumerate() {
        if let Some(share) = value::errors(text) {
            if error_share.replace(share).is_some() {
                return duplicate("question.slo", "`errors`");
            }
            continue;
        }
        let objective = objective(text).map_err(|problem| {
            let problem = format!("{problem}; of failed requests, as `errors < 0.1 %`");
            Fault::new(format!("question.slo[{i}]"), problem)
        })?;
        if objectives.iter().any(|other| other.figure() == objective.figure()) {
            return duplicate("question.slo", format!("`{}`", objective.figure()));
        }
        objectives.push(objective);
    }
    if objectives.is_empty() {
        refuse!("question.slo", "no latency objective, such as `p99 < 50 ms`");
    }
    Ok((objectives, error_share.unwrap_or(limits.error_share)))
}

fn demand(raw: &RawDemand, base: Base<'_>) -> Result<Demand, Fault> {
    const KEY: &str = "question.demand_rps.trace";
    match raw {
        RawDemand::Steady(rps) => checked_demand(*rps, *rps),
        RawDemand::Peaks(RawPeaks { average, peak }) => checked_demand(*average, *peak),
        RawDemand::Trace(RawTrace { trace, column }) => {
            let recording = RecordingSpec {
                file: base.request_file(trace),
                column: column.clone().unwrap_or_else(|| "timestamp".into()),
                unit: None,
            };
            let recorded = recording.read().map_err(|problem| Fault::new(KEY, problem))?;
            let (average, peak) = trace_demand(recorded.calls.iter().map(|call| call.at_s).collect())
                .ok_or_else(|| fault!(KEY, "fewer than two arrivals, or all at one time"))?;
            checked_demand(average, peak)
        }
    }
}

fn checked_demand(average_rps: f64, peak_rps: f64) -> Result<Demand, Fault> {
    const KEY: &str = "question.demand_rps.peak";
    check_range("question.demand_rps", average_rps, 0.001, 1e7)?;
    check_range(KEY, peak_rps, 0.001, 1e7)?;
    if peak_rps < average_rps {
        refuse!(KEY, "the peak, {peak_rps}, is below the average, {average_rps}");
    }
    Ok(Demand { average_rps, peak_rps })
}

/// Mean rate of a trace, and the highest over [`PEAK_S`] seconds, or over the whole trace if it is shorter. Times in
/// seconds.
fn trace_demand(mut times: Vec<f64>) -> Option<(f64, f64)> {
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
    Some((average_rps, (most as f64 / window).max(average_rps)))
}

fn minimise(requested: Option<Minimise>, demand: Option<&Demand>, has_prices: bool) -> Result<Minimise, Fault> {
    const KEY: &str = "question.minimise";
    let minimise = requested.unwrap_or(match (demand, has_prices) {
        (Some(_), true) => Minimise::UsdPerMonth,
        _ => Minimise::Instances,
    });
    match (minimise, demand, has_prices) {
        (Minimise::UsdPerMonth | Minimise::P99, None, _) => Err(fault!(
            KEY,
            "\"{minimise}\" needs a `demand_rps` (--demand-rps); without one, ask for `instances` or `usd_per_10k`"
        )),
        (Minimise::UsdPerMonth | Minimise::UsdPer10k, _, false) => {
            Err(fault!(KEY, "\"{minimise}\" needs `prices` and `instance` (--prices)"))
        }
        _ => Ok(minimise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::raw::RawPlan;
    use std::path::Path;

    fn read(text: &str) -> Result<Question, Fault> {
        const HEAD: &str =
            "name = \"t\"\nmodel = \"m\"\nseed = 1\nwarmup_s = 0.2\nstep_s = 1.5\ndrain_s = 1\nprices = \"p\"\n";
        let text = format!("{HEAD}[question]\n{text}");
        let raw: RawPlan = crate::plan::fault::read(&text).map_err(|(_, fault)| fault)?;
        let facts = raw.facts(Base::local(Path::new("")));
        validate(raw.question.as_ref().unwrap(), facts)
    }

    #[test]
    fn a_question_is_read_with_its_defaults() {
        let asked = read(
            "slo = [\"p99 < 50 ms\", \"errors < 0.1 %\"]\ndemand_rps = 300\nbudget = \"10m\"\ntie = \"5 %\"\nconfidence = 0.9",
        )
        .unwrap();
        assert_eq!(asked.objectives[0].limit_us(), 50_000.0);
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
                "`p98 < 1 ms` is not an objective",
            ),
            (
                "slo = [\"p99 < 1 ms\", \"p99 < 2 ms\"]\nbudget = \"1m\"",
                "duplicate entry: `p99`",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"soon\"",
                "`question.budget`: `soon` is not a time",
            ),
            ("slo = [\"p99 < 1 ms\"]\nbudget = 180", "write \"3m\""),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\ndemand_rps = { average = 9, peek = 3 }",
                "`question.demand_rps`: unknown field `peek`",
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
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\ndemand_rps = 0.5",
                "`question.demand_rps`: 0.5/s on each instance is less than one request in a step of 1.5 s",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\ndemand_rps = 3\nleast_instances = 10",
                "0.3/s on each instance",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\nmode = \"batch\"",
                "`question.batch_size`",
            ),
            (
                "slo = [\"p99 < 1 ms\"]\nbudget = \"1m\"\ntie = \"much\"",
                "`question.tie`: \"much\" is not a share",
            ),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn invalid_changes_name_their_option_and_the_values_that_it_accepts() {
        #[derive(clap::Parser)]
        struct Advise {
            #[command(flatten)]
            changes: QuestionChanges,
        }
        let asked = read("slo = [\"p99 < 50 ms\"]\nbudget = \"10m\"").unwrap();
        for (arguments, says) in [
            (
                &["--slo", "fast"][..],
                "`--slo`: `fast` is not an objective; write it as",
            ),
            (&["--slo", "errors < 1 %"], "`--slo`: no latency objective, such as"),
            (&["--demand-rps", "nan"], "`--demand-rps`: NaN is not between 0.001 and"),
            (&["--demand-rps", "-1"], "`--demand-rps`: -1 is not between 0.001 and"),
            (
                &["--demand-rps", "9", "--peak-rps", "inf"],
                "`--peak-rps`: inf is not between 0.001 and",
            ),
            (
                &["--demand-rps", "9", "--peak-rps", "3"],
                "`--peak-rps`: the peak, 3, is below the average, 9",
            ),
            (&["--minimise", "all"], "`--minimise`: unknown variant `all`, expected"),
            (
                &["--minimise", "p99"],
                "`--minimise`: \"p99\" needs a `demand_rps` (--demand-rps)",
            ),
            (
                &["--confidence", "nan"],
                "`--confidence`: NaN is not between 0.5 and 0.9999",
            ),
            (&["--tie", "0.6"], "`--tie`: 0.6 is not between 0 and 0.5"),
            (
                &["--utilisation", "much"],
                "`--utilisation`: much is not a share; write it as",
            ),
            (
                &["--least-instances", "0"],
                "`--least-instances`: 0 is not between 1 and 10000",
            ),
        ] {
            let arguments = [&["advise"], arguments].concat();
            let advise = <Advise as clap::Parser>::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"));
            let error = advise.changes.apply(&asked, &Limits::default(), true).unwrap_err();
            assert!(error.to_string().starts_with(says), "{error}");
        }
    }

    #[test]
    fn a_trace_has_a_mean_and_a_peak() {
        let mut times: Vec<f64> = (0..100).map(f64::from).collect();
        times.extend((0..50).map(|i| 40.0 + f64::from(i) / 10.0));
        let (average, peak) = trace_demand(times).unwrap();
        assert!((average - 150.0 / 99.0).abs() < 1e-9);
        assert!((5.5..=6.5).contains(&peak), "{peak}");
        assert!(trace_demand(vec![1.0, 1.0]).is_none());
    }
}
