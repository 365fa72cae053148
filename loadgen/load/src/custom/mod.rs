//! Requests and replies of any HTTP endpoint, for servers that do not speak the Open Inference Protocol.
//!
//! In: a method, a path, bodies (a template, rows of a file, recorded ones) and a rule for success. Out: ready bodies, and whether a
//! reply is a success. Knows no connection and no schedule.
//!
//! - `spec`: what a plan says, as plain data; `template`: a body with places in it; `bodies`: the same, read, and made to bodies;
//!   [`Success`]: the rule

mod bodies;
mod spec;
mod success;
mod template;

pub use bodies::Custom;
pub use spec::{BodySource, CustomSpec, Entities};
pub use success::Success;
pub use template::{ENTITY_ID, ENTITY_IDS, Template};
