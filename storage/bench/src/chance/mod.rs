//! Random choices, the same for the same seed.

mod random;
mod zipf;

pub(crate) use random::Random;
pub(crate) use zipf::Zipf;
