//! `summary.csv` and `cold_starts.csv`.
//!
//! In: a summarised run. Out: CSV text; `results/README.md` describes the columns. Knows nothing of the other files of the folder.

use crate::content::side_tables::{stage_s, stages};
use crate::content::{labels, requests};
use crate::units::NONE;
use std::borrow::Cow;
use tierlab_analysis::record::{
    ColdStart, Driven, Factors, Grade, Interval, Percentile, Point, Run, SentRequests, StreamFigure, Summary, Verdict,
};

/// Percentiles of streamed replies.
const STREAM_PERCENTILES: [Percentile; 3] = [Percentile::P50, Percentile::P95, Percentile::P99];
/// Start of a formula, or whitespace that is skipped before one.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// Columns of a file, each with the function that makes its cell.
struct Columns<'a, R>(Vec<(String, CellOf<'a, R>)>);

type CellOf<'a, R> = Box<dyn Fn(&R) -> String + 'a>;

impl<'a, R: 'a> Columns<'a, R> {
    fn text<T: Into<Cow<'static, str>>>(&mut self, name: &str, of: impl Fn(&R) -> T + 'a) {
        self.0.push((text(name), Box::new(move |row| text(&of(row).into()))));
    }

    /// Adds numbers; `n/a` for `None`.
    fn number<N: Into<Option<f64>>>(&mut self, name: &str, of: impl Fn(&R) -> N + 'a) {
        let cell = move |row: &R| of(row).into().map_or_else(|| NONE.to_owned(), number);
        self.0.push((text(name), Box::new(cell)));
    }

    /// Adds three columns: the value, and the ends of its interval. 0 without an upper end is no interval.
    fn interval(&mut self, name: &str, of: impl Fn(&R) -> Option<Interval> + Copy + 'a) {
        let ends = move |row: &R| of(row).filter(|interval| interval.lo > 0.0 || interval.hi.is_finite());
        self.number(name, move |row| of(row).map(|interval| interval.value));
        self.number(&format!("{name}_lo"), move |row| ends(row).map(|interval| interval.lo));
        self.number(&format!("{name}_hi"), move |row| ends(row).map(|interval| interval.hi));
    }

    fn write(&self, rows: impl Iterator<Item = R>) -> csv::Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.0.iter().map(|(name, _)| name))?;
        for row in rows {
            writer.write_record(self.0.iter().map(|(_, cell)| cell(&row)))?;
        }
        Ok(writer.into_inner().map_err(csv::IntoInnerError::into_error)?)
    }
}

/// A point that was summarised.
struct PointRow<'a> {
    point: &'a Point,
    factors: &'a Factors,
    summary: &'a Summary,
    /// Requests of the first repeat that has them: all were made by the same rules.
    sent: Option<&'a SentRequests>,
}

impl<'a> PointRow<'a> {
    fn of(point: &'a Point) -> Option<Self> {
        Some(Self {
            point,
            factors: &point.factors,
            summary: point.summary.as_ref()?,
            sent: point.repeats.iter().find_map(|repeat| repeat.sent.as_ref()),
        })
    }
}

/// Returns the text of `summary.csv`. Points without a summary are left out.
///
/// # Errors
/// Never fails for a run: the text is written to memory.
pub fn summary_csv(run: &Run) -> Result<Vec<u8>, csv::Error> {
    let mut columns = Columns(Vec::new());
    add_factors(&mut columns, run);
    add_figures(&mut columns);
    add_requests(&mut columns);
    add_driver(&mut columns);
    add_later_figures(&mut columns);
    let rows = run.points.iter().filter_map(PointRow::of);
    if rows.clone().any(|row| !row.summary.streams.is_empty()) {
        add_streams(&mut columns);
    }
    columns.write(rows)
}

fn add_factors<'a>(columns: &mut Columns<'a, PointRow<'a>>, run: &'a Run) {
    columns.text("tier", |row| row.factors.tier.clone());
    columns.text("origin", |row| labels::origin(run, row.factors.label()));
    columns.text("cache", |row| row.factors.cache.clone());
    columns.number("cache_share", |row| row.factors.cache_share);
    columns.text("model", |row| row.factors.model.clone());
    columns.text("mode", |row| row.factors.mode.to_string());
    columns.text("batch_size", |row| row.factors.batch_size.to_string());
    columns.text("arrivals", |row| labels::arrivals(row.factors));
    columns.text("keys", |row| row.factors.keys.clone());
    columns.number("offered_rps", |row| labels::offered_rps(row.factors));
    columns.text("variant", |row| row.factors.label().to_owned());
    columns.text("repeats", |row| row.point.repeats.len().to_string());
}

