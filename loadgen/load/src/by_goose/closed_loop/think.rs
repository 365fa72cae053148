//! Think times: pauses of a closed loop's user between a reply and its next request. In: a distribution and a seed.
//! Out: a table of pauses, drawn before the step. Knows nothing of users.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use std::fmt;

const THINK_STREAM: u64 = 3;
/// Pauses of a step; users take them in turn, repeatedly.
pub(super) const DRAWN: usize = 8_192;

/// Distribution of the think times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Think {
    /// Constant; 0 is no pause.
    Fixed(f64),
    /// Uniform between two limits.
    Uniform {
        /// Shortest pause.
        least_ms: f64,
        /// Longest pause.
        most_ms: f64,
    },
    /// Exponential, as for independent people.
    Exponential {
        /// Mean pause.
        mean_ms: f64,
    },
}

impl Think {
    /// Draws pauses in microseconds; the same seed gives the same pauses.
    #[must_use]
    pub fn draw(&self, seed: u64) -> Vec<u64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(THINK_STREAM);
        let us = |ms: f64| (ms * 1e3).round() as u64;
        (0..DRAWN)
            .map(|_| match *self {
                Self::Fixed(ms) => us(ms),
                Self::Uniform { least_ms, most_ms } => us(least_ms + (most_ms - least_ms) * rng.random_range(0.0..1.0)),
                Self::Exponential { mean_ms } => {
                    let drawn: f64 = Exp1.sample(&mut rng);
                    us(mean_ms * drawn)
                }
            })
            .collect()
    }
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(ms) => write!(f, "{ms} ms"),
            Self::Uniform { least_ms, most_ms } => write!(f, "{least_ms} to {most_ms} ms"),
            Self::Exponential { mean_ms } => write!(f, "exponential of mean {mean_ms} ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_ms(think: Think) -> f64 {
        let drawn = think.draw(7);
        drawn.iter().sum::<u64>() as f64 / drawn.len() as f64 / 1e3
    }

    #[test]
    fn pauses_have_their_laws_mean_and_their_seeds_order() {
        assert_eq!(Think::Fixed(1.5).draw(1), [1_500; DRAWN]);
        let uniform = Think::Uniform {
            least_ms: 10.0,
            most_ms: 30.0,
        };
        assert!(uniform.draw(3).iter().all(|us| (10_000..=30_000).contains(us)));
        // Four standard errors: 5.8 ms and 50 ms over the root of the number of draws.
        assert!((mean_ms(uniform) - 20.0).abs() < 0.26, "{}", mean_ms(uniform));
        let exponential = Think::Exponential { mean_ms: 50.0 };
        assert!((mean_ms(exponential) - 50.0).abs() < 2.3, "{}", mean_ms(exponential));
        assert_eq!(exponential.draw(4), exponential.draw(4));
        assert_ne!(exponential.draw(4), exponential.draw(5));
    }
}
