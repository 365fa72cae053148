//! `[[load]]`: rates by mode and batch size. In: TOML. Out: every load, in the plan's order.

use super::check::{MAX_RATE, MAX_REQUESTS_PER_STEP, within};
use super::raw::{self, RawMode};
use tierlab_analysis::record::Mode;
use tierlab_load::load::Load;

/// Checks the batch size and the rate of a load, whose key in the plan is `at`.
pub(super) fn check(at: &str, load: &Load, warmup_s: f64, step_s: f64) -> Result<(), String> {
    // A batch of one would be real-time under another name.
    let least = if load.mode == Mode::Batch { 2.0 } else { 1.0 };
    within(
        &format!("{at}.batch_sizes"),
        f64::from(load.batch_size),
        least,
        65_536.0,
    )?;
    let rate = load.rate;
    within(&format!("{at}.rates"), rate, 0.01, MAX_RATE)?;
    if rate * step_s < 1.0 {
        return Err(format!(
            "`{at}.rates`: {rate} per second sends nothing in a step of {step_s} s"
        ));
    }
    if rate * (warmup_s + step_s) > MAX_REQUESTS_PER_STEP {
        return Err(format!(
            "`{at}.rates`: {rate} per second is more than {MAX_REQUESTS_PER_STEP} requests a step; shorten `step_s`"
        ));
    }
    Ok(())
}

pub(super) fn validate(raw: &[raw::RawLoad], warmup_s: f64, step_s: f64) -> Result<Vec<Load>, String> {
    let mut loads = Vec::new();
    for (i, load) in raw.iter().enumerate() {
        let (mode, batch_sizes) = match load.mode {
            // Of `closed_loop`.
            RawMode::Concurrency => continue,
            RawMode::Realtime if load.batch_sizes.is_empty() => (Mode::Realtime, &[1][..]),
            RawMode::Realtime => {
                return Err(format!(
                    "`load[{i}].batch_sizes` does not belong to `mode = \"realtime\"`, which sends one entity per request"
                ));
            }
            RawMode::Batch if load.batch_sizes.is_empty() => {
                return Err(format!(
                    "`load[{i}].batch_sizes` is missing: `mode = \"batch\"` needs at least one"
                ));
            }
            RawMode::Batch => (Mode::Batch, &load.batch_sizes[..]),
        };
        if load.rates.is_empty() {
            return Err(format!("`load[{i}].rates` is missing, or empty"));
        }
        for &batch_size in batch_sizes {
            for &rate in &load.rates {
                let load = Load { mode, batch_size, rate };
                check(&format!("load[{i}]"), &load, warmup_s, step_s)?;
                loads.push(load);
            }
        }
    }
    for (i, load) in loads.iter().enumerate() {
        if loads[..i].contains(load) {
            return Err(format!(
                "`load`: {} × {} at {} per second stands twice",
                load.mode, load.batch_size, load.rate
            ));
        }
    }
    Ok(loads)
}
