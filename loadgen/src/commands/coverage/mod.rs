//! How often a 95 % interval contains the truth. In: a number of trials and a seed. Out: a table, measured by simulation.
//!
//! Every trial is a point that never was: latencies from a law whose percentiles are known, in repeats that differ by a
//! factor of their own, put into histograms and through the very functions that make a report's intervals. A figure in
//! the table is therefore about this program, and not about a formula that it might have got wrong. It is judged over all
//! trials, whether or not a report would print the interval: trials chosen by what they show cover what they happen to.
//! Beside it stands what a two-level bootstrap (`bootstrap`) makes of the first of the same points. `drifting` counts how
//! often a latency that drifts is found, and one that does not is said to; `comparing`, what `compare` finds; `verdicts`, what points near
//! capacity are judged to be.

mod bootstrap;
mod comparing;
mod drifting;
mod highest_rate;
mod laws;
mod rows;
mod simulated;
mod table;
mod verdicts;

pub use comparing::{CompareRow, CompareSetting, compare_row, compare_settings};
pub use drifting::{DriftRow, DriftSetting, Shape, drift_row, drift_settings};
pub use highest_rate::{SearchRow, SearchSetting, Server, search_row, search_settings};
pub use laws::Law;
pub use rows::{Row, Setting, Tally, WANTED};
pub use verdicts::{VerdictRow, VerdictSetting, verdict_row, verdict_settings};

use crate::error::RunError;
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierlab_analysis::latency_interval;
use tierlab_analysis::statistics::histogram::histogram;
use tierlab_analysis::statistics::percentile::{BlockTable, is_printable, samples_needed};
use tierlab_analysis::statistics::sections::{OUTSIDE, Pairing, difference};
use tierlab_load::schedule::split_mix;

/// Trials of a setting that the bootstrap, which takes a hundred times as long, is shown.
const BESIDE: usize = 60;
/// Where more samples are in a repeat, neither the bootstrap nor a second configuration is simulated.
const BESIDE_SAMPLES: usize = 500;
/// Percentiles looked at.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];
/// By how much the second of two compared configurations is slower.
const SLOWER: f64 = 1.2;

/// The settings of the kept table.
#[must_use]
pub fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for law in Law::ALL {
        for (repeats, samples) in [
            (1, 2_000),
            (3, 500),
            (3, 2_000),
            (5, 500),
            (5, 2_000),
            (10, 120),
            (10, 240),
            (10, 500),
            (10, 1_000),
            (10, 4_000),
        ] {
            // The interval of a single repeat holds for that repeat, whose factor is its own.
            let spreads: &[f64] = if repeats == 1 { &[0.0] } else { &[0.0, 0.1] };
            settings.extend(spreads.iter().map(|&spread| Setting {
                law,
                spread,
                repeats,
                samples,
            }));
        }
    }
    settings
}

/// Simulates the settings on every core; the same seed gives the same table.
#[must_use]
pub fn simulate(settings: &[Setting], trials: usize, seed: u64, said: &(dyn Fn(usize) + Sync)) -> Vec<Row> {
    let row = |setting, seed| rows(setting, trials, seed);
    on_every_core(settings, seed, &row, said)
        .into_iter()
        .flatten()
        .collect()
}

/// Simulates searches likewise.
#[must_use]
pub fn simulate_searches(
    settings: &[SearchSetting],
    trials: usize,
    seed: u64,
    said: &(dyn Fn(usize) + Sync),
) -> Vec<SearchRow> {
    on_every_core(settings, seed, &|setting, seed| search_row(setting, trials, seed), said)
}

/// What `one` makes of each setting, in their order.
fn on_every_core<S: Copy + Sync, R: Send>(
    settings: &[S],
    seed: u64,
    one: &(dyn Fn(S, u64) -> R + Sync),
    said: &(dyn Fn(usize) + Sync),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut found: Vec<(usize, R)> = std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(&setting) = settings.get(index) else { break };
                found.push((index, one(setting, split_mix(seed ^ split_mix(index as u64)))));
                said(index + 1);
            }
            found
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_default())
            .collect()
    });
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, found)| found).collect()
}

/// One configuration's latencies: its table, and its mean requests in flight.
fn point(setting: Setting, factors: &[f64], rng: &mut ChaCha8Rng) -> (BlockTable, f64) {
    let mut in_flight = 0.0;
    let repeats: Vec<Vec<Histogram<u64>>> = factors
        .iter()
        .map(|factor| {
            let latencies = setting.law.sample(rng, setting.samples);
            // Rounded down to whole microseconds would be half of one too little.
            let latencies: Vec<u64> = latencies.iter().map(|us| (us * factor).round() as u64).collect();
            in_flight += setting.law.in_flight(&latencies) / factors.len() as f64;
            let block = latencies.len().div_ceil(rows::BLOCKS);
            latencies.chunks(block).map(histogram).collect()
        })
        .collect();
    (BlockTable::new(repeats.iter().map(Vec::as_slice)), in_flight)
}

