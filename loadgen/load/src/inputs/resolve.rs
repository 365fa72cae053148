//! Inputs of a plan for a model: the tensors of a request, and the sources of their dimensions and elements.
//!
//! In: the plan's rules and the model's metadata. Out: [`Inputs`], or the reason for which no request can be built,
//! with the lines to add to the plan. Only one dimension is ever guessed: a first dimension that is free in every input
//! is taken as the rows, and the result says so.

use super::gaps::{Gap, gaps};
use super::recordings::{check_names, check_of, typed};
use super::resolved::{Declared, Inputs, RowsBy, Source, Wanted};
use super::rule::{Dim, InputRules, TensorRule, Values};
use crate::element::{self, Number, is_float};
use anyhow::{Result, anyhow, bail};
use std::sync::Arc;
use tierlab_protocol::tensor::{DataType, TensorSpec};

impl Inputs {
    /// Resolves the sources of a model's inputs.
    ///
    /// # Errors
    /// Inputs that the plan does not describe, or that the model does not accept, in words for the plan's author.
    pub fn resolve(rules: &InputRules, declared: &Declared<'_>) -> Result<Self> {
        check_names(rules, declared)?;
        let mut found = Vec::new();
        let mut wanted = Vec::new();
        let recorded = rules.recorded.as_deref();
        let has_rows = declared.batched || can_assume_rows(declared);
        for spec in declared.inputs {
            let (name, rule) = (&spec.name, rules.tensors.get(&spec.name));
            let source = if recorded.is_some_and(|recorded| recorded.holds(name)) {
                if rule.is_some() {
                    bail!(
                        "`inputs.tensor.{name}` is unused: every recorded request has that input; remove one of them"
                    );
                }
                Ok(Source::Recorded)
            } else {
                generated(spec, rule, has_rows)
            };
            match source {
                Ok(source) => wanted.push(Wanted {
                    spec: spec.clone(),
                    source,
                }),
                Err(SourceError::Gap(gap)) => found.push(gap),
                Err(SourceError::Invalid(error)) => return Err(error),
            }
        }
        if !found.is_empty() {
            bail!(gaps(declared, &found));
        }
        check_same_as(&wanted)?;
        let rows_by = rows_by(&wanted, declared);
        let recorded = recorded.map(|recorded| typed(recorded, rules, &wanted, declared));
        let recorded = recorded.transpose()?;
        let check = rules.check.as_ref();
        let check = check.map(|check| check_of(check, recorded.is_some(), declared));
        Ok(Self {
            model: declared.model.to_owned(),
            outputs: declared.outputs.into(),
            check: check.transpose()?,
            wanted,
            recorded,
            rows_by,
            order: rules.order,
            rows_per_request: rules.rows_per_request,
            is_planned: !rules.tensors.is_empty() || rules.recorded.is_some(),
            shape_fits: Arc::default(),
        })
    }
}

/// True if the first dimension may be taken as the rows although the server does not declare it: it is free in every
/// input, and no input is a vector, which may just as well be a sequence.
fn can_assume_rows(declared: &Declared<'_>) -> bool {
    let is_like = |spec: &TensorSpec| spec.shape.len() > 1 && spec.shape[0] < 0;
    !declared.inputs.is_empty() && declared.inputs.iter().all(is_like)
}

fn rows_by(wanted: &[Wanted], declared: &Declared<'_>) -> RowsBy {
    if declared.batched {
        return RowsBy::Server;
    }
    let is_planned = |wanted: &Wanted| wanted.source.dims().is_some_and(|dims| dims.contains(&Dim::Rows));
    // If the plan has no shape for any input, the dimensions are those of `own_dims`.
    let is_own = |wanted: &Wanted| {
        let dims = wanted.source.dims();
        dims.is_none_or(|dims| own_dims(&wanted.spec, true).as_deref() == Some(dims))
    };
    let is_free = |wanted: &Wanted| wanted.source.dims().is_none();
    match wanted.iter().any(is_planned) {
        true if can_assume_rows(declared) && wanted.iter().all(is_own) => RowsBy::Assumed,
        true => RowsBy::Plan,
        false if can_assume_rows(declared) && wanted.iter().any(is_free) => RowsBy::Assumed,
        false => RowsBy::Unknown,
    }
}

