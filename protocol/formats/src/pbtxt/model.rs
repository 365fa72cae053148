//! Triton's `config.pbtxt` of an ONNX model, as far as it maps onto a [`ModelConfig`].
//!
//! In: the text, and the name of the model's folder. Out: the config, or the first key that does not map, with its place:
//! a model is served as its file says or not at all. Fields: Triton's `model_config.proto`. What a file leaves out means
//! what it means to Triton, with two exceptions. Without `max_batch_size` nothing is batched, as protobuf has it; Triton as
//! it runs by default completes a file that does not list both inputs and outputs with 4 where the graph's first dimensions
//! are free, which says nothing of whether rows are independent. And where there are batches, they may always be formed of
//! whatever is queued at the same moment.

use super::fields::{Once, Read, read_enum, read_false, read_unsigned};
use super::parse;
use super::tree::{Field, Message, PbtxtError, Value};
use crate::model::{BadModelFile, DeclaredTensor, InstanceKind, ModelConfig, WarmupData, WarmupInput, WarmupSample};
use std::collections::BTreeMap;
use tierlab_protocol::metadata::VersionPolicy;
use tierlab_protocol::tensor::DataType;

/// The platform of ONNX models.
const PLATFORM: &str = "onnxruntime_onnx";
/// The backend of ONNX models.
const BACKEND: &str = "onnxruntime";

/// Reads the `config.pbtxt` of the model in the folder `model`.
///
/// # Errors
/// What is no text format, or does not map, with line, column and key.
pub fn model_config(text: &str, model: &str) -> Result<ModelConfig, BadModelFile> {
    let told = |error: PbtxtError| BadModelFile(error.to_string());
    let message = parse(text).map_err(told)?;
    let config = config(&message, model).map_err(told)?;
    config.check()?;
    Ok(config)
}

fn config(message: &Message, model: &str) -> Result<ModelConfig, PbtxtError> {
    let mut config = ModelConfig::default();
    // Triton forms no batches unless it is told to, and waits for none unless it is told how long.
    config.batching.max_delay_us = 0;
    let mut once = Once::default();
    let (mut max_batch_size, mut batching) = (None, None);
    let mut groups = Vec::new();
    for field in &message.fields {
        match field.name.as_str() {
            "input" => config.inputs.push(tensor(field)?),
            "output" => config.outputs.push(tensor(field)?),
            "instance_group" => groups.push(field),
            "model_warmup" => config.warmup.push(warmup(field)?),
            "parameters" => parameter(field, &mut config)?,
            _ => {
                once.see(field)?;
                single(field, model, &mut config, &mut max_batch_size)?;
                batching = batching.or((field.name == "dynamic_batching").then_some(field));
            }
        }
    }
    instances(&groups, &mut config)?;
    match (max_batch_size, batching) {
        (None, Some(batching)) => {
            return Err(batching.refuse("`max_batch_size` is missing: the most rows of a run"));
        }
        // Without batches no request waits for others.
        (Some(0), _) => config.batching.max_delay_us = 0,
        _ => {}
    }
    config.max_batch_size = max_batch_size.unwrap_or(0);
    Ok(config)
}

/// A field that stands once at most.
fn single(
    field: &Field,
    model: &str,
    config: &mut ModelConfig,
    max_batch_size: &mut Option<u32>,
) -> Result<(), PbtxtError> {
    let only = |wanted: &str| match field.text()? {
        text if text == wanted || text.is_empty() => Ok(()),
        other => Err(field.refuse(format!("`{}` is not served here, only `{wanted}`", short(other)))),
    };
    match field.name.as_str() {
        "name" => match field.text()? {
            name if name == model || name.is_empty() => Ok(()),
            name => Err(field.refuse(format!("`{}` is not the name of its folder, `{model}`", short(name)))),
        },
        "platform" => only(PLATFORM),
        "backend" => only(BACKEND),
        "default_model_filename" => only(crate::model::MODEL_FILE),
        "max_batch_size" => {
            *max_batch_size = Some(read_unsigned(field)?);
            Ok(())
        }
        "version_policy" => {
            config.version_policy = version_policy(field)?;
            Ok(())
        }
        "dynamic_batching" => dynamic_batching(field.message()?, config),
        "optimization" => optimization(field.message()?),
        "model_transaction_policy" => all_false(field, "decoupled"),
        "response_cache" => all_false(field, "enable"),
        "sequence_batching" | "ensemble_scheduling" => {
            Err(field.refuse("this scheduler is not offered here, only `dynamic_batching`"))
        }
        _ => Err(field.unknown()),
    }
}

