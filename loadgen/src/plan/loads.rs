//! `[[load]]` and `[[mix]]`: rates by mode and batch size, users with their think time, and loads at the same time. In: TOML. Out:
//! every load, closed loop and mix, validated, in the plan's order.

use super::Traffic;
use super::check::StepTimes;
use super::fault::{
    Fault, check_count, check_distinct, check_name, check_range, conflict, duplicate, empty, misplaced, missing,
    only_with, refuse, require_goose,
};
use super::target::set_rows;
use super::value::{self, Within};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::time::Duration;
use tierlab_analysis::record::{Driven, Mode, RampRates};
use tierlab_load::arrivals::{Arrivals, Process};
use tierlab_load::by_goose::closed_loop::Think;
use tierlab_load::custom::CustomSpec;
use tierlab_load::schedule::{Load, Schedule};

/// Minimum share of a step that a recording must fill.
const REPLAYED_SHARE: f64 = 0.95;
/// Maximum users: each has a connection.
const MAX_USERS: f64 = 8_192.0;
/// Maximum parts of a mix: each has users and a point of its own.
const MAX_PARTS: usize = 32;

/// Requests at fixed rates, or of a fixed number of users. A p99 is printed from 1,000 requests over all repeats (rate × step_s
/// × repeats), and has an upper bound from 1,500 if requests do not queue.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLoad {
    /// "realtime" sends one entity per request, "batch" many. "concurrency" replaces rates by users who wait for their replies.
    pub(super) mode: RawMode,
    /// Entities per request, with "batch"; each is measured at every rate.
    #[serde(default)]
    pub(super) batch_sizes: Vec<u32>,
    /// Requests per second, each a point of its own. Or a ramp, the plan's only load: `{ from = 10, to = 500, over = 60 }` raises
    /// the rate for `over` seconds, or else all of `step_s`, and then keeps it; its result has ten blocks, and it stops once every
    /// user has been busy for a second.
    #[serde(default)]
    pub(super) rates: Rates,
    /// Numbers of users, with `mode = "concurrency"`. A user sends again after its reply and its think time. Each
    /// number is a point of its own, measured beside an open loop at the same throughput.
    #[serde(default)]
    pub(super) users: Vec<u32>,
    /// Pause between a reply and the user's next request in milliseconds, with `mode = "concurrency"`: a number,
    /// `[least, most]` for a uniform one, `{ exponential = 50 }` for an exponential one of that mean (default: none).
    #[serde(default, deserialize_with = "value::think_time_ms")]
    #[schemars(with = "value::ThinkTime")]
    pub(super) think_time_ms: Option<Think>,
}

impl RawLoad {
    /// True for a closed loop.
    pub(super) fn is_closed(&self) -> bool {
        self.mode == RawMode::Concurrency
    }

    /// Batch sizes of its requests.
    fn batch_sizes(&self) -> &[u32] {
        match &self.batch_sizes[..] {
            [] => &[1],
            sizes => sizes,
        }
    }
}

/// `load.rates`.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, inline)]
pub(super) enum Rates {
    Each(Vec<f64>),
    Ramp(RawRamp),
}

/// Rates of a ramp.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct RawRamp {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) over: Option<f64>,
}

impl Default for Rates {
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

impl<'de> Deserialize<'de> for Rates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            ramp @ toml::Value::Table(_) => value::part(ramp).map(Self::Ramp),
            rates => value::part(rates).map(Self::Each),
        }
    }
}

/// `load.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawMode {
    /// One entity per request, at rates.
    Realtime,
    /// Many entities per request, at rates.
    Batch,
    /// A closed loop of users.
    Concurrency,
}

/// One closed loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosedLoopPlan {
    /// Entities per request.
    pub batch_size: u32,
    /// Concurrent users.
    pub users: u32,
    /// Pause between a reply and the next request.
    pub think: Think,
}

impl ClosedLoopPlan {
    /// Load at the rate of the open loop beside it; 0 for the closed loop itself.
    pub const fn load(&self, rate: f64) -> Load {
        let mode = match self.batch_size {
            1 => Mode::Realtime,
            _ => Mode::Batch,
        };
        Load {
            mode,
            batch_size: self.batch_size,
            rate,
        }
    }

    /// Factor of its points.
    pub fn driven(&self) -> Driven {
        let (users, think_time) = (self.users, self.think.to_string());
        Driven::ClosedLoop { users, think_time }
    }

    /// Factor of the open loop beside it.
    pub fn paired(&self) -> Driven {
        let (users, think_time) = (self.users, self.think.to_string());
        Driven::BesideClosedLoop { users, think_time }
    }
}

