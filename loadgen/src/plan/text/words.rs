//! Values that a plan writes as people do: objectives, shares, times. In: text. Out: numbers, or nothing where it is no such
//! value. Knows no key.

use serde::Deserialize;
use std::time::Duration;
use tierlab_analysis::record::{Objective, Percentile};

/// Smallest share of goodput that is an objective.
const LEAST_GOODPUT: f64 = 0.5;

/// A share: `0.05`, or `5 %`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(in crate::plan) enum RawShare {
    Number(f64),
    Text(String),
}

impl RawShare {
    /// The share it names, from 0 to 1; `None` where it names none.
    pub(in crate::plan) fn share(&self) -> Option<f64> {
        match self {
            Self::Number(share) => Some(*share),
            Self::Text(text) => share(text),
        }
        .filter(|share| (0.0..=1.0).contains(share))
    }
}

/// `5 %`
pub(in crate::plan) fn share(text: &str) -> Option<f64> {
    let percent = text.trim().strip_suffix('%')?.trim().parse::<f64>().ok()?;
    Some(percent / 100.0)
}

/// `10m`, `1h 30m`, `90s`
pub(in crate::plan) fn time(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok()
}

/// Latency objective, such as `p99 < 20 ms`, `mean < 5 ms` or `99.5 % within 50 ms`.
pub(in crate::plan) fn objective(text: &str) -> Option<Objective> {
    if let Some((goodput_share, limit)) = text.split_once("within") {
        let within_us = latency_us(limit)?;
        let goodput_share = share(goodput_share).filter(|share| *share >= LEAST_GOODPUT && *share < 1.0)?;
        return Some(Objective::Goodput {
            goodput_share,
            within_us,
        });
    }
    let (name, limit) = text.split_once('<')?;
    let limit_us = latency_us(limit)?;
    if name.trim() == "mean" {
        return Some(Objective::Mean {
            mean_limit_us: limit_us,
        });
    }
    let percentile = Percentile::named(name.trim())?;
    Some(Objective::Percentile { percentile, limit_us })
}

/// Positive latency in microseconds, such as `20 ms`.
fn latency_us(text: &str) -> Option<f64> {
    let limit = text.trim();
    let digits = limit.trim_end_matches(|c: char| c.is_alphabetic());
    let unit_us = match &limit[digits.len()..] {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    let us = digits.trim().parse::<f64>().ok()? * unit_us;
    (us.is_finite() && us > 0.0).then_some(us)
}

/// `errors < 0.1 %`: the share of failed requests.
pub(in crate::plan) fn errors(text: &str) -> Option<f64> {
    let (name, limit) = text.split_once('<')?;
    (name.trim() == "errors")
        .then(|| share(limit))
        .flatten()
        .filter(|share| (0.0..1.0).contains(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(share("5 %"), Some(0.05));
        assert_eq!(share("5"), None);
        assert_eq!(RawShare::Number(0.2).share(), Some(0.2));
        assert_eq!(RawShare::Text("120 %".into()).share(), None);
        assert_eq!(time("1h 30m"), Some(Duration::from_secs(5_400)));
        assert_eq!(time("soon"), None);
        assert!((errors("errors < 0.1 %").unwrap() - 0.001).abs() < 1e-12);
        assert_eq!(errors("errors < 100 %"), None);
        assert_eq!(errors("p99 < 5 %"), None);
        for text in [
            "p50 < 300 us",
            "p90 < 4 ms",
            "p99.9 < 50 ms",
            "mean < 5 ms",
            "99.6 % within 50 ms",
        ] {
            assert_eq!(objective(text).unwrap().to_string(), text);
        }
        for text in [
            "p98 < 5 ms",
            "max < 5 ms",
            "mean < 0 ms",
            "p99 > 5 ms",
            "p999 < 5 ms",
            "mean < 5",
            "100 % within 5 ms",
            "20 % within 5 ms",
            "99 within 5 ms",
        ] {
            assert_eq!(objective(text), None, "{text}");
        }
    }
}
