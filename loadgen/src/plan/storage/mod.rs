//! What a lab's features lie on: tiers, the origins behind them, and the states of the cache above them. Plain data, which
//! [`super::lab`] and the variants check.

mod cache_state;
mod fleet;
mod origin;
mod tier;

pub use cache_state::CacheState;
pub(super) use fleet::RawFleet;
pub use origin::Origin;
pub use tier::TierPlan;