/// Load of a replay, whose recording sets the times.
pub(super) fn replayed(arrivals: &Arrivals, step: StepTimes) -> Result<Load, Fault> {
    const KEY: &str = "arrival.file";
    let [warmup, window] = [step.warmup_s, step.step_s].map(Duration::from_secs_f64);
    let schedule = Schedule::new(arrivals, 0.0, warmup, window, 0);
    if let Process::Trace { trace, speed } = &arrivals.process {
        let length_s = trace.at_s.last().copied().unwrap_or_default() / speed.unwrap_or(1.0);
        let needed_s = step.warmup_s + step.step_s;
        if length_s < REPLAYED_SHARE * needed_s {
            refuse!(
                KEY,
                "the recording takes {length_s:.3} s at its speed, and `warmup_s` and `step_s` are {needed_s} s; shorten them, or lower \
                 `arrival.speed`"
            );
        }
    }
    let load = Load {
        mode: Mode::Realtime,
        batch_size: 1,
        rate: schedule.window_requests as f64 / step.step_s,
    };
    if schedule.window_requests == 0 {
        refuse!(
            KEY,
            "no request is due in the {} s after the warm-up; check `arrival.unit` and `arrival.speed`",
            step.step_s
        );
    }
    step.check_rate(KEY, load.rate, 1)?;
    Ok(load)
}

/// Checks the batch size and the rate of a load, whose key in the plan is `at`.
pub(super) fn check(at: &str, load: &Load, step: StepTimes) -> Result<(), Fault> {
    // A batch of one would be real-time under another name.
    let least = if load.mode == Mode::Batch { 2.0 } else { 1.0 };
    let batch_size = f64::from(load.batch_size);
    check_range(&format!("{at}.batch_sizes"), batch_size, least, 65_536.0)?;
    step.check_rate(&format!("{at}.rates"), load.rate, 1)
}

/// Adds open and closed loops, each in the plan's order.
pub(super) fn validate(raw: &[RawLoad], step: StepTimes, traffic: &mut Traffic) -> Result<(), Fault> {
    let loads = &mut traffic.loads;
    for (i, load) in raw.iter().enumerate() {
        let at = format!("load[{i}]");
        let key = |name: &str| format!("{at}.{name}");
        if load.is_closed() {
            add_closed_loops(&mut traffic.closed_loops, load, &at)?;
            continue;
        }
        let given = [
            ("users", !load.users.is_empty()),
            ("think_time_ms", load.think_time_ms.is_some()),
        ];
        let owner = "`mode = \"concurrency\"`, a closed loop; an open loop has `rates`";
        only_with(&at, owner, &given)?;
        let mode = match (load.mode, load.batch_sizes.is_empty()) {
            (RawMode::Batch, true) => return missing(key("batch_sizes"), "`mode = \"batch\"` needs at least one"),
            (RawMode::Batch, false) => Mode::Batch,
            (_, true) => Mode::Realtime,
            (_, false) => return misplaced(key("batch_sizes"), "`mode = \"batch\"`"),
        };
        let rates = match &load.rates {
            Rates::Each(rates) if rates.is_empty() => {
                return missing(key("rates"), "an open loop needs at least one rate");
            }
            Rates::Each(rates) => rates.clone(),
            Rates::Ramp(_) if raw.len() > 1 => {
                return conflict(key("rates"), "[[load]]", "a ramp is the only load of its plan");
            }
            Rates::Ramp(given) => vec![traffic.ramp.insert(ramp(given, &key("rates"), step)?).mean()],
        };
        for &batch_size in load.batch_sizes() {
            for &rate in &rates {
                let load = Load { mode, batch_size, rate };
                check(&at, &load, step)?;
                loads.push(load);
            }
        }
    }
    if let Some((_, repeated)) = loads.iter().enumerate().find(|(i, load)| loads[..*i].contains(load)) {
        let Load { mode, batch_size, rate } = repeated;
        return duplicate("load", format!("{mode} × {batch_size} at {rate} per second"));
    }
    Ok(())
}

fn ramp(raw: &RawRamp, at: &str, step: StepTimes) -> Result<RampRates, Fault> {
    let &RawRamp { from, to, over } = raw;
    for (name, rate) in [("from", from), ("to", to)] {
        check_range(&format!("{at}.{name}"), rate, 0.0, step.highest_rate())?;
    }
    let over_s = over.unwrap_or(step.step_s);
    check_range(&format!("{at}.over"), over_s, 0.1, step.step_s)?;
    Ok(RampRates {
        from,
        to,
        over: over_s / step.step_s,
    })
}

/// Adds the closed loops of one `[[load]]`, whose path is `at`.
fn add_closed_loops(loops: &mut Vec<ClosedLoopPlan>, load: &RawLoad, at: &str) -> Result<(), Fault> {
    let key = |name: &str| format!("{at}.{name}");
    require_goose(&key("mode"))?;
    if !matches!(&load.rates, Rates::Each(rates) if rates.is_empty()) {
        return misplaced(
            key("rates"),
            "open loops: the throughput of `mode = \"concurrency\"` is a result; give `users`, or set `mode = \"realtime\"`",
        );
    }
    if load.users.is_empty() {
        let advice = "`mode = \"concurrency\"` needs at least one number of users, such as [1, 2, 4, 8]";
        return missing(key("users"), advice);
    }
    let think = load.think_time_ms.unwrap_or(Think::Fixed(0.0));
    for &batch_size in load.batch_sizes() {
        check_range(&key("batch_sizes"), f64::from(batch_size), 1.0, 65_536.0)?;
        for &users in &load.users {
            check_range(&key("users"), f64::from(users), 1.0, MAX_USERS)?;
            let closed_loop = ClosedLoopPlan {
                batch_size,
                users,
                think,
            };
            if loops.contains(&closed_loop) {
                let problem = format!("{users} with think time {think} and {batch_size} per request");
                return duplicate(key("users"), problem);
            }
            loops.push(closed_loop);
        }
    }
    Ok(())
}

