//! Runs: their steps in order, their searches and their mixes.
//!
//! - [`target`]: the measured target; [`mod@check_reply`]: a full check of one reply before the measurement
//! - `run`: the order of the steps; `ledger`: steps as data, planned and finished; `step`: one step, repeated after a disturbance;
//!   `search`, `decide`: rates chosen as the run goes on
//! - `loops_and_mixes` (closed loops, mixes), `journeys`: those that are not open loops of one load
//! - `requests`: the requests of a step; `send`: a step sent by this process or several, and again after the loss of an agent;
//!   [`load_process`]: one of several, possibly on another host; [`recorder`]: a repeat of a point from samples; `naming`: names of steps

pub mod check_reply;
mod decide;
mod journeys;
mod ledger;
pub mod load_process;
mod loops_and_mixes;
mod naming;
pub mod recorder;
mod requests;
mod run;
mod search;
mod send;
mod step;
pub mod target;

pub use naming::factors;
pub use requests::Requests;
pub use run::{Instrument, new_run};
pub use search::check_met_rate;
pub use send::{Senders, measure};
pub use step::Runner;

pub(crate) use decide::question_load;
