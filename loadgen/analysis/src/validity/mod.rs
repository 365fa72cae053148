//! Validity of a point.
//!
//! - [`littles_law`]: requests in flight, counted and by the law; [`stationarity`]: constancy of the latency
//! - [`closed_loop`]: the interactive response time law, for users who wait for their replies
//! - [`disturbance`]: repeats that count if some of them were disturbed
//! - [`evidence`]: inputs of the rules; `rules`: each of them; `growth`: replies that fall behind; [`verdict`]: their
//!   combination

pub mod closed_loop;
pub mod disturbance;
pub mod evidence;
mod growth;
pub mod littles_law;
mod rules;
pub mod stationarity;
pub mod verdict;
