//! Requests and replies of any HTTP endpoint, for servers that do not speak the Open Inference Protocol.
//!
//! In: a method, a path, bodies (a template, rows of a file, recorded ones) and a rule for success. Out: prepared
//! bodies, and the check of a reply. Knows no connection and no schedule.
//!
//! - `spec`: the plan's specification, as plain data; `bodies`: the specification with its files read,
//!   and the bodies built from it, from templates with placeholders
//! - `replies`: the rule for [`Success`], and the events of replies that stream, with their times

mod bodies;
mod replies;
mod spec;

pub use bodies::Custom;
pub use replies::{StreamKind, StreamSpec, Success};
pub use spec::{BodySource, CustomSpec, Drawn, EntityRange};

pub(crate) use replies::Pieces;