fn add_figures<'a>(columns: &mut Columns<'a, PointRow<'a>>) {
    columns.text("samples", |row| row.summary.samples.to_string());
    columns.interval("p50_us", |row| row.summary.p50_us);
    columns.interval("p95_us", |row| row.summary.p95_us);
    columns.interval("p99_us", |row| row.summary.p99_us);
    columns.number("service_p99_us", |row| row.summary.service_p99_us);
    columns.number("lag_p99_us", |row| row.summary.lag_p99_us);
    columns.interval("achieved_rps", |row| Some(row.summary.achieved_rps));
    columns.interval("inferences_per_s", |row| Some(row.summary.inferences_per_s));
    columns.text("errors", |row| row.summary.errors.to_string());
    columns.number("error_share", |row| row.summary.error_share);
    columns.number("cache_hit_ratio", |row| row.summary.cache_hit_ratio);
    columns.number("tier_requests_per_inference", |row| {
        row.summary.tier_requests_per_inference
    });
    columns.number("in_flight", |row| row.summary.in_flight.0);
    columns.number("in_flight_littles_law", |row| row.summary.in_flight.1);
    columns.text("dominant_part", |row| {
        labels::slowest(row.summary).map_or(NONE, |(part, _)| part).to_owned()
    });
    columns.number("dominant_share", |row| {
        labels::slowest(row.summary).map(|(_, share)| share.value)
    });
    columns.text("verdict", |row| labels::verdict(&row.summary.verdict));
    columns.text("reasons", |row| match &row.summary.verdict {
        Verdict::Valid => String::new(),
        Verdict::Saturated(reasons) | Verdict::Invalid(reasons) => reasons.join("; "),
    });
    columns.interval("usd_per_10k", |row| row.summary.usd_per_10k);
    columns.number("mix_hour_share", |row| row.summary.mix_share.map(|share| share.hour));
    columns.number("mix_tier_share", |row| row.summary.mix_share.map(|share| share.tier));
}

fn add_requests<'a>(columns: &mut Columns<'a, PointRow<'a>>) {
    let mut count = |name, of: fn(&SentRequests) -> u64| {
        columns.text(name, move |row| or_none(row.sent.map(|sent| of(sent).to_string())));
    };
    count("distinct_requests", |sent| sent.distinct);
    count("request_bytes_min", |sent| sent.bytes.min);
    count("request_bytes_median", |sent| sent.bytes.median);
    count("request_bytes_max", |sent| sent.bytes.max);
    columns.number("inferences_per_request", |row| {
        row.sent.map(|sent| sent.inferences_per_request)
    });
    columns.text("request_shapes", |row| {
        let shapes = |sent: &SentRequests| sent.inputs.iter().map(requests::input_shapes).collect::<Vec<_>>();
        or_none(row.sent.map(|sent| shapes(sent).join("; ")))
    });
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| NONE.to_owned())
}

/// Adds the kind of loop, and the closed loop or journey that a point belongs to.
fn add_driver<'a>(columns: &mut Columns<'a, PointRow<'a>>) {
    columns.text("loop", |row| match row.factors.driven {
        Some(Driven::ClosedLoop { .. }) => "closed",
        Some(Driven::BesideClosedLoop { .. }) => "open beside closed",
        Some(Driven::Ramp(_)) => "ramp",
        Some(Driven::Journey { .. }) | None => "open",
    });
    let mut driver = |name, of: fn(&Driven) -> Option<String>| {
        columns.text(name, move |row| or_none(row.factors.driven.as_ref().and_then(of)));
    };
    driver("users", |driven| match driven {
        Driven::ClosedLoop { users, .. } | Driven::BesideClosedLoop { users, .. } => Some(users.to_string()),
        Driven::Journey { .. } | Driven::Ramp(_) => None,
    });
    driver("think_time", |driven| match driven {
        Driven::ClosedLoop { think_time, .. } | Driven::BesideClosedLoop { think_time, .. } => Some(think_time.clone()),
        Driven::Journey { .. } | Driven::Ramp(_) => None,
    });
    driver("journey", |driven| match driven {
        Driven::Journey { name, .. } => Some(name.clone()),
        _ => None,
    });
    driver("step", |driven| match driven {
        Driven::Journey { step, .. } => Some(step.clone().unwrap_or_else(|| "whole".to_owned())),
        _ => None,
    });
}

