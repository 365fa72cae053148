//! Server as the commands use it: queried over its API ([`control`], [`metadata`]), and read before and after a step
//! over `/metrics` of each replica ([`scrape`]) or its statistics ([`delta::Statistics`]). These give a [`delta::Reading`], and two
//! readings the counters of the step.

pub mod control;
pub mod delta;
pub mod metadata;
pub mod scrape;
