//! Limit on how often the same trouble is logged.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Maximum lines within a time window.
#[derive(Debug)]
pub(crate) struct LogBudget {
    lines: u32,
    window: Duration,
    spent: Mutex<Spent>,
}

#[derive(Debug)]
struct Spent {
    began: Option<Instant>,
    /// Lines in the current window.
    lines: u32,
    /// Lines left out since the last logged one.
    left_out: u64,
}

impl LogBudget {
    pub(crate) const fn new(lines: u32, window: Duration) -> Self {
        Self {
            lines,
            window,
            spent: Mutex::new(Spent {
                began: None,
                lines: 0,
                left_out: 0,
            }),
        }
    }

    /// Returns the number of lines left out before this one, if it may be logged now.
    pub(crate) fn spend(&self) -> Option<u64> {
        self.spend_at(Instant::now())
    }

    fn spend_at(&self, now: Instant) -> Option<u64> {
        let mut spent = self.spent.lock();
        let is_over = |began| now.saturating_duration_since(began) >= self.window;
        if spent.began.is_none_or(is_over) {
            spent.began = Some(now);
            spent.lines = 0;
        }
        if spent.lines >= self.lines {
            spent.left_out += 1;
            return None;
        }
        spent.lines += 1;
        Some(std::mem::take(&mut spent.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_in_a_window_and_those_left_out_are_counted() {
        let window = Duration::from_secs(1);
        let budget = LogBudget::new(50, window);
        let now = Instant::now();
        let lines = (0..57).filter(|_| budget.spend_at(now).is_some()).count();
        assert_eq!(lines, 50);
        assert_eq!(budget.spend_at(now + window), Some(7));
        assert_eq!(budget.spend_at(now + window), Some(0));
    }
}
