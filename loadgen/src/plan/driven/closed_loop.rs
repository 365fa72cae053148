//! `[[load]]` with `mode = "concurrency"`: users and think time in place of rates. In: TOML. Out: its closed loops, in order.

use crate::plan::fault::{Fault, duplicate, misplaced, missing, refuse, within};
use crate::plan::raw::{RawLoad, RawThink};
use crate::plan::target::loads_of;
use tierlab_analysis::record::{Driven, Mode};
use tierlab_load::by_goose::closed_loop::Think;
use tierlab_load::custom::CustomSpec;
use tierlab_load::load::Load;

/// Maximum users: each has a connection.
const MAX_USERS: f64 = 8_192.0;
/// Longest think time, in milliseconds.
const MAX_THINK_MS: f64 = 600_000.0;

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

/// Adds the closed loops of one `[[load]]`, whose path is `at`.
pub(in crate::plan) fn add(loops: &mut Vec<ClosedLoopPlan>, load: &RawLoad, at: &str) -> Result<(), Fault> {
    let key = |name: &str| format!("{at}.{name}");
    if !load.rates.is_empty() {
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
    let think = think(load.think_time_ms.as_ref(), &key("think_time_ms"))?;
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
pub(in crate::plan) fn carry(spec: &CustomSpec, loops: &mut [ClosedLoopPlan]) -> Result<(), Fault> {
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

fn think(raw: Option<&RawThink>, key: &str) -> Result<Think, Fault> {
    let checked = |ms: f64| within(key, ms, 0.0, MAX_THINK_MS).map(|()| ms);
    match raw {
        None => Ok(Think::Fixed(0.0)),
        Some(RawThink::Fixed(ms)) => Ok(Think::Fixed(checked(*ms)?)),
        Some(RawThink::Between([least_ms, most_ms])) => {
            let (least_ms, most_ms) = (checked(*least_ms)?, checked(*most_ms)?);
            if least_ms > most_ms {
                refuse!(key, "[{least_ms}, {most_ms}] ends before it begins");
            }
            Ok(Think::Uniform { least_ms, most_ms })
        }
        Some(RawThink::Law(law)) => {
            within(key, law.exponential, 0.001, MAX_THINK_MS)?;
            Ok(Think::Exponential {
                mean_ms: law.exponential,
            })
        }
    }
}
