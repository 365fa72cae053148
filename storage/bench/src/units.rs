//! Bytes and times as people write and read them.

use std::time::Duration;
use tierlab_analysis::record::Interval;

/// `4096`, `4KiB`, `1.5GiB`, `10MB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit.trim() {
        "" | "B" => 1.0,
        "KiB" | "K" | "k" => 1024.0,
        "MiB" | "M" => 1024.0 * 1024.0,
        "GiB" | "G" => 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => {
            return Err(format!(
                "`{unit}` is no unit of bytes: use B, KiB, MiB, GiB, kB, MB or GB"
            ));
        }
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{number}` is no number of bytes"))?;
    let bytes = number * factor;
    // Whole bytes, and exact as a float.
    if bytes.fract() == 0.0 && bytes <= 2f64.powi(53) {
        Ok(bytes as u64)
    } else {
        Err("no whole number of bytes".into())
    }
}

/// `4 KiB`, `1.5 MiB`: in the largest unit that shows it exactly enough.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            return format!("{} {unit}", trimmed(value));
        }
        value /= 1024.0;
    }
    format!("{} GiB", trimmed(value))
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Microseconds with three significant digits and the unit that suits: `57.1 us`, `1.24 ms`.
pub(crate) fn time_text(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} us", digits3(us)),
        us if us < 999_500.0 => format!("{} ms", digits3(us / 1e3)),
        us => format!("{} s", digits3(us / 1e6)),
    }
}

/// Three significant digits, and no exponent.
pub(crate) fn digits3(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A value, and half of its interval as a share of it: `1234 ±3 %`.
pub(crate) fn spread(interval: &Interval) -> String {
    let half = (interval.hi - interval.lo) / 2.0;
    match interval.value > 0.0 && half > 0.0 {
        true => format!("{} ±{:.0} %", digits3(interval.value), half / interval.value * 100.0),
        false => digits3(interval.value),
    }
}

/// A length of time to wait for: `3m20s`.
pub(crate) fn wait_text(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_written() {
        for (text, want) in [
            ("0", 0),
            ("512", 512),
            ("4KiB", 4096),
            ("1.5MiB", 1_572_864),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(bytes(text), Ok(want));
        }
        for bad in ["", "KiB", "-1", "1.5", "4 parsecs", "1e3", "1.2.3KiB", "99999999999GiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [4096, 1536, 16 << 20, 3 << 30].map(bytes_text),
            ["4 KiB", "1.5 KiB", "16 MiB", "3 GiB"]
        );
        assert_eq!(
            [0.31, 57.13, 1240.0, 2.5e6].map(time_text),
            ["0.310 us", "57.1 us", "1.24 ms", "2.50 s"]
        );
        assert_eq!(wait_text(Duration::from_secs(200)), "3m20s");
    }
}
