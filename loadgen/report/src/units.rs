//! Numbers as people read them: three significant digits and the unit that suits them.
//!
//! In: microseconds, rates, dollars, shares. Out: text. Knows nothing of what they measure.

use tierlab_analysis::record::Interval;

/// What is printed where there is no number.
pub(crate) const NONE: &str = "n/a";

/// Microseconds per unit, by rising unit.
const UNITS: [(f64, &str); 3] = [(1.0, "µs"), (1e3, "ms"), (1e6, "s")];

fn unit(us: f64) -> (f64, &'static str) {
    // 999.5 of a unit would be printed as 1000 of it.
    UNITS
        .into_iter()
        .rev()
        .find(|(size, _)| us.abs() >= 0.9995 * size)
        .unwrap_or(UNITS[0])
}

/// A number with three significant digits and no exponent.
pub(crate) fn digits3(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { NONE.to_owned() };
    }
    // The exponent of the number as rounded, so that 9.996 becomes 10.0 and not 10.00.
    let rounded = format!("{value:.2e}");
    let exponent: i32 = rounded
        .split('e')
        .nth(1)
        .and_then(|exponent| exponent.parse().ok())
        .unwrap_or(0);
    let decimals = usize::try_from((2 - exponent).max(0)).unwrap_or(0);
    if exponent > 2 {
        format!("{value:.0}")
    } else {
        format!("{value:.decimals$}")
    }
}

/// A latency: `850 µs`, `1.24 ms`, `12.3 s`.
pub(crate) fn latency(us: f64) -> String {
    let (size, name) = unit(us);
    format!("{} {name}", digits3(us / size))
}

/// A latency with its interval, all in the unit of the latency: `1.24 ms [1.20–1.31]`; `~1.24 ms [≥ 1.20]` for a rough one.
pub(crate) fn latency_interval(interval: Option<&Interval>) -> String {
    interval.map_or_else(
        || NONE.to_owned(),
        |interval| {
            let (size, name) = unit(interval.value);
            let [value, lo, hi] = [interval.value, interval.lo, interval.hi].map(|us| digits3(us / size));
            if interval.hi.is_finite() {
                format!("{value} {name} [{lo}–{hi}]")
            } else if interval.lo > 0.0 {
                format!("~{value} {name} [≥ {lo}]")
            } else {
                format!("~{value} {name}")
            }
        },
    )
}

/// A rate per second, without its unit.
pub(crate) fn rate(per_s: f64) -> String {
    if per_s >= 1_000.0 {
        thousands(per_s.round() as u64)
    } else {
        digits3(per_s).trim_end_matches(".0").to_owned()
    }
}

/// Dollars: `$0.0124`.
pub(crate) fn dollars(usd: f64) -> String {
    format!("${}", digits3(usd))
}

/// Dollars with their interval: `$0.0124 [0.0120–0.0131]`.
pub(crate) fn dollars_interval(interval: Option<&Interval>) -> String {
    interval.map_or_else(
        || NONE.to_owned(),
        |usd| format!("{} [{}–{}]", dollars(usd.value), digits3(usd.lo), digits3(usd.hi)),
    )
}

/// Dollars with the half width of their interval in percent: `$0.0124 ±3.5 %`.
pub(crate) fn dollars_spread(interval: Option<&Interval>) -> String {
    interval.map_or_else(
        || NONE.to_owned(),
        |usd| {
            let half = if usd.value > 0.0 {
                (usd.hi - usd.lo) / 2.0 / usd.value
            } else {
                0.0
            };
            format!("{} ±{}", dollars(usd.value), percent(half))
        },
    )
}

/// A share as percent: `92 %`, and with a digit more below ten: `0.3 %`.
pub(crate) fn percent(share: f64) -> String {
    if !share.is_finite() {
        return NONE.to_owned();
    }
    format!("{} %", percent_digits(share))
}

/// The same without its sign.
pub(crate) fn percent_digits(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.05 {
        "<0.1".to_owned()
    } else if percent > -0.05 && percent < 0.05 {
        // Else what sums to -0.0, or to a hair below nothing, has a sign.
        "0".to_owned()
    } else if percent >= 9.95 {
        format!("{percent:.0}")
    } else {
        format!("{percent:.1}")
    }
}

/// Bytes: `1.50 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1_023.5 {
            return format!("{} {unit}", digits3(value));
        }
        value /= 1_024.0;
    }
    format!("{} TiB", digits3(value))
}

/// A length of time that is planned by: `45 s`, `12 min`, `1.5 h`.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds + 0.0 {
        s if !s.is_finite() => NONE.to_owned(),
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 5_970.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// A count with separators: `12,345`.
pub(crate) fn thousands(count: u64) -> String {
    let text = count.to_string();
    let mut out = String::with_capacity(text.len() + text.len() / 3);
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
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
            [0.5, 50.0, 199.9, 4_000.0, 12_345.6].map(rate),
            ["0.500", "50", "200", "4,000", "12,346"]
        );
        assert_eq!([0.012_4, 1.0, 12.345].map(dollars), ["$0.0124", "$1.00", "$12.3"]);
        assert_eq!(
            [0.0, 0.000_1, 0.003, 0.0996, 0.918, 1.0].map(percent),
            ["0 %", "<0.1 %", "0.3 %", "10 %", "92 %", "100 %"]
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
        assert_eq!([512, 1_024, 16 << 30].map(bytes), ["512 B", "1.00 KiB", "16.0 GiB"]);
    }

    proptest! {
        #[test]
        fn three_digits_are_within_half_a_percent(value in 1e-9_f64..1e12) {
            let read: f64 = digits3(value).parse().unwrap();
            prop_assert!((read - value).abs() <= 0.005_01 * value, "{value} -> {read}");
        }
    }
}
