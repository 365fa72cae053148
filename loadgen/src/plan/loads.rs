//! `[[load]]`: rates by mode and batch size, or users. In: TOML. Out: every load and closed loop, in the plan's order.

use super::check::Step;
use super::driven::{ClosedLoopPlan, add_closed_loops};
use super::fault::{Fault, duplicate, misplaced, missing, only_with, within};
use super::raw::{RawLoad, RawMode};
use tierlab_analysis::record::Mode;
use tierlab_load::load::Load;

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

/// Open and closed loops, each in the plan's order.
pub(super) fn validate(raw: &[RawLoad], step: Step) -> Result<(Vec<Load>, Vec<ClosedLoopPlan>), Fault> {
    let (mut loads, mut closed_loops) = (Vec::new(), Vec::new());
    for (i, load) in raw.iter().enumerate() {
        let at = format!("load[{i}]");
        let key = |name: &str| format!("{at}.{name}");
        if load.mode == RawMode::Concurrency {
            add_closed_loops(&mut closed_loops, load, &at)?;
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
        if load.rates.is_empty() {
            return missing(key("rates"), "an open loop needs at least one rate");
        }
        for &batch_size in batch_sizes {
            for &rate in &load.rates {
                let load = Load { mode, batch_size, rate };
                check(&at, &load, step)?;
                loads.push(load);
            }
        }
    }
    match loads.iter().enumerate().find(|(i, load)| loads[..*i].contains(load)) {
        None => Ok((loads, closed_loops)),
        Some((_, Load { mode, batch_size, rate })) => {
            duplicate("load", format!("{mode} × {batch_size} at {rate} per second"))
        }
    }
}
