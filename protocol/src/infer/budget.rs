//! Memory that is reserved before it is allocated.
//!
//! In: a number of bytes. Out: yes or no. Readers and writers of bodies reserve whatever grows with what a client sent or
//! asked for. The owner of the budget counts, says why it is spent, and takes everything back at the end.

use std::cell::Cell;

/// Account that memory is reserved from.
pub trait MemoryBudget {
    /// Reserves `bytes` more; false where the budget does not have them. What was refused is not counted.
    fn take(&self, bytes: usize) -> bool;
}

/// A budget without a limit: for input that is trusted or was limited before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl MemoryBudget for Unlimited {
    fn take(&self, _: usize) -> bool {
        true
    }
}

/// A budget for one reader after another: what the first reserved and freed, the next can use.
pub(super) struct ReusedBudget<'a> {
    budget: &'a dyn MemoryBudget,
    granted: Cell<usize>,
    used: Cell<usize>,
}

impl<'a> ReusedBudget<'a> {
    pub(super) fn of(budget: &'a dyn MemoryBudget) -> Self {
        Self {
            budget,
            granted: Cell::new(0),
            used: Cell::new(0),
        }
    }

    /// The next reader begins; everything read so far is freed.
    pub(super) fn again(&self) {
        self.used.set(0);
    }
}

impl MemoryBudget for ReusedBudget<'_> {
    fn take(&self, bytes: usize) -> bool {
        let used = self.used.get().saturating_add(bytes);
        let missing = used.saturating_sub(self.granted.get());
        if missing > 0 && !self.budget.take(missing) {
            return false;
        }
        self.granted.set(self.granted.get() + missing);
        self.used.set(used);
        true
    }
}

/// Error of a reader without memory. The owner of the budget has the details.
pub(crate) const OVER_BUDGET: &str = "there is no room for what it holds";
