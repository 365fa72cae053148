//! Warm-up samples.

use super::tensors::{data_type, dimension};
use crate::model::{WarmupData, WarmupInput, WarmupSample};
use crate::pbtxt::fields::{Once, Read, entry, read_unsigned, short};
use crate::pbtxt::refusals::Refusals;
use crate::pbtxt::tree::{Field, PbtxtError};
use std::collections::BTreeMap;

pub(super) fn warmup(field: &Field, refusals: &mut Refusals) -> Option<WarmupSample> {
    let mut once = Once::default();
    let mut sample = WarmupSample {
        name: String::new(),
        batch_size: 1,
        count: 1,
        inputs: BTreeMap::new(),
    };
    for inner in &refusals.note(field.message())?.fields {
        if inner.name == "inputs" {
            let Some((input, value)) = refusals.note(entry(inner)) else {
                continue;
            };
            let Some(read) = warmup_input(value, refusals) else {
                continue;
            };
            if sample.inputs.insert(input.to_owned(), read).is_some() {
                refusals.note::<()>(Err(inner.refuse(format!("`{}` is given twice", short(input)))));
            }
            continue;
        }
        refusals.note(once.see(inner));
        let read = match inner.name.as_str() {
            "name" => inner.text().map(|text| text.clone_into(&mut sample.name)),
            // Triton reads 0 as one request without a batch dimension, and one run.
            "batch_size" => read_unsigned::<u32>(inner).map(|rows| sample.batch_size = rows.max(1)),
            "count" => read_unsigned::<u32>(inner).map(|count| sample.count = count.max(1)),
            _ => Err(inner.unknown()),
        };
        refusals.note(read);
    }
    Some(sample)
}

fn warmup_input(field: &Field, refusals: &mut Refusals) -> Option<WarmupInput> {
    let mut once = Once::default();
    let (mut dims, mut data, mut given) = (Vec::new(), None, false);
    for inner in &refusals.note(field.message())?.fields {
        if inner.name == "dims" {
            dims.extend(refusals.note(dimension(inner)));
            continue;
        }
        refusals.note(once.see(inner));
        let Some(kind) = refusals.note(warmup_data(inner)) else {
            given = true;
            continue;
        };
        if kind.is_some() && std::mem::replace(&mut data, kind).is_some() {
            let two = "one of `zero_data`, `random_data` and `input_data_file` is expected, not two";
            refusals.note::<()>(Err(inner.refuse(two)));
        }
    }
    if data.is_none() && !given {
        let none = "one of `zero_data`, `random_data` and `input_data_file` is missing";
        refusals.note::<()>(Err(field.refuse(none)));
    }
    Some(WarmupInput {
        dims: Some(dims),
        data: data?,
    })
}

/// Element values of a field, if it has any.
fn warmup_data(field: &Field) -> Result<Option<WarmupData>, PbtxtError> {
    Ok(match field.name.as_str() {
        // The graph's type is taken; a file that says another is caught with the inputs.
        "data_type" => {
            data_type(field)?;
            None
        }
        "zero_data" => field.flag()?.then_some(WarmupData::Zero),
        "random_data" => field.flag()?.then_some(WarmupData::Random),
        "input_data_file" => Some(WarmupData::File(field.text()?.to_owned())),
        _ => return Err(field.unknown()),
    })
}
