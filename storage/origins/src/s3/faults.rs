//! Deliberate faults and delays of the origin. In: a plan, written `key=value,key=value`. Out: the fault of each
//! request, the same for the same seed and order. Pure, except for the holder of the current plan.

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Number};
use std::str::FromStr;
use std::sync::Arc;

/// Faults and delays of the origin (default: none, at full speed). Rates are shares of the requests, from 0 to 1, and
/// their sum is at most 1: a request has at most one fault.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FaultPlan {
    /// GETs and HEADs answered with 500 or 503; with 503 or 429 if `retry_after_s` is set.
    pub error_rate: f64,
    /// Value of `Retry-After` in error replies, in seconds.
    pub retry_after_s: Option<u32>,
    /// GETs and HEADs that wait for `slow_ms` before anything else happens.
    pub slow_rate: f64,
    /// Wait of slow requests, in milliseconds.
    pub slow_ms: u64,
    /// Bodies of GETs that stop half-way, the connection left open.
    pub stall_rate: f64,
    /// Bodies of GETs that end before their length.
    pub truncate_rate: f64,
    /// Bodies of GETs whose connection is reset half-way.
    pub reset_rate: f64,
    /// GETs answered from another version, whatever their conditions: another ETag, and every byte inverted.
    pub change_rate: f64,
    /// Wait before each reply, in milliseconds.
    pub first_byte_ms: u64,
    /// Speed of a body on its connection, in 10^6 bytes per second; `None` is unlimited.
    pub mb_per_s: Option<f64>,
    /// Seed of the faults.
    pub seed: u64,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self {
            error_rate: 0.0,
            retry_after_s: None,
            slow_rate: 0.0,
            slow_ms: 2000,
            stall_rate: 0.0,
            truncate_rate: 0.0,
            reset_rate: 0.0,
            change_rate: 0.0,
            first_byte_ms: 0,
            mb_per_s: None,
            seed: 1,
        }
    }
}

/// Minimum speed in a plan, in 10^6 bytes per second: below it the end of a body is later than a clock can tell.
const MIN_MB_PER_S: f64 = 1e-3;
/// Maximum wait in a plan, in milliseconds: 10 minutes.
const MAX_WAIT_MS: u64 = 600_000;

impl FromStr for FaultPlan {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut settings = Map::new();
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let number = |value: &str| value.trim().parse::<Number>().ok();
            let (key, value) = setting
                .split_once('=')
                .and_then(|(key, value)| Some((key.trim(), number(value)?)))
                .with_context(|| format!("`{setting}`: write it as `key=number`"))?;
            if settings.insert(key.to_owned(), value.into()).is_some() {
                bail!("`{key}`: duplicate key");
            }
        }
        let plan: Self = serde_json::from_value(settings.into())?;
        plan.check()?;
        Ok(plan)
    }
}

/// Fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error reply with this status.
    Status(u16),
    /// A wait before the reply.
    Slow,
    /// The body stops.
    Stall,
    /// The body ends early.
    Truncate,
    /// The connection is reset.
    Reset,
    /// Another version is served.
    Change,
}

/// Fault of a request and its position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FaultDraw {
    pub(super) fault: Option<Fault>,
    /// Position of the fault in the body, as a share of the body's length.
    pub(super) at: f64,
}

impl FaultPlan {
    fn check(&self) -> Result<()> {
        let rates = self.rates().map(|(_, rate)| rate);
        let sum: f64 = rates.iter().sum();
        if rates.iter().any(|rate| !(0.0..=1.0).contains(rate)) || sum > 1.0 + 1e-9 {
            bail!("invalid rates: use 0 to 1 with a sum of at most 1; the sum is {sum}");
        }
        if self.slow_ms.max(self.first_byte_ms) > MAX_WAIT_MS {
            bail!("wait too long: the limit is {MAX_WAIT_MS} milliseconds");
        }
        match self.mb_per_s {
            Some(mb) if mb < MIN_MB_PER_S => bail!("mb-per-s must be at least {MIN_MB_PER_S}, is {mb}"),
            _ => Ok(()),
        }
    }

