//! Coverage of 95 % intervals, for percentiles and for the ratio of two medians.
//!
//! Every trial is a simulated point: latencies from a law whose percentiles are known, in repeats that differ by a factor of their
//! own, put into histograms and through the functions that make a report's intervals and grades.

use super::laws::{LOWEST_SHARE, Law};
use crate::study::{margin, noise_quantiles, repeat_noise, rng, seeds, share};
use crate::table::{Cell, Row, cell, fixed, markdown};
use hdrhistogram::Histogram;
use rand_chacha::ChaCha8Rng;
use tierlab_analysis::latency::grade::{grade, of_growth, of_in_flight};
use tierlab_analysis::latency_interval;
use tierlab_analysis::record::{Grade, Percentile};
use tierlab_analysis::statistics::percentile::{BlockTable, histogram};
use tierlab_analysis::statistics::sections::{OUTSIDE, log_ratio};

/// Bounds of the coverage of solid intervals.
pub(super) const TARGET_COVERAGE: (f64, f64) = (0.92, 0.98);
/// Fewest solid trials by which a row is judged.
const JUDGED: usize = 50;
/// Maximum samples of a repeat for which a second configuration is simulated.
const PAIRED_SAMPLES: usize = 500;
/// Latency of the second of two compared configurations, as a multiple of the first.
const SLOWER: f64 = 1.2;

/// Text above the summary.
const ABOUT: &str = "# Coverage of 95 % intervals

A percentile is printed if at least 10 requests lie beyond it. `solid_coverage` is the share of the trials with a solid percentile
whose interval contains the true value; `median_off` is the median difference between the printed value and the truth. `spread` is the
standard deviation of the logarithm of the repeats' factors; `drift` is the growth of the latency from the first repeat to the last.
Coverage outside of 92 to 98 % is in bold (two standard deviations of the simulation allowed). Queues start empty and go through a
plan's schedule with a warm-up of a tenth of the window: the truth is that of such windows. Grades are decided by the mean latency
compared with that at a quarter of the rate, simulated with the same repeats.
";

/// Simulated point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CoverageSetting {
    law: Law,
    /// Standard deviation of the logarithm of the repeats' factors.
    spread: f64,
    /// Share by which the latency grows from the first repeat to the last.
    drift: f64,
    repeats: usize,
    /// Samples in each repeat.
    samples: usize,
}

