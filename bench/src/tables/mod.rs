//! Experiments on a feature table stored on tiers. In: a plan. Out: a folder of results.
//!
//! - `layouts/`: the table in several layouts, looked up and scanned
//! - `caching/`: caches over the table
//! - `offline/`: the whole table streamed through a model
//! - `placements`: tables in memory, and laid out on the tiers

pub(crate) mod caching;
pub(crate) mod layouts;
pub(crate) mod offline;
mod placements;
