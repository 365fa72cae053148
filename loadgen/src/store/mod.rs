//! Store of runs, with a folder for each.
//!
//! - [`folder`]: all of it, written and read back; [`histograms`]: `hdr/*.hdr`
//! - [`journal`]: the finished steps of a run in progress; [`resume`]: resumption of a stopped run
//! - [`new_folder`], `tracked`: places for new runs; `atomic`: files written atomically; [`time`]: formats of times
//! - [`error`]: errors of reading and writing results

pub(crate) mod atomic;
pub mod error;
pub mod folder;
pub mod histograms;
pub mod journal;
pub mod new_folder;
pub mod resume;
pub mod time;
pub(crate) mod tracked;
