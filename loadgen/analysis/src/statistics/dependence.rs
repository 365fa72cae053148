//! Dependence of successive latencies.
//!
//! In: the latencies of a step in order of their due times. Out: its autocorrelation times, the number of requests that
//! carry as much information as one independent request: 1 if they are independent, some dozens behind a queue.
//!
//! A percentile depends on one property of each request: lying above it. The dependence of this property differs over
//! the distribution. A machine that is a tenth slower for half a second moves all of a thousand requests a little, and
//! says nothing about the few that met a stall; behind a queue the slow requests come together. So the tail has its own
//! autocorrelation time.

/// Maximum length of a piece of requests, and number of pieces: enough for a stable answer, and a bound on the work.
const PIECE: usize = 8_192;
const PIECES: usize = 8;
/// Standard deviations of independent requests up to which a dependence counts as coincidence.
const NOISE_SIGMAS: f64 = 3.0;

/// Share of the requests in the tail's autocorrelation time, if that is at least [`TAIL_REQUESTS`].
const TAIL_SHARE: f64 = 0.05;
/// Minimum number of slow requests that can show bursts.
const TAIL_REQUESTS: f64 = 16.0;

/// Autocorrelation times of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dependence {
    /// Autocorrelation time of all latencies.
    pub body: f64,
    /// Autocorrelation time of being among the slow requests.
    pub tail: f64,
}

impl Dependence {
    /// Computes the autocorrelation times of latencies in order of their due times.
    pub fn of(latencies_us: &[u64]) -> Self {
        Self {
            body: autocorrelation_time(latencies_us),
            tail: tail_autocorrelation_time(latencies_us),
        }
    }
}

/// Returns the autocorrelation time of being among the slowest twentieth. At least 1.
pub fn tail_autocorrelation_time(latencies_us: &[u64]) -> f64 {
    let mut sorted = latencies_us.to_vec();
    sorted.sort_unstable();
    let slow = (TAIL_SHARE * sorted.len() as f64).max(TAIL_REQUESTS) as usize;
    let Some(&limit) = sorted.len().checked_sub(slow + 1).and_then(|last| sorted.get(last)) else {
        return autocorrelation_time(latencies_us);
    };
    let above: Vec<f64> = latencies_us.iter().map(|&us| f64::from(us > limit)).collect();
    let share = above.iter().sum::<f64>() / above.len() as f64;
    integrated(&above.iter().map(|above| above - share).collect::<Vec<_>>())
}

/// Returns the integrated autocorrelation time of the ranks of the latencies, `1 + 2 Σ ρ(k)`, summed over pairs of lags
/// as long as a pair is positive (Geyer, *Practical Markov Chain Monte Carlo*, Statistical Science 7, 1992). Ranks keep
/// a single stall from dominating the result. At least 1.
pub fn autocorrelation_time(latencies_us: &[u64]) -> f64 {
    integrated(&ranks(latencies_us))
}

/// Returns the integrated autocorrelation time of values about their mean.
fn integrated(values: &[f64]) -> f64 {
    let pieces: Vec<&[f64]> = if values.len() <= PIECE * PIECES {
        vec![values]
    } else {
        let stride = (values.len() - PIECE) / (PIECES - 1);
        (0..PIECES).map(|piece| &values[piece * stride..][..PIECE]).collect()
    };
    let count: usize = pieces.iter().map(|piece| piece.len()).sum();
    let longest = pieces.first().map_or(0, |piece| piece.len() / 4);
    let lagged = |lag: usize| -> f64 {
        let products = pieces.iter().map(|piece| {
            let later = piece.get(lag..).unwrap_or_default();
            piece.iter().zip(later).map(|(a, b)| a * b).sum::<f64>()
        });
        products.sum()
    };
    let variance = lagged(0);
    if variance <= 0.0 {
        return 1.0;
    }
    let mut sum = 0.0;
    for lag in (0..longest).step_by(2) {
        let pair = (lagged(lag) + lagged(lag + 1)) / variance;
        if pair <= 0.0 {
            break;
        }
        sum += pair;
    }
    let time = 2.0 * sum - 1.0;
    // With one pair summed, the estimate of independent requests scatters like sqrt(6 / n).
    let noise = NOISE_SIGMAS * (6.0 / count as f64).sqrt();
    if time > 1.0 + noise { time } else { 1.0 }
}

