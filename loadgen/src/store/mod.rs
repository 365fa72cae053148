//! Store of runs, with a folder for each.
//!
//! - [`folder`]: all of it, written and read back; `run_json`: `run.json`; [`histograms`], `hdr_log`: `hdr/*.hdr`
//! - [`journal`]: the finished steps of a run in progress; [`resume`]: resumption of a stopped run; [`preamble`]: data
//!   known before the first step
//! - [`new_folder`], `tracked`: places for new runs; `atomic`: files written atomically; [`time`]: formats of times
//! - [`error`]: errors of reading and writing results

pub(crate) mod atomic;
pub mod error;
pub mod folder;
mod hdr_log;
pub mod histograms;
pub mod journal;
pub mod new_folder;
pub mod preamble;
pub mod resume;
mod run_json;
pub mod time;
pub(crate) mod tracked;
