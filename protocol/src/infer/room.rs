//! Memory that is asked for before it is taken.
//!
//! In: a number of bytes. Out: yes or no. Readers and writers of bodies ask here for whatever grows with what a client sent or
//! asked for; who owns the room counts, says why there is none, and takes it back when all is done.

use std::cell::Cell;

/// Where memory is asked for.
pub trait Room {
    /// Asks for `bytes` more; `false` where they are not to be had. What was refused is not counted.
    fn take(&self, bytes: usize) -> bool;
}

/// Room without a bound: for what is trusted, or was bounded before.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoBound;

impl Room for NoBound {
    fn take(&self, _: usize) -> bool {
        true
    }
}

/// Room for one reader after another: what the first had, and gave up, is there for the next.
pub(super) struct Reused<'a> {
    room: &'a dyn Room,
    granted: Cell<usize>,
    used: Cell<usize>,
}

impl<'a> Reused<'a> {
    pub(super) fn of(room: &'a dyn Room) -> Self {
        Self {
            room,
            granted: Cell::new(0),
            used: Cell::new(0),
        }
    }

    /// The next one begins; what was read so far is freed.
    pub(super) fn again(&self) {
        self.used.set(0);
    }
}

impl Room for Reused<'_> {
    fn take(&self, bytes: usize) -> bool {
        let used = self.used.get().saturating_add(bytes);
        let missing = used.saturating_sub(self.granted.get());
        if missing > 0 && !self.room.take(missing) {
            return false;
        }
        self.granted.set(self.granted.get() + missing);
        self.used.set(used);
        true
    }
}

/// What a reader says when it was refused; the owner of the room knows more.
pub(crate) const NO_ROOM: &str = "there is no room for what it holds";
