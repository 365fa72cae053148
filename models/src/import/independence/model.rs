//! Model under test: its session, its inputs and outputs, and runs of chosen rows.

use super::super::runtime::{builder, session_tensors, value};
use super::elements::{Elements, InputKind, seeded_rows, tolerance};
use crate::error::ModelsError;
use anyhow::anyhow;
use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use std::path::Path;
use tierlab_formats::model::{SessionTensor, WarmupTensor, check_batch_axis};
use tierlab_protocol::tensor::DataType;

/// Maximum elements of one batch's inputs; larger batches are not tested.
pub(super) const MAX_ELEMENTS: usize = 1 << 24;
/// Sizes tried for free dimensions after the first, the same for all of them, until the model runs.
const FREE_SIZES: [usize; 6] = [8, 1, 16, 64, 128, 224];
/// Limits of integers tried until the model runs, because they may be indices.
const INT_LIMITS: [u32; 3] = [100, 8, 2];

/// Reason for an early end of a test.
#[derive(Debug)]
pub(super) enum TestFailure {
    /// Rows depend on each other, or the test shows nothing.
    Refused(String),
    /// A stop, or an error of this program.
    Stopped(ModelsError),
}

impl From<ModelsError> for TestFailure {
    fn from(error: ModelsError) -> Self {
        Self::Stopped(error)
    }
}

pub(super) type Result<T> = std::result::Result<T, TestFailure>;

/// Input of the model.
struct ModelInput {
    name: String,
    dtype: DataType,
    /// Dimensions after the first; `None` for free ones.
    dims: Vec<Option<usize>>,
}

/// Output of the model.
pub(super) struct Output {
    pub(super) name: String,
    /// Maximum difference of elements, as a share of the largest value.
    pub(super) tolerance: f64,
}

/// Model under test.
pub(super) struct Model {
    session: Session,
    inputs: Vec<ModelInput>,
    pub(super) outputs: Vec<Output>,
    /// Size of free dimensions.
    free_size: usize,
    /// Limit of integers.
    int_limit: u32,
}

impl Model {
    /// Builds a session with one thread, so that every run gives the same result, and finds sizes with which it runs.
    pub(super) fn open(environment: &Environment, file: &Path) -> Result<Self> {
        let session = builder(environment).and_then(|mut builder| builder.commit_from_file(file));
        let session = session.map_err(|e| TestFailure::Refused(format!("ONNX Runtime refuses the graph: {e}")))?;
        let (inputs, outputs) = session_tensors(&session);
        let unsupported_type = |tensor: &SessionTensor| {
            let (name, type_name) = (&tensor.name, &tensor.type_name);
            TestFailure::Refused(format!("`{name}` is of type {type_name}, which is not tested"))
        };
        check_batch_axis(&inputs, &outputs).map_err(|error| TestFailure::Refused(error.to_string()))?;
        let input = |tensor: SessionTensor| {
            let dtype = tensor.dtype.ok_or_else(|| unsupported_type(&tensor))?;
            let dims = tensor.shape.iter().skip(1).map(|&dim| usize::try_from(dim).ok());
            let dims = dims.collect();
            let name = tensor.name;
            Ok(ModelInput { name, dtype, dims })
        };
        let output = |tensor: SessionTensor| {
            let tolerance = tolerance(tensor.dtype.ok_or_else(|| unsupported_type(&tensor))?);
            let name = tensor.name;
            Ok(Output { name, tolerance })
        };
        let mut model = Self {
            inputs: inputs.into_iter().map(input).collect::<Result<Vec<_>>>()?,
            outputs: outputs.into_iter().map(output).collect::<Result<Vec<_>>>()?,
            session,
            free_size: 1,
            int_limit: 1,
        };
        model.find_sizes()?;
        Ok(model)
    }

    /// Sets the first sizes of [`FREE_SIZES`] and [`INT_LIMITS`] with which the model runs on the largest integers.
    fn find_sizes(&mut self) -> Result<()> {
        let mut first_error = None;
        let sizes = FREE_SIZES.into_iter();
        for (free_size, int_limit) in sizes.flat_map(|free_size| INT_LIMITS.map(|int_limit| (free_size, int_limit))) {
            (self.free_size, self.int_limit) = (free_size, int_limit);
            if self.row_elements() > MAX_ELEMENTS {
                continue;
            }
            let inputs = self.seeded_inputs(InputKind::LargestIndex, 1);
            match self.try_run(&inputs, &[0]) {
                Ok(_) => return Ok(()),
                Err(error) => first_error.get_or_insert(error),
            };
        }
        let error = first_error.unwrap_or_else(|| anyhow!("all of them are too large"));
        Err(TestFailure::Refused(format!("it fails on all tested inputs: {error}")))
    }

    /// Returns the elements of one row of all inputs.
    pub(super) fn row_elements(&self) -> usize {
        let widths = self.inputs.iter().map(|input| input.width(self.free_size));
        widths.fold(0, usize::saturating_add)
    }

    /// Creates seeded inputs of `rows` rows.
    pub(super) fn seeded_inputs(&self, kind: InputKind, rows: usize) -> Vec<InputRows> {
        let seeded = |input: &ModelInput| {
            let layout = (rows, input.width(self.free_size));
            seeded_rows(&input.name, input.dtype, layout, kind, self.int_limit)
        };
        self.inputs.iter().map(seeded).collect()
    }

    /// Runs some rows of `inputs` and returns the outputs, each with as many rows.
    pub(super) fn run(&mut self, inputs: &[InputRows], rows: &[usize]) -> Result<Vec<Elements>> {
        let count = rows.len();
        let outputs = self
            .try_run(inputs, rows)
            .map_err(|error| TestFailure::Refused(format!("it does not run on {count} seeded row(s): {error}")))?;
        let check = |((shape, elements), Output { name, .. }): ((Vec<i64>, Elements), &Output)| {
            if shape.first() == Some(&(count as i64)) {
                return Ok(elements);
            }
            let what = format!("output `{name}` has shape {shape:?} for {count} row(s)");
            Err(TestFailure::Refused(what))
        };
        outputs.into_iter().zip(&self.outputs).map(check).collect()
    }

    /// Returns the shape and the elements of each output.
    fn try_run(&mut self, inputs: &[InputRows], rows: &[usize]) -> anyhow::Result<Vec<(Vec<i64>, Elements)>> {
        let value = |(input, input_rows): (&ModelInput, &InputRows)| {
            let dims = std::iter::once(rows.len()).chain(input.dims(self.free_size));
            let tensor = WarmupTensor {
                shape: dims.map(|dim| dim as i64).collect(),
                data: rows.iter().flat_map(|&row| input_rows[row].iter().copied()).collect(),
            };
            value(input.dtype, &tensor)
        };
        let values = self.inputs.iter().zip(inputs).map(value);
        // An output that is an input of the graph lies in its memory, which must outlive the outputs.
        let values: Vec<SessionInputValue<'_>> = values.collect::<anyhow::Result<_>>()?;
        let outputs = self.session.run(values.as_slice())?;
        let outputs = (0..self.outputs.len()).map(|index| Elements::from_value(&outputs[index]));
        outputs.collect()
    }
}

/// Bytes of an input's rows.
pub(super) type InputRows = Vec<Vec<u8>>;

impl ModelInput {
    /// Dimensions of a row.
    fn dims(&self, free_size: usize) -> Vec<usize> {
        self.dims.iter().map(|dim| dim.unwrap_or(free_size)).collect()
    }

    /// Elements of a row.
    fn width(&self, free_size: usize) -> usize {
        self.dims(free_size).into_iter().fold(1, usize::saturating_mul)
    }
}
