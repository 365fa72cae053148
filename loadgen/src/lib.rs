//! The commands of the load generator: a plan becomes steps, steps become a run in its folder. Load is made by `tierlab-load`,
//! percentiles and verdicts by `tierlab-analysis`, what people read by `tierlab-report`.
//!
//! - [`cli`]: the command line; [`commands`]: sweep, lab, report and compare, selfcheck, trace, prices; [`error`]: why one
//!   ended without its result
//! - [`plan`]: TOML to a validated plan; [`inputs`]: the files that requests are made of
//! - [`runner`]: the steps of a run in order, interleaved over tiers
//! - [`store`]: runs in their folders, written as they go on, read back, resumed
//! - [`server`]: a server asked and read; [`environment`]: where a run is made
//! - [`selfcheck`]: the instrument measured by itself
//! - [`children`], [`progress`]: child processes and the terminal; what else the machine did during
//!   a step is watched by `tierlab-instrument`

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