/// Adds figures that earlier versions did not have: new columns come last.
fn add_later_figures<'a>(columns: &mut Columns<'a, PointRow<'a>>) {
    columns.interval("p90_us", |row| row.summary.p90_us);
    columns.interval("p999_us", |row| row.summary.p999_us);
    columns.interval("mean_us", |row| row.summary.mean_us);
    columns.number("max_us", |row| row.summary.max_us);
    for percentile in Percentile::ALL {
        let name = format!("{}_grade", percentile.name().replace('.', ""));
        columns.text(&name, move |row| match row.summary.grade(percentile) {
            Some(Grade::Solid) => "solid",
            Some(Grade::Rough) => "rough",
            None => NONE,
        });
    }
    columns.interval("goodput_rps", |row| row.summary.goodput_rps);
    columns.number("goodput_share", |row| row.summary.goodput_share);
}

/// Adds figures of streamed replies: intervals of times, values of counts.
fn add_streams<'a>(columns: &mut Columns<'a, PointRow<'a>>) {
    for figure in StreamFigure::ALL {
        let of = move |row: &PointRow<'_>, percentile| {
            let figure = row.summary.streams.get(&figure);
            figure.and_then(|figure| figure.percentiles.get(percentile).copied())
        };
        for percentile in &STREAM_PERCENTILES {
            let name = format!("{figure}_{percentile}");
            match figure.is_time() {
                true => columns.interval(&format!("{name}_us"), move |row| of(row, percentile)),
                false => columns.number(&name, move |row| of(row, percentile).map(|count| count.value)),
            }
        }
        let mean = if figure.is_time() { "mean_us" } else { "mean" };
        columns.number(&format!("{figure}_{mean}"), move |row| {
            row.summary.streams.get(&figure).map(|figure| figure.mean)
        });
    }
}

/// Returns the text of `cold_starts.csv`: one row per cold start. A stage that a server did not report is empty.
///
/// # Errors
/// Never fails for a run: the text is written to memory.
pub fn cold_starts_csv(run: &Run) -> Result<Vec<u8>, csv::Error> {
    let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let mut columns: Columns<'_, &ColdStart> = Columns(Vec::new());
    columns.text("tier", |start| start.tier.clone());
    columns.text("way", |start| start.way.to_string());
    columns.text("page_cache", |start| start.page_cache.to_string());
    columns.text("repeat", |start| start.index.to_string());
    columns.text("ready_s", |start| start.ready_s.to_string());
    columns.text("first_reply_s", |start| start.first_reply_s.to_string());
    for stage in stages(&run.cold_starts) {
        columns.text(&format!("{stage}_s"), move |start| optional(stage_s(start, stage)));
    }
    columns.text("servers", |start| start.servers.to_string());
    columns.text("jitter_s", |start| start.jitter_s.to_string());
    columns.text("earliest_reply_s", move |start| optional(start.earliest_reply_s));
    columns.text("tier_bytes", |start| {
        start.tier_bytes.map(|bytes| bytes.to_string()).unwrap_or_default()
    });
    columns.write(run.cold_starts.iter())
}

/// Text of a cell, behind an apostrophe if a spreadsheet would run it as a formula. Plain names with a leading dash stay.
/// The CSV writer quotes commas and line ends.
fn text(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    match text.starts_with(FORMULA) && !is_plain {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

/// Six significant digits, without an exponent, so that every reader accepts it and no digit is spurious.
fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0" } else { NONE }.to_owned();
    }
    let exponent = value.abs().log10().floor() as i32;
    let decimals = usize::try_from((5 - exponent).clamp(0, 15)).unwrap_or(0);
    labels::trimmed(&format!("{value:.decimals$}")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_six_digits() {
        let texts = [0.0, 200.0, 1_234_567.0, 0.1 + 0.2, 0.000_012_345_678, 41_234.567_8].map(number);
        assert_eq!(texts, ["0", "200", "1234567", "0.3", "0.0000123457", "41234.6"]);
        assert_eq!([-0.0, f64::INFINITY, f64::NAN].map(number), ["0", "n/a", "n/a"]);
    }

    #[test]
    fn an_estimate_without_an_interval_has_no_ends() {
        let mut columns: Columns<'_, Interval> = Columns(Vec::new());
        columns.interval("us", |row| Some(*row));
        let open = f64::INFINITY;
        let rows = [(0.0, open), (1.0, open), (0.0, 3.0)].map(|(lo, hi)| Interval::new(2.0, lo, hi));
        let text = String::from_utf8(columns.write(rows.into_iter()).unwrap()).unwrap();
        assert_eq!(text, "us,us_lo,us_hi\n2,n/a,n/a\n2,1,n/a\n2,0,3\n");
    }

    #[test]
    fn what_a_spreadsheet_would_run_is_text() {
        for formula in ["=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd|x", "@SUM(A1)", "\t=1"] {
            assert_eq!(text(formula), format!("'{formula}"));
        }
        for plain in ["", "s3", "-1", "a=b", "x, \"y\"\nz"] {
            assert_eq!(text(plain), plain);
        }
    }
}
