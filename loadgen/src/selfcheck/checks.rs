//! Self-check of the instrument: a certificate of lines, each with an expected and a measured result.
//!
//! # The stall test
//! The null endpoint stalls for `S` at the start of every `T`; a request that arrives in a stall is answered at its
//! end. With constant arrivals over a whole number of periods, arrivals are uniform over the period, so a latency above
//! `x` (for `x` below `S` and above the service time `c`) has the share `(S - x) / T`: the requests that arrive in the
//! first `S - x` of a stall. The q-quantile of the latency therefore is
//!
//! ```text
//! L(q) = S - (1 - q) T    if that is above c (1 - q < S / T), else c
//! ```
//! With S = 600 ms and T = 5.6 s: p50 = c, p95 = 320 ms, p99 = 544 ms. A generator that waits for replies before it
//! sends again (coordinated omission), or that ignores the wait in its own queue, reports a p95 of c.

use super::null_endpoint::NullEndpoint;
use crate::error::RunError;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_analysis::record::{Check, Sample};
use tierlab_analysis::statistics::percentile::histogram;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::driver::{self, Route, Sending, Step};
use tierlab_load::interrupt::Interrupt;
use tierlab_load::live::Watch;
use tierlab_load::null_endpoint::{Stalls, outputs};
use tierlab_load::payload::{Encoding, Form};
use tierlab_load::reply::{Expected, Limit};
use tierlab_load::schedule::Schedule;
use tierlab_load::{pacer, payload};

/// Approximate duration of [`checks`], in seconds.
pub const SECONDS: u64 = 29;
/// Rates at which the pacer is tested.
const PACER_RATES: [f64; 6] = [10.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 20_000.0];
/// Rate that every machine must reach.
const PACER_MIN_RATE: f64 = 1_000.0;
/// Number of attempts at a rate before it counts as not held.
const PACER_TRIES: usize = 3;
const PACER_WINDOW: Duration = Duration::from_millis(1_500);
const PACER_RATE_ERROR: f64 = 0.001;
const PACER_LAG_US: u64 = 1_000;
const STALLS: Stalls = Stalls {
    length: Duration::from_millis(600),
    every: Duration::from_millis(5_600),
};
/// Rate of the stall test. A stall holds 300 requests, so 400 users are never all busy.
const RATE: f64 = 500.0;
const USERS: usize = 400;
const PERIODS: u32 = 2;
/// Tolerance of a percentile of the stall test, as a share.
const STALL_TOLERANCE: f64 = 0.05;

/// Runs every check.
///
/// # Errors
/// The null endpoint could not be driven, or the run was interrupted. A failed check is a line, not an error.
pub async fn checks(interrupt: &Interrupt) -> Result<Vec<Check>, RunError> {
    let mut checks = vec![clock_resolution(), histogram_precision()];
    checks.extend(pacer_accuracy().await?);
    let floor = Box::pin(measure(None, Duration::from_secs(5), interrupt)).await?;
    let floor_p50_us = floor.value_at_quantile(0.5);
    checks.push(at_most("noise floor at 500/s, p50", floor_p50_us, 2_000));
    let floor_p99_us = floor.value_at_quantile(0.99);
    checks.push(at_most("noise floor at 500/s, p99", floor_p99_us, 20_000));
    let stalled = Box::pin(measure(Some(STALLS), STALLS.every * PERIODS, interrupt)).await?;
    for (name, quantile) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        checks.push(stall_line(name, quantile, stalled.value_at_quantile(quantile)));
    }
    Ok(checks)
}

/// Returns the latency's quantile under the stall script in microseconds, if it is in the stalled share; see the
/// module.
pub fn stall_quantile_us(stalls: Stalls, quantile: f64) -> Option<f64> {
    let above = stalls.length.as_micros() as f64 - (1.0 - quantile) * stalls.every.as_micros() as f64;
    (above > 0.0).then_some(above)
}

fn stall_line(name: &str, quantile: f64, measured_us: u64) -> Check {
    let name = format!("600 ms stall every 5.6 s at 500/s, {name}");
    match stall_quantile_us(STALLS, quantile) {
        None => at_most(&name, measured_us, 20_000),
        Some(truth_us) => {
            let deviation = (measured_us as f64 - truth_us) / truth_us;
            Check {
                name,
                expected: format!("{} within {:.0} %", millis(truth_us), STALL_TOLERANCE * 100.0),
                measured: format!("{} ({:+.1} %)", millis(measured_us as f64), deviation * 100.0),
                passed: deviation.abs() <= STALL_TOLERANCE,
            }
        }
    }
}

