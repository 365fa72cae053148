//! The messages of `inference.GRPCInferenceService`, generated from `protocol/proto/inference.proto` and
//! `protocol/proto/model_config.proto`.
#![allow(
    missing_docs,
    reason = "most fields have the names of the documents over HTTP, which say what they hold"
)]
#![allow(
    clippy::enum_variant_names,
    reason = "Triton's names of data types all begin with TYPE"
)]

pub use infer_parameter::ParameterChoice;
pub use log_value::ParameterChoice as LogChoice;
use std::collections::HashMap;

/// Parameters by name.
pub type Parameters = HashMap<String, InferParameter>;

include!(concat!(env!("OUT_DIR"), "/inference.rs"));
