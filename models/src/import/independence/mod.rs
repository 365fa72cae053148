//! Whether the rows of a batch depend on each other: a model's rows are run together, alone and permuted, on seeded
//! inputs and with several batch sizes, and must come out the same.
//!
//! In: an ONNX file. Out: what was tried, or the first thing that speaks against batches. A proof by trial: what no seeded
//! input shows is not seen. Floats may differ in their last bits, as kernels sum in another order with another number of
//! rows: by [`FLOAT_TOLERANCE`] (half floats: [`HALF_TOLERANCE`]) of the largest value of the output. All else is exact.

mod library;
mod subject;
mod values;

use crate::error::ModelsError;
use crate::stop::Stop;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use subject::{Failed, Guess, MAX_ELEMENTS, Result, Subject};
use values::{Cells, Kind};

pub use values::{FLOAT_TOLERANCE, HALF_TOLERANCE};

/// Batch sizes that are tried, besides the maximum.
const SIZES: [usize; 4] = [1, 2, 3, 8];
/// Rows of each batch that are run alone, besides its last one.
const ALONE: usize = 8;
/// After this time no larger batches are begun.
const BUDGET: Duration = Duration::from_secs(30);

/// What to prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Rows of a run at most; at least 2.
    pub max_batch_size: u32,
    /// ONNX Runtime's library, or its folder; looked for where the set-up puts it when left out.
    pub library: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// No row depends on another one.
    Independent(Proof),
    /// That is not so, or cannot be shown: why.
    Refused(String),
}

/// What was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// The batch sizes, ascending.
    pub sizes: Vec<usize>,
    /// The largest difference of a float, as a share of the largest value of its output.
    pub largest_difference: f64,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        write!(
            f,
            "batches of {} rows; floats differed by {:.1e} of their output's largest value at most, {FLOAT_TOLERANCE:.0e} \
             is allowed ({HALF_TOLERANCE:.0e} for half floats), and everything else by nothing",
            sizes.join(", "),
            self.largest_difference
        )
    }
}

/// Runs the rows of the model in `file` together, alone and permuted.
///
/// # Errors
/// No ONNX Runtime, or a stop.
pub fn prove(file: &Path, question: &Question, stop: &Stop) -> std::result::Result<Finding, ModelsError> {
    let environment = library::load(question.library.as_deref())?;
    let max = question.max_batch_size as usize;
    let proven = Subject::open(&environment, file).and_then(|mut subject| Trial::new(&mut subject, max, stop)?.run());
    match proven {
        Ok(proof) => Ok(Finding::Independent(proof)),
        Err(Failed::Refused(why)) => Ok(Finding::Refused(why)),
        Err(Failed::Stopped(error)) => Err(error),
    }
}

/// One proof under way.
struct Trial<'a> {
    subject: &'a mut Subject,
    guess: Guess,
    sizes: Vec<usize>,
    stop: &'a Stop,
    began: Instant,
    largest_difference: f64,
    /// By output: whether two rows of it ever differed.
    varied: Vec<bool>,
    tried: Vec<usize>,
}