/// Input whose values cannot be generated.
#[derive(Debug, thiserror::Error)]
enum SourceError {
    /// Part that the plan does not describe; all gaps are reported together.
    #[error("the plan does not describe input `{}`", .0.spec.name)]
    Gap(Gap),
    #[error(transparent)]
    Invalid(#[from] anyhow::Error),
}

/// Source of an input's values.
fn generated(spec: &TensorSpec, rule: Option<&TensorRule>, has_rows: bool) -> Result<Source, SourceError> {
    let planned = rule.and_then(|rule| rule.values.clone());
    let by_plan = planned.is_some();
    let values = match planned {
        Some(values) => Some(convert_values(spec, values)?),
        None => default_values(spec.dtype),
    };
    let from_file = matches!(values, Some(Values::File(_)));
    let dims = match rule.and_then(|rule| rule.shape.as_ref()) {
        Some(dims) => {
            check_shape(spec, dims)?;
            Some(Some(dims.clone()))
        }
        None if from_file => Some(None),
        None => own_dims(spec, has_rows).map(Some),
    };
    match (dims, values) {
        (Some(dims), Some(values)) => Ok(Source::Generated { dims, values, by_plan }),
        (dims, values) => Err(SourceError::Gap(Gap {
            spec: spec.clone(),
            lacks_shape: dims.is_none(),
            lacks_values: values.is_none(),
        })),
    }
}

/// Returns the dimensions fixed by the model; `None` if one besides the rows is free.
fn own_dims(spec: &TensorSpec, has_rows: bool) -> Option<Vec<Dim>> {
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
        dtype if is_float(dtype) => Some(Values::Uniform { from: 0.0, to: 1.0 }),
        DataType::Uint8 => Some(Values::Integers { least: 0, most: 255 }),
        DataType::Bytes => None,
        _ => Some(Values::Integers { least: 0, most: 1 }),
    }
}

/// Converts values to the input's type.
fn convert_values(spec: &TensorSpec, values: Values) -> Result<Values> {
    let key = format!("inputs.tensor.{}.values", spec.name);
    let refuse =
        |kind: &str, instead: &str| Err(anyhow!("`{key}`: {kind} are not valid for {}; {instead}", spec.dtype));
    match &values {
        Values::Uniform { .. } | Values::Normal { .. } if !is_float(spec.dtype) => {
            let instead = if spec.dtype == DataType::Bytes {
                "write { text = { words = [3, 12] } }"
            } else {
                "write { integers = [0, 1] } with your own range"
            };
            refuse("floats", instead)
        }
        Values::Integers { least, most } => {
            let is_valid = |value: i128| element::push(spec.dtype, Number::Int(value), &mut Vec::new());
            if spec.dtype == DataType::Bytes {
                return refuse("integers", "write { text = { words = [3, 12] } }");
            }
            if is_valid(*least) && is_valid(*most) {
                return Ok(values);
            }
            Err(anyhow!("`{key}`: {least} to {most} is out of range for {}", spec.dtype))
        }
        Values::Words { .. } | Values::TextBytes { .. } if spec.dtype != DataType::Bytes => {
            refuse("texts", "only BYTES inputs take text")
        }
        Values::File(records) => {
            let cast = records.cast(spec.dtype).map_err(|error| anyhow!("`{key}`: {error}"))?;
            Ok(Values::File(Arc::new(cast)))
        }
        _ => Ok(values),
    }
}

/// Checks that a plan's shape fits the model's.
fn check_shape(spec: &TensorSpec, dims: &[Dim]) -> Result<()> {
    let key = format!("inputs.tensor.{}.shape", spec.name);
    let (own, of_model, all) = (dims.len(), spec.shape.len(), &spec.shape);
    if own != of_model {
        bail!("`{key}` has {own} dimensions, the model's has {of_model}: {all:?}");
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
            bail!("`{key}[{axis}]` is {dim}, the model's is {declared}: {all:?}");
        }
    }
    Ok(())
}

/// Checks that every `same_as` names an existing dimension with a rule of its own.
fn check_same_as(wanted: &[Wanted]) -> Result<()> {
    for own in wanted {
        for (at, dim) in own.source.dims().into_iter().flatten().enumerate() {
            let Dim::SameAs { input, axis } = dim else { continue };
            let name = input.as_ref().unwrap_or(&own.spec.name);
            let key = format!("`inputs.tensor.{}.shape[{at}]`", own.spec.name);
            let Some(other) = wanted.iter().find(|other| other.spec.name == *name) else {
                bail!("{key} refers to `{name}`, which is not an input of the model");
            };
            if *axis >= other.spec.shape.len() {
                let last = other.spec.shape.len().saturating_sub(1);
                bail!("{key} refers to {name}.{axis}, but `{name}` only has dimensions 0 to {last}");
            }
            let same = other.source.dims().and_then(|dims| dims.get(*axis));
            if matches!(same, Some(Dim::SameAs { .. })) {
                bail!("{key} refers to {name}.{axis}, which refers to another dimension; name that one");
            }
        }
    }
    Ok(())
}
