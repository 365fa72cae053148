//! Shuffle buffer. In: rows in the order of reading. Out: the same rows, each once, drawn at random from the buffer.
//! Pure.

use crate::chance::Random;

/// Rows in the buffer.
pub(super) struct Shuffle<T> {
    held: Vec<T>,
    most: usize,
    random: Random,
}

impl<T> Shuffle<T> {
    /// Creates a buffer of `most` rows; with 0, rows leave in order.
    pub(super) const fn new(most: usize, seed: u64) -> Self {
        Self {
            held: Vec::new(),
            most,
            random: Random::new(seed, 0x5f1e),
        }
    }

    /// Adds a row, and returns one if the buffer is full.
    pub(super) fn push(&mut self, row: T) -> Option<T> {
        if self.held.len() < self.most {
            self.held.push(row);
            return None;
        }
        if self.most == 0 {
            return Some(row);
        }
        let at = (self.random.share() * self.most as f64) as usize;
        Some(std::mem::replace(&mut self.held[at], row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_row_is_lost_or_made_twice(rows in 0_usize..500, most in 0_usize..64, seed: u64) {
            let mut shuffle = Shuffle::new(most, seed);
            let mut out: Vec<usize> = (0..rows).filter_map(|row| shuffle.push(row)).collect();
            prop_assert_eq!(out.len(), rows.saturating_sub(most));
            if most == 0 {
                prop_assert!(out.is_sorted());
            }
            out.extend(&shuffle.held);
            out.sort_unstable();
            prop_assert_eq!(out, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_leave_far_from_where_they_came() {
        let mut shuffle = Shuffle::new(1000, 7);
        let out: Vec<usize> = (0..10_000).filter_map(|row| shuffle.push(row)).collect();
        let apart: f64 = out.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>() / out.len() as f64;
        // Two rows drawn from a thousand, with exponential waits: about a thousand apart.
        assert!((500.0..2000.0).contains(&apart), "{apart}");
    }
}
