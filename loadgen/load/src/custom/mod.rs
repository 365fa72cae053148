//! Requests and replies of any HTTP endpoint, for servers that do not speak the Open Inference Protocol.
//!
//! In: a method, a path, bodies (a template, rows of a file, recorded ones) and a rule for success. Out: prepared
//! bodies, and the check of a reply. Knows no connection and no schedule.
//!
//! - `spec`: the plan's specification, as plain data, with its rule for [`Success`]; `bodies`: the specification with its files read,
//!   and the bodies built from it, from templates with places
//! - `events`: server-sent events of a body; `stream`: the times of replies that stream

mod bodies;
mod events;
mod spec;
mod stream;

pub use bodies::Custom;
pub use spec::{BodySource, CustomSpec, Drawn, Entities, StreamKind, StreamSpec, Success};

pub(crate) use stream::Pieces;