fn rows(setting: Setting, trials: usize, seed: u64) -> Vec<Row> {
    let total = (setting.repeats * setting.samples) as u64;
    let truths: Vec<(&str, f64, f64)> = QUANTILES
        .iter()
        .filter(|(_, quantile)| total >= samples_needed(*quantile))
        .map(|&(name, quantile)| (name, quantile, setting.law.quantile(quantile, setting.spread)))
        .collect();
    let short = setting.samples <= BESIDE_SAMPLES;
    let mut rows: Vec<Row> = truths
        .iter()
        .map(|(name, ..)| Row {
            bootstrap: short.then_some([Tally::default(); 2]),
            ..Row::new(setting, name, trials)
        })
        .collect();
    let mut paired = Row::new(setting, "B/A p50, paired", trials);
    for trial in 0..trials {
        let mut rng = ChaCha8Rng::seed_from_u64(split_mix(seed.wrapping_add(trial as u64)));
        let factors: Vec<f64> = (0..setting.repeats)
            .map(|_| laws::weather(&mut rng, setting.spread))
            .collect();
        let (table, in_flight) = point(setting, &factors, &mut rng);
        let assumed = setting.law.assumed(in_flight, setting.samples, &mut rng);
        for (row, &(_, quantile, truth)) in rows.iter_mut().zip(&truths) {
            let Some(interval) = latency_interval(&table, quantile) else {
                continue;
            };
            row.printed += usize::from(is_printable(quantile, total, setting.repeats, assumed.at(quantile)));
            row.sections.count((interval.lo, interval.hi), truth);
            let Some([plain, corrected]) = row.bootstrap.as_mut().filter(|_| trial < BESIDE) else {
                continue;
            };
            if let Some(ends) = bootstrap::intervals(&table, quantile, seed.wrapping_add(trial as u64)) {
                plain.count(ends.0, truth);
                corrected.count(ends.1, truth);
            }
        }
        if short {
            // The same weather on a configuration that is slower by a fifth.
            let slower: Vec<f64> = factors.iter().map(|factor| factor * SLOWER).collect();
            let (other, _) = point(setting, &slower, &mut rng);
            if let Some(ratio) = difference((&table, &other), 0.5, Pairing::ByRepeat, f64::ln) {
                let interval = ratio.interval(OUTSIDE);
                paired.printed += 1;
                paired.sections.count((interval.lo.exp(), interval.hi.exp()), SLOWER);
            }
        }
    }
    if short {
        rows.push(paired);
    }
    rows
}

/// Simulates, writes `coverage.csv`, `highest_rate.csv`, `drifts.csv`, `compare.csv`, `verdicts.csv` and `coverage.md` into a folder,
/// and says which rows do not hold.
///
/// # Errors
/// A file cannot be written; a row does not hold.
pub fn run(folder: &Path, trials: usize, seed: u64) -> Result<(), RunError> {
    let said = |what: &'static str, count: usize| move |done: usize| eprintln!("{what} [{done}/{count}]");
    let (compared, drifting) = (compare_settings(), drift_settings());
    let (searched, settings) = (search_settings(), settings());
    let one = |setting, seed| compare_row(setting, trials, seed);
    let compared = on_every_core(&compared, seed, &one, &said("compare", compared.len()));
    let one = |setting, seed| drift_row(setting, trials, seed);
    let drifting = on_every_core(&drifting, seed, &one, &said("drift", drifting.len()));
    let judged = verdict_settings();
    let one = |setting, seed| verdict_row(setting, trials, seed);
    let judged = on_every_core(&judged, seed, &one, &said("verdicts", judged.len()));
    let searches = simulate_searches(&searched, trials, seed, &said("highest rate", searched.len()));
    let rows = simulate(&settings, trials, seed, &said("coverage", settings.len()));
    std::fs::create_dir_all(folder).map_err(RunError::io(folder))?;
    let command = format!("tierlab-loadgen coverage --trials {trials} --seed {seed}");
    let markdown = table::markdown(&rows, &command)
        + &table::searches_markdown(&searches)
        + &table::drifts_markdown(&drifting)
        + &table::compared_markdown(&compared)
        + &verdicts::markdown(&judged);
    for (name, text) in [
        ("coverage.csv", table::csv(&rows)),
        ("highest_rate.csv", table::searches_csv(&searches)),
        ("drifts.csv", table::drifts_csv(&drifting)),
        ("compare.csv", table::compared_csv(&compared)),
        ("verdicts.csv", verdicts::csv(&judged)),
        ("coverage.md", markdown),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(RunError::io(&file))?;
    }
    let failed: Vec<String> = rows
        .iter()
        .filter(|row| !row.holds())
        .map(told)
        .chain(searches.iter().filter(|row| !row.holds()).map(told_search))
        .chain(drifting.iter().filter(|row| !row.holds()).map(told_drift))
        .chain(compared.iter().filter(|row| !row.holds()).map(told_comparison))
        .chain(
            judged
                .iter()
                .filter(|row| !row.holds())
                .map(|row| format!("verdicts: {row:?}")),
        )
        .collect();
    failed.iter().for_each(|line| println!("{line}"));
    let all = rows.len() + searches.len() + drifting.len() + compared.len() + judged.len();
    println!(
        "{} of {all} rows hold; the tables are in {}",
        all - failed.len(),
        folder.display()
    );
    if failed.is_empty() {
        Ok(())
    } else {
        Err(RunError::Unsound(format!(
            "{} rows are not what they promise",
            failed.len()
        )))
    }
}

