//! Recorded requests and replies for a model: converted to its types, and refused if they do not fit.
//!
//! In: recordings, and the metadata. Out: tensors, and the expected replies; errors name the place in the file.

use super::declared::Declared;
use super::recorded::{Recorded, RecordedRequest};
use super::resolved::{Ready, Source, ValuesRule, Wanted};
use super::rule::{CheckRule, Expectations, InputRules};
use super::values::typed_expectations;
use std::collections::BTreeMap;
use std::sync::Arc;
use tierlab_protocol::infer::InferRequest;

/// Returns the names in the plan that are not inputs of the model.
pub(super) fn strangers(rules: &InputRules, declared: &Declared<'_>) -> Result<(), String> {
    let is_input = |name: &str| declared.inputs.iter().any(|spec| spec.name == name);
    let known = || {
        let names = declared.inputs.iter().map(|spec| format!("`{}`", spec.name));
        names.collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = rules.tensors.keys().find(|name| !is_input(name)) {
        return Err(format!(
            "`inputs.tensor.{name}` is no input that a request to model `{}` brings; those are {}",
            declared.model,
            known()
        ));
    }
    let recorded = rules.recorded.iter().flat_map(|recorded| &recorded.requests);
    for request in recorded {
        if let Some(whole) = &request.whole {
            whole_fits(whole, declared).map_err(|what| format!("{}: {what}", request.place))?;
        }
        if let Some(tensor) = request.inputs.iter().find(|tensor| !is_input(&tensor.name)) {
            return Err(format!(
                "{}: `{}` is no input of model `{}`; those are {}",
                request.place,
                tensor.name,
                declared.model,
                known()
            ));
        }
    }
    Ok(())
}

/// Checks that a request recorded as a whole is for this model.
fn whole_fits(whole: &bytes::Bytes, declared: &Declared<'_>) -> Result<(), String> {
    let request = InferRequest::decode(&whole.clone().into(), None).map_err(|error| error.to_string())?;
    for tensor in &request.inputs {
        let spec = declared.inputs.iter().find(|spec| spec.name == tensor.name);
        let spec = spec.ok_or_else(|| format!("`{}` is no input of model `{}`", tensor.name, declared.model))?;
        let fits = |(dim, declared): (&i64, &i64)| *declared < 0 || dim == declared;
        let is_shape = tensor.shape.len() == spec.shape.len() && tensor.shape.iter().zip(&spec.shape).all(fits);
        if tensor.dtype != spec.dtype || !is_shape {
            return Err(format!(
                "input `{}` is {} {:?}, the model's is {} {:?}",
                tensor.name, tensor.dtype, tensor.shape, spec.dtype, spec.shape
            ));
        }
    }
    Ok(())
}

pub(super) fn is_recorded(recorded: Option<&Recorded>, name: &str) -> bool {
    let has =
        |request: &RecordedRequest| request.whole.is_some() || request.inputs.iter().any(|tensor| tensor.name == name);
    recorded.is_some_and(|recorded| recorded.requests.iter().any(has))
}

/// Converts recorded requests to the model's types.
pub(super) fn ready(
    recorded: &Recorded,
    rules: &InputRules,
    wanted: &[Wanted],
    declared: &Declared<'_>,
) -> Result<Arc<[Ready]>, String> {
    let checks = rules.check.as_ref();
    let expected = checks.and_then(|check| check.expected.as_deref());
    let others = match expected {
        Some(Expectations::Recorded(others)) if others.requests.len() != recorded.requests.len() => {
            return Err(format!(
                "`inputs.check.expected`: {} has {} entries for {} recorded requests",
                others.source,
                others.requests.len(),
                recorded.requests.len()
            ));
        }
        Some(Expectations::Recorded(others)) => Some(&others.requests),
        _ => None,
    };
    let mut all = Vec::with_capacity(recorded.requests.len());
    for (index, request) in recorded.requests.iter().enumerate() {
        let says = |what: String| format!("{}, {}: {what}", recorded.source, request.place);
        let mut one = Ready {
            whole: request.whole.clone(),
            ..Ready::default()
        };
        let by_name: BTreeMap<&str, _> = request
            .inputs
            .iter()
            .map(|tensor| (tensor.name.as_str(), tensor))
            .collect();
        for want in wanted {
            if one.whole.is_some() || !matches!(want.source, Source::Recorded) {
                one.tensors.push(None);
                continue;
            }
            let name = &want.spec.name;
            let Some(tensor) = by_name.get(name.as_str()) else {
                return Err(says(format!("input `{name}` is missing, which other requests have")));
            };
            let tensor = tensor
                .typed(&want.spec, declared.batched)
                .map_err(|what| says(format!("input `{name}`: {what}")))?;
            one.tensors.push(Some(tensor));
        }
        if checks.is_some() {
            let own = others.map_or(request, |others| &others[index]);
            one.expected = typed_expectations(&own.expected, declared.outputs).map_err(says)?;
        }
        all.push(one);
    }
    if checks.is_some() && expected.is_none() && all.iter().all(|ready| ready.expected.is_empty()) {
        return Err(format!(
            "`inputs.check`: {} has no validation data, and `inputs.check.expected` names none",
            recorded.source
        ));
    }
    Ok(all.into())
}

pub(super) fn check_of(check: &CheckRule, has_recorded: bool, declared: &Declared<'_>) -> Result<ValuesRule, String> {
    let mut arrays = Vec::new();
    match check.expected.as_deref() {
        Some(Expectations::Arrays(by_output)) => {
            for (name, records) in by_output {
                let spec = declared.outputs.iter().find(|spec| spec.name == *name);
                let spec = spec.ok_or_else(|| {
                    let known: Vec<_> = declared.outputs.iter().map(|spec| spec.name.as_str()).collect();
                    format!(
                        "`inputs.check.expected`: `{name}` is no output of model `{}`; those are {}",
                        declared.model,
                        known.join(", ")
                    )
                })?;
                let cast = records
                    .cast(spec.dtype)
                    .map_err(|what| format!("`inputs.check.expected`: {what}"))?;
                arrays.push((spec.clone(), Arc::new(cast)));
            }
        }
        Some(Expectations::Recorded(_)) if !has_recorded => {
            return Err(
                "`inputs.check.expected` is of recorded requests, and the plan has none: add `inputs.data`".into(),
            );
        }
        Some(Expectations::Recorded(_)) => {}
        None if !has_recorded => {
            return Err("`inputs.check.expected` is missing: of requests that are made, nobody knows the reply".into());
        }
        None => {}
    }
    Ok(ValuesRule {
        share: check.share,
        tolerance: check.tolerance,
        arrays,
    })
}
