//! A server as the commands see it: asked over its API ([`control`]), and read over `/metrics` ([`scrape`]), before and after a step
//! ([`delta`](mod@delta), [`gpu`]).

pub mod control;
pub mod delta;
pub mod gpu;
pub mod scrape;
