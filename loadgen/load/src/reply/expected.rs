//! Expected form of a reply, by a model's metadata and the outputs received.

use super::found::{Found, Wrong, quoted, wrong};
use super::values::ReplyValues;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Expected form of a reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expected {
    model: String,
    /// Outputs in the metadata's order; empty if the metadata declares none.
    outputs: Vec<Output>,
    /// Expected values; `None` checks the structure only.
    values: Option<ReplyValues>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Output {
    name: String,
    dtype: DataType,
    /// Declared dimensions, `None` for a free one. `None` for outputs of any shape.
    dims: Option<Vec<Option<u64>>>,
    /// Size of a free first dimension; `None` leaves it free.
    rows: Option<u64>,
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
    fn fit(&self, found: &[u64]) -> ShapeFit {
        let Some(dims) = &self.dims else { return ShapeFit::Rows };
        let is_as_declared = |(dim, declared): (&u64, &Option<u64>)| declared.is_none_or(|declared| declared == *dim);
        if found.len() != dims.len() || !found.iter().zip(dims).all(is_as_declared) {
            return ShapeFit::Other;
        }
        match self.rows {
            Some(rows) if found.first().is_some_and(|first| *first != rows) => ShapeFit::Declared,
            _ => ShapeFit::Rows,
        }
    }

    /// Dimensions for a message.
    fn shown(&self) -> String {
        let dims = self.dims.iter().flatten().enumerate();
        let dims = dims.map(|(axis, dim)| dim.or(self.rows.filter(|_| axis == 0)));
        let dims = dims.map(|dim| dim.map_or_else(|| "free".to_owned(), |dim| dim.to_string()));
        dims.collect::<Vec<_>>().join(", ")
    }
}

impl Expected {
    /// Creates the expectation for a model with these outputs and a request of `rows` rows. A free first dimension has
    /// the size `rows`; if `rows` is unknown, it is free like the others.
    #[must_use]
    pub fn new(model: &str, outputs: &[TensorSpec], rows: Option<u32>) -> Self {
        Self::of_rows(model, outputs, |_| rows)
    }

    /// Creates the expectation with rows per output by name; without rows the first dimension is free like the others.
    #[must_use]
    pub fn of_rows(model: &str, outputs: &[TensorSpec], rows: impl Fn(&str) -> Option<u32>) -> Self {
        Self {
            model: model.to_owned(),
            outputs: outputs
                .iter()
                .map(|spec| Output {
                    name: spec.name.clone(),
                    dtype: spec.dtype,
                    dims: Some(spec.shape.iter().map(|dim| u64::try_from(*dim).ok()).collect()),
                    rows: rows(&spec.name)
                        .filter(|_| spec.shape.first().is_some_and(|dim| *dim < 0))
                        .map(u64::from),
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
    #[must_use]
    pub fn fit(&self, name: &str, shape: &[i64]) -> ShapeFit {
        let declared = self.outputs.iter().find(|output| output.name == name);
        let shape: Vec<u64> = shape
            .iter()
            .map(|dim| u64::try_from(*dim).unwrap_or(u64::MAX))
            .collect();
        declared.map_or(ShapeFit::Rows, |output| output.fit(&shape))
    }

    /// Adds expected values of the outputs.
    #[must_use]
    pub fn with_values(self, values: ReplyValues) -> Self {
        Self {
            values: Some(values),
            ..self
        }
    }

    pub(super) const fn values(&self) -> Option<&ReplyValues> {
        self.values.as_ref()
    }

    /// Returns the elements of all outputs together; `None` if a dimension is free or elements have no fixed size.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        let of = |output: &Output| {
            output.dtype.size()?;
            let mut dims = output.dims.as_ref()?.iter().enumerate();
            let size = |axis: usize, dim: &Option<u64>| dim.or(output.rows.filter(|_| axis == 0));
            dims.try_fold(1_u64, |all, (axis, dim)| all.checked_mul(size(axis, dim)?))
        };
        let all = self
            .outputs
            .iter()
            .try_fold(0_u64, |all, output| all.checked_add(of(output)?));
        all.filter(|_| !self.outputs.is_empty())
    }

    pub(super) fn model_is(&self, name: &[u8]) -> Result<(), Wrong> {
        if name == self.model.as_bytes() {
            return Ok(());
        }
        Err(wrong(format_args!(
            "the reply is of model `{}`, asked was `{}`",
            quoted(name),
            self.model
        )))
    }

    /// Compares the next tensor with its declaration, and returns its type and required number of elements.
    pub(super) fn tensor(&self, found: &Found<'_>, seen: &mut Seen) -> Result<(DataType, u64), Wrong> {
        let name = || quoted(found.name);
        let read = std::str::from_utf8(found.dtype)
            .ok()
            .and_then(|text| text.parse::<DataType>().ok());
        let dtype = read.ok_or_else(|| {
            wrong(format_args!(
                "output `{}` has no data type: `{}`",
                name(),
                quoted(found.dtype)
            ))
        })?;
        let elements = found
            .shape
            .elements()
            .ok_or_else(|| wrong(format_args!("output `{}` has shape {:?}", name(), found.shape.dims())))?;
        if self.outputs.is_empty() {
            seen.count += 1;
            return Ok((dtype, elements));
        }
        let output = self.declared(found.name, seen)?;
        if output.dtype != dtype {
            return Err(wrong(format_args!(
                "output `{}` is {dtype}, declared is {}",
                name(),
                output.dtype
            )));
        }
        let dims = found.shape.dims();
        if output.fit(dims) != ShapeFit::Rows {
            return Err(wrong(format_args!(
                "output `{}` has shape {dims:?}, not [{}]",
                name(),
                output.shown()
            )));
        }
        Ok((dtype, elements))
    }

    /// Returns the declared output of a name; each may occur once.
    fn declared(&self, name: &[u8], seen: &mut Seen) -> Result<&Output, Wrong> {
        let is = |output: &Output| output.name.as_bytes() == name;
        // Outputs mostly come in the metadata's order.
        let at = if self.outputs.get(seen.count).is_some_and(is) {
            Some(seen.count)
        } else {
            self.outputs.iter().position(is)
        };
        let Some((at, output)) = at.and_then(|at| Some((at, self.outputs.get(at)?))) else {
            return Err(wrong(format_args!("output `{}` is none of the model's", quoted(name))));
        };
        if !seen.add(at) {
            return Err(wrong(format_args!("output `{}` came twice", quoted(name))));
        }
        Ok(output)
    }

    pub(super) fn all_came(&self, seen: &Seen) -> Result<(), Wrong> {
        if seen.count == 0 {
            return Err(wrong("the reply has no outputs"));
        }
        if self.outputs.is_empty() || seen.count == self.outputs.len() {
            return Ok(());
        }
        let missing = self.outputs.iter().enumerate().find(|(at, _)| !seen.has(*at));
        Err(wrong(format_args!(
            "output `{}` is missing",
            missing.map_or("", |(_, output)| &output.name)
        )))
    }
}

/// Declared outputs received so far, distinguished up to the 128th.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) count: usize,
    which: u128,
}

impl Seen {
    /// Marks an output as received; returns `false` if it was already.
    fn add(&mut self, at: usize) -> bool {
        let is_new = !self.has(at);
        self.which |= Self::bit(at);
        self.count += 1;
        is_new
    }

    fn has(&self, at: usize) -> bool {
        self.which & Self::bit(at) != 0
    }

    fn bit(at: usize) -> u128 {
        u32::try_from(at)
            .ok()
            .and_then(|at| 1_u128.checked_shl(at))
            .unwrap_or(0)
    }
}
