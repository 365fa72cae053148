//! What reads cost a tier without anybody there to be told: they failed, or their caller went away. In: costs. Out: their
//! sum, once. Whoever pays for a tier pays for these as well.

use crate::tier::ReadCost;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Costs that no read has reported.
#[derive(Debug, Default)]
pub(crate) struct Unclaimed {
    any: AtomicBool,
    cost: Mutex<ReadCost>,
}

impl Unclaimed {
    pub(crate) fn add(&self, cost: &ReadCost) {
        self.cost.lock().unwrap_or_else(PoisonError::into_inner).merge(cost);
        self.any.store(true, Ordering::Release);
    }

    /// What has come together since this was last called.
    pub(crate) fn take(&self) -> Option<ReadCost> {
        if !self.any.load(Ordering::Relaxed) || !self.any.swap(false, Ordering::Acquire) {
            return None;
        }
        let mut cost = self.cost.lock().unwrap_or_else(PoisonError::into_inner);
        Some(std::mem::take(&mut *cost))
    }
}

/// The cost of a read under way. Dropped before it is settled, it goes to [`Unclaimed`].
#[derive(Debug)]
pub(crate) struct Bill<'a> {
    unclaimed: &'a Unclaimed,
    cost: ReadCost,
}

impl<'a> Bill<'a> {
    pub(crate) fn open(unclaimed: &'a Unclaimed) -> Self {
        Self {
            unclaimed,
            cost: ReadCost::default(),
        }
    }

    pub(crate) fn add(&mut self, cost: &ReadCost) {
        self.cost.merge(cost);
    }

    /// The sum, for the one who asked.
    pub(crate) fn settle(mut self) -> ReadCost {
        std::mem::take(&mut self.cost)
    }
}

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        if self.cost.requests > 0 {
            self.unclaimed.add(&self.cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_settled_is_told_once() {
        let unclaimed = Unclaimed::default();
        let two = ReadCost {
            requests: 2,
            ..ReadCost::default()
        };
        let mut bill = Bill::open(&unclaimed);
        bill.add(&two);
        assert_eq!(bill.settle().requests, 2);
        assert_eq!(unclaimed.take(), None);
        for _ in 0..2 {
            Bill::open(&unclaimed).add(&two);
        }
        assert_eq!(unclaimed.take().map(|cost| cost.requests), Some(4));
        assert_eq!(unclaimed.take(), None);
    }
}
