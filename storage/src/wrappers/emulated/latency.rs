//! Latency distributions, and injected errors. In: parameters, and random bits. Out: durations, and validated rules of
//! errors. The same bits give the same duration on every machine: logarithms and exponentials come from `libm`.

use crate::{ErrorKind, StorageError};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// 99th percentile of the standard normal distribution.
const Z_99: f64 = 2.326_347_874_040_841;
/// Maximum latency in microseconds: ten minutes.
pub(super) const MAX_LATENCY_US: f64 = 600e6;

/// Latency distribution. All times in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "distribution", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LatencyConfig {
    /// Lognormal, given by its median and either its 99th percentile or the standard deviation of its logarithm.
    Lognormal {
        /// Median, in microseconds.
        median_us: f64,
        /// 99th percentile: not less than the median.
        p99_us: Option<f64>,
        /// Standard deviation of the natural logarithm.
        sigma: Option<f64>,
    },
    /// Measured distribution: quantiles with linear interpolation.
    Empirical {
        /// Pairs of a share from 0 to 1 and the latency that this share of requests does not exceed. Both ascend.
        quantiles: Vec<(f64, f64)>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Distribution {
    Lognormal {
        median_us: f64,
        sigma: f64,
    },
    /// Points of the inverse cumulative distribution; both coordinates ascend.
    Quantiles(Vec<(f64, f64)>),
}

fn is_time(us: f64) -> bool {
    (0.0..=MAX_LATENCY_US).contains(&us)
}

impl LatencyConfig {
    pub(super) fn resolve(&self) -> Result<Distribution, StorageError> {
        match self {
            Self::Lognormal {
                median_us,
                p99_us,
                sigma,
            } => lognormal(*median_us, *p99_us, *sigma),
            Self::Empirical { quantiles } if is_curve(quantiles) => Ok(Distribution::Quantiles(quantiles.clone())),
            Self::Empirical { .. } => Err(invalid(
                "latency",
                "`quantiles` must be pairs of a share (0 to 1) and microseconds, both ascending",
            )),
        }
    }
}

fn lognormal(median_us: f64, p99_us: Option<f64>, sigma: Option<f64>) -> Result<Distribution, StorageError> {
    if !is_time(median_us) || median_us <= 0.0 {
        let detail = format!("`median_us` must be more than 0, at most {MAX_LATENCY_US}: {median_us}");
        return Err(invalid("latency", detail));
    }
    let sigma = match (p99_us, sigma) {
        (Some(p99_us), None) if is_time(p99_us) && p99_us >= median_us => libm::log(p99_us / median_us) / Z_99,
        (None, Some(sigma)) if (0.0..=10.0).contains(&sigma) => sigma,
        (Some(_), None) => return Err(invalid("latency", "`p99_us` must be from `median_us` to 600000000")),
        (None, Some(_)) => return Err(invalid("latency", "`sigma` must be between 0 and 10")),
        _ => {
            let detail = "set exactly one of `p99_us` and `sigma` besides `median_us`";
            return Err(invalid("latency", detail));
        }
    };
    Ok(Distribution::Lognormal { median_us, sigma })
}

fn is_curve(quantiles: &[(f64, f64)]) -> bool {
    let is_point = |(share, us): &(f64, f64)| (0.0..=1.0).contains(share) && is_time(*us);
    let ascends = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
    !quantiles.is_empty() && quantiles.iter().all(is_point) && quantiles.windows(2).all(ascends)
}

/// Random number in (0, 1], from 53 bits.
pub(super) fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

impl Distribution {
    /// Zero latency.
    pub(crate) const NONE: Self = Self::Quantiles(Vec::new());

    /// Draws a latency. Takes two numbers from `rng` for every distribution.
    pub(super) fn sample(&self, rng: &mut ChaCha8Rng) -> Duration {
        let (first, second) = (uniform(rng), uniform(rng));
        let us = match self {
            Self::Lognormal { median_us, sigma } => {
                // Box and Muller, 1958: a standard normal number from two uniform numbers.
                let radius = libm::sqrt(-2.0 * libm::log(first));
                let normal = radius * libm::cos(std::f64::consts::TAU * second);
                median_us * libm::exp(sigma * normal)
            }
            Self::Quantiles(points) => interpolate(points, first),
        };
        Duration::from_secs_f64(us.min(MAX_LATENCY_US) / 1e6)
    }
}

/// Latency at a share: linear between the points, constant outside.
fn interpolate(points: &[(f64, f64)], share: f64) -> f64 {
    let above = points.partition_point(|(at, _)| *at < share);
    match (above.checked_sub(1).and_then(|i| points.get(i)), points.get(above)) {
        (Some((low, from)), Some((high, to))) => from + (to - from) * (share - low) / (high - low),
        (None, Some((_, us))) | (Some((_, us)), None) => *us,
        (None, None) => 0.0,
    }
}

/// Kinds of errors that can be injected.
const KINDS: [ErrorKind; 6] = [
    ErrorKind::Unavailable,
    ErrorKind::Timeout,
    ErrorKind::Denied,
    ErrorKind::NotFound,
    ErrorKind::Changed,
    ErrorKind::Corrupt,
];

/// Maximum time to an error, in milliseconds: ten minutes, as for latencies.
const MAX_AFTER_MS: u64 = 600_000;

/// Injected error of a share of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InjectedError {
    /// `unavailable`, `timeout`, `denied`, `not-found`, `changed` or `corrupt`.
    pub kind: String,
    /// Share of requests, from 0 to 1.
    pub rate: f64,
    /// Milliseconds from the start of the request to its error (default: its latency).
    pub after_ms: Option<u64>,
}

