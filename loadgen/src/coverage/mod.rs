//! How often a 95 % interval contains the truth. In: a number of trials and a seed. Out: a table, measured by simulation.
//!
//! Every trial is a point that never was: latencies from a law whose percentiles are known, in repeats that differ by a
//! factor of their own, put into histograms and through the very functions that make a report's intervals. A figure in
//! the table is therefore about this program, and not about a formula that it might have got wrong. Beside it stands what
//! a two-level bootstrap (`bootstrap`) makes of the same points.

mod bootstrap;
mod highest_rate;
mod laws;
mod table;

pub use highest_rate::{SearchRow, SearchSetting, Server, search_row, search_settings};
pub use laws::Law;

use crate::analysis::dependence::Dependence;
use crate::analysis::latency_interval;
use crate::analysis::percentile::{BlockTable, samples_needed};
use crate::analysis::sections::{OUTSIDE, Pairing, difference};
use crate::error::RunError;
use crate::recorder::histogram;
use crate::schedule::split_mix;
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Time blocks of a repeat.
const BLOCKS: usize = 5;
/// Percentiles looked at.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];
/// What coverage is asked for where an interval is printed in at least half of the trials.
pub const WANTED: std::ops::RangeInclusive<f64> = 0.92..=0.98;
/// By how much the second of two compared configurations is slower.
const SLOWER: f64 = 1.2;

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Where latencies come from.
    pub law: Law,
    /// How much repeats differ: the standard deviation of the logarithm of their factor.
    pub spread: f64,
    /// Repeats of a point.
    pub repeats: usize,
    /// Samples in each.
    pub samples: usize,
}

/// What was found for one percentile, or for a paired ratio of medians.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was simulated.
    pub setting: Setting,
    /// `p50`, `p95`, `p99`, `B/A p50`, …
    pub what: String,
    /// Trials.
    pub trials: usize,
    /// Trials in which an interval was printed.
    pub printed: usize,
    /// The intervals of the reports.
    pub sections: Tally,
    /// Those of a plain two-level bootstrap of the same points, and of one corrected for few repeats; absent for ratios.
    pub bootstrap: Option<[Tally; 2]>,
}

/// How a method fared.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// Intervals that contained the truth.
    pub covered: usize,
    /// Sum of the intervals' upper end over their lower.
    pub widths: f64,
}

impl Tally {
    fn count(&mut self, (lo, hi): (f64, f64), truth: f64) {
        // A histogram's value stands for a bucket of a thousandth.
        self.covered += usize::from(lo * 0.999 <= truth && truth <= hi * 1.001);
        self.widths += hi / lo.max(1e-9);
    }
}

impl Row {
    /// Covered share of the printed ones.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        self.share(&self.sections)
    }

    /// Covered share of the printed ones by another method.
    #[must_use]
    pub fn share(&self, tally: &Tally) -> f64 {
        tally.covered as f64 / self.printed.max(1) as f64
    }

    /// Mean of the intervals' upper end over their lower.
    #[must_use]
    pub fn width(&self, tally: &Tally) -> f64 {
        tally.widths / self.printed.max(1) as f64
    }

    /// Share of all trials in which an interval was printed and wrong.
    #[must_use]
    pub fn wrong(&self) -> f64 {
        (self.printed - self.sections.covered) as f64 / self.trials.max(1) as f64
    }

    /// Whether it is as it should be, within what `trials` trials can tell (two standard deviations). Where an interval
    /// is seldom printed, those few are chosen by chance; then it counts how often one is printed and wrong at all.
    #[must_use]
    pub fn holds(&self) -> bool {
        if 2 * self.printed < self.trials {
            self.wrong() <= 1.0 - WANTED.start() + self.chance().min(0.02)
        } else {
            self.is_within(self.coverage())
        }
    }

    /// Whether a coverage is as it should be, within what chance explains.
    #[must_use]
    pub fn is_within(&self, coverage: f64) -> bool {
        (WANTED.start() - self.chance()..=WANTED.end() + self.chance()).contains(&coverage)
    }

    fn chance(&self) -> f64 {
        2.0 * (0.05_f64 * 0.95 / self.printed.max(1) as f64).sqrt()
    }
}

