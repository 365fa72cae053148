//! Test for the independence of rows in a batch. The rows of a model run together, alone and permuted, on seeded inputs
//! and with several batch sizes, and must give the same outputs.
//!
//! In: an ONNX file. Out: the tested sizes, or the first row that differs. The test is no proof: it misses a dependence
//! that no seeded input shows. Floats may differ in their last bits, because kernels sum in another order with another
//! number of rows: by [`FLOAT_TOLERANCE`] (half floats: [`HALF_TOLERANCE`]) of the largest value of the output. All
//! other elements must be equal.

mod elements;
mod model;

use super::runtime;
use crate::error::ModelsError;
use crate::stop::Stop;
use elements::{Elements, InputKind, Row};
use model::{InputRows, MAX_ELEMENTS, Model, Output, Result, TestFailure};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

pub use elements::{FLOAT_TOLERANCE, HALF_TOLERANCE};

/// Tested batch sizes, besides the maximum.
const SIZES: [usize; 4] = [1, 2, 3, 8];
/// Rows of each batch that run alone, besides its last one.
const SINGLES: usize = 8;
/// Time after which no larger batch is started.
const TIME_BUDGET: Duration = Duration::from_secs(30);

/// Result of the test.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// No row depends on another row.
    Independent(Evidence),
    /// A row depends on another row, or the test shows nothing; with the reason.
    Refused(String),
}

/// Tested batches.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Batch sizes, ascending.
    pub sizes: Vec<usize>,
    /// Largest difference of a float, as a share of the largest value of its output.
    pub largest_difference: f64,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let (sizes, difference) = (sizes.join(", "), self.largest_difference);
        write!(
            f,
            "batches of {sizes} rows; floats differed by at most {difference:.1e} of their output's largest value, \
             {FLOAT_TOLERANCE:.0e} is allowed ({HALF_TOLERANCE:.0e} for half floats), and all other elements were equal"
        )
    }
}

/// Runs at most `max` rows of the model in `file` together, alone and permuted; `library` is ONNX Runtime's, or its folder.
///
/// # Errors
/// No ONNX Runtime, or a stop.
pub fn test_rows(
    file: &Path,
    max: u32,
    library: Option<&Path>,
    stop: &Stop,
) -> std::result::Result<Verdict, ModelsError> {
    let environment = runtime::load(library)?;
    let max = max as usize;
    let result = Model::open(&environment, file).and_then(|mut model| BatchTest::new(&mut model, max, stop)?.run());
    match result {
        Ok(evidence) => Ok(Verdict::Independent(evidence)),
        Err(TestFailure::Refused(reason)) => Ok(Verdict::Refused(reason)),
        Err(TestFailure::Stopped(error)) => Err(error),
    }
}

/// State of a test.
struct BatchTest<'a> {
    model: &'a mut Model,
    batch_sizes: BTreeSet<usize>,
    stop: &'a Stop,
    started: Instant,
    largest_difference: f64,
    /// For each output, true if two rows of it ever differed.
    varied: Vec<bool>,
    tested_sizes: BTreeSet<usize>,
}

impl<'a> BatchTest<'a> {
    fn new(model: &'a mut Model, max: usize, stop: &'a Stop) -> Result<Self> {
        let cap = max.min(MAX_ELEMENTS / model.row_elements().max(1));
        let batch_sizes: BTreeSet<usize> = SIZES.into_iter().chain([max]).filter(|&size| size <= cap).collect();
        if batch_sizes.last().is_none_or(|&largest| largest < 2) {
            let what = "two rows of its inputs are too large to test";
            return Err(TestFailure::Refused(what.to_owned()));
        }
        Ok(Self {
            varied: vec![false; model.outputs.len()],
            model,
            batch_sizes,
            stop,
            started: Instant::now(),
            largest_difference: 0.0,
            tested_sizes: BTreeSet::new(),
        })
    }

