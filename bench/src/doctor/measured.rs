//! Differences between ways of reading on one folder, measured for half a second each. In: a folder. Out: findings with
//! figures. The file is written into a temporary folder, and removed.

use super::disk::FETCHES_MORE;
use super::finding::{Finding, Level};
use crate::plan::{Access, CacheState, Pattern, Point, Way};
use crate::prepared_tier::PreparedTier;
use crate::stop::Stop;
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::time::Duration;
use tierlab_instrument::units::{bytes, digits3, latency};
use tierlab_storage::TierConfig;

/// Bytes of the file, of which each block is read once.
const FILE_BYTES: u64 = 128 << 20;
/// Bytes written to a tier without a local folder.
const REMOTE_BYTES: u64 = 8 << 20;
const WINDOW: Duration = Duration::from_millis(500);
const WARMUP: Duration = Duration::from_millis(50);
const SMALL: u64 = 4096;
const LARGE: u64 = 1 << 20;
/// Minimum share of a cold read's bytes fetched from storage; with less, the data was in memory.
const MIN_FETCHED_SHARE: f64 = 0.95;
/// Ratio of times from which a way is reported as slower, given half a second of measuring.
const SLOW_RATIO: f64 = 1.25;

/// Result of one way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WayFigures {
    pub(super) p50_us: f64,
    pub(super) mb_per_s: f64,
    /// Bytes that the kernel fetched per requested byte.
    pub(super) fetched_share: Option<f64>,
}

/// Results of all available ways.
#[derive(Debug)]
pub(super) struct Ways {
    /// Reads of 4 KiB at random: `pread` with `O_DIRECT`, and buffered with a cold page cache.
    pub(super) small_direct: Result<WayFigures>,
    pub(super) small_buffered: Result<WayFigures>,
    /// Sequential reads of 1 MiB.
    pub(super) large_direct: Result<WayFigures>,
    pub(super) large_buffered: Result<WayFigures>,
    /// Reads of 4 KiB at random by io_uring with `O_DIRECT`.
    pub(super) small_ring: Result<WayFigures>,
}

/// Measures a folder.
///
/// # Errors
/// The folder is not writable or full, or io_uring is refused.
pub(super) fn measure_ways(folder: &Path, stop: &Stop) -> Result<Ways> {
    // `PreparedTier` replaces the root by a new folder in `folder`.
    let config = TierConfig::parse("tier", "kind = \"nvme\"\nroot = \"/\"\n")?;
    let mut tier = PreparedTier::new("doctor", &config, Some(folder), 0)?;
    // Data that cannot be written says nothing about any way of reading it.
    tier.prepare(
        &Point::reads("doctor", SMALL),
        &Access::reads(FILE_BYTES, WINDOW, WARMUP),
        stop,
    )?;
    let mut of = |pattern, block_bytes, way| {
        let point = Point {
            pattern,
            way,
            cache: CacheState::Cold,
            ..Point::reads("doctor", block_bytes)
        };
        measure_way(&mut tier, &point, FILE_BYTES, stop)
    };
    let ways = Ways {
        small_direct: of(Pattern::Random, SMALL, Way::PreadDirect),
        small_buffered: of(Pattern::Random, SMALL, Way::Pread),
        small_ring: of(Pattern::Random, SMALL, Way::Direct),
        large_direct: of(Pattern::Sequential, LARGE, Way::PreadDirect),
        large_buffered: of(Pattern::Sequential, LARGE, Way::Pread),
    };
    tier.remove()?;
    ensure!(!stop.is_requested(), "interrupted");
    Ok(ways)
}

/// Measures reads from `bytes` bytes of data.
fn measure_way(tier: &mut PreparedTier, point: &Point, bytes: u64, stop: &Stop) -> Result<WayFigures> {
    let access = Access::reads(bytes, WINDOW, WARMUP);
    tier.prepare(point, &access, stop)?;
    let outcome = tier.measure(point, &access, 0, stop, Ok)?;
    let tally = &outcome.tally;
    if tally.sums.calls == 0 {
        bail!("no read ended in {:.1} s", outcome.window.as_secs_f64());
    }
    let requested = tally.sums.asked_bytes as f64;
    Ok(WayFigures {
        p50_us: tally.latency_ns.value_at_quantile(0.5) as f64 / 1e3,
        mb_per_s: requested / 1e6 / outcome.window.as_secs_f64(),
        fetched_share: outcome.machine.fetched_bytes.map(|bytes| bytes as f64 / requested),
    })
}

