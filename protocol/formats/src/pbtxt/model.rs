//! Triton's `config.pbtxt` of an ONNX model, as far as it maps onto a [`ModelConfig`].
//!
//! In: the text, and the name of the model's folder. Out: the config, or every key that does not map, with its place: a
//! model is served as its file says or not at all. Fields: Triton's `model_config.proto`. An absent field has Triton's
//! default, with two exceptions. First, nothing is batched without `max_batch_size`. Triton by default sets it to 4 in
//! a file that does not list both inputs and outputs if the graph's first dimensions are free, which does not show that
//! rows are independent. Second, a batch may always be formed of the requests queued at the same moment.

use super::{Field, FieldError, FieldErrors, Value, parse, short};
use crate::model::{
    BatchingConfig, DeclaredTensor, InstanceKind, MODEL_FILE, ModelConfig, Reshape, WarmupData, WarmupInput,
    WarmupSample,
};
use anyhow::anyhow;
use std::collections::BTreeMap;
use tierlab_protocol::metadata::VersionPolicy;
use tierlab_protocol::tensor::DataType;

/// Platform of ONNX models.
const PLATFORM: &str = "onnxruntime_onnx";
/// Backend of ONNX models.
const BACKEND: &str = "onnxruntime";
/// Fields that may be given several times.
const REPEATED: [&str; 5] = ["input", "output", "instance_group", "model_warmup", "parameters"];
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
/// The first syntax error, or every field that does not map, each with line, column and key.
pub fn model_config(text: &str, model: &str) -> anyhow::Result<ModelConfig> {
    let root = parse(text).map_err(|error| anyhow!(error.message(text)))?;
    let mut errors = FieldErrors::default();
    let config = config(&root, model, &mut errors);
    for (part, what) in config.problems() {
        let field = PARTS.iter().find(|(key, _)| *key == part);
        let field = field.map_or(part, |(_, field)| field);
        // A refused value leaves its default behind, which is not checked.
        if errors.affect(field) || errors.affect("max_batch_size") {
            continue;
        }
        let mut fields = root.message().unwrap_or_default().iter();
        match fields.find(|candidate| candidate.name == field) {
            Some(found) => errors.push(found.error(what.to_string())),
            None => return Err(what),
        }
    }
    errors.message(text).map_or(Ok(config), |message| Err(anyhow!(message)))
}

fn config(root: &Field, model: &str, errors: &mut FieldErrors) -> ModelConfig {
    let mut config = ModelConfig::default();
    // Triton does not batch by default, and does not delay requests without a delay.
    config.batching.max_delay_us = 0;
    let (mut max_batch_size, mut batching) = (None, None);
    let mut groups = Vec::new();
    errors.for_each(root, &REPEATED, |errors, field| {
        match field.name.as_str() {
            "input" => config.inputs.extend(tensor(field, errors)),
            "output" => config.outputs.extend(tensor(field, errors)),
            "instance_group" => groups.push((field, instance_group(field, errors))),
            "model_warmup" => config.warmup.push(warmup(field, errors)),
            "parameters" => parameter(field, &mut config)?,
            "max_batch_size" => max_batch_size = Some(errors.record(field.unsigned()).unwrap_or(0)),
            "dynamic_batching" => {
                batching = Some(field);
                dynamic_batching(field, &mut config, errors);
            }
            "version_policy" => config.version_policy = version_policy(field, errors)?,
            _ => check_fixed(field, model, errors)?,
        }
        Ok(())
    });
    if let [(_, (_, kind)), others @ ..] = &groups[..] {
        if let Some((group, _)) = others.iter().find(|(_, (_, other))| other != kind) {
            errors.push(group.error("groups of different kinds are not supported"));
        }
        let instances = config.instances.get_or_insert_default();
        instances.count = groups.iter().fold(0, |sum, (_, (count, _))| sum.saturating_add(*count));
        instances.kind = *kind;
    }
    match (max_batch_size, batching) {
        (None, Some(batching)) => {
            errors.push(batching.error("`max_batch_size` is missing: set it to the maximum rows of a run"));
        }
        // Without batches no request waits for others.
        (Some(0), _) => config.batching.max_delay_us = 0,
        _ => {}
    }
    config.max_batch_size = max_batch_size.unwrap_or(0);
    config
}

