//! Inputs of a plan for a model: the tensors of a request, and the sources of their dimensions and elements.
//!
//! In: the plan's rules and the model's metadata. Out: [`Inputs`], or the reason for which no request can be built,
//! with the lines to add to the plan. Only one dimension is ever guessed: a first dimension that is free in every input
//! is taken as the rows, and the result says so.

use super::gaps::gaps;
use super::made::{made, own_dims, same_as};
use super::recordings::{check_of, is_recorded, ready, strangers};
use super::resolved::{Declared, Inputs, RowsBy, Source, Wanted};
use super::rule::{Dim, InputRules};
use std::sync::Arc;
use tierlab_protocol::tensor::TensorSpec;

impl Inputs {
    /// Resolves the sources of a model's inputs.
    ///
    /// # Errors
    /// Inputs that the plan does not describe, or that the model does not accept, in words for the plan's author.
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
}

/// True if the first dimension may be taken as the rows although the server does not declare it: it is free in every
/// input, and no input is a vector, which may just as well be a sequence.
fn assumable(declared: &Declared<'_>) -> bool {
    let is_like = |spec: &TensorSpec| spec.shape.len() > 1 && spec.shape[0] < 0;
    !declared.inputs.is_empty() && declared.inputs.iter().all(is_like)
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
    // If the plan has no shape for any input, the dimensions are those of `own_dims`.
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
