//! A server as the commands see it: asked over its API ([`control`], [`metadata`]), and read before and after a step over `/metrics` of each
//! replica ([`scrape`]) or its statistics ([`statistics`]), which make a [`reading`], and two of them what it counted
//! ([`delta`](mod@delta), [`gpu`]).

mod asked;
pub mod control;
pub mod delta;
pub mod gpu;
pub mod metadata;
pub mod reading;
pub mod scrape;
pub mod statistics;
