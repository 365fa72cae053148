//! How often a 95 % interval contains the truth. In: a number of trials and a seed. Out: a table, measured by simulation.
//!
//! Every trial is a point that never was: latencies from a law whose percentiles are known, in repeats that differ by a
//! factor of their own, put into histograms and through the functions that make a report's intervals and grades. `drifting`
//! counts how often a latency that drifts is found; `comparing`, what `compare` finds; `verdicts`, what points near capacity are
//! judged to be.

mod comparing;
mod drifting;
mod highest_rate;
mod laws;
mod rows;
mod simulated;
mod table;
mod verdicts;

pub use comparing::{CompareRow, CompareSetting, Service, Slower, compare_row, compare_settings};
pub use drifting::{DriftRow, DriftSetting, Shape, drift_row, drift_settings};
pub use highest_rate::{SearchRow, SearchSetting, Server, search_row, search_settings};
pub use laws::Law;
pub use rows::{Row, Setting, Tally};
pub use verdicts::{VerdictRow, VerdictSetting, verdict_row, verdict_settings};

use crate::error::RunError;
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierlab_analysis::latency::grade::{grade, of_growth, of_in_flight};
use tierlab_analysis::latency_interval;
use tierlab_analysis::record::{Grade, Percentile};
use tierlab_analysis::statistics::histogram::histogram;
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_analysis::statistics::sections::{OUTSIDE, Pairing, difference};
use tierlab_load::schedule::split_mix;

/// Maximum samples of a repeat for which a second configuration is simulated.
const PAIRED_SAMPLES: usize = 500;
/// By how much the second of two compared configurations is slower.
const SLOWER: f64 = 1.2;

/// The settings of the kept table.
#[must_use]
pub fn settings() -> Vec<Setting> {
    const SIZES: [(usize, usize); 6] = [(3, 2_000), (5, 500), (10, 120), (10, 450), (10, 1_000), (20, 450)];
    let mut settings = Vec::new();
    for law in Law::ALL {
        let long = law.is_queue().then_some((10, 4_000));
        for (repeats, samples) in SIZES.into_iter().chain(long) {
            for (spread, drift) in [(0.0, 0.0), (0.1, 0.0), (0.0, 0.2)] {
                settings.push(Setting {
                    law,
                    spread,
                    drift,
                    repeats,
                    samples,
                });
            }
        }
    }
    // A drift is of the machine: one law that does not queue shows it, and one that does.
    settings.retain(|setting| setting.drift == 0.0 || [Law::Lognormal, Law::Queue(60)].contains(&setting.law));
    // Repeats that differ as wholes matter least where they differ by their queues.
    settings.retain(|setting| setting.spread == 0.0 || !setting.law.is_queue());
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

/// One configuration's latencies.
fn point(setting: Setting, factors: &[f64], rng: &mut ChaCha8Rng) -> BlockTable {
    let repeats: Vec<Vec<Histogram<u64>>> = factors
        .iter()
        .map(|factor| {
            let latencies = setting.law.sample(rng, setting.samples);
            // Rounded down to whole microseconds would be half of one too little.
            let latencies: Vec<u64> = latencies.iter().map(|us| (us * factor).round() as u64).collect();
            vec![histogram(&latencies)]
        })
        .collect();
    BlockTable::new(repeats.iter().map(Vec::as_slice))
}

/// Queueing share of the mean latency, as a curve with a lower rate shows it.
fn queueing(setting: Setting, mean_us: f64, rng: &mut ChaCha8Rng) -> f64 {
    let lowest = (0..setting.repeats)
        .map(|_| setting.law.lowest_mean_us(rng, setting.samples) * laws::weather(rng, setting.spread))
        .sum::<f64>();
    let grown = of_growth((1.0, mean_us), (laws::LOWEST, lowest / setting.repeats as f64));
    grown.unwrap_or(1.0).min(of_in_flight(setting.law.in_flight(mean_us)))
}

/// Factors that the repeats are slower or faster by.
fn factors(setting: Setting, rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..setting.repeats)
        .map(|repeat| drifted(setting, repeat) * laws::weather(rng, setting.spread))
        .collect()
}