async fn measure(stalls: Option<Stalls>, window: Duration, interrupt: &Interrupt) -> Result<Histogram<u64>, RunError> {
    let endpoint = NullEndpoint::start(stalls, interrupt)?;
    let warmup = Duration::from_millis(500);
    let schedule = Arc::new(Schedule::new(&Arrivals::constant(), RATE, warmup, window, 1));
    let expected = Expected::new("null", &outputs(), Some(1));
    let step = Step {
        routes: vec![Route::Http(endpoint.control()?.route("null")?)],
        bodies: Arc::new(vec![payload::joined(&[1], Form::Http(Encoding::Json))]),
        schedule: Arc::clone(&schedule),
        users: USERS,
        sending: Sending::default(),
        timeout: Duration::from_secs(5),
        drain: Duration::from_secs(2),
        watch: Watch::default(),
        limit: Limit::of_replies(None, expected.elements()),
        expected: Arc::new(expected),
    };
    let Some(finished) = driver::run(step, interrupt).await? else {
        return Err(RunError::InterruptedEarly);
    };
    let failed = finished.samples.iter().filter(|sample| !sample.is_ok()).count();
    if failed > 0 {
        return Err(RunError::Failed(format!(
            "{failed} of {} requests to the null endpoint failed: this machine's noise is unknown",
            finished.samples.len()
        )));
    }
    let samples = finished.samples.iter();
    let due = samples.filter(|sample| schedule.in_window(sample.due_us));
    Ok(distribution(due, Sample::latency_us))
}

/// The pacer's result at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PacerResult {
    rate: f64,
    /// Relative error of the release rate.
    error: f64,
    lag_p99_us: u64,
}

impl PacerResult {
    fn holds(&self) -> bool {
        self.error <= PACER_RATE_ERROR && self.lag_p99_us <= PACER_LAG_US
    }
}

/// Releases tickets without users, at every rate up to the first that the machine does not hold.
async fn pacer_accuracy() -> Result<[Check; 2], RunError> {
    let mut tried: Vec<PacerResult> = Vec::new();
    for rate in PACER_RATES {
        let mut paced = release_at(rate).await?;
        let mut tries = 1;
        // One pause of the machine makes the p99 of a low rate; a lasting fault shows in the next attempt too.
        while !paced.holds() && tries < PACER_TRIES {
            paced = release_at(rate).await?;
            tries += 1;
        }
        tried.push(paced);
        if !paced.holds() {
            break;
        }
    }
    let at_1000 = tried.iter().find(|paced| paced.rate == PACER_MIN_RATE);
    Ok([lag_line(at_1000.map(|paced| paced.lag_p99_us)), reach_line(&tried)])
}

async fn release_at(rate: f64) -> Result<PacerResult, RunError> {
    let schedule = Schedule::new(&Arrivals::default(), rate, Duration::ZERO, PACER_WINDOW, 1);
    let released = pacer::measure_release_lag(schedule).await;
    let samples = released.map_err(driver::DriverError::Pacer)?;
    Ok(PacerResult {
        rate,
        error: rate_error(&samples),
        lag_p99_us: distribution(samples.iter(), Sample::lag_us).value_at_quantile(0.99),
    })
}

/// Describes the lag at the rate that every machine must reach; it is missing if a lower rate failed.
fn lag_line(lag_p99_us: Option<u64>) -> Check {
    const NAME: &str = "ticket release lag at 1,000/s, p99";
    match lag_p99_us {
        Some(lag_p99_us) => at_most(NAME, lag_p99_us, PACER_LAG_US),
        None => Check {
            measured: "not tried: a lower rate did not hold".into(),
            passed: false,
            ..at_most(NAME, 0, PACER_LAG_US)
        },
    }
}

/// Describes the highest rate of the machine, with the figures of every tested rate.
fn reach_line(tried: &[PacerResult]) -> Check {
    let reached = tried.iter().rfind(|paced| paced.holds());
    let reach = reached.map_or(0.0, |paced| paced.rate);
    let figures = tried.iter().map(|paced| {
        let lag = millis(paced.lag_p99_us as f64);
        format!("{:.0}/s {:.3} %, {lag}", paced.rate, 100.0 * paced.error)
    });
    let figures: Vec<String> = figures.collect();
    Check {
        name: "paced with a rate error within 0.1 % and a lag p99 within 1 ms".into(),
        expected: format!("from 10/s to at least 1,000/s; tried to 20,000/s, each at most {PACER_TRIES} times"),
        measured: format!("to {reach:.0}/s ({})", figures.join("; ")),
        passed: reach >= PACER_MIN_RATE,
    }
}

