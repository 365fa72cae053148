//! Commands of the load generator: a plan becomes steps, steps become a run in its folder. `tierlab-load` sends the
//! load, `tierlab-analysis` computes percentiles and verdicts, `tierlab-report` writes reports.
//!
//! - [`cli`]: the command line; [`commands`]: sweep, lab, report, compare, advise, selfcheck; [`error`]: errors of
//!   commands
//! - [`plan`]: TOML to a validated plan; [`inputs`]: files with the contents of requests
//! - [`runner`]: the steps of a run in order, interleaved over tiers
//! - [`store`]: runs in their folders, written step by step, read back, resumed
//! - [`server`]: requests to a server outside steps; [`environment`]: machine and build of a run
//! - [`selfcheck`]: the instrument measured by itself
//! - [`children`], [`progress`]: child processes and the terminal; `tierlab-instrument` watches other activity of the
//!   machine during a step

pub mod children;
pub mod cli;
pub mod commands;
pub mod environment;
pub mod error;
pub mod inputs;
pub mod plan;
pub mod progress;
pub mod runner;
pub mod selfcheck;
pub mod server;
pub mod store;
