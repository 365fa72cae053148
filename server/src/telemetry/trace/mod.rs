//! Identity of a request: its id in the log, its front in the metrics, its span over OTLP.

pub(crate) mod context;
pub(crate) mod id;
pub(crate) mod observe;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "no_otlp.rs"]
pub(crate) mod otlp;
#[cfg(feature = "otlp")]
mod spans;