/// Checks a field that must have this server's value.
fn check_fixed(field: &Field, model: &str, errors: &mut FieldErrors) -> Result<(), FieldError> {
    let expect_text = |wanted: &str| match field.text()? {
        text if text == wanted || text.is_empty() => Ok(()),
        other => Err(field.error(format!("`{}` is not supported, only `{wanted}`", short(other)))),
    };
    let mut all_false = |name: &str| {
        errors.for_each(field, &[], |_, inner| match inner.name == name {
            true => inner.expect_off(),
            false => Err(inner.unsupported()),
        });
        Ok(())
    };
    match field.name.as_str() {
        "name" => match field.text()? {
            name if name == model || name.is_empty() => Ok(()),
            name => Err(field.error(format!("`{}` is not the name of its folder, `{model}`", short(name)))),
        },
        "platform" => expect_text(PLATFORM),
        "backend" => expect_text(BACKEND),
        "default_model_filename" => expect_text(MODEL_FILE),
        "optimization" => optimization(field, errors),
        "model_transaction_policy" => all_false("decoupled"),
        "response_cache" => all_false("enable"),
        "sequence_batching" => Err(field.error(
            "sequences are not supported: make the state an input and an output of the graph, which clients pass on, and remove \
             `sequence_batching`",
        )),
        "ensemble_scheduling" => Err(field.error(
            "ensembles are not supported: serve one graph of all steps, or call the models one after the other",
        )),
        _ => Err(field.unsupported()),
    }
}

fn version_policy(field: &Field, errors: &mut FieldErrors) -> Result<VersionPolicy, FieldError> {
    let choice = match field.message()? {
        [] => return Ok(VersionPolicy::default()),
        [choice] => choice,
        [_, second, ..] => return Err(second.error("one of `latest`, `all` and `specific` is expected, not two")),
    };
    let (mut num_versions, mut versions) = (1, Vec::new());
    errors.for_each(choice, &["versions"], |_, inner| {
        match (choice.name.as_str(), inner.name.as_str()) {
            ("latest", "num_versions") => num_versions = inner.unsigned()?,
            ("specific", "versions") => versions.push(inner.unsigned()?),
            _ => return Err(inner.unsupported()),
        }
        Ok(())
    });
    match choice.name.as_str() {
        "latest" => Ok(VersionPolicy::Latest { num_versions }),
        "all" => Ok(VersionPolicy::All {}),
        "specific" => Ok(VersionPolicy::Specific { versions }),
        _ => Err(choice.unsupported()),
    }
}

fn dynamic_batching(field: &Field, config: &mut ModelConfig, errors: &mut FieldErrors) {
    let batching = &mut config.batching;
    errors.for_each(field, &["preferred_batch_size"], |errors, inner| {
        match inner.name.as_str() {
            "preferred_batch_size" => batching.preferred_rows.push(inner.unsigned()?),
            "max_queue_delay_microseconds" => batching.max_delay_us = inner.unsigned()?,
            "priority_levels" => batching.priority_levels = inner.unsigned()?,
            "default_priority_level" => batching.default_priority_level = inner.unsigned()?,
            "preserve_ordering" => inner.expect_off()?,
            "default_queue_policy" => queue_policy(inner, batching, errors),
            _ => return Err(inner.unsupported()),
        }
        Ok(())
    });
}

/// Reads the limits of the queue. With them, requests may only set their own timeout if the policy allows it.
fn queue_policy(field: &Field, batching: &mut BatchingConfig, errors: &mut FieldErrors) {
    batching.allow_timeout_override = false;
    errors.for_each(field, &[], |_, inner| {
        match inner.name.as_str() {
            "timeout_action" => inner.expect_word("REJECT")?,
            "default_timeout_microseconds" => batching.queue_timeout_us = inner.unsigned()?,
            "allow_timeout_override" => batching.allow_timeout_override = inner.flag()?,
            "max_queue_size" => batching.queue_limit = inner.unsigned()?,
            _ => return Err(inner.unsupported()),
        }
        Ok(())
    });
}

fn optimization(field: &Field, errors: &mut FieldErrors) -> Result<(), FieldError> {
    errors.for_each(field, &[], |errors, inner| {
        match inner.name.as_str() {
            "graph" => errors.for_each(inner, &[], |_, level| match (level.name.as_str(), &level.value) {
                ("level", Value::Integer(0)) => Ok(()),
                ("level", _) => Err(level.error("only level 0 is supported: every optimisation")),
                _ => Err(level.unsupported()),
            }),
            "priority" => inner.expect_word("PRIORITY_DEFAULT")?,
            _ => return Err(inner.unsupported()),
        }
        Ok(())
    });
    Ok(())
}