impl<'a> Trial<'a> {
    fn new(subject: &'a mut Subject, max: usize, stop: &'a Stop) -> Result<Self> {
        let guess = subject.guess()?;
        let most = MAX_ELEMENTS / subject.row_elements(&guess).max(1);
        let mut sizes: Vec<usize> = SIZES.into_iter().chain([max]).filter(|&size| size <= max).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.retain(|&size| size <= most);
        if sizes.last().is_none_or(|&largest| largest < 2) {
            return Err(Failed::refused("two rows of its inputs are too large to try"));
        }
        Ok(Self {
            varied: vec![false; subject.outputs.len()],
            subject,
            guess,
            sizes,
            stop,
            began: Instant::now(),
            largest_difference: 0.0,
            tried: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Proof> {
        for kind in Kind::ALL {
            self.run_kind(kind)?;
        }
        for (output, varied) in self.subject.outputs.iter().zip(&self.varied) {
            if !varied {
                let name = &output.name;
                return Err(Failed::refused(format!(
                    "output `{name}` is the same for every row that was tried, which shows nothing; if its rows are \
                     known to be independent, `max_batch_size` in config.toml says so"
                )));
            }
        }
        self.tried.sort_unstable();
        Ok(Proof {
            sizes: self.tried,
            largest_difference: self.largest_difference,
        })
    }

    /// Every batch size with one kind of inputs.
    fn run_kind(&mut self, kind: Kind) -> Result<()> {
        let count = self.sizes.last().copied().unwrap_or_default();
        let inputs = self.subject.inputs(&self.guess, kind, count);
        let mut rng = ChaCha8Rng::seed_from_u64(kind as u64);
        let mut alone: BTreeMap<usize, Vec<Cells>> = BTreeMap::new();
        for size in self.sizes.clone() {
            if size > SIZES[2] && self.began.elapsed() > BUDGET {
                break;
            }
            let rows: Vec<usize> = (0..size).collect();
            let together = self.outputs_of(&inputs, &rows)?;
            for row in rows.iter().copied().filter(|&row| row < ALONE || row + 1 == size) {
                if let Entry::Vacant(entry) = alone.entry(row) {
                    self.stop.check()?;
                    let outputs = self.subject.run(&self.guess, &inputs, &[row])?;
                    entry.insert(outputs);
                }
                for (output, (together, alone)) in together.iter().zip(&alone[&row]).enumerate() {
                    let what = || format!("row {row} of {size}, run alone, ");
                    self.compare(output, (together, row, size), (alone, 0, 1), what)?;
                }
            }
            let order = shuffled(&rows, &mut rng);
            let permuted = self.outputs_of(&inputs, &order)?;
            for (output, (together, permuted)) in together.iter().zip(&permuted).enumerate() {
                for (place, &row) in order.iter().enumerate() {
                    let what = || format!("row {row} of {size}, run at place {place} among the same rows, ");
                    self.compare(output, (together, row, size), (permuted, place, size), what)?;
                }
                self.varied[output] |= together.rows_vary(size, self.subject.outputs[output].tolerance);
            }
            if !self.tried.contains(&size) {
                self.tried.push(size);
            }
        }
        Ok(())
    }

    fn outputs_of(&mut self, inputs: &[Cells], rows: &[usize]) -> Result<Vec<Cells>> {
        self.stop.check()?;
        self.subject.run(&self.guess, inputs, rows)
    }

    /// Holds a row of an output against the same row out of another run; each with its place and the rows of its run.
    fn compare(
        &mut self,
        output: usize,
        (a, row_a, rows_a): (&Cells, usize, usize),
        (b, row_b, rows_b): (&Cells, usize, usize),
        what: impl Fn() -> String,
    ) -> Result<()> {
        let spec = &self.subject.outputs[output];
        let differ = |how: String| Failed::refused(format!("output `{}`: {}{how}", spec.name, what()));
        if a.len() / rows_a != b.len() / rows_b {
            let (a, b) = (a.len() / rows_a, b.len() / rows_b);
            return Err(differ(format!("has {b} elements instead of {a}")));
        }
        let difference = a.row(row_a, rows_a).difference(&b.row(row_b, rows_b));
        let largest = a.largest().max(b.largest());
        if difference > spec.tolerance * largest {
            let allowed = match spec.tolerance {
                0.0 => "it must be the same".to_owned(),
                share => format!("at most {share} of the largest value, {largest:.6}, is a matter of rounding"),
            };
            return Err(differ(format!("differs by {difference:.6}; {allowed}")));
        }
        if largest > 0.0 {
            self.largest_difference = self.largest_difference.max(difference / largest);
        }
        Ok(())
    }
}

/// The rows in another order (Fisher-Yates; the bias of the remainder does not matter here).
fn shuffled(rows: &[usize], rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut order = rows.to_vec();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.next_u32() as usize % (last + 1));
    }
    order
}