/// Returns ranks about their mean; equal values share a rank.
fn ranks(values: &[u64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by_key(|&index| values[index]);
    let mut ranks = vec![0.0; values.len()];
    let mean = (values.len() as f64 - 1.0) / 2.0;
    let mut smaller = 0;
    for same in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = smaller as f64 + (same.len() as f64 - 1.0) / 2.0;
        for &index in same {
            ranks[index] = rank - mean;
        }
        smaller += same.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    fn modulated(phi: f64, count: usize, seed: u64) -> Vec<u64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut state = 0.0;
        (0..count)
            .map(|_| {
                let push: f64 = StandardNormal.sample(&mut rng);
                state = phi * state + (1.0 - phi * phi).sqrt() * push;
                (1_000.0 * f64::exp(state)) as u64
            })
            .collect()
    }

    #[test]
    fn independent_requests_count_each() {
        let mean = (0..50)
            .map(|seed| autocorrelation_time(&modulated(0.0, 400, seed)))
            .sum::<f64>()
            / 50.0;
        assert!(mean < 1.05, "{mean}");
        assert_eq!(autocorrelation_time(&[7; 500]), 1.0);
        assert_eq!(autocorrelation_time(&[]), 1.0);
        assert_eq!(autocorrelation_time(&[1, 2]), 1.0);
    }

    #[test]
    fn the_time_of_a_known_process() {
        // (1 + phi) / (1 - phi) for the values themselves; a little less for their ranks.
        for (phi, expected) in [(0.5, 3.0), (0.9, 19.0)] {
            let time = autocorrelation_time(&modulated(phi, 60_000, 3));
            assert!(time > 0.85 * expected && time < 1.25 * expected, "{phi}: {time}");
        }
        // Longer than a piece.
        let time = autocorrelation_time(&modulated(0.9, 300_000, 4));
        assert!(time > 15.0 && time < 24.0, "{time}");
    }

    #[test]
    fn the_tail_has_a_time_of_its_own() {
        // All requests are slower and faster together, but the few stalls are independent.
        let mut slow = modulated(0.99, 4_000, 5);
        for (index, us) in slow.iter_mut().enumerate() {
            *us += if (index * 7_919) % 97 < 6 { 1_000_000 } else { 0 };
        }
        let found = Dependence::of(&slow);
        assert!(found.body > 20.0 && found.tail < 1.5, "{found:?}");
        // The slow requests come together.
        let mut bursts = modulated(0.0, 4_000, 5);
        for (index, us) in bursts.iter_mut().enumerate() {
            *us += if index % 400 < 20 { 1_000_000 } else { 0 };
        }
        let found = Dependence::of(&bursts);
        assert!(found.tail > 10.0, "{found:?}");
        assert_eq!(Dependence::of(&[7; 500]).tail, 1.0);
    }

    proptest! {
        #[test]
        fn any_step_has_one(latencies in prop::collection::vec(0_u64..100, 0..300), doubled: bool) {
            let mut latencies = latencies;
            if doubled {
                latencies.sort_unstable();
            }
            let time = autocorrelation_time(&latencies);
            prop_assert!(time >= 1.0 && time <= latencies.len().max(1) as f64, "{time}");
        }

        #[test]
        fn units_do_not_matter(seed in any::<u64>()) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let latencies: Vec<u64> = (0..200).map(|_| rng.random_range(0..1_000)).collect();
            let scaled: Vec<u64> = latencies.iter().map(|us| us * 37).collect();
            prop_assert_eq!(autocorrelation_time(&latencies), autocorrelation_time(&scaled));
        }
    }
}
