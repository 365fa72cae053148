//! A plan's inputs on a model: which tensors a request has, and where their dimensions and elements come from.
//!
//! In: what the plan says and what the model's metadata declares. Out: [`Inputs`], or why no request can be made, with the
//! lines to add to the plan. No dimension is guessed but one: a first dimension that is free in every input is taken as the
//! rows, and the result says so.

use super::gaps::{Gap, gaps};
use super::recorded::{Recorded, RecordedRequest};
use super::records::Records;
use super::rule::{CheckRule, Dim, Expectations, InputRules, Order, TensorRule, Values};
use super::values::typed_expectations;
use crate::reply::OutputValues;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use tierlab_protocol::infer::{InferRequest, Tensor};
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// A model as its metadata declares it.
#[derive(Debug, Clone, Copy)]
pub struct Declared<'a> {
    /// Its name.
    pub model: &'a str,
    /// The inputs that a request has to bring.
    pub inputs: &'a [TensorSpec],
    /// Its outputs.
    pub outputs: &'a [TensorSpec],
    /// Whether the server says that the first dimension of every tensor is the rows.
    pub batched: bool,
}

/// Which dimension the rows are, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsBy {
    /// The first one of every tensor: the server says so.
    Server,
    /// The plan's `"rows"`.
    Plan,
    /// The first one, which is free in every input: nobody says so.
    Assumed,
    /// None.
    Nothing,
}

impl RowsBy {
    /// For the result.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Server => "the first dimension, as the server says",
            Self::Plan => "the dimensions that the plan calls \"rows\"",
            Self::Assumed => "the first dimension, which is free in every input: assumed, the server does not say",
            Self::Nothing => "none: a request is one inference",
        }
    }
}

/// The inputs of a model's requests.
#[derive(Debug, Clone)]
pub struct Inputs {
    pub(super) model: String,
    pub(super) outputs: Arc<[TensorSpec]>,
    pub(super) wanted: Vec<Wanted>,
    pub(super) recorded: Option<Arc<[Ready]>>,
    pub(super) rows_by: RowsBy,
    pub(super) order: Order,
    pub(super) rows_per_request: Option<u32>,
    pub(super) check: Option<ValuesRule>,
    /// Whether the plan says anything of inputs.
    pub(super) is_planned: bool,
    /// Outputs whose first dimension is no row for each row asked for, found out by asking.
    pub(super) loose: Arc<OnceLock<BTreeSet<String>>>,
}

/// One input, and what it is made of.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) spec: TensorSpec,
    pub(super) source: Source,
}

#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Of the recorded request.
    Recorded,
    /// Made.
    Made {
        /// `None` where the file says them.
        dims: Option<Vec<Dim>>,
        values: Values,
        is_told: bool,
    },
}

/// A recorded request in the model's types.
#[derive(Debug, Clone, Default)]
pub(super) struct Ready {
    /// By the places of `Inputs::wanted`; `None` where it is made.
    pub(super) tensors: Vec<Option<Tensor>>,
    pub(super) expected: Arc<[OutputValues]>,
    pub(super) whole: Option<bytes::Bytes>,
}

/// Which values are compared.
#[derive(Debug, Clone)]
pub(super) struct ValuesRule {
    pub(super) share: f64,
    pub(super) tolerance: f64,
    /// By output, record by record; empty where recorded requests bring their own.
    pub(super) arrays: Vec<(TensorSpec, Arc<Records>)>,
}

impl Inputs {
    /// What the requests of a model are made of.
    ///
    /// # Errors
    /// Inputs that the plan says too little of, or what the model does not take, in words for the plan's author.
    pub fn resolve(rules: &InputRules, declared: &Declared<'_>) -> Result<Self, String> {
        strangers(rules, declared)?;
        let mut found = Vec::new();
        let mut wanted = Vec::new();
        let has_rows = declared.batched || assumable(declared);
        for spec in declared.inputs {
            let rule = rules.tensors.get(&spec.name);
            if is_recorded(rules.recorded.as_deref(), &spec.name) {
                if rule.is_some() {
                    return Err(format!(
                        "`inputs.tensor.{}` does nothing: every recorded request brings that input; leave one of them out",
                        spec.name
                    ));
                }
                wanted.push(Wanted {
                    spec: spec.clone(),
                    source: Source::Recorded,
                });
                continue;
            }
            match made(spec, rule, has_rows)? {
                Ok(source) => wanted.push(Wanted {
                    spec: spec.clone(),
                    source,
                }),
                Err(gap) => found.push(gap),
            }
        }
        if !found.is_empty() {
            return Err(gaps(declared, &found));
        }
        same_as(&wanted)?;
        let rows_by = rows_by(&wanted, declared);
        let recorded = match rules.recorded.as_deref() {
            Some(recorded) => Some(ready(recorded, rules, &wanted, declared)?),
            None => None,
        };
        Ok(Self {
            model: declared.model.to_owned(),
            outputs: declared.outputs.into(),
            check: rules
                .check
                .as_ref()
                .map(|check| check_of(check, recorded.is_some(), declared))
                .transpose()?,
            wanted,
            recorded,
            rows_by,
            order: rules.order,
            rows_per_request: rules.rows_per_request,
            is_planned: !rules.tensors.is_empty() || rules.recorded.is_some(),
            loose: Arc::default(),
        })
    }

