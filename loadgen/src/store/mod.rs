//! Store of runs, with a folder for each.
//!
//! - [`folder`]: place of a new run, and all of a run, written and read back; [`histograms`]: `hdr/*.hdr`
//! - [`journal`]: the finished steps of a run in progress; [`resume`]: resumption of a stopped run
//! - [`requests`]: every request of a step, in Parquet
//! - `files`: files written atomically, folders under version control; [`time`]: formats of times

pub(crate) mod files;
pub mod folder;
pub mod histograms;
pub mod journal;
pub mod requests;
pub mod resume;
pub mod time;
