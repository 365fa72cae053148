//! Stationarity of a point's latency, within its repeats and between them.
//!
//! In: the repeats of a point with their histograms. Out: the [`Drift`]s that are significant and large enough to
//! matter. Pure. Independent of verdicts.
//!
//! Two figures are tested, on the scale of their logarithm: the median, and the mean of the slowest 1 %, which lies
//! beyond the p99 and scatters less than the p99 itself. There are three tests of each. None assumes independent
//! requests: a repeat is one observation.
//! - *Within*: the last third of every window against its first. The differences of the repeats have mean zero without
//!   a drift (Student's t over the repeats).
//! - *Trend*: the slope of the repeats' figures over their order (Student's t of a regression).
//! - *Change point*: the repeats before any position against those after it (two-sample t, Bonferroni over the
//!   positions).
//!
//! Few repeats say little about their own spread: Student's t for three repeats of a trend is above 10. So a change
//! point is also tested with an error estimated from pieces of the windows. A repeat's figure is assumed to scatter by
//! `TestedFigure::spread`, and by as much as figures of pieces scatter among each other, less the gain of a window from
//! having several. If slow requests come in bursts, a whole window counts as no better than one of its pieces. With two
//! or three repeats this is a test of homogeneity.
//!
//! A finding must also matter (`TestedFigure::matters`): a bounded drift passes. All tests of a point together raise a
//! false alarm in at most about 1 % of points without a drift; `tierlab-dev coverage` simulates it, including queues in
//! which requests depend on each other.

use crate::record::{Drift, DriftHow, DriftOf, Repeat};
use crate::statistics::mean;
use crate::statistics::percentile::{Counts, counts};
use crate::statistics::student::t_two_sided;

/// Share of points without drift for which all tests together report one.
pub const FALSE_ALARMS: f64 = 0.01;
/// Number of tests: three for each of two figures.
const TESTS: f64 = 6.0;
/// Minimum number of repeats whose differences give their spread.
const MIN_REPEATS: usize = 5;
/// Minimum requests of a piece of a window.
const PIECE_REQUESTS: u64 = 24;
/// Minimum requests of a piece with a slowest percent.
const TAIL_PIECE_REQUESTS: u64 = 120;
/// Quantile of a window's requests above which bursts are measured.
const BURST_QUANTILE: f64 = 0.95;
/// Pieces of a window for the test within it.
const WINDOW_PIECES: usize = 8;

/// Tested figure.
struct TestedFigure {
    of: DriftOf,
    /// Minimum change that matters, as a factor.
    matters: f64,
    /// Maximum number of pieces of a window.
    pieces: usize,
    /// Minimum scatter of repeats beside that of their pieces: the standard deviation of the logarithm.
    spread: f64,
}

const FIGURES: [TestedFigure; 2] = [
    TestedFigure {
        of: DriftOf::P50,
        matters: 1.25,
        pieces: 4,
        spread: 0.1,
    },
    TestedFigure {
        of: DriftOf::SlowestPercent,
        matters: 1.5,
        pieces: 8,
        spread: 0.15,
    },
];

/// Returns the drifts of a point's latency; empty without drifts, or with too few repeats or requests to test.
pub fn drifts(repeats: &[Repeat]) -> Vec<Drift> {
    let mut in_order: Vec<&Repeat> = repeats.iter().collect();
    in_order.sort_by_key(|repeat| repeat.index);
    // A histogram has thousands of empty buckets, and is read several times.
    let (numbers, windows): (Vec<u32>, Vec<Vec<Counts>>) = in_order
        .iter()
        .map(|repeat| (repeat.index + 1, repeat.histograms.latency.iter().map(counts).collect()))
        .filter(|(_, blocks): &(u32, Vec<Counts>)| requests(blocks) > 0)
        .unzip();
    let outside = FALSE_ALARMS / TESTS;
    let found = FIGURES
        .iter()
        .flat_map(|figure| [within(figure, &windows, outside), across(figure, &windows, outside)]);
    let numbered = |drift: Drift| match drift.how {
        DriftHow::After(count) => Drift {
            how: DriftHow::After(numbers[count as usize - 1]),
            ..drift
        },
        DriftHow::Within | DriftHow::Across => drift,
    };
    found.flatten().map(numbered).collect()
}