/// The settings of the kept table.
#[must_use]
pub fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for law in Law::ALL {
        for (repeats, samples) in [
            (1, 2_000),
            (2, 500),
            (3, 160),
            (3, 500),
            (3, 2_000),
            (5, 160),
            (5, 500),
            (5, 2_000),
            (5, 8_000),
            (10, 500),
        ] {
            // The interval of a single repeat holds for that repeat, whose factor is its own.
            let spreads: &[f64] = if repeats == 1 { &[0.0] } else { &[0.0, 0.03, 0.1] };
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

/// One configuration's latencies: its table, and how they depend on each other, as a report takes it.
fn point(setting: Setting, factors: &[f64], rng: &mut ChaCha8Rng) -> (BlockTable, Dependence) {
    let mut dependence = Dependence { body: 0.0, tail: 0.0 };
    let repeats: Vec<Vec<Histogram<u64>>> = factors
        .iter()
        .map(|factor| {
            let latencies = setting.law.sample(rng, setting.samples);
            // Rounded down to whole microseconds would be half of one too little.
            let latencies: Vec<u64> = latencies.iter().map(|us| (us * factor).round() as u64).collect();
            let found = Dependence::of(&latencies);
            dependence.body += found.body / factors.len() as f64;
            dependence.tail += found.tail / factors.len() as f64;
            let block = latencies.len().div_ceil(BLOCKS);
            latencies.chunks(block).map(histogram).collect()
        })
        .collect();
    let table = BlockTable::new(repeats.iter().map(Vec::as_slice));
    (table, dependence)
}

fn rows(setting: Setting, trials: usize, seed: u64) -> Vec<Row> {
    let total = (setting.repeats * setting.samples) as u64;
    let truths: Vec<(String, f64, f64)> = QUANTILES
        .iter()
        .filter(|(_, quantile)| total >= samples_needed(*quantile))
        .map(|&(name, quantile)| {
            (
                name.to_owned(),
                quantile,
                setting.law.quantile(quantile, setting.spread),
            )
        })
        .collect();
    let mut rows: Vec<Row> = truths
        .iter()
        .map(|(name, ..)| Row {
            bootstrap: Some([Tally::default(); 2]),
            ..Row::new(setting, name.clone(), trials)
        })
        .collect();
    let mut paired = Row::new(setting, "B/A p50, paired".into(), trials);
    for trial in 0..trials {
        let mut rng = ChaCha8Rng::seed_from_u64(split_mix(seed.wrapping_add(trial as u64)));
        let factors: Vec<f64> = (0..setting.repeats)
            .map(|_| laws::weather(&mut rng, setting.spread))
            .collect();
        let (table, dependence) = point(setting, &factors, &mut rng);
        for (row, &(_, quantile, truth)) in rows.iter_mut().zip(&truths) {
            let Some(interval) = latency_interval(&table, quantile, dependence.at(quantile)) else {
                continue;
            };
            row.printed += 1;
            row.sections.count((interval.lo, interval.hi), truth);
            let beside = bootstrap::intervals(&table, quantile, seed.wrapping_add(trial as u64));
            if let (Some([plain, corrected]), Some(ends)) = (&mut row.bootstrap, beside) {
                plain.count(ends.0, truth);
                corrected.count(ends.1, truth);
            }
        }
        // The same weather on a configuration that is slower by a fifth.
        let slower: Vec<f64> = factors.iter().map(|factor| factor * SLOWER).collect();
        let (other, _) = point(setting, &slower, &mut rng);
        if let Some(ratio) = difference((&table, &other), 0.5, Pairing::ByRepeat, f64::ln) {
            let interval = ratio.interval(OUTSIDE);
            paired.printed += 1;
            paired.sections.count((interval.lo.exp(), interval.hi.exp()), SLOWER);
        }
    }
    rows.push(paired);
    rows
}

impl Row {
    fn new(setting: Setting, what: String, trials: usize) -> Self {
        Self {
            setting,
            what,
            trials,
            printed: 0,
            sections: Tally::default(),
            bootstrap: None,
        }
    }
}

/// Simulates, writes `coverage.csv`, `highest_rate.csv` and `coverage.md` into a folder, and says which rows do not hold.
///
/// # Errors
/// A file cannot be written; a row does not hold.
pub fn run(folder: &Path, trials: usize, seed: u64) -> Result<(), RunError> {
    let (settings, searched) = (settings(), search_settings());
    let count = settings.len() + searched.len();
    let searches = simulate_searches(&searched, trials, seed, &|done| eprintln!("[{done}/{count}]"));
    let rows = simulate(&settings, trials, seed, &|done| {
        eprintln!("[{}/{count}]", searched.len() + done);
    });
    std::fs::create_dir_all(folder).map_err(RunError::io(folder))?;
    let command = format!("tierlab-loadgen coverage --trials {trials} --seed {seed}");
    let markdown = table::markdown(&rows, &command) + &table::searches_markdown(&searches);
    for (name, text) in [
        ("coverage.csv", table::csv(&rows)),
        ("highest_rate.csv", table::searches_csv(&searches)),
        ("coverage.md", markdown),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(RunError::io(&file))?;
    }
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.holds()).collect();
    for row in &failed {
        println!(
            "{} spread {} {} × {} {}: {:.1} % of {} printed",
            row.setting.law.name(),
            row.setting.spread,
            row.setting.repeats,
            row.setting.samples,
            row.what,
            100.0 * row.coverage(),
            row.printed
        );
    }
    let failed_searches: Vec<&SearchRow> = searches.iter().filter(|row| !row.holds()).collect();
    for row in &failed_searches {
        println!(
            "highest rate: {} spread {} {} repeats: {:.1} % of {} found",
            row.setting.server.name(),
            row.setting.spread,
            row.setting.repeats,
            100.0 * row.coverage(),
            row.found
        );
    }
    let (all, failed) = (rows.len() + searches.len(), failed.len() + failed_searches.len());
    println!(
        "{} of {all} rows hold; the tables are in {}",
        all - failed,
        folder.display()
    );
    if failed == 0 {
        Ok(())
    } else {
        Err(RunError::Unsound(format!(
            "{failed} intervals do not cover what they promise"
        )))
    }
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
            setting(Law::Exponential, 0.0, 3, 160),
            setting(Law::Exponential, 0.1, 5, 160),
            setting(Law::Lognormal, 0.03, 3, 500),
            setting(Law::ColdWarm, 0.0, 5, 160),
            setting(Law::Modulated, 0.0, 5, 500),
            setting(Law::Queue, 0.0, 3, 500),
        ];
        let rows = simulate(&settings, 120, 11, &|_| ());
        assert!(rows.len() > 15);
        for row in &rows {
            assert!(row.holds(), "{row:?}: {:.3}", row.coverage());
        }
        let printed = rows.iter().filter(|row| 2 * row.printed > row.trials).count();
        assert!(printed > 12, "{printed}");
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
        let [plain, corrected] = median.bootstrap.unwrap().map(|tally| median.share(&tally));
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
