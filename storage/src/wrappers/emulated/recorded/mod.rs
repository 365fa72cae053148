//! Tiers that were measured once and are replayed elsewhere. In: a profile's file. Out: the law that latencies are drawn by,
//! and where it comes from.

mod check;
mod law;
mod profile;

pub(super) use law::Law;
pub use profile::{
    Recorded, RecordedEnvironment, RecordedLimits, RecordedOrigin, RecordedPoint, RecordedRound, SCHEMA,
};
