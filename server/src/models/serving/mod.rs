//! Served model: what it accepts, the path to a session, and the documents that describe it.
//!
//! In: decoded requests, which become the parts of a job here; every refusal names the input. Out: answers.

pub(crate) mod accept;
mod classify;
mod config_document;
pub(crate) mod model;
pub(crate) mod submit;
