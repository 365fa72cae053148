//! What lies on tiers as one feature table, and what is done with it. In: a plan. Out: a folder of results.
//!
//! - `layouts/`: the table in several layouts, looked up and scanned
//! - `caching/`: caches over it
//! - `offline/`: all of it streamed through a model
//! - `price_file`: what reading costs
//! - `sitting`: a tier with tables laid out on it, for as long as they are measured

pub(crate) mod caching;
pub(crate) mod layouts;
pub(crate) mod offline;
mod price_file;
mod sitting;
