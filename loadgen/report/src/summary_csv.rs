//! `summary.csv`: one row per configuration.
//!
//! In: a summarised run. Out: CSV text; its columns are described in `results/README.md`. Knows nothing of the other
//! files of the folder.

use crate::content::{requests, words};
use crate::csv_cell::text;
use crate::units::NONE;
use tierlab_analysis::record::{Driven, Grade, Interval, Percentile, Point, Run, Verdict};

/// The columns, in order.
pub(crate) const COLUMNS: [&str; 75] = [
    "tier",
    "origin",
    "cache",
    "cache_share",
    "model",
    "mode",
    "batch_size",
    "arrivals",
    "keys",
    "offered_rps",
    "variant",
    "repeats",
    "samples",
    "p50_us",
    "p50_us_lo",
    "p50_us_hi",
    "p95_us",
    "p95_us_lo",
    "p95_us_hi",
    "p99_us",
    "p99_us_lo",
    "p99_us_hi",
    "service_p99_us",
    "lag_p99_us",
    "achieved_rps",
    "achieved_rps_lo",
    "achieved_rps_hi",
    "inferences_per_s",
    "inferences_per_s_lo",
    "inferences_per_s_hi",
    "errors",
    "error_share",
    "cache_hit_ratio",
    "tier_requests_per_inference",
    "in_flight",
    "in_flight_littles_law",
    "dominant_part",
    "dominant_share",
    "verdict",
    "reasons",
    "usd_per_10k",
    "usd_per_10k_lo",
    "usd_per_10k_hi",
    "mix_hour_share",
    "mix_tier_share",
    "distinct_requests",
    "request_bytes_min",
    "request_bytes_median",
    "request_bytes_max",
    "inferences_per_request",
    "request_shapes",
    "loop",
    "users",
    "think_time",
    "journey",
    "step",
    "p90_us",
    "p90_us_lo",
    "p90_us_hi",
    "p999_us",
    "p999_us_lo",
    "p999_us_hi",
    "mean_us",
    "mean_us_lo",
    "mean_us_hi",
    "max_us",
    "p50_grade",
    "p90_grade",
    "p95_grade",
    "p99_grade",
    "p999_grade",
    "goodput_rps",
    "goodput_rps_lo",
    "goodput_rps_hi",
    "goodput_share",
];

/// The text of `summary.csv`. Points without a summary are left out: there is nothing to say of them.
///
/// # Errors
/// None that a run can cause: the text is made in memory.
pub fn summary_csv(run: &Run) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for point in &run.points {
        if let Some(row) = row(run, point) {
            writer.write_record(row)?;
        }
    }
    writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))
}

fn row(run: &Run, point: &Point) -> Option<Vec<String>> {
    let summary = point.summary.as_ref()?;
    let factors = &point.factors;
    let mut row = vec![
        text(&factors.tier),
        text(&words::origin(run, factors.label())),
        text(&factors.cache),
        number(factors.cache_share),
        text(&factors.model),
        factors.mode.to_string(),
        factors.batch_size.to_string(),
        text(&words::arrivals(factors)),
        text(&factors.keys),
        if factors.driven.as_ref().is_some_and(Driven::is_closed) {
            NONE.to_owned()
        } else {
            number(factors.offered_rps)
        },
        text(factors.label()),
        point.repeats.len().to_string(),
        summary.samples.to_string(),
    ];
    for percentile in [summary.p50_us, summary.p95_us, summary.p99_us] {
        row.extend(interval(percentile.as_ref()));
    }
    row.extend([optional(summary.service_p99_us), optional(summary.lag_p99_us)]);
    row.extend(interval(Some(&summary.achieved_rps)));
    row.extend(interval(Some(&summary.inferences_per_s)));
    row.extend([
        summary.errors.to_string(),
        number(summary.error_share),
        optional(summary.cache_hit_ratio),
        optional(summary.tier_requests_per_inference),
        number(summary.in_flight.0),
        number(summary.in_flight.1),
    ]);
    let dominant = words::slowest(summary);
    row.push(text(dominant.map_or(NONE, |(part, _)| part)));
    row.push(optional(dominant.map(|(_, share)| share.value)));
    row.push(words::verdict(&summary.verdict).to_owned());
    row.push(match &summary.verdict {
        Verdict::Valid => String::new(),
        Verdict::Saturated(reasons) | Verdict::Invalid(reasons) => text(&reasons.join("; ")),
    });
    row.extend(interval(summary.usd_per_10k.as_ref()));
    row.extend([
        optional(summary.mix_share.map(|share| share.hour)),
        optional(summary.mix_share.map(|share| share.tier)),
    ]);
    row.extend(sent(point));
    row.extend(driven(factors.driven.as_ref()));
    for figure in [summary.p90_us, summary.p999_us, summary.mean_us] {
        row.extend(interval(figure.as_ref()));
    }
    row.push(optional(summary.max_us));
    row.extend(Percentile::ALL.map(|percentile| match summary.grade(percentile) {
        Some(Grade::Solid) => "solid".to_owned(),
        Some(Grade::Rough) => "rough".to_owned(),
        None => NONE.to_owned(),
    }));
    row.extend(interval(summary.goodput_rps.as_ref()));
    row.push(optional(summary.goodput_share));
    Some(row)
}

/// Of the first repeat that tells: all were made by the same rules.
fn sent(point: &Point) -> [String; 6] {
    let Some(sent) = point.repeats.iter().find_map(|repeat| repeat.sent.as_ref()) else {
        return [NONE; 6].map(str::to_owned);
    };
    let shapes: Vec<String> = sent.inputs.iter().map(requests::input_shapes).collect();
    [
        sent.distinct.to_string(),
        sent.bytes.min.to_string(),
        sent.bytes.median.to_string(),
        sent.bytes.max.to_string(),
        number(sent.inferences_per_request),
        text(&shapes.join("; ")),
    ]
}

/// Which loop it was, and of which closed loop or journey.
fn driven(driven: Option<&Driven>) -> [String; 5] {
    let none = || NONE.to_owned();
    match driven {
        None => ["open".to_owned(), none(), none(), none(), none()],
        Some(Driven::ClosedLoop { users, think_time }) => [
            "closed".to_owned(),
            users.to_string(),
            think_time.clone(),
            none(),
            none(),
        ],
        Some(Driven::BesideClosedLoop { users, think_time }) => [
            "open beside closed".to_owned(),
            users.to_string(),
            think_time.clone(),
            none(),
            none(),
        ],
        Some(Driven::Journey { name, step }) => {
            let step = step.clone().unwrap_or_else(|| "whole".to_owned());
            ["open".to_owned(), none(), none(), text(name), text(&step)]
        }
    }
}

fn interval(interval: Option<&Interval>) -> [String; 3] {
    interval.map_or([NONE; 3].map(str::to_owned), |interval| {
        [interval.value, interval.lo, interval.hi].map(number)
    })
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), number)
}

/// Six significant digits, without an exponent, so that every reader takes it and nothing pretends to more.
fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let exponent = value.abs().log10().floor() as i32;
    let decimals = usize::try_from((5 - exponent).clamp(0, 15)).unwrap_or(0);
    let digits = format!("{value:.decimals$}");
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_keep_six_digits() {
        let texts = [0.0, 200.0, 1_234_567.0, 0.1 + 0.2, 0.000_012_345_678, 41_234.567_8].map(number);
        assert_eq!(texts, ["0", "200", "1234567", "0.3", "0.0000123457", "41234.6"]);
        assert_eq!([-0.0, f64::INFINITY, f64::NAN].map(number), ["0", "n/a", "n/a"]);
    }
}
