//! Whole distribution of a point's latency: its cumulative curve, and its change over time.
//!
//! In: a point with its histograms. Out: numbers to draw. Knows nothing of drawing.

use crate::record::{Histograms, Point, counted, samples_needed};
use crate::statistics::percentile::BlockTable;
use hdrhistogram::Histogram;

/// Number of shares at which a cumulative curve is computed: even steps of `-log10(1 - share)`, from the fastest
/// request to one in ten thousand. The steps are dense in the tail, which the curve is drawn for.
const STEPS: u32 = 80;
const NINES: f64 = 4.0;

/// Returns the cumulative curve: shares of the requests, and the latency in microseconds that they do not exceed. It
/// ends where a percentile would no longer be printed.
pub fn cumulative(point: &Point) -> Vec<(f64, f64)> {
    let repeats = counted(&point.repeats);
    let table = BlockTable::new(repeats.iter().map(|repeat| repeat.histograms.latency.as_slice()));
    (0..=STEPS)
        .map(|step| 1.0 - 10_f64.powf(-NINES * f64::from(step) / f64::from(STEPS)))
        .take_while(|share| *share < 0.5 || table.samples() >= samples_needed(*share))
        .filter_map(|share| Some((share, table.pooled_quantile(share)? as f64)))
        .collect()
}

/// Returns the smallest and the largest latency of a point, in microseconds and at least 1; `None` without requests.
pub fn range(point: &Point) -> Option<(f64, f64)> {
    let blocks = point.repeats.iter().flat_map(|repeat| &repeat.histograms.latency);
    let filled = blocks.filter(|block| !block.is_empty());
    let ends = filled.map(|block| (block.min().max(1) as f64, block.max().max(1) as f64));
    ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Bands of latency between two ends, evenly spaced in its logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyGrid {
    /// Lower end of the lowest band, in microseconds; above zero.
    pub from_us: f64,
    /// Upper end of the highest band, in microseconds.
    pub to_us: f64,
    /// Number of bands.
    pub bands: usize,
}

impl LatencyGrid {
    /// Returns the band of a latency; a latency outside the grid belongs to the first or the last band.
    pub fn band(&self, us: f64) -> usize {
        let share = (us.max(1e-9) / self.from_us).ln() / (self.to_us / self.from_us).ln();
        ((share * self.bands as f64).max(0.0) as usize).min(self.bands.saturating_sub(1))
    }
}

/// Change of a point's latency in one repeat.
#[derive(Debug, Clone, PartialEq)]
pub struct OverTime {
    /// Length of a column, in seconds; the last may be shorter.
    pub column_s: f64,
    /// Share of a column's requests in each band of the grid, for each column; empty for a column without requests.
    pub columns: Vec<Vec<f64>>,
}

/// Returns the change of a point's latency in each repeat, with time blocks merged into at most `max_columns` columns.
pub fn over_time(point: &Point, grid: &LatencyGrid, max_columns: usize) -> Vec<OverTime> {
    let one = |histograms: &Histograms| {
        let per_column = histograms.latency.len().div_ceil(max_columns.max(1)).max(1);
        let columns = histograms.latency.chunks(per_column);
        OverTime {
            column_s: histograms.block_s * per_column as f64,
            columns: columns.map(|blocks| shares(blocks, grid)).collect(),
        }
    };
    point.repeats.iter().map(|repeat| one(&repeat.histograms)).collect()
}

fn shares(blocks: &[Histogram<u64>], grid: &LatencyGrid) -> Vec<f64> {
    let all: u64 = blocks.iter().map(Histogram::len).sum();
    if all == 0 {
        return Vec::new();
    }
    let mut shares = vec![0.0; grid.bands];
    for value in blocks.iter().flat_map(Histogram::iter_recorded) {
        shares[grid.band(value.value_iterated_to() as f64)] += value.count_since_last_iteration() as f64 / all as f64;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Factors, Mode, Repeat};
    use proptest::prelude::*;

    /// A point of one repeat with these latencies in each time block.
    fn point(blocks: &[&[u64]]) -> Point {
        let histograms = Histograms {
            block_s: 1.0,
            latency: blocks
                .iter()
                .map(|us| crate::statistics::percentile::histogram(us))
                .collect(),
            ..Histograms::default()
        };
        let repeat = Repeat {
            scheduled: blocks.iter().map(|us| us.len() as u64).sum(),
            histograms,
            // Hardly any requests in flight.
            window_s: 1e4,
            ..Repeat::empty()
        };
        Point {
            factors: Factors {
                variant: String::new(),
                tier: "nvme".into(),
                cache: "cold".into(),
                cache_share: 0.0,
                model: "m".into(),
                mode: Mode::Realtime,
                batch_size: 1,
                offered_rps: 1.0,
                arrivals: "poisson".into(),
                keys: "uniform".into(),
                mix: None,
                driven: None,
            },
            repeats: vec![repeat],
            summary: None,
        }
    }

    #[test]
    fn a_thousand_even_latencies_lie_on_the_diagonal_as_far_as_they_reach() {
        let us: Vec<u64> = (1..=1_000).map(|i| i * 100).collect();
        let curve = cumulative(&point(&[&us]));
        for (share, us) in &curve {
            assert!((us - share * 1e5).abs() <= 0.002 * us + 150.0, "{share}: {us}");
        }
        // Enough for a p99, not for a p99.9.
        let last = curve.last().unwrap().0;
        assert!((0.98..=0.99).contains(&last), "{last}");
        assert!(cumulative(&point(&[])).is_empty() && range(&point(&[&[]])).is_none());
        assert_eq!(range(&point(&[&[100], &[], &[100_000]])).map(|r| r.0), Some(100.0));
    }

    #[test]
    fn a_stall_is_in_its_block_and_nowhere_else() {
        let grid = LatencyGrid {
            from_us: 100.0,
            to_us: 1e6,
            bands: 4,
        };
        let stalled = point(&[&[150, 200], &[150, 500_000, 600_000, 150], &[]]);
        let [told] = &over_time(&stalled, &grid, 3)[..] else {
            panic!("one repeat")
        };
        assert_eq!(
            told.columns,
            [vec![1.0, 0.0, 0.0, 0.0], vec![0.5, 0.0, 0.0, 0.5], vec![]]
        );
        // Two columns hold two blocks and one, by the number of their requests.
        let [told] = &over_time(&stalled, &grid, 2)[..] else {
            panic!("one repeat")
        };
        assert_eq!(told.column_s, 2.0);
        let third = 1.0 / 3.0;
        assert!((told.columns[0][0] - 2.0 * third).abs() < 1e-9 && (told.columns[0][3] - third).abs() < 1e-9);
        assert!(told.columns.len() == 2 && told.columns[1].is_empty());
        assert_eq!([1.0, 1e9].map(|us| grid.band(us)), [0, 3]);
    }

    proptest! {
        #[test]
        fn every_request_of_a_block_is_in_one_band(us in prop::collection::vec(1_u64..10_000_000, 1..80)) {
            let grid = LatencyGrid { from_us: 50.0, to_us: 1e6, bands: 17 };
            let told = over_time(&point(&[&us]), &grid, 9);
            prop_assert!((told[0].columns[0].iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