impl TestedFigure {
    /// Returns the logarithm of the figure of some time blocks; `None` without requests.
    fn log(&self, blocks: &[Counts]) -> Option<f64> {
        let all = requests(blocks);
        if all == 0 {
            return None;
        }
        let us = match self.of {
            DriftOf::P50 => quantile(blocks, 0.5) as f64,
            DriftOf::SlowestPercent => {
                let mut counts: Counts = blocks.concat();
                // A stable sort, which is fast for blocks that are sorted already.
                counts.sort_by_key(|(us, _)| std::cmp::Reverse(*us));
                let slowest = all.div_ceil(100).max(2).min(all);
                let (mut left, mut sum) = (slowest, 0.0);
                for (us, count) in &counts {
                    let taken = left.min(u64::from(*count));
                    sum += *us as f64 * taken as f64;
                    left -= taken;
                }
                sum / slowest as f64
            }
        };
        Some(us.max(1.0).ln())
    }

    fn drift(&self, how: DriftHow, from: f64, to: f64, values: &[f64]) -> Drift {
        Drift {
            of: self.of,
            how,
            from_us: from.exp(),
            to_us: to.exp(),
            course_us: values.iter().map(|log| log.exp()).collect(),
        }
    }

    /// True if a difference of logarithms is large enough, and significant at level `outside`.
    fn detects(&self, difference: f64, error: f64, freedom: f64, outside: f64) -> bool {
        difference.abs() > self.matters.ln() && difference.abs() > t_two_sided(outside, freedom) * error
    }
}

fn requests(blocks: &[Counts]) -> u64 {
    blocks.iter().flatten().map(|(_, count)| u64::from(*count)).sum()
}

/// Returns the figures of a window cut into pieces of equally many blocks; `None` if a piece has too few requests.
fn pieces(figure: &TestedFigure, blocks: &[Counts], count: usize) -> Option<Vec<f64>> {
    let edge = |piece: usize| piece * blocks.len() / count;
    let log = |piece: &[Counts]| figure.log(piece).filter(|_| requests(piece) >= PIECE_REQUESTS);
    let logs = (0..count).map(|piece| log(&blocks[edge(piece)..edge(piece + 1)]));
    logs.collect()
}

/// Tests the last third of every window against its first, and extrapolates an even drift to the whole window.
fn within(figure: &TestedFigure, windows: &[Vec<Counts>], outside: f64) -> Option<Drift> {
    if windows.len() < 3 {
        return None;
    }
    let mut ends = Vec::with_capacity(windows.len());
    for blocks in windows {
        let third = blocks.len().div_ceil(3);
        let (first, last) = (&blocks[..third], &blocks[blocks.len() - third..]);
        if requests(first).min(requests(last)) < PIECE_REQUESTS || blocks.len() < 3 {
            return None;
        }
        let whole = blocks.len() as f64 / (blocks.len() - third) as f64;
        let (first, last) = (figure.log(first)?, figure.log(last)?);
        // The centres of the two thirds lie less than a window apart.
        let beyond = (whole - 1.0) / 2.0 * (last - first);
        ends.push((first - beyond, last + beyond));
    }
    let moved: Vec<f64> = ends.iter().map(|(first, last)| last - first).collect();
    let (mean_moved, squares) = about_mean(&moved);
    let count = moved.len() as f64;
    let error = (squares / (count - 1.0) / count).sqrt();
    if !figure.detects(mean_moved, error, count - 1.0, outside) {
        return None;
    }
    let from = mean(&ends.iter().map(|(first, _)| *first).collect::<Vec<_>>());
    let cut = |blocks: &Vec<Counts>| pieces(figure, blocks, WINDOW_PIECES.min(blocks.len()));
    let cut: Vec<Vec<f64>> = windows.iter().filter_map(cut).collect();
    let mean_of = |piece: usize| mean(&cut.iter().map(|one| one[piece]).collect::<Vec<_>>());
    let values: Vec<f64> = match cut.len() == windows.len() && cut.iter().all(|one| one.len() == cut[0].len()) {
        true => (0..cut[0].len()).map(mean_of).collect(),
        false => vec![from, from + mean_moved],
    };
    Some(figure.drift(DriftHow::Within, from, from + mean_moved, &values))
}

