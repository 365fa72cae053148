//! Costs of points and variants.
//!
//! - [`mod@cost`]: dollars per 10,000 inferences and their parts; [`mod@mix_shares`]: shares of a mix's parts
//! - [`mod@monthly`]: a month at a demand; [`mod@over_demand`]: over demands;
//!   [`mod@turns`]: demands and sizes at which another variant is cheaper
//! - [`economics`]: costs on several instances, and of tiers over a cache's hit ratio

pub mod cost;
pub mod economics;
pub mod mix_shares;
pub mod monthly;
pub mod over_demand;
pub mod turns;
