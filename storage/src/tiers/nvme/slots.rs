//! Values under small numbers that are used again: what a completion's mark stands for.

use std::ops::{Index, IndexMut};

/// Values by slot.
#[derive(Debug)]
pub(super) struct Slots<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Puts a value into a free slot and tells which.
    pub(super) fn insert(&mut self, value: T) -> usize {
        if let Some(slot) = self.free.pop() {
            self.values[slot] = Some(value);
            return slot;
        }
        self.values.push(Some(value));
        self.values.len() - 1
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, slot: usize) -> Option<T> {
        let value = self.values.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    /// Takes every value out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        self.values.drain(..).flatten()
    }
}

impl<T> Index<usize> for Slots<T> {
    type Output = T;

    fn index(&self, slot: usize) -> &T {
        self.values[slot].as_ref().expect("the slot is taken")
    }
}

impl<T> IndexMut<usize> for Slots<T> {
    fn index_mut(&mut self, slot: usize) -> &mut T {
        self.values[slot].as_mut().expect("the slot is taken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let mut slots = Slots::default();
        let (a, b) = (slots.insert('a'), slots.insert('b'));
        assert_eq!((slots[a], slots[b]), ('a', 'b'));
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!(slots.remove(a), None);
        assert_eq!(slots.insert('c'), a);
        slots[a] = 'd';
        assert_eq!(slots.remove(a), Some('d'));
        assert_eq!(slots.drain().collect::<Vec<_>>(), ['b']);
    }
}
