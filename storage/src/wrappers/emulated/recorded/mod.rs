//! Replay of tiers that were measured elsewhere. In: a profile's file. Out: the law that latencies are drawn by, and
//! the origin of the profile.

mod check;
mod law;
mod profile;

pub(super) use law::Law;
pub use profile::{
    Recorded, RecordedEnvironment, RecordedLimits, RecordedOrigin, RecordedPoint, RecordedRound, SCHEMA,
};
