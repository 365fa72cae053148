//! The store of runs: a folder for each.
//!
//! - [`folder`]: the whole of it, written and read back; `run_json`: `run.json`; [`histograms`], `hdr_log`: `hdr/*.hdr`
//! - [`journal`]: the finished steps of a run under way; [`resume`]: a run that stopped, taken up again; [`preamble`]: what a run knows
//!   before its first step
//! - [`new_folder`], `tracked`: where a run may be written; `atomic`: files whole or not at all; [`time`]: times as results have them
//! - [`error`]: why a result could not be written or read

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