/// Validated error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ErrorRule {
    pub(crate) kind: ErrorKind,
    pub(crate) rate: f64,
    pub(crate) after: Option<Duration>,
}

/// Checks a list of errors.
///
/// # Errors
/// [`ErrorKind::Invalid`]; names the key.
pub(super) fn faults(errors: &[InjectedError]) -> Result<Vec<ErrorRule>, StorageError> {
    let fault = |error: &InjectedError| {
        let Some(kind) = KINDS.into_iter().find(|kind| kind.as_str() == error.kind) else {
            let known = KINDS.map(ErrorKind::as_str).join(", ");
            let detail = format!("unknown kind `{}`: use {known}", error.kind);
            return Err(invalid("errors.kind", detail));
        };
        if !(0.0..=1.0).contains(&error.rate) {
            let detail = format!("must be from 0 to 1: {}", error.rate);
            return Err(invalid("errors.rate", detail));
        }
        if let Some(after) = error.after_ms.filter(|after| *after > MAX_AFTER_MS) {
            let detail = format!("must be at most {MAX_AFTER_MS}: {after}");
            return Err(invalid("errors.after_ms", detail));
        }
        Ok(ErrorRule {
            kind,
            rate: error.rate,
            after: error.after_ms.map(Duration::from_millis),
        })
    };
    let faults: Vec<ErrorRule> = errors.iter().map(fault).collect::<Result<_, _>>()?;
    let all: f64 = faults.iter().map(|fault| fault.rate).sum();
    if all > 1.0 {
        let detail = format!("sum of the rates exceeds 1: {all}");
        return Err(invalid("errors.rate", detail));
    }
    Ok(faults)
}

/// Error about a key of the table.
pub(super) fn invalid(key: &str, detail: impl Into<String>) -> StorageError {
    ErrorKind::Invalid.error(format!("emulated.{key}"), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::rand_core::SeedableRng as _;

    /// Quantiles of many draws, in microseconds.
    fn drawn(distribution: &Distribution, seed: u64, shares: &[f64]) -> Vec<f64> {
        const DRAWS: usize = 40_000;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let draw = |_| distribution.sample(&mut rng).as_secs_f64() * 1e6;
        let mut draws: Vec<f64> = (0..DRAWS).map(draw).collect();
        draws.sort_by(f64::total_cmp);
        shares
            .iter()
            .map(|share| draws[((share * DRAWS as f64) as usize).min(DRAWS - 1)])
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn lognormal_draws_have_the_quantiles_asked_for(median in 50.0f64..50_000.0, ratio in 1.0f64..12.0, seed: u64) {
            let config = LatencyConfig::Lognormal { median_us: median, p99_us: Some(median * ratio), sigma: None };
            let got = drawn(&config.resolve().unwrap(), seed, &[0.5, 0.99]);
            // Five standard errors of a sample quantile: sqrt(q(1-q)/n) over the density at the quantile.
            let sigma = ratio.ln() / Z_99;
            prop_assert!((got[0] / median).ln().abs() <= 0.0314 * sigma + 1e-3, "{got:?}");
            prop_assert!((got[1] / (median * ratio)).ln().abs() <= 0.0934 * sigma + 1e-3, "{got:?}");
        }

        #[test]
        fn empirical_draws_stay_on_the_curve(low in 1.0f64..1000.0, rise in 1.0f64..1000.0, seed: u64) {
            let points = vec![(0.0, low), (0.9, low + rise), (1.0, low + 10.0 * rise)];
            let config = LatencyConfig::Empirical { quantiles: points };
            let got = drawn(&config.resolve().unwrap(), seed, &[0.0, 0.45, 0.9, 0.999_99]);
            prop_assert!(got[0] >= low - 0.01 && got[3] <= low + 10.0 * rise + 0.01, "{got:?}");
            prop_assert!((got[1] - (low + rise / 2.0)).abs() < 0.03 * rise + 0.01, "{got:?}");
            prop_assert!((got[2] - (low + rise)).abs() < 0.7 * rise + 0.01, "{got:?}");
        }
    }

    #[test]
    fn draws_are_the_same_on_every_machine() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let distribution = lognormal(30_000.0, Some(150_000.0), None).unwrap();
        let draws: Vec<u128> = (0..4).map(|_| distribution.sample(&mut rng).as_micros()).collect();
        assert_eq!(draws, [67_900, 34_325, 22_923, 49_181]);
    }

    #[test]
    fn senseless_parameters_are_refused() {
        let time = |median_us, p99_us, sigma| LatencyConfig::Lognormal {
            median_us,
            p99_us,
            sigma,
        };
        let curve = |quantiles| LatencyConfig::Empirical { quantiles };
        for bad in [
            time(0.0, Some(1.0), None),
            time(f64::NAN, Some(1.0), None),
            time(10.0, Some(9.0), None),
            time(10.0, None, None),
            time(10.0, Some(20.0), Some(1.0)),
            time(10.0, None, Some(-1.0)),
            curve(vec![]),
            curve(vec![(0.5, 1.0), (0.4, 2.0)]),
            curve(vec![(0.5, 2.0), (0.6, 1.0)]),
            curve(vec![(0.5, 2.0), (1.6, 3.0)]),
            curve(vec![(0.5, -1.0)]),
        ] {
            assert_eq!(bad.resolve().unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
    }
}
