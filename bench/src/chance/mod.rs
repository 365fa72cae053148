//! Seeded random choices: numbers, blocks by Zipf's law, and the bytes of each access.

mod picker;
mod random;
mod zipf;

pub(crate) use picker::{Pick, Picker};
pub(crate) use random::Random;
pub(crate) use zipf::Zipf;
