//! Whether a point may be believed.
//!
//! - [`littles_law`]: requests in flight, counted and by the law; [`stationarity`]: whether the latency stayed what it was
//! - [`verdict`]: the rules, and what they say together

pub mod littles_law;
pub mod stationarity;
pub mod verdict;