fn told(row: &Row) -> String {
    let Setting {
        law,
        spread,
        repeats,
        samples,
    } = row.setting;
    format!(
        "{} spread {spread} {repeats} × {samples} {}: {:.1} % of all trials, printed in {}",
        law.name(),
        row.what,
        100.0 * row.coverage(),
        row.printed
    )
}

fn told_search(row: &SearchRow) -> String {
    format!(
        "highest rate: {} spread {} {} repeats: {:.1} % of {} found",
        row.setting.server.name(),
        row.setting.spread,
        row.setting.repeats,
        100.0 * row.coverage(),
        row.found
    )
}

fn told_drift(row: &DriftRow) -> String {
    let DriftSetting {
        shape,
        repeats,
        samples,
    } = row.setting;
    format!(
        "drift: {} {repeats} × {samples}: seen in {:.1} %",
        shape.name(),
        100.0 * row.share()
    )
}

fn told_comparison(row: &CompareRow) -> String {
    format!(
        "compare: spread {} slower by {}: worse in {:.1} %",
        row.setting.spread,
        row.setting.slower,
        100.0 * row.worse_share()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smaller version of the kept table: few trials, and so what chance allows is wide; still it fails for intervals
    /// that forget repeats, dependence or the small number of either.
    #[test]
    fn intervals_cover_what_they_promise() {
        let setting = |law, spread, repeats, samples| Setting {
            law,
            spread,
            repeats,
            samples,
        };
        let settings = [
            setting(Law::Exponential, 0.0, 10, 500),
            setting(Law::Exponential, 0.1, 5, 500),
            setting(Law::Lognormal, 0.1, 10, 240),
            setting(Law::ColdWarm(5), 0.0, 10, 240),
            setting(Law::Queue(50), 0.0, 10, 1_000),
            setting(Law::Queue(90), 0.0, 3, 500),
            setting(Law::Queue(90), 0.0, 10, 500),
        ];
        let rows = simulate(&settings, 100, 11, &|_| ());
        assert!(rows.len() > 20);
        for row in &rows {
            assert!(row.holds(), "{row:?}: {:.3}", row.coverage());
        }
        let printed = rows.iter().filter(|row| row.is_printed()).count();
        assert!(printed > 15, "{printed}");
        // What a trial shows of itself does not decide whether it is printed, but for how many are in flight behind a queue.
        let queue = |row: &&Row| {
            matches!(row.setting.law, Law::Queue(_)) && (row.what != "p99" || row.setting.law == Law::Queue(50))
        };
        for row in rows.iter().filter(|row| !queue(row)) {
            assert!([0, row.trials].contains(&row.printed), "{row:?}");
        }
    }

    /// The bursts of a queue that is nearly full: what a run sees of them decides both its p99 and how dependent it looks, so
    /// that short runs that print what they can afford by their own dependence print the wrong ones.
    #[test]
    fn a_queue_that_is_nearly_full_has_no_tail_in_a_short_run_whatever_it_shows() {
        let setting = Setting {
            law: Law::Queue(90),
            spread: 0.0,
            repeats: 3,
            samples: 1_200,
        };
        let rows = simulate(&[setting], 100, 3, &|_| ());
        for what in ["p95", "p99"] {
            let row = rows.iter().find(|row| row.what == what).unwrap();
            assert!(row.coverage() < 0.9, "{row:?}");
            assert_eq!(row.printed, 0, "{row:?}");
        }
    }

    /// Why the reports do not use it: with few repeats that differ, the plain bootstrap forgets how few they are.
    #[test]
    fn a_plain_bootstrap_of_few_repeats_covers_less_than_it_says() {
        let setting = Setting {
            law: Law::Lognormal,
            spread: 0.1,
            repeats: 3,
            samples: 500,
        };
        let rows = simulate(&[setting], 150, 11, &|_| ());
        let median = rows.iter().find(|row| row.what == "p50").unwrap();
        let [plain, corrected] = median.bootstrap.unwrap().map(|tally| tally.coverage());
        assert!(plain < 0.88 && plain < median.coverage(), "{plain}");
        assert!(corrected > plain, "{corrected}");
    }

    #[test]
    fn a_seed_gives_a_table() {
        let settings = [Setting {
            law: Law::Lognormal,
            spread: 0.1,
            repeats: 3,
            samples: 100,
        }];
        let rows = simulate(&settings, 20, 1, &|_| ());
        assert_eq!(rows, simulate(&settings, 20, 1, &|_| ()));
        assert_ne!(rows, simulate(&settings, 20, 2, &|_| ()));
        let text = table::markdown(&rows, "x");
        assert!(text.contains("| 3 × 100 | 10 % |") && text.contains("n/a"), "{text}");
        assert_eq!(table::csv(&rows).lines().count(), 1 + rows.len());
    }
}
