//! Server stage times in a reply. In: its `Server-Timing` headers, each alone. Out: the stages, if any header reports
//! one. Other headers (of a proxy, or a server with its own names) report no stages, and are not read as stages of zero
//! length.

use tierlab_protocol::timing::StageTimings;

/// Maximum length of a server's stage times; this project's server sends less than 300 bytes.
const TIMING_BYTES: usize = 4 << 10;

/// Returns the stages of the first header that reports one.
pub(crate) fn stages<'a>(headers: impl Iterator<Item = &'a [u8]>) -> Option<StageTimings> {
    let short = headers.filter(|text| text.len() <= TIMING_BYTES);
    let mut read = short.filter_map(|text| StageTimings::parse_header(std::str::from_utf8(text).ok()?).ok());
    read.find(tells)
}

/// True if any stage is present. All stages together take longer than the microsecond that a header resolves.
fn tells(timings: &StageTimings) -> bool {
    !timings.total().is_zero() || timings.batch_rows > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_protocol::timing::Stage;

    fn infer_us(headers: &[&str]) -> Option<u128> {
        let told = stages(headers.iter().map(|text| text.as_bytes()))?;
        Some(told.get(Stage::Infer).as_micros())
    }

    #[test]
    fn what_others_wrote_is_no_stage() {
        for foreign in [
            "cdn-cache;desc=HIT",
            "db;dur=53, app;dur=47.2",
            "total;dur=12",
            "",
            ",",
            "infer;dur=-4",
            "infer",
        ] {
            assert_eq!(infer_us(&[foreign]), None, "{foreign}");
        }
        assert_eq!(infer_us(&[]), None);
    }

    #[test]
    fn the_servers_own_header_is_found_among_those_of_proxies() {
        let own = "decode;dur=0.010, infer;dur=1.500, total;dur=1.510, rows;desc=\"1\"";
        for headers in [[own, "cdn;dur=3"], ["cdn;dur=3", own], ["cache;desc=HIT", own]] {
            assert_eq!(infer_us(&headers), Some(1_500), "{headers:?}");
        }
    }
}