fn drifted(setting: Setting, repeat: usize) -> f64 {
    1.0 + setting.drift * repeat as f64 / (setting.repeats - 1).max(1) as f64
}

fn rows(setting: Setting, trials: usize, seed: u64) -> Vec<Row> {
    let total = (setting.repeats * setting.samples) as u64;
    let printed = Percentile::ALL
        .into_iter()
        .filter(|percentile| total >= percentile.samples_needed());
    let quantiles: Vec<f64> = printed.clone().map(Percentile::quantile).collect();
    let weighted: Vec<(f64, f64)> = (0..setting.repeats)
        .flat_map(|repeat| {
            let drifted = drifted(setting, repeat);
            laws::weathers(setting.spread)
                .into_iter()
                .map(move |(factor, weight)| (factor * drifted, weight))
        })
        .collect();
    let truths = setting.law.quantiles(&quantiles, &weighted, setting.samples);
    let mut rows: Vec<Row> = printed
        .map(|percentile| Row::new(setting, percentile.name(), trials))
        .collect();
    let is_paired = setting.samples <= PAIRED_SAMPLES;
    let mut paired = Row::new(setting, "B/A p50, paired", trials);
    for trial in 0..trials {
        let mut rng = ChaCha8Rng::seed_from_u64(split_mix(seed.wrapping_add(trial as u64)));
        let factors = factors(setting, &mut rng);
        let table = point(setting, &factors, &mut rng);
        let queueing = queueing(setting, table.mean().unwrap_or(0.0), &mut rng);
        for ((row, &quantile), &truth) in rows.iter_mut().zip(&quantiles).zip(&truths) {
            let Some(interval) = latency_interval(&table, quantile) else {
                continue;
            };
            row.off.push(interval.value / truth - 1.0);
            row.printed.count((interval.lo, interval.hi), truth);
            match grade(quantile, total, setting.repeats, queueing) {
                Some(Grade::Solid) => row.solid.count((interval.lo, interval.hi), truth),
                Some(Grade::Rough) => {
                    row.rough.0 += 1;
                    row.rough.1 += usize::from(rows::is_below(interval.lo, truth));
                }
                None => {}
            }
        }
        if is_paired {
            // The same weather on a configuration that is slower by a fifth.
            let slower: Vec<f64> = factors.iter().map(|factor| factor * SLOWER).collect();
            let other = point(setting, &slower, &mut rng);
            if let Some(ratio) = difference((&table, &other), 0.5, Pairing::ByRepeat, f64::ln) {
                let interval = ratio.interval(OUTSIDE);
                paired.off.push(ratio.value.exp() / SLOWER - 1.0);
                paired.printed.count((interval.lo.exp(), interval.hi.exp()), SLOWER);
                paired.solid = paired.printed;
            }
        }
    }
    rows.extend(is_paired.then_some(paired));
    rows
}

