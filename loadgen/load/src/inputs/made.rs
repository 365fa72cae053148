//! Generated input: dimensions and values by the plan's rule, or by its type and shape if they are unambiguous.
//!
//! In: the metadata, and the plan's rule. Out: a source, or the unknown parts; errors name the plan's key.

use super::gaps::Gap;
use super::resolved::{Source, Wanted};
use super::rule::{Dim, TensorRule, Values};
use crate::element::{self, Number};
use std::sync::Arc;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Source of an input's values, or the gap in its description.
pub(super) fn made(
    spec: &TensorSpec,
    rule: Option<&TensorRule>,
    has_rows: bool,
) -> Result<Result<Source, Gap>, String> {
    let told = rule.and_then(|rule| rule.values.clone());
    let is_told = told.is_some();
    let values = match told {
        Some(values) => Some(suited(spec, values)?),
        None => default_values(spec.dtype),
    };
    let from_file = matches!(values, Some(Values::File(_)));
    let dims = match rule.and_then(|rule| rule.shape.as_ref()) {
        Some(dims) => {
            fits(spec, dims)?;
            Some(Some(dims.clone()))
        }
        None if from_file => Some(None),
        None => own_dims(spec, has_rows).map(Some),
    };
    Ok(match (dims, values) {
        (Some(dims), Some(values)) => Ok(Source::Made { dims, values, is_told }),
        (dims, values) => Err(Gap {
            spec: spec.clone(),
            lacks_shape: dims.is_none(),
            lacks_values: values.is_none(),
        }),
    })
}

/// Returns the dimensions fixed by the model; `None` if one besides the rows is free.
pub(super) fn own_dims(spec: &TensorSpec, has_rows: bool) -> Option<Vec<Dim>> {
    let dim = |(axis, &dim): (usize, &i64)| match u64::try_from(dim) {
        Ok(size) => Some(Dim::Fixed(size)),
        Err(_) if axis == 0 && has_rows => Some(Dim::Rows),
        Err(_) => None,
    };
    spec.shape.iter().enumerate().map(dim).collect()
}

/// Default values: floats of [0, 1), pixels, and integers of 0 and 1, which are valid as indices.
fn default_values(dtype: DataType) -> Option<Values> {
    match dtype {
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => {
            Some(Values::Uniform { from: 0.0, to: 1.0 })
        }
        DataType::Uint8 => Some(Values::Integers { least: 0, most: 255 }),
        DataType::Bytes => None,
        _ => Some(Values::Integers { least: 0, most: 1 }),
    }
}

/// Converts values to the input's type.
fn suited(spec: &TensorSpec, values: Values) -> Result<Values, String> {
    let key = format!("inputs.tensor.{}.values", spec.name);
    let is_float = matches!(
        spec.dtype,
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64
    );
    let refuse = |kind: &str, instead: &str| Err(format!("`{key}`: {kind} are none of {}; {instead}", spec.dtype));
    match &values {
        Values::Uniform { .. } | Values::Normal { .. } if !is_float => {
            let instead = if spec.dtype == DataType::Bytes {
                "write { text = { words = [3, 12] } }"
            } else {
                "write { integers = [0, 1] } with the range of your own"
            };
            refuse("floats", instead)
        }
        Values::Integers { least, most } => {
            let holds = |value: i128| element::push(spec.dtype, Number::Int(value), &mut Vec::new());
            if spec.dtype == DataType::Bytes {
                return refuse("integers", "write { text = { words = [3, 12] } }");
            }
            if holds(*least) && holds(*most) {
                return Ok(values);
            }
            Err(format!("`{key}`: {least} to {most} is not within {}", spec.dtype))
        }
        Values::Words { .. } | Values::TextBytes { .. } if spec.dtype != DataType::Bytes => {
            refuse("texts", "only BYTES inputs take text")
        }
        Values::File(records) => {
            let cast = records.cast(spec.dtype).map_err(|what| format!("`{key}`: {what}"))?;
            Ok(Values::File(Arc::new(cast)))
        }
        _ => Ok(values),
    }
}

/// Checks that a plan's shape fits the model's.
fn fits(spec: &TensorSpec, dims: &[Dim]) -> Result<(), String> {
    let key = format!("inputs.tensor.{}.shape", spec.name);
    if dims.len() != spec.shape.len() {
        return Err(format!(
            "`{key}` has {} dimensions, the model's has {}: {:?}",
            dims.len(),
            spec.shape.len(),
            spec.shape
        ));
    }
    for (axis, (dim, declared)) in dims.iter().zip(&spec.shape).enumerate() {
        let Ok(declared) = u64::try_from(*declared) else {
            continue;
        };
        let can = match dim {
            Dim::Fixed(size) => *size == declared,
            Dim::Choices(sizes) => sizes.iter().all(|size| *size == declared),
            Dim::Draw(lengths) => lengths.least == declared && lengths.most == declared,
            Dim::Listed { lengths, .. } => lengths.iter().all(|length| *length == declared),
            // Checked once it is known.
            Dim::Rows | Dim::SameAs { .. } => true,
        };
        if !can {
            return Err(format!(
                "`{key}[{axis}]` is {dim}, the model's is {declared}: {:?}",
                spec.shape
            ));
        }
    }
    Ok(())
}

/// Checks that every `same_as` names an existing dimension with a rule of its own.
pub(super) fn same_as(wanted: &[Wanted]) -> Result<(), String> {
    for own in wanted {
        let Source::Made { dims: Some(dims), .. } = &own.source else {
            continue;
        };
        for (at, dim) in dims.iter().enumerate() {
            let Dim::SameAs { input, axis } = dim else { continue };
            let name = input.as_ref().unwrap_or(&own.spec.name);
            let key = format!("`inputs.tensor.{}.shape[{at}]`", own.spec.name);
            let Some(other) = wanted.iter().find(|other| other.spec.name == *name) else {
                return Err(format!(
                    "{key} is the same as one of `{name}`, which is no input of the model"
                ));
            };
            if *axis >= other.spec.shape.len() {
                return Err(format!(
                    "{key} is the same as {name}.{axis}, and `{name}` has dimensions 0 to {} only",
                    other.spec.shape.len().saturating_sub(1)
                ));
            }
            if let Source::Made { dims: Some(others), .. } = &other.source
                && matches!(others.get(*axis), Some(Dim::SameAs { .. }))
            {
                return Err(format!(
                    "{key} is the same as {name}.{axis}, which is the same as another; name that one"
                ));
            }
        }
    }
    Ok(())
}
