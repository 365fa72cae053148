//! The inputs of a model's requests, once a plan and a model have been brought together: which tensors there are, and where their
//! dimensions and elements come from. In: nothing. Out: plain data, which `resolve` makes and `draw` and `prepare` use.

use super::records::Records;
use super::rule::{Dim, Order, Values};
use crate::reply::{OutputValues, ShapeFit};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::TensorSpec;

/// Which dimension the rows are, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsBy {
    /// The first one of every tensor: the server says so.
    Server,
    /// The plan's `"rows"`.
    Plan,
    /// The first one, which is free in every input: nobody says so.
    Assumed,
    /// Unknown: requests have no rows.
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
    /// True if the plan describes inputs.
    pub(super) is_planned: bool,
    /// Outputs by name whose shapes differ from the expected one, found out by asking.
    pub(super) loose: Arc<OnceLock<BTreeMap<String, ShapeFit>>>,
}

/// One input, and what it is made of.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) spec: TensorSpec,
    pub(super) source: Source,
}

#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Values of the recorded request.
    Recorded,
    /// Values made by rule.
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
    /// True if requests have no inputs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Which dimension the rows are.
    #[must_use]
    pub const fn rows_by(&self) -> RowsBy {
        self.rows_by
    }

    /// True if a load can ask for more than one row.
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

    /// Sets how far outputs, by name, differ from the expected shape. Later calls change nothing.
    pub fn loosen(&self, outputs: BTreeMap<String, ShapeFit>) {
        let _ = self.loose.set(outputs);
    }
}
