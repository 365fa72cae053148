//! `[[load]]`: rates by mode and batch size. In: TOML. Out: every load, in the plan's order.

use super::check::Step;
use super::fault::{Fault, duplicate, misplaced, missing, within};
use super::raw::{self, RawMode};
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

pub(super) fn validate(raw: &[raw::RawLoad], step: Step) -> Result<Vec<Load>, Fault> {
    let mut loads = Vec::new();
    for (i, load) in raw.iter().enumerate() {
        let (mode, batch_sizes) = match load.mode {
            // Read by `closed_loop`.
            RawMode::Concurrency => continue,
            RawMode::Realtime if load.batch_sizes.is_empty() => (Mode::Realtime, &[1][..]),
            RawMode::Realtime => return misplaced(format!("load[{i}].batch_sizes"), "`mode = \"batch\"`"),
            RawMode::Batch if load.batch_sizes.is_empty() => {
                return missing(
                    format!("load[{i}].batch_sizes"),
                    "`mode = \"batch\"` needs at least one",
                );
            }
            RawMode::Batch => (Mode::Batch, &load.batch_sizes[..]),
        };
        if load.rates.is_empty() {
            return missing(format!("load[{i}].rates"), "an open loop needs at least one rate");
        }
        for &batch_size in batch_sizes {
            for &rate in &load.rates {
                let load = Load { mode, batch_size, rate };
                check(&format!("load[{i}]"), &load, step)?;
                loads.push(load);
            }
        }
    }
    match loads.iter().enumerate().find(|(i, load)| loads[..*i].contains(load)) {
        None => Ok(loads),
        Some((_, Load { mode, batch_size, rate })) => {
            duplicate("load", format!("{mode} × {batch_size} at {rate} per second"))
        }
    }
}
