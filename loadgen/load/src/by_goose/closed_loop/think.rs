//! Think times: how long a closed loop's user pauses between a reply and its next request. In: a law and a seed. Out: a table of
//! pauses, made before the step. Knows nothing of users.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use std::fmt;

const THINK_STREAM: u64 = 3;
/// Pauses of a step; users take them in turn, over and over.
pub(super) const DRAWN: usize = 8_192;

/// The law of the think times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Think {
    /// Always the same; 0 is none.
    Fixed(f64),
    /// Any between two, alike.
    Uniform {
        /// The shortest.
        least_ms: f64,
        /// The longest.
        most_ms: f64,
    },
    /// Exponential, as people who do not know of each other.
    Exponential {
        /// Its mean.
        mean_ms: f64,
    },
}

impl Think {
    /// Pauses in microseconds; the same seed gives the same.
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
        // Four standard errors: 5.8 ms and 50 ms over the root of the number drawn.
        assert!((mean_ms(uniform) - 20.0).abs() < 0.26, "{}", mean_ms(uniform));
        let exponential = Think::Exponential { mean_ms: 50.0 };
        assert!((mean_ms(exponential) - 50.0).abs() < 2.3, "{}", mean_ms(exponential));
        assert_eq!(exponential.draw(4), exponential.draw(4));
        assert_ne!(exponential.draw(4), exponential.draw(5));
    }
}