/// Simulates, writes a CSV and a Markdown file for each of `coverage`, `highest_rate`, `drifts`, `compare` and `verdicts` into a folder as
/// soon as it is simulated, and says which rows do not hold.
///
/// # Errors
/// A file cannot be written; a row does not hold.
pub fn run(folder: &Path, trials: usize, seed: u64) -> Result<(), RunError> {
    let said = |what: &'static str, count: usize| move |done: usize| eprintln!("{what} [{done}/{count}]");
    std::fs::create_dir_all(folder).map_err(RunError::io(folder))?;
    let command = format!("tierlab-loadgen coverage --trials {trials} --seed {seed}");
    let write = |name: &str, csv: String, markdown: String| -> Result<(), RunError> {
        for (ending, text) in [("csv", csv), ("md", markdown)] {
            let file = folder.join(format!("{name}.{ending}"));
            std::fs::write(&file, text).map_err(RunError::io(&file))?;
        }
        Ok(())
    };
    let settings = settings();
    let rows = simulate(&settings, trials, seed, &said("coverage", settings.len()));
    write("coverage", table::csv(&rows), table::markdown(&rows, &command))?;
    let searched = search_settings();
    let searches = simulate_searches(&searched, trials, seed, &said("highest rate", searched.len()));
    write(
        "highest_rate",
        table::searches_csv(&searches),
        table::searches_markdown(&searches),
    )?;
    let drifting = drift_settings();
    let one = |setting, seed| drift_row(setting, trials, seed);
    let drifting = on_every_core(&drifting, seed, &one, &said("drift", drifting.len()));
    write(
        "drifts",
        table::drifts_csv(&drifting),
        table::drifts_markdown(&drifting),
    )?;
    let compared = compare_settings();
    let one = |setting, seed| compare_row(setting, trials, seed);
    let compared = on_every_core(&compared, seed, &one, &said("compare", compared.len()));
    write(
        "compare",
        table::compared_csv(&compared),
        table::compared_markdown(&compared),
    )?;
    let judged = verdict_settings();
    let one = |setting, seed| verdict_row(setting, trials, seed);
    let judged = on_every_core(&judged, seed, &one, &said("verdicts", judged.len()));
    write("verdicts", verdicts::csv(&judged), verdicts::markdown(&judged))?;
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
        drift,
        repeats,
        samples,
    } = row.setting;
    format!(
        "{} spread {spread} drift {drift} {repeats} × {samples} {}: {:.1} % of {} solid intervals",
        law.name(),
        row.what,
        100.0 * row.solid.coverage(),
        row.solid.count
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
        "compare: {}, {} ms at {}/s, spread {}, slower: {}: worse in {:.1} %",
        row.setting.service(),
        row.setting.service_ms,
        row.setting.rps,
        row.setting.spread,
        row.setting.slower(),
        100.0 * row.worse_share()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn setting(law: Law, spread: f64, repeats: usize, samples: usize) -> Setting {
        Setting {
            law,
            spread,
            drift: 0.0,
            repeats,
            samples,
        }
    }

    /// A smaller version of the kept table: it fails for intervals that forget repeats, dependence or the small number of either.
    #[test]
    fn solid_intervals_cover_and_every_percentile_with_enough_requests_is_printed() {
        let settings = [
            setting(Law::Exponential, 0.0, 10, 500),
            setting(Law::Exponential, 0.1, 5, 500),
            setting(Law::Lognormal, 0.1, 10, 240),
            setting(Law::ColdWarm(5), 0.0, 10, 240),
            setting(Law::Queue(50), 0.0, 10, 1_000),
            setting(Law::ConstantQueue(60), 0.1, 5, 500),
            setting(Law::Queue(90), 0.0, 3, 500),
            setting(Law::Queue(90), 0.0, 10, 500),
        ];
        let rows = simulate(&settings, 100, 11, &|_| ());
        assert!(rows.len() > 30);
        for row in &rows {
            assert!(row.holds(), "{}", told(row));
            assert_eq!(row.printed.count, row.trials, "{}", told(row));
            assert!(
                row.rough.1 as f64 >= 0.95 * row.rough.0 as f64,
                "{}: {:?}",
                told(row),
                row.rough
            );
        }
        let solid = rows.iter().filter(|row| row.solid.count == row.trials).count();
        assert!(solid > 20, "{solid}");
    }

    /// The bursts of a queue that is nearly full make the tail of a short run, and too few of them are seen.
    #[test]
    fn the_tail_of_a_queue_that_is_nearly_full_is_rough_in_a_short_run() {
        let rows = simulate(&[setting(Law::Queue(90), 0.0, 3, 1_200)], 100, 3, &|_| ());
        for what in ["p95", "p99"] {
            let row = rows.iter().find(|row| row.what == what).unwrap();
            assert!(row.printed.coverage() <= 0.9, "{}", row.printed.coverage());
            assert_eq!((row.solid.count, row.rough.0), (0, 100), "{what}");
        }
    }

    #[test]
    fn a_seed_gives_a_table() {
        let settings = [setting(Law::Lognormal, 0.1, 3, 100)];
        let rows = simulate(&settings, 20, 1, &|_| ());
        assert_eq!(rows, simulate(&settings, 20, 1, &|_| ()));
        assert_ne!(rows, simulate(&settings, 20, 2, &|_| ()));
        let text = table::markdown(&rows, "x");
        assert!(
            text.contains("| 3 × 100 | 10 % | 0 % |") && text.contains("n/a"),
            "{text}"
        );
        assert_eq!(table::csv(&rows).lines().count(), 1 + rows.len());
    }
}
