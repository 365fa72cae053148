//! Requests and replies of any HTTP endpoint, for servers that do not speak the Open Inference Protocol.
//!
//! In: a method, a path, bodies (a template, rows of a file, recorded ones) and a rule for success. Out: prepared
//! bodies, and the check of a reply. Knows no connection and no schedule.
//!
//! - `spec`: the plan's specification, as plain data; `template`: a body with places; `bodies`: the specification with
//!   its files read, and the bodies built from it; [`Success`]: the rule

mod bodies;
mod spec;
mod success;
mod template;

pub use bodies::Custom;
pub use spec::{BodySource, CustomSpec, Entities};
pub use success::Success;