/// Adds the time of direct reads to the findings about access times and about the scheduler of their device, and the figures of buffered
/// reads to that about its read-ahead. A large read-ahead is not the cause if slow reads fetch no more than requested.
pub(super) fn add_reads(found: &mut [Finding], ways: &Ways) {
    let is_slow_read = |one: &&mut Finding| one.about == "access times" || one.about.starts_with("I/O scheduler");
    if let Ok(direct) = &ways.small_direct {
        let time = latency(direct.p50_us);
        for one in found.iter_mut().filter(is_slow_read) {
            let figure = one.measured.take();
            one.measured = figure.map(|figure| format!("{figure}; direct reads of 4 KiB take {time}"));
        }
    }
    let random = both_ok(&ways.small_direct, &ways.small_buffered);
    let in_order = both_ok(&ways.large_direct, &ways.large_buffered);
    let finding = found
        .iter_mut()
        .find(|finding| finding.about.starts_with("read-ahead of"));
    let (Some(finding), Some(random), Some(in_order)) = (finding, random, in_order) else {
        return;
    };
    let fetched = [random, in_order].map(|(_, buffered)| buffered.fetched_share.unwrap_or(1.0));
    if fetched.iter().any(|share| *share < MIN_FETCHED_SHARE) {
        return;
    }
    let slower = [
        random.1.p50_us / random.0.p50_us,
        in_order.0.mb_per_s / in_order.1.mb_per_s,
    ];
    let worst = match finding.effect.as_deref() {
        Some(FETCHES_MORE) if fetched[0] < SLOW_RATIO => 1.0,
        Some(FETCHES_MORE) => slower[0],
        _ => slower[1],
    };
    let text = format!(
        "buffered reads: 4 KiB at random take {:.2} times as long as direct ones and fetch {} each, 1 MiB in order {:.2} times as long",
        slower[0],
        bytes((fetched[0] * SMALL as f64) as u64),
        slower[1]
    );
    let is_fine = worst < SLOW_RATIO || finding.level == Level::Fine;
    *finding = finding.clone().measured(text).times(worst).fine_if(is_fine);
}

/// Measures reads through a tier without a local folder.
pub(super) fn measure_tier(config: &TierConfig, stop: &Stop) -> Finding {
    let about = "reads through the tier";
    let reads = || {
        let mut tier = PreparedTier::new("doctor", config, None, 0)?;
        let mut of = |point: &Point| measure_way(&mut tier, point, REMOTE_BYTES, stop);
        let small = of(&Point::reads("doctor", SMALL));
        let large = of(&Point {
            pattern: Pattern::Sequential,
            ..Point::reads("doctor", LARGE)
        });
        tier.remove()?;
        anyhow::Ok((small?, large?))
    };
    match reads() {
        Ok((small, large)) => Finding::fine(about, "one at a time, for half a second each").measured(format!(
            "4 KiB at random in {}, 1 MiB in order in {}, {} MB/s",
            latency(small.p50_us),
            latency(large.p50_us),
            digits3(large.mb_per_s)
        )),
        Err(error) => Finding::unknown(about, format!("not measured: {error:#}")),
    }
}

/// Returns the findings of a folder; `is_direct` is the tier's setting.
pub(super) fn findings(ways: &Ways, is_direct: Option<bool>) -> Vec<Finding> {
    let mut found = vec![direct_reads(ways)];
    found.extend(both_ok(&ways.small_direct, &ways.small_buffered).map(|(one, other)| small(one, other, is_direct)));
    found.extend(both_ok(&ways.large_direct, &ways.large_buffered).map(|(one, other)| large(one, other)));
    found.extend(both_ok(&ways.small_direct, &ways.small_ring).map(|(pread, ring)| {
        let [ring, pread] = [ring, pread].map(|figures| latency(figures.p50_us));
        let about = "io_uring, 4 KiB at random, one at a time";
        Finding::fine(about, "compared with pread, both direct")
            .measured(format!("{ring} by io_uring, {pread} by pread"))
    }));
    found
}

fn both_ok<'a>(one: &'a Result<WayFigures>, other: &'a Result<WayFigures>) -> Option<(&'a WayFigures, &'a WayFigures)> {
    one.as_ref().ok().zip(other.as_ref().ok())
}

fn direct_reads(ways: &Ways) -> Finding {
    match &ways.small_direct {
        Ok(figures) => Finding::fine("O_DIRECT", "works here").measured(format!(
            "4 KiB at random in {}, 1 MiB in order at {}",
            latency(figures.p50_us),
            ways.large_direct.as_ref().map_or_else(
                |_| "n/a".to_owned(),
                |figures| format!("{} MB/s", digits3(figures.mb_per_s))
            )
        )),
        Err(error) => Finding::warning("O_DIRECT", format!("refused: {error:#}"))
            .effect("reads go through the page cache")
            .change("choose a folder on a file system with a disk (ext4, xfs)"),
    }
}

