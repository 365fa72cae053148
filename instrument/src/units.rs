//! Numbers for people: three significant digits and a suitable unit.
//!
//! In: microseconds, rates, bytes, dollars, shares. Out: text, and numbers from text. Independent of their origin.

use anyhow::{Result, anyhow, bail};
use std::fmt::Display;
use std::time::Duration;
use tierlab_analysis::record::Interval;

/// Text in place of a missing number.
pub const NONE: &str = "n/a";

/// Microseconds per unit, by rising unit.
const UNITS: [(f64, &str); 3] = [(1.0, "µs"), (1e3, "ms"), (1e6, "s")];

fn unit(us: f64) -> (f64, &'static str) {
    // 999.5 of a unit would be printed as 1000 of it.
    let mut largest = UNITS.into_iter().rev();
    largest.find(|(size, _)| us.abs() >= 0.9995 * size).unwrap_or(UNITS[0])
}

/// Formats a number with three significant digits and no exponent.
pub fn digits3(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return NONE.to_owned();
    }
    // Exponent of the rounded number, so that 9.996 becomes 10.0 and not 10.00.
    let rounded = format!("{value:.2e}");
    let (_, exponent) = rounded.split_once('e').unwrap_or_default();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let decimals = usize::try_from(2 - exponent).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// A latency: `850 µs`, `1.24 ms`, `12.3 s`.
pub fn latency(us: f64) -> String {
    let (size, name) = unit(us);
    format!("{} {name}", digits3(us / size))
}

/// A latency with its interval, all in the unit of the latency: `1.24 ms [1.20–1.31]`; `~1.24 ms [≥ 1.20]` for a rough one.
pub fn latency_interval(interval: Option<&Interval>) -> String {
    let Some(interval) = interval else {
        return NONE.to_owned();
    };
    let (size, name) = unit(interval.value);
    let [value, lo, hi] = [interval.value, interval.lo, interval.hi].map(|us| digits3(us / size));
    if interval.hi.is_finite() {
        format!("{value} {name} [{lo}–{hi}]")
    } else if interval.lo > 0.0 {
        format!("~{value} {name} [≥ {lo}]")
    } else {
        format!("~{value} {name}")
    }
}

/// A rate per second, without its unit.
pub fn rate(per_s: f64) -> String {
    amount(per_s).trim_end_matches(".0").to_owned()
}

/// A number with three significant digits, or all of a larger whole number: `0.0124`, `13,014`.
pub fn amount(value: f64) -> String {
    if (999.5..f64::INFINITY).contains(&value) {
        thousands(value.round() as u64)
    } else {
        digits3(value)
    }
}

/// Dollars: `$0.0124`, `$13,014`.
pub fn dollars(usd: f64) -> String {
    format!("${}", amount(usd))
}

/// Dollars with their interval: `$0.0124 [0.0120–0.0131]`; without the interval if that has no upper end.
pub fn dollars_interval(interval: Option<&Interval>) -> String {
    interval.map_or_else(|| NONE.to_owned(), |usd| with_ends(dollars(usd.value), usd, amount))
}

/// A number with its 95 % interval: `1,234 [1,200–1,274]`; without the interval if that has no upper end.
pub fn spread(interval: &Interval) -> String {
    with_ends(amount(interval.value), interval, amount)
}

fn with_ends(value: String, ends: &Interval, text: fn(f64) -> String) -> String {
    match ends.hi.is_finite() {
        true => format!("{value} [{}–{}]", text(ends.lo), text(ends.hi)),
        false => value,
    }
}

/// Formats a share as percent: `92 %`, with another digit below 10 and above 99: `0.3 %`, `99.7 %`. A share below 1 is not
/// rounded to 100 %.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return NONE.to_owned();
    }
    format!("{} %", percent_digits(share))
}

/// Maximum percent missing from 100 at which a sum of floating-point numbers counts as 100.
const MISSED_PERCENT: f64 = 1e-6;

/// A share as percent, without the unit.
pub fn percent_digits(share: f64) -> String {
    let percent = 100.0 * share;
    let rest = 100.0 - percent;
    if (MISSED_PERCENT..1.0).contains(&rest) {
        let decimals = (-rest.log10() - 1e-9).ceil().max(1.0) as usize;
        format!("{percent:.decimals$}")
    } else if percent > 0.0 && percent < 0.05 {
        "<0.1".to_owned()
    } else if percent > -0.05 && percent < 0.05 {
        // Otherwise a sum of -0.0, or slightly below 0, would have a sign.
        "0".to_owned()
    } else if percent >= 9.95 {
        format!("{percent:.0}")
    } else {
        format!("{percent:.1}")
    }
}

/// Formats bytes: `4 KiB` for a whole number of a unit, else `1.50 GiB`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1_023.5 {
            break;
        }
        (value, unit) = (value / 1_024.0, larger);
    }
    if value.fract() == 0.0 {
        format!("{value} {unit}")
    } else {
        format!("{} {unit}", digits3(value))
    }
}

/// Bytes from text: `4096`, `4KiB`, `1.5GiB`, `10MB`.
///
/// # Errors
/// The unit is unknown, or the number of bytes is not whole.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let factor = match unit.trim() {
        "" | "B" => 1.0,
        "KiB" | "K" | "k" => 1024.0,
        "MiB" | "M" => 1024.0 * 1024.0,
        "GiB" | "G" => 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => bail!("unknown unit `{unit}`: use B, KiB, MiB, GiB, kB, MB or GB"),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| anyhow!("invalid number of bytes: `{number}`"))?;
    let bytes = number * factor;
    // Whole, and exact as a float.
    if bytes.fract() == 0.0 && bytes <= 2f64.powi(53) {
        Ok(bytes as u64)
    } else {
        bail!("not a whole number of bytes")
    }
}