    fn run(mut self) -> Result<Evidence> {
        for kind in InputKind::ALL {
            self.run_kind(kind)?;
        }
        let mut outputs = self.model.outputs.iter().zip(&self.varied);
        if let Some((Output { name, .. }, _)) = outputs.find(|(_, varied)| !**varied) {
            return Err(TestFailure::Refused(format!(
                "output `{name}` is the same for every tested row, which proves nothing; if its rows are \
                     known to be independent, set `max_batch_size` in config.toml"
            )));
        }
        Ok(Evidence {
            sizes: self.tested_sizes.into_iter().collect(),
            largest_difference: self.largest_difference,
        })
    }

    /// Tests every batch size with one kind of inputs.
    fn run_kind(&mut self, kind: InputKind) -> Result<()> {
        let count = self.batch_sizes.last().copied().unwrap_or_default();
        let inputs = self.model.seeded_inputs(kind, count);
        let mut rng = ChaCha8Rng::seed_from_u64(kind as u64);
        let mut single: BTreeMap<usize, Vec<Elements>> = BTreeMap::new();
        for size in self.batch_sizes.clone() {
            if size > SIZES[2] && self.started.elapsed() > TIME_BUDGET {
                break;
            }
            let rows: Vec<usize> = (0..size).collect();
            let batched = self.run_rows(&inputs, &rows)?;
            for row in rows.iter().copied().filter(|&row| row < SINGLES || row + 1 == size) {
                if let Entry::Vacant(entry) = single.entry(row) {
                    entry.insert(self.run_rows(&inputs, &[row])?);
                }
                for (output, (batched, single)) in batched.iter().zip(&single[&row]).enumerate() {
                    let what = || format!("row {row} of {size}, run alone, ");
                    self.compare(output, &batched.row(row, size), &single.row(0, 1), what)?;
                }
            }
            let order = shuffled(&rows, &mut rng);
            let permuted = self.run_rows(&inputs, &order)?;
            for (output, (batched, permuted)) in batched.iter().zip(&permuted).enumerate() {
                for (position, &row) in order.iter().enumerate() {
                    let what = || format!("row {row} of {size}, run at position {position} among the same rows, ");
                    self.compare(output, &batched.row(row, size), &permuted.row(position, size), what)?;
                }
                self.varied[output] |= batched.rows_vary(size, self.model.outputs[output].tolerance);
            }
            self.tested_sizes.insert(size);
        }
        Ok(())
    }

    fn run_rows(&mut self, inputs: &[InputRows], rows: &[usize]) -> Result<Vec<Elements>> {
        self.stop.check()?;
        self.model.run(inputs, rows)
    }

    /// Compares a row of an output with the same row of another run.
    fn compare(&mut self, output: usize, a: &Row<'_>, b: &Row<'_>, what: impl Fn() -> String) -> Result<()> {
        let spec = &self.model.outputs[output];
        let mismatch = |text: String| TestFailure::Refused(format!("output `{}`: {}{text}", spec.name, what()));
        if a.len() != b.len() {
            return Err(mismatch(format!("has {} elements instead of {}", b.len(), a.len())));
        }
        let difference = a.difference(b);
        let largest = a.elements.largest().max(b.elements.largest());
        if difference > spec.tolerance * largest {
            let allowed = match spec.tolerance {
                0.0 => "it must be the same".to_owned(),
                share => format!("rounding explains at most {share} of the largest value, {largest:.6}"),
            };
            return Err(mismatch(format!("differs by {difference:.6}; {allowed}")));
        }
        if largest > 0.0 {
            self.largest_difference = self.largest_difference.max(difference / largest);
        }
        Ok(())
    }
}

/// Returns the rows in another order (Fisher-Yates; the bias of the remainder does not matter here).
fn shuffled(rows: &[usize], rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut order = rows.to_vec();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.next_u32() as usize % (last + 1));
    }
    order
}
