//! Runs: their steps in order, their searches and their mixes.
//!
//! - [`target`]: what is measured; [`mod@check_reply`]: one reply looked at in every part before that
//! - `step`, `ledger`: a run under way and one step of it; `disturbed`, `lost`: what was disturbed or lost an agent, and is made again; `run`: the order of the steps; `mixed`, `search`: mixes, and the highest
//!   rate under an objective, carried out; `closed_loops`, `journeys`, `journey_requests`: the same of closed loops and journeys
//! - `send`: the requests of a step, sent by this process or several; [`load_process`]: one of the several,
//!   which may be on another host; [`recorder`]: samples to one
//!   repeat of a point; `naming`: steps by name

pub mod check_reply;
mod closed_loops;
mod decide;
mod disturbed;
mod journey_requests;
mod journeys;
mod ledger;
pub mod load_process;
mod lost;
mod mixed;
mod naming;
pub mod recorder;
mod run;
mod search;
mod send;
mod step;
pub mod target;

pub(crate) use decide::asked;
pub use naming::factors;
pub use send::{Measured, Requests, Senders, measure};
pub use step::{Prepare, Runner};