/// A text from the file, shortened for a message.
fn short(text: &str) -> String {
    text.chars().take(64).collect()
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

fn data_type(field: &Field) -> Result<DataType, PbtxtError> {
    let word = field.word()?;
    let name = match word {
        "TYPE_STRING" => "BYTES",
        word => word.strip_prefix("TYPE_").unwrap_or(""),
    };
    let known = name.parse().ok().filter(|_| word != "TYPE_BYTES");
    known.ok_or_else(|| field.refuse(format!("`{}` is no data type such as TYPE_FP32", short(word))))
}

fn dimension(field: &Field) -> Result<i64, PbtxtError> {
    match field.value {
        Value::Integer(dim) if dim == -1 || dim > 0 => {
            i64::try_from(dim).map_err(|_| field.refuse("a dimension is too large"))
        }
        _ => Err(field.refuse("a dimension is at least 1, or -1 where it is free")),
    }
}

/// An input or an output.
fn tensor(field: &Field) -> Result<DeclaredTensor, PbtxtError> {
    let mut once = Once::default();
    let (mut name, mut datatype, mut dims) = (String::new(), None, Vec::new());
    for inner in &field.message()?.fields {
        if inner.name == "dims" {
            dims.push(dimension(inner)?);
            continue;
        }
        once.see(inner)?;
        match inner.name.as_str() {
            "name" => name = inner.text()?.to_owned(),
            "data_type" => datatype = Some(data_type(inner)?),
            "format" => read_enum(inner, "FORMAT_NONE")?,
            "is_shape_tensor" | "allow_ragged_batch" | "optional" | "is_non_linear_format_io" => read_false(inner)?,
            "reshape" => return Err(inner.refuse("reshaping is not supported: `dims` must be those of the graph")),
            "label_filename" if inner.text()?.is_empty() => {}
            "label_filename" => return Err(inner.refuse("the classification extension is not offered")),
            _ => return Err(inner.unknown()),
        }
    }
    if name.is_empty() {
        return Err(field.refuse("`name` is missing"));
    }
    let datatype = datatype.ok_or_else(|| field.refuse(format!("`data_type` of `{}` is missing", short(&name))))?;
    Ok(DeclaredTensor { name, datatype, dims })
}

fn dynamic_batching(message: &Message, config: &mut ModelConfig) -> Result<(), PbtxtError> {
    let mut once = Once::default();
    for field in &message.fields {
        if field.name == "preferred_batch_size" {
            config.batching.preferred_rows.push(read_unsigned(field)?);
            continue;
        }
        once.see(field)?;
        match field.name.as_str() {
            "max_queue_delay_microseconds" => config.batching.max_delay_us = read_unsigned(field)?,
            "priority_levels" => config.batching.priority_levels = read_unsigned(field)?,
            "default_priority_level" => config.batching.default_priority_level = read_unsigned(field)?,
            "preserve_ordering" => read_false(field)?,
            _ => return Err(field.unknown()),
        }
    }
    Ok(())
}

fn optimization(message: &Message) -> Result<(), PbtxtError> {
    for field in &message.fields {
        match field.name.as_str() {
            "graph" => {
                for inner in &field.message()?.fields {
                    let level = (inner.name == "level").then_some(&inner.value);
                    match level {
                        Some(Value::Integer(0)) => {}
                        Some(_) => return Err(inner.refuse("only level 0 is offered: every optimisation")),
                        None => return Err(inner.unknown()),
                    }
                }
            }
            "priority" => read_enum(field, "PRIORITY_DEFAULT")?,
            _ => return Err(field.unknown()),
        }
    }
    Ok(())
}

/// All groups are alike but for their counts.
fn instances(groups: &[&Field], config: &mut ModelConfig) -> Result<(), PbtxtError> {
    let mut sum = 0_u32;
    let mut kind = None;
    for group in groups {
        let (mut count, mut this_kind) = (1, InstanceKind::Auto);
        let mut once = Once::default();
        for field in &group.message()?.fields {
            if field.name == "gpus" {
                match field.value {
                    Value::Integer(0) => continue,
                    _ => return Err(field.refuse("only GPU 0 is used here")),
                }
            }
            once.see(field)?;
            match field.name.as_str() {
                "name" => drop(field.text()?),
                // Triton reads 0 as its default.
                "count" => count = read_unsigned::<u32>(field)?.max(1),
                "kind" => {
                    this_kind = match field.word()? {
                        "KIND_AUTO" => InstanceKind::Auto,
                        "KIND_CPU" => InstanceKind::Cpu,
                        "KIND_GPU" => InstanceKind::Gpu,
                        other => return Err(field.refuse(format!("`{}` is not offered here", short(other)))),
                    }
                }
                "passive" => read_false(field)?,
                _ => return Err(field.unknown()),
            }
        }
        if kind.is_some_and(|kind| kind != this_kind) {
            return Err(group.refuse("groups of different kinds are not supported"));
        }
        kind = Some(this_kind);
        sum = sum.saturating_add(count);
    }
    if let Some(kind) = kind {
        let instances = config.instances.get_or_insert_default();
        instances.count = sum;
        instances.kind = kind;
    }
    Ok(())
}

/// One entry of a map: its key, and its value's field.
fn entry(field: &Field) -> Result<(&str, &Field), PbtxtError> {
    let mut once = Once::default();
    let (mut key, mut value) = (None, None);
    for inner in &field.message()?.fields {
        once.see(inner)?;
        match inner.name.as_str() {
            "key" => key = Some(inner.text()?),
            "value" => value = Some(inner),
            _ => return Err(inner.unknown()),
        }
    }
    let key = key.ok_or_else(|| field.refuse("`key` is missing"))?;
    Ok((key, value.ok_or_else(|| field.refuse("`value` is missing"))?))
}

/// A parameter of the ONNX Runtime backend.
fn parameter(field: &Field, config: &mut ModelConfig) -> Result<(), PbtxtError> {
    let (key, value) = entry(field)?;
    let mut text = "";
    for inner in &value.message()?.fields {
        match inner.name.as_str() {
            "string_value" => text = inner.text()?,
            _ => return Err(inner.unknown()),
        }
    }
    let threads = || {
        let threads = text.parse::<u32>();
        threads.map_err(|_| value.refuse(format!("`{key}` = `{}` is no number of threads", short(text))))
    };
    match (key, text) {
        // 0 leaves the number to ONNX Runtime in Triton; here it is the default of one.
        ("intra_op_thread_count", _) => {
            config.instances.get_or_insert_default().intra_op_threads = threads()?.max(1);
        }
        ("inter_op_thread_count", _) => {
            config.instances.get_or_insert_default().inter_op_threads = threads()?.max(1);
        }
        ("execution_mode", "0") => {}
        _ => {
            let what = format!("parameter `{}` = `{}` is not supported", short(key), short(text));
            return Err(field.refuse(what));
        }
    }
    Ok(())
}

fn warmup(field: &Field) -> Result<WarmupSample, PbtxtError> {
    let mut once = Once::default();
    let mut sample = WarmupSample {
        name: String::new(),
        batch_size: 1,
        count: 1,
        inputs: BTreeMap::new(),
    };
    for inner in &field.message()?.fields {
        if inner.name == "inputs" {
            let (input, value) = entry(inner)?;
            if sample.inputs.insert(input.to_owned(), warmup_input(value)?).is_some() {
                return Err(inner.refuse(format!("`{}` stands here twice", short(input))));
            }
            continue;
        }
        once.see(inner)?;
        match inner.name.as_str() {
            "name" => sample.name = inner.text()?.to_owned(),
            // Triton reads 0 as one request without a batch dimension, and one run.
            "batch_size" => sample.batch_size = read_unsigned::<u32>(inner)?.max(1),
            "count" => sample.count = read_unsigned::<u32>(inner)?.max(1),
            _ => return Err(inner.unknown()),
        }
    }
    Ok(sample)
}

fn warmup_input(field: &Field) -> Result<WarmupInput, PbtxtError> {
    let mut once = Once::default();
    let (mut dims, mut data) = (Vec::new(), None);
    for inner in &field.message()?.fields {
        if inner.name == "dims" {
            dims.push(dimension(inner)?);
            continue;
        }
        once.see(inner)?;
        let kind = match inner.name.as_str() {
            // The graph's type is taken; a file that says another is caught with the inputs.
            "data_type" => {
                data_type(inner)?;
                continue;
            }
            "zero_data" if inner.flag()? => WarmupData::Zero,
            "random_data" if inner.flag()? => WarmupData::Random,
            "zero_data" | "random_data" => continue,
            "input_data_file" => WarmupData::File(inner.text()?.to_owned()),
            _ => return Err(inner.unknown()),
        };
        if data.replace(kind).is_some() {
            return Err(inner.refuse("one of `zero_data`, `random_data` and `input_data_file` is expected, not two"));
        }
    }
    let missing = || field.refuse("one of `zero_data`, `random_data` and `input_data_file` is missing");
    Ok(WarmupInput {
        dims: Some(dims),
        data: data.ok_or_else(missing)?,
    })
}

#[cfg(test)]
mod tests;