/// Reads an instance group: its count and its kind.
fn instance_group(group: &Field, errors: &mut FieldErrors) -> (u32, InstanceKind) {
    let (mut count, mut kind) = (1, InstanceKind::Auto);
    errors.for_each(group, &["gpus"], |_, field| {
        match field.name.as_str() {
            "gpus" if field.value == Value::Integer(0) => {}
            "gpus" => return Err(field.error("only GPU 0 is supported")),
            "name" => drop(field.text()?),
            // Triton reads 0 as its default.
            "count" => count = field.unsigned::<u32>()?.max(1),
            "kind" => {
                kind = match field.word()? {
                    "KIND_AUTO" => InstanceKind::Auto,
                    "KIND_CPU" => InstanceKind::Cpu,
                    "KIND_GPU" => InstanceKind::Gpu,
                    other => return Err(field.error(format!("`{}` is not supported", short(other)))),
                }
            }
            "passive" => field.expect_off()?,
            _ => return Err(field.unsupported()),
        }
        Ok(())
    });
    (count, kind)
}

/// Splits an entry of a map into its key and its value's field.
fn entry(field: &Field) -> Result<(&str, &Field), FieldError> {
    let fields = field.message()?;
    if let Some(unexpected) = fields.iter().find(|inner| inner.name != "key" && inner.name != "value") {
        return Err(unexpected.unsupported());
    }
    let single = |name: &str| {
        let mut named = fields.iter().filter(|inner| inner.name == name);
        match (named.next(), named.next()) {
            (Some(single), None) => Ok(single),
            (None, _) => Err(field.error(format!("`{name}` is missing"))),
            (_, Some(second)) => Err(second.error("duplicate field")),
        }
    };
    Ok((single("key")?.text()?, single("value")?))
}

/// Reads a parameter of the ONNX Runtime backend.
fn parameter(field: &Field, config: &mut ModelConfig) -> Result<(), FieldError> {
    let (key, value) = entry(field)?;
    let mut text = "";
    for inner in value.message()? {
        match inner.name.as_str() {
            "string_value" => text = inner.text()?,
            _ => return Err(inner.unsupported()),
        }
    }
    let threads = || {
        let threads = text.parse::<u32>();
        // 0 leaves the number to ONNX Runtime in Triton; here it means the default of 1.
        let threads = threads.map(|threads| threads.max(1));
        threads.map_err(|_| value.error(format!("invalid number of threads in `{key}`: `{}`", short(text))))
    };
    match (key, text) {
        ("intra_op_thread_count", _) => config.instances.get_or_insert_default().intra_op_threads = threads()?,
        ("inter_op_thread_count", _) => config.instances.get_or_insert_default().inter_op_threads = threads()?,
        ("execution_mode", "0") => {}
        _ => {
            let what = format!("parameter `{}` = `{}` is not supported", short(key), short(text));
            return Err(field.error(what));
        }
    }
    Ok(())
}

fn data_type(field: &Field) -> Result<DataType, FieldError> {
    let word = field.word()?;
    let name = match word {
        "TYPE_STRING" => "BYTES",
        word => word.strip_prefix("TYPE_").unwrap_or(""),
    };
    let dtype = name.parse().ok().filter(|_| word != "TYPE_BYTES");
    let what = || format!("unknown data type: `{}`; use one such as TYPE_FP32", short(word));
    dtype.ok_or_else(|| field.error(what()))
}

fn dimension(field: &Field) -> Result<i64, FieldError> {
    match field.value {
        Value::Integer(-1) => Ok(-1),
        Value::Integer(dim @ 1..) => i64::try_from(dim).map_err(|_| field.error("a dimension is too large")),
        _ => Err(field.error("a dimension is at least 1, or -1 if it is free")),
    }
}

