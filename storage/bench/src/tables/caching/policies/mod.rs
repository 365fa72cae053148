//! Hits of caches of any size, computed from a trace. In: keys in the order of access. Out: hits. Pure: no tier, no
//! clock, no random number. Every key takes one entry, and a cache begins empty.

mod lru;
mod min;
#[cfg(test)]
mod tests;

pub(super) use lru::StackDistances;
pub(super) use min::min_hits;
