//! `[[load]]`: rates by mode and batch size, or users with their think time. In: TOML. Out: every load and closed loop, in the
//! plan's order.

use super::Traffic;
use super::check::Step;
use super::fault::{Fault, by_goose, conflict, duplicate, misplaced, missing, only_with, refuse, within};
use super::raw::{Rates, RawLoad, RawMode, RawRamp};
use super::target::loads_of;
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
    #[must_use]
    pub const fn load(&self, rate: f64) -> Load {
        Load {
            mode: if self.batch_size == 1 {
                Mode::Realtime
            } else {
                Mode::Batch
            },
            batch_size: self.batch_size,
            rate,
        }
    }

    /// Factor of its points.
    #[must_use]
    pub fn driven(&self) -> Driven {
        Driven::ClosedLoop {
            users: self.users,
            think_time: self.think.to_string(),
        }
    }

    /// Factor of the open loop beside it.
    #[must_use]
    pub fn beside(&self) -> Driven {
        Driven::BesideClosedLoop {
            users: self.users,
            think_time: self.think.to_string(),
        }
    }
}

/// Load of a replay, whose recording sets the times.
pub(super) fn replayed(arrivals: &Arrivals, step: Step) -> Result<Load, Fault> {
    const KEY: &str = "arrival.file";
    let (warmup, window) = (
        Duration::from_secs_f64(step.warmup_s),
        Duration::from_secs_f64(step.step_s),
    );
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
    step.check_rate(KEY, load.rate, 1)?;
    Ok(load)
}

/// Checks the batch size and the rate of a load, whose key in the plan is `at`.
pub(super) fn check(at: &str, load: &Load, step: Step) -> Result<(), Fault> {
    // A batch of one would be real-time under another name.
    let least = if load.mode == Mode::Batch { 2.0 } else { 1.0 };
    within(
        &format!("{at}.batch_sizes"),
        f64::from(load.batch_size),
        least,
        65_536.0,
    )?;
    step.check_rate(&format!("{at}.rates"), load.rate, 1)
}

/// Adds open and closed loops, each in the plan's order.
pub(super) fn validate(raw: &[RawLoad], step: Step, traffic: &mut Traffic) -> Result<(), Fault> {
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
        let (mode, batch_sizes) = match (load.mode, &load.batch_sizes[..]) {
            (RawMode::Batch, []) => return missing(key("batch_sizes"), "`mode = \"batch\"` needs at least one"),
            (RawMode::Batch, sizes) => (Mode::Batch, sizes),
            (_, []) => (Mode::Realtime, &[1][..]),
            (..) => return misplaced(key("batch_sizes"), "`mode = \"batch\"`"),
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
        for &batch_size in batch_sizes {
            for &rate in &rates {
                let load = Load { mode, batch_size, rate };
                check(&at, &load, step)?;
                loads.push(load);
            }
        }
    }
    match loads.iter().enumerate().find(|(i, load)| loads[..*i].contains(load)) {
        None => Ok(()),
        Some((_, Load { mode, batch_size, rate })) => {
            duplicate("load", format!("{mode} × {batch_size} at {rate} per second"))
        }
    }
}

fn ramp(raw: &RawRamp, at: &str, step: Step) -> Result<RampRates, Fault> {
    let &RawRamp { from, to, over } = raw;
    for (name, rate) in [("from", from), ("to", to)] {
        within(&format!("{at}.{name}"), rate, 0.0, step.highest_rate())?;
    }
    let over_s = over.unwrap_or(step.step_s);
    within(&format!("{at}.over"), over_s, 0.1, step.step_s)?;
    Ok(RampRates {
        from,
        to,
        over: over_s / step.step_s,
    })
}

/// Adds the closed loops of one `[[load]]`, whose path is `at`.
fn add_closed_loops(loops: &mut Vec<ClosedLoopPlan>, load: &RawLoad, at: &str) -> Result<(), Fault> {
    let key = |name: &str| format!("{at}.{name}");
    by_goose(&key("mode"))?;
    if !matches!(&load.rates, Rates::Each(rates) if rates.is_empty()) {
        return misplaced(
            key("rates"),
            "open loops: the throughput of `mode = \"concurrency\"` is a result; give `users`, or set `mode = \"realtime\"`",
        );
    }
    if load.users.is_empty() {
        return missing(
            key("users"),
            "`mode = \"concurrency\"` needs at least one number of users, such as [1, 2, 4, 8]",
        );
    }
    let think = load.think_time_ms.unwrap_or(Think::Fixed(0.0));
    let batch_sizes = match &load.batch_sizes[..] {
        [] => &[1][..],
        sizes => sizes,
    };
    for &batch_size in batch_sizes {
        within(&key("batch_sizes"), f64::from(batch_size), 1.0, 65_536.0)?;
        for &users in &load.users {
            within(&key("users"), f64::from(users), 1.0, MAX_USERS)?;
            let one = ClosedLoopPlan {
                batch_size,
                users,
                think,
            };
            if loops.contains(&one) {
                let what = format!("{users} with think time {think} and {batch_size} per request");
                return duplicate(key("users"), what);
            }
            loops.push(one);
        }
    }
    Ok(())
}

/// Sets the rows per request of closed loops on a custom target.
pub(super) fn carry(spec: &CustomSpec, loops: &mut [ClosedLoopPlan]) -> Result<(), Fault> {
    for place in 0..loops.len() {
        let (before, later) = loops.split_at_mut(place);
        let mut load = [later[0].load(0.0)];
        loads_of(spec, &mut load)?;
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
