//! Random choices, the same for the same seed: numbers, blocks by Zipf's law, and which bytes a call is about.

mod picker;
mod random;
mod zipf;

pub(crate) use picker::{Pick, Picker};
pub(crate) use random::Random;
pub(crate) use zipf::Zipf;
