//! One request on its way: what every stage counts, times and refuses it with. Below telemetry, the queue and the models.

pub(crate) mod admission;
pub(crate) mod offload;
pub(crate) mod parts;
pub(crate) mod refusal;
pub(crate) mod stopwatch;
