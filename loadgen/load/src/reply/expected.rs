//! Expected form of a reply, by a model's metadata.

use super::checked::{NoReply, quoted, wrong_reply};
use super::values::ReplyValues;
use crate::schedule::split_mix;
use std::sync::Arc;
use tierlab_protocol::infer::InferReply;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Expected form of a reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expected {
    model: String,
    /// Outputs in the metadata's order; empty if the metadata declares none.
    outputs: Vec<Output>,
    /// Expected values; `None` checks the structure only.
    pub(super) values: Option<ReplyValues>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Output {
    name: String,
    dtype: DataType,
    /// Declared dimensions, negative for a free one. `None` for outputs of any shape.
    dims: Option<Vec<i64>>,
    /// Size of a free first dimension; `None` leaves it free.
    rows: Option<i64>,
}

/// Agreement of an output's shape with the declared one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShapeFit {
    /// Declared shape, with a row for each row of the request.
    Rows,
    /// Declared shape with any number of rows.
    Declared,
    /// Another rank or another fixed dimension.
    Other,
}

impl Output {
    fn fit(&self, found: &[i64]) -> ShapeFit {
        let Some(dims) = &self.dims else { return ShapeFit::Rows };
        let is_as_declared = |(dim, declared): (&i64, &i64)| *declared < 0 || declared == dim;
        if found.len() != dims.len() || !found.iter().zip(dims).all(is_as_declared) {
            return ShapeFit::Other;
        }
        match self.rows {
            Some(rows) if found.first().is_some_and(|first| *first != rows) => ShapeFit::Declared,
            _ => ShapeFit::Rows,
        }
    }

    /// Sizes of its dimensions, `None` for a free one.
    fn sizes(&self) -> impl Iterator<Item = Option<u64>> {
        let dims = self.dims.iter().flatten().enumerate();
        dims.map(|(axis, &dim)| {
            let rows = self.rows.filter(|_| axis == 0);
            u64::try_from(rows.filter(|_| dim < 0).unwrap_or(dim)).ok()
        })
    }

    /// Dimensions for a message.
    fn shown(&self) -> String {
        let sizes = self.sizes();
        let sizes = sizes.map(|size| size.map_or_else(|| "free".to_owned(), |size| size.to_string()));
        sizes.collect::<Vec<_>>().join(", ")
    }
}

impl Expected {
    /// Creates the expectation for a model with these outputs and a request of `rows` rows. A free first dimension has
    /// the size `rows`; if `rows` is unknown, it is free like the others.
    pub fn new(model: &str, outputs: &[TensorSpec], rows: Option<u32>) -> Self {
        Self::of_rows(model, outputs, |_| rows)
    }

    /// Creates the expectation with rows per output by name; without rows the first dimension is free like the others.
    pub fn of_rows(model: &str, outputs: &[TensorSpec], rows: impl Fn(&str) -> Option<u32>) -> Self {
        Self {
            model: model.to_owned(),
            outputs: outputs
                .iter()
                .map(|spec| Output {
                    name: spec.name.clone(),
                    dtype: spec.dtype,
                    dims: Some(spec.shape.clone()),
                    rows: rows(&spec.name)
                        .filter(|_| spec.shape.first().is_some_and(|dim| *dim < 0))
                        .map(i64::from),
                })
                .collect(),
            values: None,
        }
    }

    /// Restricts the expectation to the requested outputs; an empty list means all.
    #[must_use]
    pub fn only(mut self, names: &[String]) -> Self {
        if !names.is_empty() {
            self.outputs.retain(|output| names.contains(&output.name));
        }
        self
    }

    /// Allows any shape for the chosen outputs, by name.
    #[must_use]
    pub fn with_any_shape(mut self, is_chosen: impl Fn(&str) -> bool) -> Self {
        for output in self.outputs.iter_mut().filter(|output| is_chosen(&output.name)) {
            output.dims = None;
        }
        self
    }

    /// Returns the agreement of a declared output's shape; [`ShapeFit::Rows`] for an undeclared name.
    pub fn fit(&self, name: &str, shape: &[i64]) -> ShapeFit {
        self.declared(name).map_or(ShapeFit::Rows, |output| output.fit(shape))
    }