/// Tests the repeats against each other in their order.
fn across(figure: &TestedFigure, windows: &[Vec<Counts>], outside: f64) -> Option<Drift> {
    if windows.iter().any(|blocks| requests(blocks) < PIECE_REQUESTS) {
        return None;
    }
    let logs: Vec<f64> = windows.iter().map(|blocks| figure.log(blocks)).collect::<Option<_>>()?;
    let pieces = Scatter::of_pieces(figure, windows);
    if logs.len() < MIN_REPEATS {
        return jump(figure, pieces?, &logs, outside);
    }
    // For medians the repeats alone suffice.
    let pieces = pieces.filter(|_| figure.of == DriftOf::SlowestPercent);
    let test = |difference: f64, left: f64, scale: f64, outside: f64| {
        let own = Scatter {
            variance: left / (logs.len() as f64 - 2.0),
            freedom: logs.len() as f64 - 2.0,
        };
        let larger = pieces.map(|pieces| Scatter {
            variance: pieces.variance.max(own.variance),
            ..pieces
        });
        [Some(own), larger].into_iter().flatten().any(|scatter| {
            let error = (scatter.variance * scale).sqrt();
            figure.detects(difference, error, scatter.freedom, outside)
        })
    };
    let trend = trend(figure, &logs, |moved, left, scale| test(moved, left, scale, outside));
    let outside = outside / (logs.len() - 1) as f64;
    let change = change(figure, &logs, |moved, left, scale| test(moved, left, scale, outside));
    let found = [trend, change].into_iter().flatten();
    found.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(better, _)| better)
}

/// Fits a straight line through the repeats, with the remaining squares. `test` judges a difference by those squares
/// and the factor from the variance of one repeat to that of the difference.
fn trend(figure: &TestedFigure, logs: &[f64], test: impl Fn(f64, f64, f64) -> bool) -> Option<(Drift, f64)> {
    let count = logs.len() as f64;
    let (middle, level) = ((count - 1.0) / 2.0, mean(logs));
    let xs: Vec<f64> = (0..logs.len()).map(|index| index as f64 - middle).collect();
    let spread: f64 = xs.iter().map(|x| x * x).sum();
    let slope = xs.iter().zip(logs).map(|(x, log)| x * log).sum::<f64>() / spread;
    let pairs = xs.iter().zip(logs);
    let left: f64 = pairs.map(|(x, log)| (log - level - slope * x).powi(2)).sum();
    let span = count - 1.0;
    test(span * slope, left, span * span / spread).then(|| {
        let ends = (level - middle * slope, level + middle * slope);
        (figure.drift(DriftHow::Across, ends.0, ends.1, logs), left)
    })
}

