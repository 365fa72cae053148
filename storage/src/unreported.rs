//! Costs of reads that report none because they failed or were cancelled. In: costs. Out: their sum, once.

use crate::ReadCost;
use parking_lot::Mutex;

/// Costs that no read has reported.
#[derive(Debug, Default)]
pub(crate) struct UnreportedCost(Mutex<Option<ReadCost>>);

impl UnreportedCost {
    pub(crate) fn add(&self, cost: &ReadCost) {
        self.0.lock().get_or_insert_default().merge(cost);
    }

    /// Takes the costs added since the last call.
    pub(crate) fn take(&self) -> Option<ReadCost> {
        self.0.lock().take()
    }
}

/// Cost of a read in progress. If dropped before it is reported, it is added to [`UnreportedCost`].
#[derive(Debug)]
pub(crate) struct PendingCost<'a> {
    unreported: &'a UnreportedCost,
    cost: ReadCost,
}

impl<'a> PendingCost<'a> {
    pub(crate) fn new(unreported: &'a UnreportedCost) -> Self {
        Self {
            unreported,
            cost: ReadCost::default(),
        }
    }

    pub(crate) fn add(&mut self, cost: &ReadCost) {
        self.cost.merge(cost);
    }

    /// Reports the sum to the caller.
    pub(crate) fn report(mut self) -> ReadCost {
        std::mem::take(&mut self.cost)
    }
}

impl Drop for PendingCost<'_> {
    fn drop(&mut self) {
        if self.cost.requests > 0 {
            self.unreported.add(&self.cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_reported_is_told_once() {
        let unreported = UnreportedCost::default();
        let two = ReadCost {
            requests: 2,
            ..ReadCost::default()
        };
        let mut pending = PendingCost::new(&unreported);
        pending.add(&two);
        assert_eq!(pending.report().requests, 2);
        assert_eq!(unreported.take(), None);
        for _ in 0..2 {
            PendingCost::new(&unreported).add(&two);
        }
        assert_eq!(unreported.take().map(|cost| cost.requests), Some(4));
        assert_eq!(unreported.take(), None);
    }
}
