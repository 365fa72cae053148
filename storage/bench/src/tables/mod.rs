//! What lies on tiers as one feature table, and what is done with it. In: a plan. Out: a folder of results.
//!
//! - `layouts/`: the table in several layouts, looked up and scanned
//! - `caching/`: caches over it
//! - `offline/`: all of it streamed through a model
//! - `plan`: what their plans share
//! - `run`, `ran`: what their runs share: tiers opened and cleared, the files; what is kept
//! - `sitting`: a tier with tables laid out on it, for as long as they are measured
//! - `page/`: what a run is shown as, once, and its three renderers
//! - `price_file`: what reading costs
//! - `intervals`: means over repeats

pub(crate) mod caching;
mod intervals;
pub(crate) mod layouts;
pub(crate) mod offline;
mod page;
mod plan;
mod price_file;
mod ran;
mod run;
mod sitting;