    /// Whether a request brings nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Which dimension the rows are.
    #[must_use]
    pub const fn rows_by(&self) -> RowsBy {
        self.rows_by
    }

    /// Whether a load can ask for more than one row.
    #[must_use]
    pub fn takes_rows(&self) -> bool {
        let is_rows = |dim: &Dim| *dim == Dim::Rows;
        let of_load = |wanted: &Wanted| match &wanted.source {
            Source::Recorded => self.rows_by != RowsBy::Nothing,
            Source::Made { dims: Some(dims), .. } => dims.iter().any(is_rows),
            Source::Made { dims: None, .. } => self.rows_by != RowsBy::Nothing,
        };
        let whole = self
            .recorded
            .iter()
            .flat_map(|ready| ready.iter())
            .any(|ready| ready.whole.is_some());
        !whole && self.wanted.iter().any(of_load)
    }

    /// Says which outputs have no row for each row asked for; what was said first stands.
    pub fn loosen(&self, outputs: BTreeSet<String>) {
        let _ = self.loose.set(outputs);
    }
}

/// Names in the plan that are none of the model's inputs.
fn strangers(rules: &InputRules, declared: &Declared<'_>) -> Result<(), String> {
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

/// Whether a request that was recorded whole is one to this model.
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

fn is_recorded(recorded: Option<&Recorded>, name: &str) -> bool {
    let has =
        |request: &RecordedRequest| request.whole.is_some() || request.inputs.iter().any(|tensor| tensor.name == name);
    recorded.is_some_and(|recorded| recorded.requests.iter().any(has))
}

/// Whether the first dimension may be taken as the rows though the server does not say so: it is free in every input, and none
/// of them is a vector, which may as well be a sequence.
fn assumable(declared: &Declared<'_>) -> bool {
    let is_like = |spec: &TensorSpec| spec.shape.len() > 1 && spec.shape[0] < 0;
    !declared.inputs.is_empty() && declared.inputs.iter().all(is_like)
}

/// What an input is made of, or what is not known of it.
fn made(spec: &TensorSpec, rule: Option<&TensorRule>, has_rows: bool) -> Result<Result<Source, Gap>, String> {
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

/// What a model's own dimensions say; `None` where one is free that is not the rows.
fn own_dims(spec: &TensorSpec, has_rows: bool) -> Option<Vec<Dim>> {
    let dim = |(axis, &dim): (usize, &i64)| match u64::try_from(dim) {
        Ok(size) => Some(Dim::Fixed(size)),
        Err(_) if axis == 0 && has_rows => Some(Dim::Rows),
        Err(_) => None,
    };
    spec.shape.iter().enumerate().map(dim).collect()
}

/// Elements where the plan says nothing: floats of [0, 1), pixels, and integers of 0 and 1, which are valid as indices.
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

/// Values in the input's type.
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
            let holds =
                |value: i128| crate::element::push(spec.dtype, crate::element::Number::Int(value), &mut Vec::new());
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

/// Whether a plan's shape may be one of the model's.
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
            // Looked at when it is known.
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

/// Every `same_as` names a dimension that is there and says itself what it is.
fn same_as(wanted: &[Wanted]) -> Result<(), String> {
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

fn rows_by(wanted: &[Wanted], declared: &Declared<'_>) -> RowsBy {
    if declared.batched {
        return RowsBy::Server;
    }
    let planned = |wanted: &Wanted| match &wanted.source {
        Source::Made { dims: Some(dims), .. } => dims.contains(&Dim::Rows),
        _ => false,
    };
    if !wanted.iter().any(planned) {
        let bring = |wanted: &Wanted| !matches!(&wanted.source, Source::Made { dims: Some(_), .. });
        return if assumable(declared) && wanted.iter().any(bring) {
            RowsBy::Assumed
        } else {
            RowsBy::Nothing
        };
    }
    // Where the plan has no shape for any input, the dimensions are those of `own_dims`.
    let is_own = |wanted: &Wanted| match &wanted.source {
        Source::Made { dims: Some(dims), .. } => own_dims(&wanted.spec, true).as_ref() == Some(dims),
        _ => true,
    };
    if assumable(declared) && wanted.iter().all(is_own) {
        RowsBy::Assumed
    } else {
        RowsBy::Plan
    }
}

/// Recorded requests in the model's types.
fn ready(
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

fn check_of(check: &CheckRule, has_recorded: bool, declared: &Declared<'_>) -> Result<ValuesRule, String> {
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
