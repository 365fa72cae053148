//! Instance groups, and the parameters of the ONNX Runtime backend.

use crate::model::{InstanceKind, ModelConfig};
use crate::pbtxt::fields::{Once, Read, entry, read_false, read_unsigned, short};
use crate::pbtxt::refusals::Refusals;
use crate::pbtxt::tree::{Field, PbtxtError, Value};

/// All groups are alike but for their counts.
pub(super) fn instances(groups: &[&Field], config: &mut ModelConfig, refusals: &mut Refusals) {
    let mut sum = 0_u32;
    let mut kind = None;
    for group in groups {
        let Some((count, this_kind)) = instance_group(group, refusals) else {
            continue;
        };
        if kind.is_some_and(|kind| kind != this_kind) {
            refusals.note::<()>(Err(group.refuse("groups of different kinds are not supported")));
        }
        kind = Some(this_kind);
        sum = sum.saturating_add(count);
    }
    if let Some(kind) = kind {
        let instances = config.instances.get_or_insert_default();
        instances.count = sum;
        instances.kind = kind;
    }
}

fn instance_group(group: &Field, refusals: &mut Refusals) -> Option<(u32, InstanceKind)> {
    let (mut count, mut kind) = (1, InstanceKind::Auto);
    let mut once = Once::default();
    for field in &refusals.note(group.message())?.fields {
        if field.name == "gpus" {
            if field.value != Value::Integer(0) {
                refusals.note::<()>(Err(field.refuse("only GPU 0 is used here")));
            }
            continue;
        }
        refusals.note(once.see(field));
        let read = match field.name.as_str() {
            "name" => field.text().map(drop),
            // Triton reads 0 as its default.
            "count" => read_unsigned::<u32>(field).map(|number| count = number.max(1)),
            "kind" => kind_of(field).map(|of| kind = of),
            "passive" => read_false(field),
            _ => Err(field.unknown()),
        };
        refusals.note(read);
    }
    Some((count, kind))
}

fn kind_of(field: &Field) -> Result<InstanceKind, PbtxtError> {
    match field.word()? {
        "KIND_AUTO" => Ok(InstanceKind::Auto),
        "KIND_CPU" => Ok(InstanceKind::Cpu),
        "KIND_GPU" => Ok(InstanceKind::Gpu),
        other => Err(field.refuse(format!("`{}` is not offered here", short(other)))),
    }
}

/// A parameter of the ONNX Runtime backend.
pub(super) fn parameter(field: &Field, config: &mut ModelConfig) -> Result<(), PbtxtError> {
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
