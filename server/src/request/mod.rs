//! Request in progress: counting, timing and refusals of every stage. Below telemetry, the queue and the models.

mod admission;
mod offload;
mod parts;
mod refusal;
mod stopwatch;

pub(crate) use admission::{Account, AccountRoom, Admission, CountedBytes, Limits, ModelShare, Writing};
pub(crate) use offload::{LARGE_BYTES, offload_if, offload_large};
pub(crate) use parts::{DeviceRows, Elements, Part, rows_of};
pub(crate) use refusal::{Reason, Refusal};
pub(crate) use stopwatch::Stopwatch;