/// Returns the position before and after which repeats differ most, with the remaining squares about the two means.
fn change(figure: &TestedFigure, logs: &[f64], test: impl Fn(f64, f64, f64) -> bool) -> Option<(Drift, f64)> {
    let splits = logs.len() - 1;
    (1..=splits)
        .filter_map(|split| {
            let (before, after) = logs.split_at(split);
            let ((from, left), (to, right)) = (about_mean(before), about_mean(after));
            let sizes = 1.0 / before.len() as f64 + 1.0 / after.len() as f64;
            let drift = || figure.drift(DriftHow::After(split as u32), from, to, logs);
            test(to - from, left + right, sizes).then(|| (drift(), left + right))
        })
        .min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Scatter of a repeat's figure on the scale of its logarithm.
#[derive(Clone, Copy)]
struct Scatter {
    variance: f64,
    freedom: f64,
}

impl Scatter {
    /// Estimates the scatter from the pieces of the windows; `None` if a piece has too few requests.
    fn of_pieces(figure: &TestedFigure, windows: &[Vec<Counts>]) -> Option<Self> {
        let fewest = windows.iter().map(|blocks| requests(blocks)).min()?;
        let blocks = windows.iter().map(Vec::len).min()?;
        let count = match figure.of {
            DriftOf::P50 => figure.pieces,
            DriftOf::SlowestPercent => ((fewest / TAIL_PIECE_REQUESTS) as usize)
                .min(blocks / 2)
                .clamp(2, figure.pieces),
        };
        let cut = windows.iter().map(|blocks| pieces(figure, blocks, count));
        let cut: Vec<Vec<f64>> = cut.collect::<Option<_>>()?;
        let squares: f64 = cut.iter().map(|pieces| about_mean(pieces).1).sum();
        let freedom = (cut.len() * (count - 1)) as f64;
        // Pieces without bursts are nearly independent, so a window counts as all of them.
        let gain = match figure.of {
            DriftOf::P50 => 1.0,
            DriftOf::SlowestPercent => (bursts(windows, count).powi(2) / count as f64).min(1.0),
        };
        Some(Self {
            variance: figure.spread.powi(2) + squares / freedom * gain,
            freedom,
        })
    }
}

/// Returns the variance of the number of slow requests in a piece of a window over that of independent requests, at
/// least 1.
fn bursts(windows: &[Vec<Counts>], count: usize) -> f64 {
    let of_window = |blocks: &Vec<Counts>| {
        let slow_from = quantile(blocks, BURST_QUANTILE);
        let slow = |blocks: &[Counts]| {
            let slow = blocks.iter().flatten().filter(|(us, _)| *us > slow_from);
            slow.map(|(_, count)| f64::from(*count)).sum::<f64>()
        };
        let share = slow(blocks) / requests(blocks).max(1) as f64;
        let edge = |piece: usize| piece * blocks.len() / count;
        let squares = (0..count).map(|piece| {
            let piece = &blocks[edge(piece)..edge(piece + 1)];
            let expected = (share * requests(piece) as f64).max(1e-9);
            (slow(piece) - expected).powi(2) / expected
        });
        squares.sum::<f64>() / (count - 1) as f64
    };
    mean(&windows.iter().map(of_window).collect::<Vec<_>>()).max(1.0)
}

/// Returns the smallest value with at least this share of the requests at or below it; 0 without requests.
fn quantile(blocks: &[Counts], share: f64) -> u64 {
    let mut counts: Counts = blocks.concat();
    // A stable sort, which is fast for blocks that are sorted already.
    counts.sort_by_key(|(us, _)| *us);
    let (wanted, mut seen) = (share * requests(blocks) as f64, 0);
    let found = counts.iter().find(|(_, count)| {
        seen += u64::from(*count);
        seen as f64 >= wanted
    });
    found.map_or(0, |(us, _)| *us)
}

/// Returns the position before and after which two to four repeats differ most certainly.
fn jump(figure: &TestedFigure, scatter: Scatter, logs: &[f64], outside: f64) -> Option<Drift> {
    let splits = logs.len().checked_sub(1).filter(|splits| *splits > 0)?;
    let difference = |split: usize| {
        let (before, after) = logs.split_at(split);
        let error = (scatter.variance * (1.0 / before.len() as f64 + 1.0 / after.len() as f64)).sqrt();
        (mean(before), mean(after), error)
    };
    let found = (1..=splits)
        .map(|split| (split, difference(split)))
        .filter(|(_, (from, to, error))| figure.detects(to - from, *error, scatter.freedom, outside / splits as f64))
        .max_by(|a, b| {
            let certain = |(from, to, error): (f64, f64, f64)| (to - from).abs() / error;
            certain(a.1).total_cmp(&certain(b.1))
        });
    found.map(|(split, (from, to, _))| figure.drift(DriftHow::After(split as u32), from, to, logs))
}

/// Returns the mean, and the sum of the squares about it.
fn about_mean(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Histograms;
    use crate::statistics::percentile::histogram;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, Exp1, StandardNormal};

    const BLOCKS: usize = 12;

    /// Creates one repeat with these latencies in the order of the window.
    fn repeat(index: usize, latencies: &[f64]) -> Repeat {
        let latencies: Vec<u64> = latencies.iter().map(|us| us.round() as u64).collect();
        Repeat {
            index: index as u32,
            scheduled: latencies.len() as u64,
            histograms: Histograms {
                block_s: 1.0,
                latency: latencies
                    .chunks(latencies.len().div_ceil(BLOCKS).max(1))
                    .map(histogram)
                    .collect(),
                ..Histograms::default()
            },
            ..Repeat::empty()
        }
    }

    /// Creates repeats of lognormal latencies around 10 ms (sigma 0.3) with a spread of 3 % between repeats. `shape`
    /// takes the position in the run, the position in the window and the default latency of a request, and returns its
    /// latency.
    fn run(
        seed: u64,
        repeats: usize,
        requests: usize,
        shape: &dyn Fn(f64, f64, f64, &mut ChaCha8Rng) -> f64,
    ) -> Vec<Repeat> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..repeats)
            .map(|index| {
                let weather: f64 = StandardNormal.sample(&mut rng);
                let latencies: Vec<f64> = (0..requests)
                    .map(|request| {
                        let z: f64 = StandardNormal.sample(&mut rng);
                        let (far, within) = (index as f64 / (repeats - 1) as f64, request as f64 / requests as f64);
                        let us = 10_000.0 * (0.03 * weather + 0.3 * z).exp();
                        shape(far, within, us, &mut rng)
                    })
                    .collect();
                repeat(index, &latencies)
            })
            .collect()
    }

    /// Returns the share of 60 runs in which a drift is reported.
    fn found(repeats: usize, requests: usize, shape: &dyn Fn(f64, f64, f64, &mut ChaCha8Rng) -> f64) -> f64 {
        let count = (0..60).filter(|seed| !drifts(&run(*seed, repeats, requests, shape)).is_empty());
        count.count() as f64 / 60.0
    }

    #[test]
    fn twenty_to_a_hundred_and_eighty_three_over_the_run_is_found_with_three_repeats_and_with_ten() {
        for repeats in [3, 5, 10] {
            assert_eq!(found(repeats, 240, &|far, _, us, _| us * 2.0 * 9.15_f64.powf(far)), 1.0);
        }
        let drifts = drifts(&run(1, 10, 240, &|far, _, us, _| us * 2.0 * 9.15_f64.powf(far)));
        let p50 = drifts.iter().find(|drift| drift.of == DriftOf::P50).unwrap();
        assert_eq!((p50.how, p50.course_us.len()), (DriftHow::Across, 10));
        assert!((p50.from_us / 20_000.0 - 1.0).abs() < 0.1 && (p50.to_us / 183_000.0 - 1.0).abs() < 0.1);
    }

    #[test]
    fn forty_percent_within_every_window_is_found_and_named() {
        assert!(found(10, 240, &|_, within, us, _| us * (1.0 + 0.4 * within)) > 0.95);
        let drifts = drifts(&run(2, 10, 400, &|_, within, us, _| us * (1.0 + 0.4 * within)));
        assert_eq!(drifts[0].how, DriftHow::Within);
        assert!((drifts[0].to_us / drifts[0].from_us - 1.4).abs() < 0.1, "{}", drifts[0]);
        assert_eq!(drifts[0].course_us.len(), WINDOW_PIECES);
    }

    #[test]
    fn a_tail_that_alone_grows_is_found_and_the_median_is_not_blamed() {
        let grows = |far: f64, _: f64, us: f64, rng: &mut ChaCha8Rng| {
            let wait: f64 = Exp1.sample(rng);
            if rng.random_bool(0.03) {
                30_000.0 * (1.0 + 4.0 * far) * (1.0 + wait)
            } else {
                us
            }
        };
        for (repeats, requests) in [(3, 2_000), (5, 1_000), (10, 800)] {
            let share = found(repeats, requests, &grows);
            assert!(share > 0.85, "{repeats} × {requests}: {share}");
        }
        for drift in drifts(&run(3, 10, 1_600, &grows)) {
            assert_eq!(drift.of, DriftOf::SlowestPercent, "{drift}");
        }
    }

    #[test]
    fn repeats_of_two_servers_do_not_pool() {
        for (repeats, others) in [(2, 0.5), (3, 0.4), (5, 0.5), (10, 0.5)] {
            let two = |far: f64, _: f64, us: f64, _: &mut ChaCha8Rng| if far > others { 2.9 * us } else { 1.3 * us };
            let share = found(repeats, 400, &two);
            assert!(share > if repeats == 2 { 0.3 } else { 0.8 }, "{repeats}: {share}");
        }
        let two = |far: f64, _: f64, us: f64, _: &mut ChaCha8Rng| if far > 0.4 { 2.9 * us } else { 1.3 * us };
        let said = drifts(&run(1, 3, 400, &two))[0].to_string();
        assert!(
            said.contains("up to repeat 1 and") && said.contains("from repeat 2 on"),
            "{said}"
        );
    }

    #[test]
    fn a_bounded_drift_and_repeats_that_differ_by_chance_pass() {
        for repeats in [3, 5, 10] {
            assert!(
                found(repeats, 400, &|far, within, us, _| us
                    * (1.0 + 0.1 * far + 0.05 * within))
                    < 0.05
            );
            assert!(found(repeats, 400, &|_, _, us, _| us) < 0.05);
        }
    }

    /// Returns sojourn times of a queue with exponential service that starts empty, after a warm-up of a quarter of the
    /// window.
    fn queue(rng: &mut ChaCha8Rng, load: f64, requests: usize) -> Vec<f64> {
        let mut wait = 0.0_f64;
        let all: Vec<f64> = (0..requests + requests / 4)
            .map(|_| {
                let (service, gap): (f64, f64) = (Exp1.sample(rng), Exp1.sample(rng));
                let sojourn = wait + load * service;
                wait = (sojourn - gap).max(0.0);
                1e4 * sojourn
            })
            .collect();
        all[requests / 4..].to_vec()
    }

    /// The stored table has more of these (`tierlab-dev coverage`).
    #[test]
    fn queues_whose_requests_depend_on_each_other_are_rarely_said_to_drift() {
        for (repeats, requests) in [(3, 500), (5, 500), (10, 240)] {
            let mut alarms = 0;
            for seed in 0..120 {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let repeats: Vec<Repeat> = (0..repeats)
                    .map(|index| repeat(index, &queue(&mut rng, 0.9, requests)))
                    .collect();
                alarms += u32::from(!drifts(&repeats).is_empty());
            }
            // At a rate of 2 % more than 7 of 120 occur once in 170 runs of the test; its seeds are fixed.
            assert!(alarms <= 7, "{repeats} × {requests}: {alarms}");
        }
    }

    #[test]
    fn too_little_to_tell_tells_nothing() {
        assert_eq!(drifts(&[]), []);
        assert_eq!(drifts(&[repeat(0, &[5.0; 400])]), []);
        let few: Vec<Repeat> = (0..10)
            .map(|index| repeat(index, &[10.0 * (index + 1) as f64; 8]))
            .collect();
        assert_eq!(drifts(&few), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_repeats_get_an_answer(
            latencies in prop::collection::vec(prop::collection::vec(0_u64..1_000_000, 0..80), 0..12),
        ) {
            let repeats: Vec<Repeat> = latencies
                .iter()
                .enumerate()
                .map(|(index, all)| repeat(index, &all.iter().map(|us| *us as f64).collect::<Vec<_>>()))
                .collect();
            for drift in drifts(&repeats) {
                prop_assert!(drift.from_us.is_finite() && drift.to_us.is_finite() && drift.from_us != drift.to_us);
            }
        }
    }
}
