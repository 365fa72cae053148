//! Triton's `config.pbtxt` of an ONNX model, as far as it maps onto a [`ModelConfig`].
//!
//! In: the text, and the name of the model's folder. Out: the config, or every key that does not map, with its place:
//! a model is served as its file says or not at all. Fields: Triton's `model_config.proto`. What a file leaves out means
//! what it means to Triton, with two exceptions. Without `max_batch_size` nothing is batched, as protobuf has it; Triton as
//! it runs by default completes a file that does not list both inputs and outputs with 4 where the graph's first dimensions
//! are free, which says nothing of whether rows are independent. And where there are batches, they may always be formed of
//! whatever is queued at the same moment.

mod instances;
mod tensors;
mod warmup;

use super::fields::{Once, Read, read_enum, read_false, read_unsigned, short};
use super::parse;
use super::refusals::Refusals;
use super::tree::{Field, Message, PbtxtError, Value};
use crate::model::{BadModelFile, ModelConfig};
use instances::{instances, parameter};
use tensors::tensor;
use tierlab_protocol::metadata::VersionPolicy;
use warmup::warmup;

/// The platform of ONNX models.
const PLATFORM: &str = "onnxruntime_onnx";
/// The backend of ONNX models.
const BACKEND: &str = "onnxruntime";
/// Parts of a [`ModelConfig`], and the fields that fill them.
const PARTS: [(&str, &str); 6] = [
    ("batching", "dynamic_batching"),
    ("instances", "instance_group"),
    ("warmup", "model_warmup"),
    ("version_policy", "version_policy"),
    ("inputs", "input"),
    ("outputs", "output"),
];

/// Reads the `config.pbtxt` of the model in the folder `model`.
///
/// # Errors
/// The first thing that is no text format, or everything that does not map, each with line, column and key.
pub fn model_config(text: &str, model: &str) -> Result<ModelConfig, BadModelFile> {
    let message = parse(text).map_err(|error| BadModelFile(error.to_string()))?;
    let mut refusals = Refusals::default();
    let config = config(&message, model, &mut refusals);
    for (part, what) in config.problems() {
        let field = PARTS
            .iter()
            .find(|(key, _)| *key == part)
            .map_or(part, |(_, field)| field);
        // A value that was refused above leaves a default behind, of which nothing can be said.
        if refusals.concern(field) || refusals.concern("max_batch_size") {
            continue;
        }
        let Some(at) = message.fields.iter().find(|candidate| candidate.name == field) else {
            return Err(what);
        };
        refusals.note::<()>(Err(at.refuse(what.0)));
    }
    match refusals.told() {
        Some(told) => Err(BadModelFile(told)),
        None => Ok(config),
    }
}

fn config(message: &Message, model: &str, refusals: &mut Refusals) -> ModelConfig {
    let mut config = ModelConfig::default();
    // Triton forms no batches unless it is told to, and waits for none unless it is told how long.
    config.batching.max_delay_us = 0;
    let mut once = Once::default();
    let (mut max_batch_size, mut batching) = (None, None);
    let mut groups = Vec::new();
    for field in &message.fields {
        match field.name.as_str() {
            "input" => config.inputs.extend(tensor(field, refusals)),
            "output" => config.outputs.extend(tensor(field, refusals)),
            "instance_group" => groups.push(field),
            "model_warmup" => config.warmup.extend(warmup(field, refusals)),
            "parameters" => {
                refusals.note(parameter(field, &mut config));
            }
            "max_batch_size" => {
                refusals.note(once.see(field));
                max_batch_size = Some(refusals.note(read_unsigned(field)).unwrap_or(0));
            }
            "dynamic_batching" => {
                refusals.note(once.see(field));
                batching = Some(field);
                dynamic_batching(field, &mut config, refusals);
            }
            _ => {
                refusals.note(once.see(field));
                single(field, model, &mut config, refusals);
            }
        }
    }
    instances(&groups, &mut config, refusals);
    match (max_batch_size, batching) {
        (None, Some(batching)) => {
            let missing = "`max_batch_size` is missing: the most rows of a run";
            refusals.note::<()>(Err(batching.refuse(missing)));
        }
        // Without batches no request waits for others.
        (Some(0), _) => config.batching.max_delay_us = 0,
        _ => {}
    }
    config.max_batch_size = max_batch_size.unwrap_or(0);
    config
}

