//! Format of times in results: RFC 3339 in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Last second with a four-digit year.
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// Formats a time in UTC as RFC 3339 with seconds.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(within(time)).to_string()
}

/// Formats a time with milliseconds: `YYYY-MM-DDTHH:MM:SS.fffZ`.
pub fn rfc3339_ms(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(within(time)).to_string()
}

/// Parses `YYYY-MM-DDTHH:MM:SS[.fff]` with `Z` or `+00:00`; `None` for anything else.
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text).ok()
}

/// Returns the nearest time that can be formatted: files may be dated before 1970, and clocks may be wrong.
fn within(time: SystemTime) -> SystemTime {
    time.clamp(UNIX_EPOCH, UNIX_EPOCH + LAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_civil() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn milliseconds_come_back() {
        let time = UNIX_EPOCH + Duration::from_millis(1_795_219_080_042);
        assert_eq!(rfc3339_ms(time), "2026-11-20T23:58:00.042Z");
        assert_eq!(parse_rfc3339(&rfc3339_ms(time)), Some(time));
    }

    #[test]
    fn times_that_cannot_be_written_are_the_nearest_that_can() {
        let second = Duration::from_secs(1);
        assert_eq!(rfc3339(UNIX_EPOCH - second), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339_ms(UNIX_EPOCH + LAST + second), "9999-12-31T23:59:59.000Z");
    }

    #[test]
    fn times_of_the_calendar() {
        let seconds =
            |text| parse_rfc3339(text).map(|t| t.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64());
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(seconds("2000-02-29T12:30:15.5Z"), Some(951_827_415.5));
        assert_eq!(seconds("2026-11-20T23:58:00Z"), Some(1_795_219_080.0));
        for bad in [
            "",
            "yesterday",
            "2026-13-01T00:00:00Z",
            "2026-02-31T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00+01:00",
            "2026-01-01T00:00:00",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}|[0-9TZ:.+é-]{15,35}") {
            let _ = parse_rfc3339(&text);
        }
    }
}