/// Compares buffered reads with direct ones, which take `1 / slower` of the time. Unknown if the buffered reads were not cold.
fn compare(about: &str, buffered: &WayFigures, slower: f64, text: String, (effect, change): (&str, &str)) -> Finding {
    if let Some(share) = buffered.fetched_share.filter(|share| *share < MIN_FETCHED_SHARE) {
        let percent = 100.0 * share;
        let found = format!("not cold: only {percent:.0} % of the bytes were fetched from storage");
        return Finding::unknown(about, found);
    }
    let finding = match slower < SLOW_RATIO {
        true => Finding::fine(about, "costs no more than direct reads"),
        false => Finding::warning(about, format!("{slower:.1} times as long as direct reads"))
            .effect(effect)
            .change(change)
            .times(slower),
    };
    finding.measured(text)
}

fn small(direct: &WayFigures, buffered: &WayFigures, is_direct: Option<bool>) -> Finding {
    let fetched = buffered.fetched_share.map_or_else(String::new, |share| {
        format!(" ({} fetched each)", bytes((share * SMALL as f64) as u64))
    });
    let [buffered_us, direct_us] = [buffered, direct].map(|figures| latency(figures.p50_us));
    let figures = format!("{buffered_us} buffered{fetched}, {direct_us} direct");
    let fetches_more = buffered.fetched_share.is_none_or(|share| share >= SLOW_RATIO);
    let change = match is_direct {
        Some(false) => "set direct = true in the tier's TOML if the data does not fit into memory",
        _ if fetches_more => "lower the read-ahead, unless the tier has direct = true",
        _ => "read with direct = true: the read-ahead fetches little more than requested, so lowering it does not help",
    };
    let effect = "random reads of data that is not in the cache are slower";
    let about = "page cache, 4 KiB at random, cold";
    let slower = buffered.p50_us / direct.p50_us;
    compare(about, buffered, slower, figures, (effect, change))
}