/// A field that is given once at most.
fn single(field: &Field, model: &str, config: &mut ModelConfig, refusals: &mut Refusals) {
    let only = |wanted: &str| match field.text()? {
        text if text == wanted || text.is_empty() => Ok(()),
        other => Err(field.refuse(format!("`{}` is not served here, only `{wanted}`", short(other)))),
    };
    let read = match field.name.as_str() {
        "name" => match field.text() {
            Ok(name) if name == model || name.is_empty() => Ok(()),
            Ok(name) => Err(field.refuse(format!("`{}` is not the name of its folder, `{model}`", short(name)))),
            Err(error) => Err(error),
        },
        "platform" => only(PLATFORM),
        "backend" => only(BACKEND),
        "default_model_filename" => only(crate::model::MODEL_FILE),
        "version_policy" => version_policy(field).map(|policy| config.version_policy = policy),
        "optimization" => {
            optimization(field, refusals);
            Ok(())
        }
        "model_transaction_policy" => all_false(field, "decoupled"),
        "response_cache" => all_false(field, "enable"),
        "sequence_batching" | "ensemble_scheduling" => {
            Err(field.refuse("this scheduler is not offered here, only `dynamic_batching`"))
        }
        _ => Err(field.unknown()),
    };
    refusals.note(read);
}

/// A message whose one field is left off.
fn all_false(field: &Field, name: &str) -> Result<(), PbtxtError> {
    for inner in &field.message()?.fields {
        if inner.name != name {
            return Err(inner.unknown());
        }
        read_false(inner)?;
    }
    Ok(())
}

fn version_policy(field: &Field) -> Result<VersionPolicy, PbtxtError> {
    let choice = match field.message()?.fields.as_slice() {
        [] => return Ok(VersionPolicy::default()),
        [choice] => choice,
        [_, second, ..] => return Err(second.refuse("one of `latest`, `all` and `specific` is expected, not two")),
    };
    let inner = &choice.message()?.fields;
    match choice.name.as_str() {
        "latest" => {
            let mut num_versions = 1;
            let mut once = Once::default();
            for field in inner {
                once.see(field)?;
                match field.name.as_str() {
                    "num_versions" => num_versions = read_unsigned(field)?,
                    _ => return Err(field.unknown()),
                }
            }
            if num_versions == 0 {
                return Err(choice.refuse("`num_versions` must be at least 1"));
            }
            Ok(VersionPolicy::Latest { num_versions })
        }
        "all" => match inner.first() {
            None => Ok(VersionPolicy::All {}),
            Some(field) => Err(field.unknown()),
        },
        "specific" => {
            let mut versions = Vec::new();
            for field in inner {
                match field.name.as_str() {
                    "versions" => versions.push(read_unsigned(field)?),
                    _ => return Err(field.unknown()),
                }
            }
            if versions.is_empty() || versions.contains(&0) {
                return Err(choice.refuse("`versions` must name at least one version, each at least 1"));
            }
            Ok(VersionPolicy::Specific { versions })
        }
        _ => Err(choice.unknown()),
    }
}

fn dynamic_batching(field: &Field, config: &mut ModelConfig, refusals: &mut Refusals) {
    let mut once = Once::default();
    let Some(message) = refusals.note(field.message()) else {
        return;
    };
    let batching = &mut config.batching;
    for field in &message.fields {
        if field.name == "preferred_batch_size" {
            batching
                .preferred_rows
                .extend(refusals.note(read_unsigned::<u32>(field)));
            continue;
        }
        refusals.note(once.see(field));
        let read = match field.name.as_str() {
            "max_queue_delay_microseconds" => read_unsigned(field).map(|us| batching.max_delay_us = us),
            "priority_levels" => read_unsigned(field).map(|levels| batching.priority_levels = levels),
            "default_priority_level" => read_unsigned(field).map(|level| batching.default_priority_level = level),
            "preserve_ordering" => read_false(field),
            _ => Err(field.unknown()),
        };
        refusals.note(read);
    }
}

fn optimization(field: &Field, refusals: &mut Refusals) {
    let Some(message) = refusals.note(field.message()) else {
        return;
    };
    for field in &message.fields {
        let read = match field.name.as_str() {
            "graph" => graph_level(field),
            "priority" => read_enum(field, "PRIORITY_DEFAULT"),
            _ => Err(field.unknown()),
        };
        refusals.note(read);
    }
}

fn graph_level(field: &Field) -> Result<(), PbtxtError> {
    for inner in &field.message()?.fields {
        let level = (inner.name == "level").then_some(&inner.value);
        match level {
            Some(Value::Integer(0)) => {}
            Some(_) => return Err(inner.refuse("only level 0 is offered: every optimisation")),
            None => return Err(inner.unknown()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
