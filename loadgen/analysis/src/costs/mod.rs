//! What a point costs.
//!
//! - [`mod@cost`]: dollars per 10,000 inferences and their parts; [`mod@mix_shares`]: who of a mix pays for what
//! - [`mod@monthly`]: a month at a demand; [`mod@over_demand`], [`mod@over_size`]: over demands, over sizes of the table; [`mod@turns`]: where another is cheaper
//! - [`economics`]: the same on several instances, and of tiers over a cache's hit ratio

pub mod cost;
pub mod economics;
pub mod mix_shares;
pub mod monthly;
pub mod over_demand;
pub mod over_size;
pub mod turns;