/// Returns the relative error of the release rate, from the span between first and last release.
fn rate_error(samples: &[Sample]) -> f64 {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return f64::INFINITY;
    };
    let scheduled_us = (last.due_us - first.due_us) as f64;
    let released = last.sent_us as f64 - first.sent_us as f64;
    ((released - scheduled_us) / scheduled_us.max(1.0)).abs()
}

fn distribution<'a>(samples: impl Iterator<Item = &'a Sample>, value: fn(&Sample) -> u64) -> Histogram<u64> {
    histogram(&samples.map(value).collect::<Vec<_>>())
}

/// Checks that every value of three powers of ten comes back within half a unit of the third digit.
fn histogram_precision() -> Check {
    let worst = (0..4_000)
        .map(|i| 10_f64.powf(2.0 + f64::from(i) / 1_000.0) as u64)
        .map(|value| {
            let stored = histogram(&[value, value, 2 * value]).value_at_quantile(0.5);
            stored.abs_diff(value) as f64 / value as f64
        })
        .fold(0.0, f64::max);
    Check {
        name: "histogram error, 0.1 ms to 1 s".into(),
        expected: "at most 0.1 %".into(),
        measured: format!("{:.3} %", worst * 100.0),
        passed: worst <= 0.001,
    }
}

/// Measures the smallest step of the clock, over many readings.
fn clock_resolution() -> Check {
    let mut smallest = Duration::MAX;
    for _ in 0..10_000 {
        let start = Instant::now();
        let step = loop {
            let step = start.elapsed();
            if !step.is_zero() {
                break step;
            }
        };
        smallest = smallest.min(step);
    }
    Check {
        name: "clock resolution".into(),
        expected: "at most 1 us".into(),
        measured: format!("{} ns", smallest.as_nanos()),
        passed: smallest <= Duration::from_micros(1),
    }
}

fn at_most(name: &str, measured_us: u64, limit_us: u64) -> Check {
    Check {
        name: name.to_owned(),
        expected: format!("at most {}", millis(limit_us as f64)),
        measured: millis(measured_us as f64),
        passed: measured_us <= limit_us,
    }
}

fn millis(us: f64) -> String {
    format!("{:.2} ms", us / 1_000.0)
}

/// Formats the certificate as a table.
pub fn table(checks: &[Check]) -> String {
    let mut table = comfy_table::Table::new();
    table.set_header(["check", "expected", "measured", ""]);
    for check in checks {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        table.add_row([&check.name, &check.expected, &check.measured, verdict]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_of_the_stall_test_is_the_arithmetic() {
        let at = |quantile| stall_quantile_us(STALLS, quantile).map(f64::round);
        assert_eq!(at(0.5), None);
        assert_eq!(at(0.95), Some(320_000.0));
        assert_eq!(at(0.99), Some(544_000.0));
        // By counting: 2,800 constant arrivals in one period, each with the script's wait.
        let mut waits: Vec<u64> = (0..2_800_u64)
            .map(|i| STALLS.wait(Duration::from_micros(1_000 + i * 2_000)).as_micros() as u64)
            .collect();
        waits.sort_unstable();
        for quantile in [0.95, 0.99] {
            let counted = waits[(quantile * 2_800.0) as usize] as f64;
            assert!((counted - at(quantile).unwrap()).abs() <= 2_000.0, "{counted}");
        }
    }

    #[test]
    fn a_line_fails_beyond_its_tolerance() {
        assert!(stall_line("p95", 0.95, 335_000).passed);
        assert!(!stall_line("p95", 0.95, 337_000).passed);
        assert!(!stall_line("p95", 0.95, 3_000).passed);
        assert!(stall_line("p50", 0.5, 300).passed);
        assert!(!at_most("x", 11, 10).passed);
    }

    #[test]
    fn the_pacers_line_says_how_far_it_goes_and_fails_below_its_least() {
        let paced = |rate, error, lag_p99_us| PacerResult {
            rate,
            error,
            lag_p99_us,
        };
        let far = reach_line(&[
            paced(10.0, 0.0, 90),
            paced(1_000.0, 0.000_5, 100),
            paced(5_000.0, 0.002, 100),
        ]);
        assert!(far.passed && far.measured.starts_with("to 1000/s"), "{far:?}");
        assert!(far.measured.contains("5000/s 0.200 %"), "{far:?}");
        let untried = lag_line(None);
        assert!(
            !untried.passed && untried.measured.starts_with("not tried"),
            "{untried:?}"
        );
        let short = reach_line(&[paced(10.0, 0.0, 90), paced(100.0, 0.0, 1_001)]);
        assert!(!short.passed && short.measured.starts_with("to 10/s"), "{short:?}");
    }

    #[test]
    fn three_digits_are_kept() {
        assert!(histogram_precision().passed, "{:?}", histogram_precision());
    }
}