/// Reads an input or an output; `None` without a valid type.
fn tensor(field: &Field, errors: &mut FieldErrors) -> Option<DeclaredTensor> {
    let (mut name, mut datatype, mut has_type) = (String::new(), None, false);
    let (mut dims, mut reshape, mut labels) = (Vec::new(), None, None);
    errors.for_each(field, &["dims"], |errors, inner| {
        match inner.name.as_str() {
            "dims" => dims.push(dimension(inner)?),
            "name" => inner.text()?.clone_into(&mut name),
            "data_type" => {
                has_type = true;
                datatype = Some(data_type(inner)?);
            }
            // Describes the layout of images to clients; the tensor is the same.
            "format" if matches!(inner.word()?, "FORMAT_NONE" | "FORMAT_NCHW" | "FORMAT_NHWC") => {}
            "format" => return Err(inner.error("must be FORMAT_NONE, FORMAT_NCHW or FORMAT_NHWC")),
            "is_shape_tensor" | "allow_ragged_batch" | "optional" | "is_non_linear_format_io" => inner.expect_off()?,
            "reshape" => {
                let mut shape = Vec::new();
                errors.for_each(inner, &["shape"], |_, dim| match dim.name.as_str() {
                    "shape" => dimension(dim).map(|dim| shape.push(dim)),
                    _ => Err(dim.unsupported()),
                });
                reshape = Some((inner, shape));
            }
            "label_filename" => labels = Some(inner.text()?.to_owned()).filter(|file| !file.is_empty()),
            _ => return Err(inner.unsupported()),
        }
        Ok(())
    });
    if name.is_empty() {
        errors.push(field.error("`name` is missing"));
    }
    if !has_type {
        errors.push(field.error(format!("`data_type` of `{}` is missing", short(&name))));
    }
    if let Some((source, shape)) = &reshape {
        errors.record(Reshape::new(&dims, shape).map_err(|what| source.error(what.to_string())));
    }
    Some(DeclaredTensor {
        name,
        datatype: datatype?,
        dims,
        reshape: reshape.map(|(_, shape)| shape),
        labels,
    })
}

/// Reads a warm-up sample.
fn warmup(field: &Field, errors: &mut FieldErrors) -> WarmupSample {
    let mut sample = WarmupSample {
        name: String::new(),
        batch_size: 1,
        count: 1,
        inputs: BTreeMap::new(),
    };
    errors.for_each(field, &["inputs"], |errors, inner| {
        match inner.name.as_str() {
            "name" => inner.text()?.clone_into(&mut sample.name),
            // Triton reads 0 as one request without a batch dimension, and one run.
            "batch_size" => sample.batch_size = inner.unsigned::<u32>()?.max(1),
            "count" => sample.count = inner.unsigned::<u32>()?.max(1),
            "inputs" => {
                let (name, value) = entry(inner)?;
                if let Some(input) = warmup_input(value, errors)
                    && sample.inputs.insert(name.to_owned(), input).is_some()
                {
                    return Err(inner.error(format!("duplicate input: `{}`", short(name))));
                }
            }
            _ => return Err(inner.unsupported()),
        }
        Ok(())
    });
    sample
}

fn warmup_input(field: &Field, errors: &mut FieldErrors) -> Option<WarmupInput> {
    let (mut dims, mut data, mut has_error) = (Vec::new(), None, false);
    errors.for_each(field, &["dims"], |_, inner| {
        if inner.name == "dims" {
            dims.push(dimension(inner)?);
            return Ok(());
        }
        let parsed = warmup_data(inner);
        has_error |= parsed.is_err();
        let parsed = parsed?;
        if parsed.is_some() && std::mem::replace(&mut data, parsed).is_some() {
            return Err(inner.error("one of `zero_data`, `random_data` and `input_data_file` is expected, not two"));
        }
        Ok(())
    });
    if data.is_none() && !has_error {
        errors.push(field.error("one of `zero_data`, `random_data` and `input_data_file` is missing"));
    }
    Some(WarmupInput {
        dims: Some(dims),
        data: data?,
    })
}

/// Reads the element values of a field, if it has any.
fn warmup_data(field: &Field) -> Result<Option<WarmupData>, FieldError> {
    Ok(match field.name.as_str() {
        // The graph's type is used; a file of another type is detected with the inputs.
        "data_type" => data_type(field).map(|_| None)?,
        "zero_data" => field.flag()?.then_some(WarmupData::Zero),
        "random_data" => field.flag()?.then_some(WarmupData::Random),
        "input_data_file" => Some(WarmupData::File(field.text()?.to_owned())),
        _ => return Err(field.unsupported()),
    })
}

#[cfg(test)]
mod tests;