/// Formats a planned duration: `45 s`, `12 min`, `1.5 h`.
pub fn duration(seconds: f64) -> String {
    match seconds + 0.0 {
        s if !s.is_finite() => NONE.to_owned(),
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 5_970.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// Formats a waiting time: `3m20s`.
pub fn wait(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

/// A count with its noun: `1 row`, `2 rows`. The plural adds an `s`.
pub fn count_of<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A count with separators: `12,345`.
pub fn thousands(count: u64) -> String {
    match (count / 1_000, count % 1_000) {
        (0, rest) => rest.to_string(),
        (more, rest) => format!("{},{rest:03}", thousands(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_suit_the_size() {
        let texts = [
            0.0,
            7.0,
            850.0,
            999.4,
            999.6,
            1_240.0,
            12_345.0,
            999_600.0,
            61_500_000.0,
        ]
        .map(latency);
        assert_eq!(
            texts,
            [
                "0 µs", "7.00 µs", "850 µs", "999 µs", "1.00 ms", "1.24 ms", "12.3 ms", "1.00 s", "61.5 s"
            ]
        );
        let interval = Interval {
            value: 1_240.0,
            lo: 999.0,
            hi: 13_100.0,
        };
        assert_eq!(latency_interval(Some(&interval)), "1.24 ms [0.999–13.1]");
        assert_eq!(latency_interval(None), "n/a");
        let rough = |lo: f64| Interval {
            lo,
            hi: f64::INFINITY,
            ..interval
        };
        assert_eq!(latency_interval(Some(&rough(999.0))), "~1.24 ms [≥ 0.999]");
        assert_eq!(latency_interval(Some(&rough(0.0))), "~1.24 ms");
    }

    #[test]
    fn other_numbers() {
        assert_eq!(
            [0.5, 50.0, 199.9, 999.7, 4_000.0, 12_345.6, f64::INFINITY].map(rate),
            ["0.500", "50", "200", "1,000", "4,000", "12,346", "n/a"]
        );
        assert_eq!(
            [0.012_4, 1.0, 12.345, 13_014.4].map(dollars),
            ["$0.0124", "$1.00", "$12.3", "$13,014"]
        );
        assert_eq!(
            [0.0, 0.000_1, 0.003, 0.0996, 0.918, 1.0].map(percent),
            ["0 %", "<0.1 %", "0.3 %", "10 %", "92 %", "100 %"]
        );
        assert_eq!(
            [0.99, 0.994, 0.999, 0.9996, 0.999_95, 0.999_999, 1.0 - 1e-12, 1.2].map(percent),
            [
                "99 %",
                "99.4 %",
                "99.9 %",
                "99.96 %",
                "99.995 %",
                "99.9999 %",
                "100 %",
                "120 %"
            ]
        );
        // An empty sum of floating-point numbers is -0.0.
        assert_eq!(
            [-0.0, -1e-9, -0.02, f64::NAN].map(percent),
            ["0 %", "0 %", "-2.0 %", "n/a"]
        );
        assert_eq!(duration(-0.0), "0 s");
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [45.2, 720.0, 5_400.0, 9_000.0].map(duration),
            ["45 s", "12 min", "90 min", "2.5 h"]
        );
        assert_eq!(
            [512, 1_000, 1_024, 1_536, 1_048_000, 16 << 30, 1_234 << 30].map(bytes),
            ["512 B", "1000 B", "1 KiB", "1.50 KiB", "1023 KiB", "16 GiB", "1.21 TiB"]
        );
        assert_eq!(
            [1_200, 200_000, 7_265_000].map(|ms| wait(Duration::from_millis(ms))),
            ["2s", "3m20s", "2h01m"]
        );
        assert_eq!(
            [0_u32, 1, 2].map(|count| count_of(count, "row")),
            ["0 rows", "1 row", "2 rows"]
        );
        let interval = |lo, hi| Interval { value: 1_234.0, lo, hi };
        assert_eq!(spread(&interval(1_200.0, 1_274.0)), "1,234 [1,200–1,274]");
        assert_eq!(spread(&interval(0.0, f64::INFINITY)), "1,234");
        assert_eq!(
            [(1_200.0, 1_274.0), (f64::NEG_INFINITY, f64::INFINITY)]
                .map(|(lo, hi)| dollars_interval(Some(&interval(lo, hi)))),
            ["$1,234 [1,200–1,274]", "$1,234"]
        );
    }

    #[test]
    fn sizes_read_as_written() {
        for (text, want) in [
            ("0", 0),
            ("512", 512),
            ("4KiB", 4096),
            ("1.5MiB", 1_572_864),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), want);
        }
        for bad in ["", "KiB", "-1", "1.5", "4 parsecs", "1e3", "1.2.3KiB", "99999999999GiB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn three_digits_are_within_half_a_percent(value in 1e-9_f64..1e12) {
            let read: f64 = digits3(value).parse().unwrap();
            prop_assert!((read - value).abs() <= 0.005_01 * value, "{value} -> {read}");
        }
    }
}
