//! The sessions of the models, each owned by a thread that takes batches from its model's queue.

pub(crate) mod device;
pub(crate) mod engine;
mod error;
pub(crate) mod layout;
pub(crate) mod open;
pub(crate) mod pinned;
#[cfg(test)]
mod tests;
pub(crate) mod warmup;
