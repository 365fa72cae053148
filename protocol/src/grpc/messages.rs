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

use serde::Serializer;

pub use infer_parameter::ParameterChoice;
pub use log_value::ParameterChoice as LogChoice;
use std::collections::HashMap;

/// Parameters by name.
pub type Parameters = HashMap<String, InferParameter>;

/// Writes the name of a data type.
fn type_name<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(DataType::try_from(*number).unwrap_or_default().as_str_name())
}

/// Writes the name of the device of an instance group.
fn kind_name<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let kind = model_instance_group::Kind::try_from(*number).unwrap_or_default();
    serializer.serialize_str(kind.as_str_name())
}

include!(concat!(env!("OUT_DIR"), "/inference.rs"));
