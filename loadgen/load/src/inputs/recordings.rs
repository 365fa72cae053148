//! Recorded requests and replies for a model: converted to its types, and refused if they do not fit.
//!
//! In: recordings, and the metadata. Out: tensors, and the expected replies; errors name the place in the file.

use super::recorded::{Recorded, RecordedTensor, elements, fits};
use super::resolved::{Declared, Source, TypedRequest, ValuesRule, Wanted};
use super::rule::{CheckRule, Expectations, InputRules};
use crate::reply::OutputValues;
use anyhow::{Result, anyhow, bail};
use std::sync::Arc;
use tierlab_protocol::infer::{InferRequest, Tensor};

/// Refuses names of the plan that are not inputs of the model, and recorded requests for another model.
pub(super) fn check_names(rules: &InputRules, declared: &Declared<'_>) -> Result<()> {
    for name in rules.tensors.keys() {
        declared
            .input(name)
            .map_err(|error| anyhow!("`inputs.tensor.{name}`: {error}"))?;
    }
    for request in rules.recorded.iter().flat_map(|recorded| &recorded.requests) {
        let at = |error| anyhow!("{}: {error}", request.place);
        if let Some(whole) = &request.whole {
            check_whole(whole, declared).map_err(at)?;
        }
        for tensor in &request.inputs {
            declared.input(&tensor.name).map_err(at)?;
        }
    }
    Ok(())
}

/// Checks that a request recorded as a whole is for this model.
fn check_whole(whole: &bytes::Bytes, declared: &Declared<'_>) -> Result<()> {
    let request = InferRequest::decode(&whole.clone().into(), None)?;
    for tensor in &request.inputs {
        let spec = declared.input(&tensor.name)?;
        if tensor.dtype != spec.dtype || !fits(&tensor.shape, &spec.shape) {
            let declared = format!("{} {:?}", spec.dtype, spec.shape);
            let Tensor { name, dtype, shape, .. } = tensor;
            bail!("input `{name}` is {dtype} {shape:?}, the model's is {declared}");
        }
    }
    Ok(())
}

/// Converts recorded requests to the model's types.
pub(super) fn typed(
    recorded: &Recorded,
    rules: &InputRules,
    wanted: &[Wanted],
    declared: &Declared<'_>,
) -> Result<Arc<[TypedRequest]>> {
    let checks = rules.check.as_ref();
    let expected = checks.and_then(|check| check.expected.as_deref());
    let others = match expected {
        Some(Expectations::Recorded(others)) if others.requests.len() != recorded.requests.len() => {
            bail!(
                "`inputs.check.expected`: {} has {} entries for {} recorded requests",
                others.source,
                others.requests.len(),
                recorded.requests.len()
            );
        }
        Some(Expectations::Recorded(others)) => Some(&others.requests),
        _ => None,
    };
    let mut all = Vec::with_capacity(recorded.requests.len());
    for (index, request) in recorded.requests.iter().enumerate() {
        let at = |error: anyhow::Error| anyhow!("{}, {}: {error}", recorded.source, request.place);
        let mut typed = TypedRequest {
            whole: request.whole.clone(),
            ..TypedRequest::default()
        };
        for want in wanted {
            if typed.whole.is_some() || !matches!(want.source, Source::Recorded) {
                typed.tensors.push(None);
                continue;
            }
            let name = &want.spec.name;
            let Some(tensor) = request.inputs.iter().rfind(|tensor| tensor.name == *name) else {
                return Err(at(anyhow!("input `{name}` is missing, which other requests have")));
            };
            let tensor = tensor.typed(&want.spec, declared.batched);
            typed
                .tensors
                .push(Some(tensor.map_err(|error| at(anyhow!("input `{name}`: {error}")))?));
        }
        if checks.is_some() {
            let own = others.map_or(request, |others| &others[index]);
            typed.expected = typed_expectations(&own.expected, declared).map_err(at)?;
        }
        all.push(typed);
    }
    if checks.is_some() && expected.is_none() && all.iter().all(|typed| typed.expected.is_empty()) {
        let file = &recorded.source;
        bail!("`inputs.check`: {file} has no validation data; set `inputs.check.expected`");
    }
    Ok(all.into())
}

pub(super) fn check_of(check: &CheckRule, has_recorded: bool, declared: &Declared<'_>) -> Result<ValuesRule> {
    let mut arrays = Vec::new();
    match check.expected.as_deref() {
        Some(Expectations::Arrays(by_output)) => {
            for (name, records) in by_output {
                let at = |error| anyhow!("`inputs.check.expected`: {error}");
                let spec = declared.output(name).map_err(at)?;
                let cast = records.cast(spec.dtype).map_err(at)?;
                arrays.push((spec.clone(), Arc::new(cast)));
            }
        }
        Some(Expectations::Recorded(_)) if !has_recorded => {
            bail!("`inputs.check.expected` needs recorded requests: add `inputs.data`");
        }
        None if !has_recorded => {
            bail!("`inputs.check.expected` is missing: replies to generated requests are unknown");
        }
        Some(Expectations::Recorded(_)) | None => {}
    }
    Ok(ValuesRule {
        share: check.share,
        tolerance: check.tolerance,
        arrays,
    })
}

/// Returns the expected values of outputs in the outputs' types.
fn typed_expectations(expected: &[RecordedTensor], declared: &Declared<'_>) -> Result<Arc<[OutputValues]>> {
    let mut all = Vec::with_capacity(expected.len());
    for tensor in expected {
        let spec = declared.output(&tensor.name)?;
        let at = |error| anyhow!("expected output `{}`: {error}", tensor.name);
        let (data, _) = tensor.elements(spec.dtype).map_err(at)?;
        if elements(spec.dtype, &data).is_none() {
            return Err(at(anyhow!("its bytes are not a whole number of elements")));
        }
        all.push(OutputValues {
            name: spec.name.clone(),
            dtype: spec.dtype,
            data,
        });
    }
    Ok(all.into())
}
