//! Times as results have them: RFC 3339 in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// UTC in RFC 3339 with seconds, from the civil calendar.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// The same with milliseconds: `YYYY-MM-DDTHH:MM:SS.fffZ`.
#[must_use]
pub fn rfc3339_ms(time: SystemTime) -> String {
    let of_second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_millis());
    let seconds = rfc3339(time);
    format!("{}.{of_second:03}Z", seconds.trim_end_matches('Z'))
}

/// Year, month and day of a number of days since 1970-01-01 (Gregorian).
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// `YYYY-MM-DDTHH:MM:SS[.fff]Z` as a time; `None` for anything else.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let (hour, minute): (u64, u64) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
    let second: f64 = time.next()?.parse().ok()?;
    if !(1970..10_000).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
    {
        return None;
    }
    // Days since 1970-01-01 of the proleptic Gregorian calendar, counting years from March so that leap days are last.
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
            - 1
            - 719_468;
    let seconds = u64::try_from(days).ok()? * 86_400 + hour * 3_600 + minute * 60;
    let fraction = Duration::try_from_secs_f64(second)
        .ok()
        .filter(|second| second.as_secs() < 61)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00+01:00",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
