//! Whether a point may be believed.
//!
//! - [`littles_law`]: requests in flight, counted and by the law; [`stationarity`]: whether the latency stayed what it was
//! - [`closed_loop`]: the same of users who wait for their replies
//! - [`disturbance`]: which repeats count where something foreign disturbed some of them
//! - [`evidence`]: what the rules look at; `rules`: each of them; `growth`: replies that fall behind; [`verdict`]: what they say together

pub mod closed_loop;
pub mod disturbance;
pub mod evidence;
mod growth;
pub mod littles_law;
mod rules;
pub mod stationarity;
pub mod verdict;