    fn rates(&self) -> [(Fault, f64); 6] {
        [
            (Fault::Status(500), self.error_rate),
            (Fault::Slow, self.slow_rate),
            (Fault::Stall, self.stall_rate),
            (Fault::Truncate, self.truncate_rate),
            (Fault::Reset, self.reset_rate),
            (Fault::Change, self.change_rate),
        ]
    }

    /// Fault of the `nth` request.
    fn fault_for(&self, nth: u64) -> FaultDraw {
        let mut state = self.seed ^ nth.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            // The upper 53 bits fill a double's mantissa.
            (mix(state) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut left, at, coin) = (draw(), draw(), draw());
        let drawn = self.rates().into_iter().find_map(|(fault, rate)| {
            let is_drawn = left < rate;
            left -= rate;
            is_drawn.then_some(fault)
        });
        let fault = match drawn {
            Some(Fault::Status(_)) if coin < 0.5 => Some(Fault::Status(503)),
            Some(Fault::Status(_)) if self.retry_after_s.is_some() => Some(Fault::Status(429)),
            other => other,
        };
        FaultDraw { fault, at }
    }
}

/// SplitMix64's output function (Steele, Lea and Flood, 2014).
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Current plan, shared by all clones.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<FaultState>>);

#[derive(Debug, Default)]
struct FaultState {
    plan: FaultPlan,
    drawn: u64,
}

impl Faults {
    /// Sets the plan for all later requests.
    pub fn set(&self, plan: FaultPlan) {
        *self.0.lock() = FaultState { plan, drawn: 0 };
    }

    /// Returns the current plan, and its fault for the next request. Only requests that `may_fail` are counted.
    pub(super) fn next(&self, may_fail: bool) -> (FaultPlan, FaultDraw) {
        let mut state = self.0.lock();
        let plan = state.plan;
        if !may_fail {
            return (plan, FaultDraw { fault: None, at: 0.0 });
        }
        state.drawn += 1;
        (plan, plan.fault_for(state.drawn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_read_as_written() {
        let plan: FaultPlan = "error-rate=0.1, retry-after-s=2,first-byte-ms=30,mb-per-s=90,slow-ms=5,seed=7"
            .parse()
            .unwrap();
        let want = FaultPlan {
            error_rate: 0.1,
            retry_after_s: Some(2),
            first_byte_ms: 30,
            mb_per_s: Some(90.0),
            slow_ms: 5,
            seed: 7,
            ..FaultPlan::default()
        };
        assert_eq!((plan, "".parse::<FaultPlan>().unwrap()), (want, FaultPlan::default()));
        for bad in [
            "error-rate",
            "error-rate=2",
            "error-rate=x",
            "error-rate=0.6,reset-rate=0.6",
            "error-rate=0.5,error-rate=0.1",
            "first-byte-ms=-1",
            "first-byte-ms=99999999",
            "mb-per-s=0",
            "mb-per-s=1e-300",
            "mb-per-s=inf",
            "fire-rate=1",
            "retry-after-s=soon",
        ] {
            assert!(bad.parse::<FaultPlan>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_hold_and_a_seed_repeats() {
        let plan: FaultPlan = "error-rate=0.2,reset-rate=0.1,change-rate=0.05".parse().unwrap();
        let draws: Vec<FaultDraw> = (0..20_000).map(|nth| plan.fault_for(nth)).collect();
        assert!(
            draws
                .iter()
                .enumerate()
                .all(|(nth, draw)| *draw == plan.fault_for(nth as u64))
        );
        let share = |fault| draws.iter().filter(|draw| draw.fault == fault).count() as f64 / draws.len() as f64;
        for (fault, want) in [
            (Some(Fault::Status(500)), 0.1),
            (Some(Fault::Status(503)), 0.1),
            (Some(Fault::Reset), 0.1),
            (Some(Fault::Change), 0.05),
            (Some(Fault::Stall), 0.0),
            (None, 0.65),
        ] {
            assert!((share(fault) - want).abs() < 0.015, "{fault:?}: {}", share(fault));
        }
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(&draw.at)));
    }
}