    /// Adds expected values of the outputs.
    #[must_use]
    pub fn with_values(self, values: ReplyValues) -> Self {
        Self {
            values: Some(values),
            ..self
        }
    }

    /// Returns the elements of all outputs together; `None` if a dimension is free or elements have no fixed size.
    pub fn elements(&self) -> Option<u64> {
        let of = |output: &Output| {
            output.dtype.size()?;
            output.dims.as_ref()?;
            output.sizes().try_fold(1_u64, |all, size| all.checked_mul(size?))
        };
        let mut outputs = self.outputs.iter();
        let all = outputs.try_fold(0_u64, |all, output| all.checked_add(of(output)?));
        all.filter(|_| !self.outputs.is_empty())
    }

    /// Compares a reply's model and outputs with the expected ones. A decoded reply holds the data that its shapes
    /// require.
    pub(super) fn check_structure(&self, reply: &InferReply) -> Result<(), NoReply> {
        if reply.model_name != self.model {
            return Err(wrong_reply(format_args!(
                "the reply is from model `{}`, not `{}`",
                quoted(reply.model_name.as_bytes()),
                self.model
            )));
        }
        if reply.outputs.is_empty() {
            return Err(wrong_reply("the reply has no outputs"));
        }
        if self.outputs.is_empty() {
            return Ok(());
        }
        for (index, found) in reply.outputs.iter().enumerate() {
            let refuse = |what: &str| {
                let name = quoted(found.name.as_bytes());
                Err(wrong_reply(format_args!("output `{name}` {what}")))
            };
            let Some(output) = self.declared(&found.name) else {
                return refuse("is not an output of the model");
            };
            if reply.outputs[..index].iter().any(|other| other.name == found.name) {
                return refuse("is a duplicate");
            }
            if output.dtype != found.dtype {
                return refuse(&format!("has type {}, not the declared {}", found.dtype, output.dtype));
            }
            if output.fit(&found.shape) != ShapeFit::Rows {
                return refuse(&format!("has shape {:?}, not [{}]", found.shape, output.shown()));
            }
        }
        let has = |output: &&Output| reply.outputs.iter().any(|found| found.name == output.name);
        match self.outputs.iter().find(|output| !has(output)) {
            Some(missing) => Err(wrong_reply(format_args!("output `{}` is missing", missing.name))),
            None => Ok(()),
        }
    }

    fn declared(&self, name: &str) -> Option<&Output> {
        self.outputs.iter().find(|output| output.name == name)
    }
}

/// Expected replies to one prepared request.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedReply {
    structure: Arc<Expected>,
    valued: Option<Arc<Expected>>,
    /// Sampled share, in units of 2^-64.
    sampled: u64,
    seed: u64,
}

impl WantedReply {
    /// Creates the expectations: always the structure, and known values on a share of the requests chosen by the seed.
    pub fn new(structure: Arc<Expected>, valued: Option<(Arc<Expected>, f64)>, seed: u64) -> Self {
        let (valued, share) = valued.map_or((None, 0.0), |(valued, share)| (Some(valued), share));
        Self {
            structure,
            valued,
            // Saturates at both ends.
            sampled: (share * u64::MAX as f64) as u64,
            seed,
        }
    }

    /// True if values are expected.
    pub(crate) const fn has_values(&self) -> bool {
        self.valued.is_some()
    }

    /// Returns the expectation for the step's request number `index`. The values of the first request are always
    /// checked.
    pub fn at(&self, index: usize) -> &Arc<Expected> {
        let is_sampled = index == 0 || split_mix(self.seed ^ index as u64) <= self.sampled;
        match &self.valued {
            Some(valued) if is_sampled && self.sampled > 0 => valued,
            _ => &self.structure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_is_looked_at_is_the_share_that_was_asked_for() {
        let structure = Arc::new(Expected::new("m", &[], None));
        let valued = Arc::new(Expected::new("v", &[], None));
        for (share, least, most) in [(0.0, 0, 0), (0.01, 60, 140), (0.5, 4_800, 5_200), (1.0, 10_000, 10_000)] {
            let wanted = WantedReply::new(Arc::clone(&structure), Some((Arc::clone(&valued), share)), 7);
            let checked = (0..10_000).filter(|index| **wanted.at(*index) == *valued).count();
            assert!((least..=most).contains(&checked), "{share}: {checked}");
        }
    }
}