fn large(direct: &WayFigures, buffered: &WayFigures) -> Finding {
    let [buffered_mb, direct_mb] = [buffered, direct].map(|figures| digits3(figures.mb_per_s));
    let figures = format!("{buffered_mb} MB/s buffered, {direct_mb} MB/s direct, one at a time");
    let effect = "sequential reads through the page cache take longer";
    let about = "page cache, 1 MiB in order, cold";
    let slower = direct.mb_per_s / buffered.mb_per_s;
    let change = "use direct reads with several in flight";
    compare(about, buffered, slower, figures, (effect, change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(p50_us: f64, mb_per_s: f64) -> Result<WayFigures> {
        Ok(WayFigures {
            p50_us,
            mb_per_s,
            fetched_share: Some(2.0),
        })
    }

    #[test]
    fn slower_ways_are_told_with_their_figures() {
        let ways = Ways {
            small_direct: of(100.0, 40.0),
            small_buffered: of(300.0, 13.0),
            large_direct: of(1000.0, 1000.0),
            large_buffered: of(2000.0, 500.0),
            small_ring: of(101.0, 40.0),
        };
        let found = findings(&ways, Some(false));
        let warnings: Vec<&Finding> = found.iter().filter(|finding| finding.level == Level::Warning).collect();
        assert_eq!(warnings.len(), 2, "{found:?}");
        assert_eq!(warnings[0].found, "3.0 times as long as direct reads");
        assert!(warnings[0].change.as_ref().unwrap().starts_with("set direct = true"));
        assert!(warnings[0].measured.as_ref().unwrap().contains("8 KiB fetched"));
        assert_eq!(warnings[1].found, "2.0 times as long as direct reads");
        assert!(found.iter().all(|finding| finding.measured.is_some()), "{found:?}");
    }

    #[test]
    fn read_ahead_has_the_figures_of_both_directions() {
        let ways = |small: f64, fetched: f64, large: f64| Ways {
            small_direct: of(100.0, 40.0),
            small_buffered: of(small, 13.0).map(|figures| WayFigures {
                fetched_share: Some(fetched),
                ..figures
            }),
            large_direct: of(1000.0, 1000.0),
            large_buffered: of(1000.0, large),
            small_ring: of(101.0, 40.0),
        };
        let updated = |effect: &str, ways: &Ways| {
            let mut found = [Finding::warning("read-ahead of vda", "8192 KiB")
                .effect(effect)
                .change("less")];
            add_reads(&mut found, ways);
            found[0].clone()
        };
        let slow = updated(FETCHES_MORE, &ways(2000.0, 2.0, 900.0));
        assert_eq!((slow.level, slow.times), (Level::Warning, Some(20.0)));
        let measured = slow.measured.unwrap();
        assert!(
            measured.contains("20.00 times")
                && measured.contains("fetch 8 KiB each")
                && measured.contains("1.11 times")
        );
        // Slow by any read-ahead: the page cache itself takes the time, or the layers below.
        assert_eq!(updated(FETCHES_MORE, &ways(2000.0, 1.0, 300.0)).level, Level::Fine);
        assert_eq!(updated(FETCHES_MORE, &ways(110.0, 2.0, 300.0)).level, Level::Fine);
        assert_eq!(updated("small pieces", &ways(110.0, 1.0, 500.0)).times, Some(2.0));
        // A usual read-ahead is no cause of slow reads.
        let mut usual = [Finding::fine("read-ahead of vda", "128 KiB")];
        add_reads(&mut usual, &ways(110.0, 1.0, 500.0));
        assert_eq!((usual[0].level, usual[0].times), (Level::Fine, None));
    }

    #[test]
    fn the_scheduler_and_access_times_have_the_time_of_direct_reads() {
        let ways = |small_direct| Ways {
            small_direct,
            small_buffered: of(300.0, 13.0),
            large_direct: of(1000.0, 1000.0),
            large_buffered: of(2000.0, 500.0),
            small_ring: of(101.0, 40.0),
        };
        let measured = |about: &str, ways: &Ways| {
            let mut found = [Finding::warning(about, "bfq").measured("nr_requests 64")];
            add_reads(&mut found, ways);
            found[0].measured.clone().unwrap()
        };
        for about in ["I/O scheduler of vda", "access times"] {
            let text = measured(about, &ways(of(100.0, 40.0)));
            assert_eq!(text, "nr_requests 64; direct reads of 4 KiB take 100 µs");
            assert_eq!(
                measured(about, &ways(Err(anyhow::anyhow!("refused")))),
                "nr_requests 64"
            );
        }
        assert_eq!(measured("discard", &ways(of(100.0, 40.0))), "nr_requests 64");
    }

    #[test]
    fn a_lower_read_ahead_is_no_advice_where_little_more_than_requested_is_fetched() {
        let advice = |fetched: f64| {
            let buffered = WayFigures {
                fetched_share: Some(fetched),
                ..of(300.0, 13.0).unwrap()
            };
            small(&of(100.0, 40.0).unwrap(), &buffered, None).change.unwrap()
        };
        assert!(advice(2.0).starts_with("lower the read-ahead"));
        assert!(advice(1.02).starts_with("read with direct = true"));
    }

    #[test]
    fn reads_that_came_from_memory_are_not_compared() {
        let from_memory = WayFigures {
            fetched_share: Some(0.2),
            ..of(3.0, 7611.0).unwrap()
        };
        let ways = Ways {
            small_direct: of(100.0, 40.0),
            small_buffered: of(90.0, 44.0),
            large_direct: of(1000.0, 1000.0),
            large_buffered: Ok(from_memory),
            small_ring: of(101.0, 40.0),
        };
        let found = findings(&ways, Some(true));
        let large = found.iter().find(|finding| finding.about.contains("1 MiB")).unwrap();
        assert_eq!(large.level, Level::Unknown);
        assert!(large.found.contains("20 %") && large.measured.is_none(), "{large:?}");
    }

    #[test]
    fn a_missing_folder_is_named_without_a_flag_of_other_commands() {
        let error = measure_ways(Path::new("/no such folder"), &Stop::default()).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.starts_with("/no such folder: No such file") && !text.contains("--scratch"),
            "{text}"
        );
    }

    #[test]
    fn a_folder_without_direct_reads_is_told_and_not_compared() {
        let ways = Ways {
            small_direct: Err(anyhow::anyhow!("Invalid argument")),
            small_buffered: of(3.0, 900.0),
            large_direct: Err(anyhow::anyhow!("Invalid argument")),
            large_buffered: of(90.0, 9000.0),
            small_ring: Err(anyhow::anyhow!("buffered")),
        };
        let found = findings(&ways, Some(true));
        assert_eq!(found.len(), 1);
        assert!(found[0].found.contains("Invalid argument") && found[0].level == Level::Warning);
    }
}
