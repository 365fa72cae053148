//! What caches of any size would have hit, computed of a trace. In: keys in the order in which they were asked for. Out: hits. Pure: no tier,
//! no clock, no random number. Every key takes one entry, and a cache begins empty.

mod lru;
mod min;
#[cfg(test)]
mod tests;

pub(super) use lru::StackDistances;
pub(super) use min::min_hits;
