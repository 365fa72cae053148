//! Memory that is reserved before it is allocated.
//!
//! In: a number of bytes. Out: yes or no. Readers and writers of bodies reserve whatever grows with what a client sent or
//! asked for. The owner of the budget counts, says why it is spent, and takes everything back at the end.

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

/// Error of a reader without memory. The owner of the budget has the details.
pub(crate) const OVER_BUDGET: &str = "there is no room for what it holds";