/// Settings of the kept table.
pub(super) fn settings() -> Vec<CoverageSetting> {
    const SIZES: [(usize, usize); 6] = [(3, 2_000), (5, 500), (10, 120), (10, 450), (10, 1_000), (20, 450)];
    let mut settings = Vec::new();
    for law in Law::ALL {
        let long = law.is_queue().then_some((10, 4_000));
        for (repeats, samples) in SIZES.into_iter().chain(long) {
            for (spread, drift) in [(0.0, 0.0), (0.1, 0.0), (0.0, 0.2)] {
                settings.push(CoverageSetting {
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

/// Intervals, and those of them that contain the truth.
#[derive(Default, Clone, Copy)]
struct Tally {
    count: usize,
    covered: usize,
    /// Sum of the intervals' upper end over their lower.
    widths: f64,
}

impl Tally {
    fn count(&mut self, (lo, hi): (f64, f64), truth: f64) {
        self.count += 1;
        self.covered += usize::from(is_below(lo, truth) && truth <= hi * 1.001);
        self.widths += hi / lo.max(1e-9);
    }
}

/// True if a lower end is at most the truth. A histogram's value stands for a bucket of a thousandth.
fn is_below(lo: f64, truth: f64) -> bool {
    lo * 0.999 <= truth
}

/// Results for one percentile, or for the ratio of medians.
#[derive(Default)]
struct Figure {
    solid: Tally,
    /// Intervals of all trials that print the figure, whatever its grade.
    printed: Tally,
    rough: usize,
    /// Rough trials whose lower bound is at most the truth.
    rough_holds: usize,
    /// Differences between the printed value and the truth, as shares of the truth.
    deviations: Vec<f64>,
}

impl Figure {
    fn count(&mut self, value: f64, interval: (f64, f64), truth: f64, grade: Option<Grade>) {
        self.deviations.push(value / truth - 1.0);
        self.printed.count(interval, truth);
        match grade {
            Some(Grade::Solid) => self.solid.count(interval, truth),
            Some(Grade::Rough) => {
                self.rough += 1;
                self.rough_holds += usize::from(is_below(interval.0, truth));
            }
            None => {}
        }
    }

    /// Row of the figure. It holds if solid intervals cover 92 to 98 %, or are too few to tell. A drift widens intervals: it sets no
    /// upper bound.
    fn row(mut self, setting: CoverageSetting, figure: &str, trials: usize) -> Row {
        self.deviations.sort_by(f64::total_cmp);
        let median_off = self.deviations.get(self.deviations.len() / 2).copied().unwrap_or(0.0);
        let solid = self.solid;
        let coverage = share(solid.covered, solid.count);
        let (least, most) = TARGET_COVERAGE;
        let is_too_wide = setting.drift == 0.0 && coverage > most + margin(most, solid.count);
        Row {
            holds: solid.count < JUDGED || (coverage >= least - margin(least, solid.count) && !is_too_wide),
            cells: vec![
                cell("law", setting.law.name()),
                cell("spread", setting.spread),
                cell("drift", setting.drift),
                cell("repeats", setting.repeats),
                cell("samples_per_repeat", setting.samples),
                cell("what", figure),
                cell("trials", trials),
                cell("printed", self.printed.count),
                fixed("printed_coverage", 4, share(self.printed.covered, self.printed.count)),
                cell("solid", solid.count),
                fixed("solid_coverage", 4, coverage),
                fixed("solid_width", 4, solid.widths / solid.count.max(1) as f64),
                cell("rough", self.rough),
                cell("rough_lower_bound_holds", self.rough_holds),
                fixed("median_off", 4, median_off),
            ],
        }
    }
}

/// Simulates one configuration.
fn point(setting: CoverageSetting, factors: &[f64], rng: &mut ChaCha8Rng) -> BlockTable {
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
fn queueing(setting: CoverageSetting, mean_us: f64, rng: &mut ChaCha8Rng) -> f64 {
    let lowest = (0..setting.repeats)
        .map(|_| setting.law.lowest_mean_us(rng, setting.samples) * repeat_noise(rng, setting.spread))
        .sum::<f64>();
    let queued = of_growth((1.0, mean_us), (LOWEST_SHARE, lowest / setting.repeats as f64));
    queued.unwrap_or(1.0).min(of_in_flight(setting.law.in_flight(mean_us)))
}

/// Simulates the trials of a setting; returns a row for each percentile that is printed, and one for the ratio of medians.
pub(super) fn rows(setting: CoverageSetting, trials: usize, seed: u64) -> Vec<Row> {
    let total = (setting.repeats * setting.samples) as u64;
    let printed = Percentile::ALL
        .into_iter()
        .filter(|percentile| total >= percentile.samples_needed());
    let drifts: Vec<f64> = (0..setting.repeats)
        .map(|repeat| 1.0 + setting.drift * repeat as f64 / (setting.repeats - 1).max(1) as f64)
        .collect();
    let noise = noise_quantiles(setting.spread);
    let weighted: Vec<(f64, f64)> = drifts
        .iter()
        .flat_map(|drift| noise.iter().map(move |(factor, weight)| (factor * drift, *weight)))
        .collect();
    let quantiles: Vec<f64> = printed.clone().map(Percentile::quantile).collect();
    let truths = setting.law.quantiles(&quantiles, &weighted, setting.samples);
    let mut figures: Vec<Figure> = quantiles.iter().map(|_| Figure::default()).collect();
    let mut paired = Figure::default();
    for seed in seeds(trials, seed) {
        let mut rng = rng(seed);
        let factors = drifts.iter().map(|base| base * repeat_noise(&mut rng, setting.spread));
        let factors: Vec<f64> = factors.collect();
        let table = point(setting, &factors, &mut rng);
        let queueing = queueing(setting, table.mean().unwrap_or(0.0), &mut rng);
        for ((figure, &quantile), &truth) in figures.iter_mut().zip(&quantiles).zip(&truths) {
            if let Some(interval) = latency_interval(&table, quantile) {
                let grade = grade(quantile, total, setting.repeats, queueing);
                figure.count(interval.value, (interval.lo, interval.hi), truth, grade);
            }
        }
        if setting.samples <= PAIRED_SAMPLES {
            // The same factors of the repeats.
            let slower: Vec<f64> = factors.iter().map(|factor| factor * SLOWER).collect();
            let other = point(setting, &slower, &mut rng);
            if let Some(ratio) = log_ratio(&table, &other, 0.5) {
                let interval = ratio.interval(OUTSIDE);
                let ends = (interval.lo.exp(), interval.hi.exp());
                paired.count(ratio.value.exp(), ends, SLOWER, Some(Grade::Solid));
            }
        }
    }
    let figures = printed.zip(figures);
    let mut rows: Vec<Row> = figures
        .map(|(percentile, figure)| figure.row(setting, percentile.name(), trials))
        .collect();
    if setting.samples <= PAIRED_SAMPLES {
        rows.push(paired.row(setting, "B/A p50, paired", trials));
    }
    rows
}

/// Text above the table: the summary of its rows.
pub(super) fn about(rows: &[Row]) -> String {
    markdown(ABOUT, &summarise(rows))
        + "\n`lowest` and `highest` are of rows of which at least half of the trials are solid.\n"
}

/// Rows of each figure together.
fn summarise(rows: &[Row]) -> Vec<Row> {
    let figures = ["p50", "p90", "p95", "p99", "p99.9", "B/A p50, paired"];
    let summaries = figures.map(|what| {
        let of_figure = || rows.iter().filter(|row| row.cells.contains(&cell("what", what)));
        let sum = |column: &str| of_figure().map(|row| row.number(column)).sum::<f64>();
        let covered = of_figure().map(|row| row.number("solid") * row.number("solid_coverage"));
        // Coverage says little for rows with fewer solid trials.
        let mostly_solid = of_figure().filter(|row| 2.0 * row.number("solid") >= row.number("trials"));
        let coverages: Vec<f64> = mostly_solid.map(|row| row.number("solid_coverage")).collect();
        let end = |column: &'static str, of: fn(f64, f64) -> f64| -> Cell {
            fixed(column, 4, coverages.iter().copied().reduce(of).unwrap_or(f64::NAN))
        };
        let bound_holds = sum("rough_lower_bound_holds") / sum("rough");
        let cells = vec![
            cell("what", what),
            cell("rows", of_figure().count()),
            cell("rows_that_hold", of_figure().filter(|row| row.holds).count()),
            fixed("solid_coverage", 4, covered.sum::<f64>() / sum("solid")),
            end("lowest", f64::min),
            end("highest", f64::max),
            fixed("printed", 4, sum("printed") / sum("trials")),
            fixed("solid", 4, sum("solid") / sum("trials")),
            fixed("rough_lower_bound_holds", 4, bound_holds),
        ];
        Row { holds: true, cells }
    });
    summaries.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::simulate;

    const fn setting(law: Law, spread: f64, repeats: usize, samples: usize) -> CoverageSetting {
        CoverageSetting {
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
        let rows = simulate("coverage", &settings, 100, 11, rows).concat();
        assert!(rows.len() > 30);
        for row in &rows {
            assert!(row.holds, "{row:?}");
            assert_eq!(row.number("printed"), 100.0, "{row:?}");
        }
        // Few trials say little about a bound.
        let rough = |row: &&Row| row.number("rough") >= JUDGED as f64;
        let bounded: Vec<&Row> = rows.iter().filter(rough).collect();
        assert!(bounded.len() >= 4, "{bounded:?}");
        for row in bounded {
            let least = 0.95 - margin(0.95, row.number("rough") as usize);
            assert!(
                row.number("rough_lower_bound_holds") >= least * row.number("rough"),
                "{row:?}"
            );
        }
        let solid = rows.iter().filter(|row| row.number("solid") == 100.0).count();
        assert!(solid > 20, "{solid}");
        let summaries = summarise(&rows);
        assert_eq!(
            summaries.iter().map(|row| row.number("rows")).sum::<f64>(),
            rows.len() as f64
        );
        assert!(
            (0.92..0.98).contains(&summaries[0].number("solid_coverage")),
            "{summaries:?}"
        );
    }

    /// The bursts of a queue that is nearly full make the tail of a short run, and too few of them are seen.
    #[test]
    fn the_tail_of_a_queue_that_is_nearly_full_is_rough_in_a_short_run() {
        let settings = [setting(Law::Queue(90), 0.0, 3, 1_200)];
        let rows = simulate("coverage", &settings, 100, 3, rows).concat();
        for what in ["p95", "p99"] {
            let row = rows.iter().find(|row| row.cells.contains(&cell("what", what))).unwrap();
            assert!(row.number("printed_coverage") <= 0.9, "{row:?}");
            assert_eq!((row.number("solid"), row.number("rough")), (0.0, 100.0), "{row:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_rows() {
        let of_seed = |seed| rows(setting(Law::Lognormal, 0.1, 3, 100), 20, seed);
        assert_eq!(of_seed(1), of_seed(1));
        assert_ne!(of_seed(1), of_seed(2));
    }
}