/// Sets the rows per request of closed loops on a custom target.
pub(super) fn set_closed_rows(spec: &CustomSpec, loops: &mut [ClosedLoopPlan]) -> Result<(), Fault> {
    for index in 0..loops.len() {
        let (before, later) = loops.split_at_mut(index);
        let mut load = [later[0].load(0.0)];
        set_rows(spec, &mut load)?;
        later[0].batch_size = load[0].batch_size;
        if before.contains(&later[0]) {
            return duplicate(
                "load",
                format!(
                    "{} users, since `target.rows_per_request` makes every request carry {} rows",
                    later[0].users, spec.rows_per_request
                ),
            );
        }
    }
    Ok(())
}

/// Several loads at the same time, each a point of its own in the result. `max_in_flight` holds for each part. Parts share the
/// costs: the hour by the time of their requests in inference, storage requests and bytes by the tier requests that their
/// replies report. Searches leave mixes out.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Requests per second of all parts together, shared by weight.
    pub rates: Vec<f64>,
    /// Parts, at least two.
    #[serde(default, rename = "part")]
    pub parts: Vec<Part>,
}

/// One part of a mix: `[[mix.part]]`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Share of the requests, relative to the weights of all parts.
    #[serde(with = "Within::<value::Weight>")]
    pub weight: f64,
    /// Real-time or batch.
    pub mode: Mode,
    /// Entities per request; 1 in real-time mode.
    #[serde(default = "value::default::<1>")]
    pub batch_size: u32,
    /// Model (default: the plan's). Only in a sweep.
    pub model: Option<String>,
}

impl Mix {
    /// Load of a part at the mix's `rate`.
    pub fn load(&self, part: &Part, rate: f64) -> Load {
        let all: f64 = self.parts.iter().map(|part| part.weight).sum();
        Load {
            mode: part.mode,
            batch_size: part.batch_size,
            rate: rate * part.weight / all,
        }
    }
}

/// Models of mixes other than the plan's.
pub(super) fn other_models<'a>(mixes: &'a [Mix], model: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = mixes.iter().flat_map(|mix| &mix.parts);
    let models = parts.filter_map(|part| part.model.as_deref());
    models.filter(move |other| *other != model)
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts.iter().map(|part| format!("{} {part}", part.weight));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.mode, self.batch_size)?;
        match &self.model {
            Some(model) => write!(f, " of {model}"),
            None => Ok(()),
        }
    }
}

pub(super) fn validate_mixes(mixes: &[Mix], step: StepTimes) -> Result<(), Fault> {
    let mut numbered = mixes.iter().enumerate();
    numbered.try_for_each(|(index, mix)| check_mix(mix, &format!("mix[{index}]"), step))
}

fn check_mix(mix: &Mix, at: &str, step: StepTimes) -> Result<(), Fault> {
    let parts = &mix.parts;
    for (index, part) in parts.iter().enumerate() {
        check_part(part, &format!("{at}.part[{index}]"))?;
    }
    check_count(&format!("{at}.part"), parts.len(), 2, MAX_PARTS)?;
    for (i, part) in parts.iter().enumerate() {
        let same =
            |other: &&Part| (other.mode, other.batch_size, &other.model) == (part.mode, part.batch_size, &part.model);
        if parts[..i].iter().any(|other| same(&other)) {
            return duplicate(format!("{at}.part[{i}]"), part);
        }
    }
    if mix.rates.is_empty() {
        return empty(format!("{at}.rates"));
    }
    check_distinct(&format!("{at}.rates"), &mix.rates)?;
    for (i, &rate) in mix.rates.iter().enumerate() {
        let key = format!("{at}.rates[{i}]");
        step.check_rate(&key, rate, 1)?;
        for part in &mix.parts {
            let share = mix.load(part, rate).rate;
            if share * step.step_s < 1.0 {
                refuse!(
                    key,
                    "of {rate} per second, {share:.3} are {part}, which sends nothing in a step of {} s",
                    step.step_s
                );
            }
        }
    }
    Ok(())
}

fn check_part(part: &Part, at: &str) -> Result<(), Fault> {
    let key = format!("{at}.batch_size");
    match (part.mode, part.batch_size) {
        (Mode::Realtime, 1) => {}
        (Mode::Realtime, _) => return misplaced(key, "`mode = \"batch\"`"),
        (Mode::Batch, 1) => return missing(key, "`mode = \"batch\"` needs at least 2"),
        (Mode::Batch, size) => check_range(&key, f64::from(size), 2.0, 65_536.0)?,
    }
    match &part.model {
        Some(model) => check_name(&format!("{at}.model"), model),
        None => Ok(()),
    }
}
