//! Runs: their steps in order, their searches and their mixes.
//!
//! - [`target`]: the measured target; [`mod@check_reply`]: a full check of one reply before the measurement
//! - `step`, `ledger`: a run in progress and one step of it, repeated after a disturbance; `lost`: steps that are repeated
//!   after the loss of an agent; `run`: the order of the steps; `mixed`, `search`: mixes, and the search for
//!   the highest rate under an objective; `closed_loops`, `journeys`, `journey_requests`: closed loops and journeys
//! - `send`: the requests of a step, sent by this process or several; [`load_process`]: one of several, possibly on
//!   another host; [`recorder`]: a repeat of a point from samples; `naming`: names of steps

pub mod check_reply;
mod closed_loops;
mod decide;
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
pub use run::new_run;
pub use send::{Measured, Requests, Senders, measure};
pub use step::{Prepare, Runner};
