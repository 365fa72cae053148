//! Model and its table, generated from a seed or given by the user. In: the plan. Out: the table in the rows format,
//! the inputs with their columns, and sessions.

use super::plan::{Accelerator, RawWorkload};
use crate::machine::check_memory;
use crate::plan::bad_usage;
use crate::random::Random;
use crate::tables::placements::RowsFile;
use anyhow::{Context, Result, anyhow, bail, ensure};
use ort::environment::Environment;
use ort::session::builder::SessionBuilder;
use ort::session::{Session, SessionInputValue};
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tierlab_formats::model::{JoinedInput, MODEL_FILE, ModelConfig, WarmupTensor};
use tierlab_formats::table::{Column, TableSchema};
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::import::session_value;
use tierlab_models::onnx::write_model;
use tierlab_models::repository::read_config;
use tierlab_models::tables::{RowSource, TableKind};
use tierlab_protocol::tensor::DataType;

/// Model with its table.
pub(super) struct Workload {
    pub(super) table: RowsFile,
    pub(super) batch_rows: usize,
    pub(super) shuffle_rows: usize,
    /// Accelerators emulated instead of the model.
    pub(super) accelerator: Option<Accelerator>,
    graph: Graph,
    filled: Vec<Filled>,
}

enum Graph {
    Generated(Vec<u8>),
    /// File, with its weights in the same folder.
    File(PathBuf),
    /// Accelerators without a model.
    None,
}

/// Input with the column that fills it.
struct Filled {
    input: String,
    column: Column,
    /// Position of the column in a row.
    in_row: Range<usize>,
}

impl Filled {
    fn new(input: &str, column: &Column) -> Self {
        let start = column.offset as usize;
        Self {
            input: input.to_owned(),
            column: column.clone(),
            in_row: start..start + column.byte_len().unwrap_or(0),
        }
    }
}

/// Inputs of one run.
pub(super) struct Batch {
    pub(super) rows: usize,
    pub(super) inputs: Vec<WarmupTensor>,
}

impl Workload {
    pub(super) fn of(plan: &Path, name: &str, raw: &RawWorkload, seed: u64) -> Result<Self> {
        let invalid = |what: String| bad_usage(&format!("{}: workloads.{name}", plan.display()), &what);
        let rows = raw.rows.unwrap_or(1);
        let (graph, config, table) = match (&raw.generate, &raw.model, &raw.table) {
            (Some(kind), ..) => generated(kind, rows, seed, &invalid)?,
            (None, Some(model), Some(table)) => from_files(model, table, &invalid)?,
            // The plan's check allows nothing but samples.
            _ => {
                let samples = Samples::new(raw.sample_bytes.map_or(1, |size| size.0), seed)?;
                let table = RowsFile::generate(&samples, rows, seed).map_err(|e| invalid(format!("rows: {e}")))?;
                (Graph::None, None, table)
            }
        };
        let batch_bytes = u64::from(table.header.stride).saturating_mul(raw.batch_rows as u64);
        check_memory("a batch", batch_bytes).map_err(|e| invalid(format!("batch_rows: {e}")))?;
        let filled = match config {
            Some(config) => filled(&config, &table, raw, &invalid)?,
            // Samples fill batches and no model.
            None => {
                let columns = table.header.schema.columns.iter();
                columns.map(|column| Filled::new(&column.name, column)).collect()
            }
        };
        Ok(Self {
            // More would hold rows of several epochs, and fill memory before the first batch.
            shuffle_rows: raw.shuffle_rows.min(table.header.rows as usize),
            table,
            batch_rows: raw.batch_rows,
            accelerator: raw.accelerator.clone(),
            graph,
            filled,
        })
    }

    /// Opens a session, and checks that the table fills all of its inputs.
    pub(super) fn session(&self, environment: &Environment, threads: usize) -> Result<Session> {
        let text = |e: ort::Error<SessionBuilder>| anyhow!("ONNX Runtime: {e}");
        let mut builder = Session::builder(environment)?
            .with_intra_threads(threads)
            .map_err(text)?
            .with_inter_threads(1)
            .map_err(text)?
            // Threads that spin between runs would take cores from the loader.
            .with_intra_op_spinning(false)
            .map_err(text)?;
        let session = match &self.graph {
            Graph::Generated(onnx) => builder.commit_from_memory(onnx),
            Graph::File(path) => builder.commit_from_file(path),
            Graph::None => bail!("samples without a model"),
        };
        let session = session.map_err(|e| anyhow!("ONNX Runtime rejects the graph: {e}"))?;
        for input in session.inputs() {
            if !self.filled.iter().any(|filled| filled.input == input.name()) {
                bail!("no column of the table fills the model's input `{}`", input.name());
            }
        }
        Ok(session)
    }

    /// Creates an empty batch.
    pub(super) fn batch(&self) -> Batch {
        let inputs = self.filled.iter().map(|filled| WarmupTensor {
            shape: [&[0], &filled.column.shape[..]].concat(),
            data: Vec::with_capacity(self.batch_rows * filled.in_row.len()),
        });
        Batch {
            rows: 0,
            inputs: inputs.collect(),
        }
    }

    /// Returns the number of batches in `bytes`; at least one.
    pub(super) fn batches_in(&self, bytes: u64) -> usize {
        let row: usize = self.filled.iter().map(|filled| filled.in_row.len()).sum();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        bytes.div_ceil((row * self.batch_rows).max(1)).max(1)
    }

    /// Bytes at the start of a row that hold everything that fills inputs.
    pub(super) fn used_bytes(&self) -> usize {
        self.filled.iter().map(|filled| filled.in_row.end).max().unwrap_or(0)
    }

    /// Adds a row in the rows format, at least its used bytes.
    pub(super) fn add(&self, batch: &mut Batch, row: &[u8]) -> Result<()> {
        for (filled, input) in self.filled.iter().zip(&mut batch.inputs) {
            let bytes = row.get(filled.in_row.clone());
            let bytes = bytes.context("a row is shorter than its columns")?;
            input.data.extend_from_slice(bytes);
            input.shape[0] += 1;
        }
        batch.rows += 1;
        Ok(())
    }

    /// Runs the model once.
    pub(super) fn run(&self, session: &mut Session, batch: &Batch) -> Result<()> {
        let values = self.filled.iter().zip(&batch.inputs).map(|(filled, input)| {
            let value = session_value(filled.column.dtype, input)
                .map_err(|what| anyhow!("input `{}`: {what}", filled.input))?;
            Ok((Cow::Borrowed(filled.input.as_str()), value))
        });
        let values: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = values.collect::<Result<_>>()?;
        let outputs = session.run(values).map_err(|e| anyhow!("the model failed: {e}"))?;
        drop(outputs);
        Ok(())
    }
}

/// Samples of noise.
struct Samples {
    schema: TableSchema,
    seed: u64,
}

impl Samples {
    fn new(bytes: u64, seed: u64) -> Result<Self> {
        let schema = TableSchema::lay_out("samples", &[("sample", DataType::Uint8, &[i64::try_from(bytes)?])])?;
        Ok(Self { schema, seed })
    }
}

impl RowSource for Samples {
    fn schema(&self) -> &TableSchema {
        &self.schema
    }

    fn fill(&self, id: i64, row: &mut [u8]) {
        let mut random = Random::new(self.seed, id.cast_unsigned());
        // Bytes after the column stay 0: column layouts cannot store them.
        let sample = self.schema.columns.first().and_then(|column| column.of_row_mut(row));
        for word in sample.unwrap_or_default().as_chunks_mut::<8>().0 {
            *word = random.next().to_le_bytes();
        }
    }
}

/// The inputs of a model that columns of the table fill.
fn filled(config: &ModelConfig, table: &RowsFile, raw: &RawWorkload, invalid: Invalid<'_>) -> Result<Vec<Filled>> {
    let max_rows = (config.max_batch_size as usize).max(1);
    let rows = raw.batch_rows;
    if rows > max_rows && raw.accelerator.is_none() {
        let why = format!("batch_rows: {rows} rows, but the model's config allows {max_rows} per run");
        return Err(invalid(why));
    }
    let columns = &table.header.schema.columns;
    let fill = |(input, joined): (&String, &JoinedInput)| {
        let name = joined.column.as_deref().unwrap_or(input);
        let column = columns.iter().find(|of| of.name == name).ok_or_else(|| {
            let names = Vec::from_iter(columns.iter().map(|of| of.name.as_str())).join(", ");
            invalid(format!("input `{input}` needs column `{name}`; the table has {names}"))
        })?;
        anyhow::Ok(Filled::new(input, column))
    };
    match config.joined.is_empty() {
        false => config.joined.iter().map(fill).collect(),
        true => Err(invalid(
            "the model's config has no table [joined]: no input is filled by the table".to_owned(),
        )),
    }
}

/// Error of a workload in the plan.
type Invalid<'a> = &'a dyn Fn(String) -> anyhow::Error;

/// Graph, config of its model if any, and table.
type Parts = (Graph, Option<ModelConfig>, RowsFile);

fn generated(kind: &str, rows: u64, seed: u64, invalid: Invalid<'_>) -> Result<Parts> {
    let (model, table) = match kind {
        "ctr" => (ModelKind::Ctr, TableKind::Ctr),
        "vision" => (ModelKind::Vision, TableKind::Vision),
        _ => return Err(invalid(format!("generate: must be `ctr` or `vision`, not `{kind}`"))),
    };
    let request = Request {
        kind: model,
        size: Size::Small,
        seed,
    };
    let mut onnx = Vec::new();
    write_model(&request.build(), &mut onnx).context("cannot write the model")?;
    let table = RowsFile::generate(&*table.source(seed)?, rows, seed).map_err(|e| invalid(format!("rows: {e}")))?;
    Ok((Graph::Generated(onnx), Some(request.config()), table))
}

fn from_files(model: &Path, table: &Path, invalid: Invalid<'_>) -> Result<Parts> {
    let config = read_config(model)?.ok_or_else(|| invalid(format!("{} has no config.toml", model.display())))?;
    let read = std::fs::read_dir(model).with_context(|| format!("cannot read {}", model.display()))?;
    let versions = read.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
    let newest = versions.max();
    let newest = newest.ok_or_else(|| invalid(format!("{} has no version", model.display())))?;
    let graph = model.join(newest.to_string()).join(MODEL_FILE);
    let table = RowsFile::read(table).map_err(|e| invalid(format!("{e:#}")))?;
    ensure!(table.header.rows > 0, invalid("table: it has no rows".to_owned()));
    Ok((Graph::File(graph), Some(config), table))
}

#[cfg(test)]
mod tests {
    use super::super::plan::OfflinePlan;
    use super::*;
    use tierlab_formats::table::TableHeader;
    use tierlab_models::repository::write_generated;
    use tierlab_models::stop::Stop;

    #[test]
    fn a_row_holds_its_sample_and_nothing_behind_it() {
        let mut row = [0; 32];
        Samples::new(13, 1).unwrap().fill(0, &mut row);
        assert!(row[..8] != [0; 8] && row[13..] == [0; 19], "{row:?}");
    }

    #[test]
    fn a_batch_larger_than_memory_is_refused() {
        let plan = include_str!("../../../../configs/storage/accelerators.toml");
        let mut plan: OfflinePlan = toml::from_str(plan).unwrap();
        let mut raw = plan.workloads.remove("volume").unwrap();
        (raw.rows, raw.batch_rows) = (Some(1), 1 << 20);
        let error = Workload::of(Path::new("plan"), "a", &raw, 1).err().unwrap();
        assert!(error.to_string().contains("batch_rows: a batch takes 16"), "{error}");
    }

    #[test]
    fn a_table_larger_than_memory_is_refused() {
        let samples = Samples::new(63 << 20, 1).unwrap();
        let error = RowsFile::generate(&samples, 1 << 20, 1).err().unwrap();
        assert!(error.to_string().contains("takes 63"), "{error}");
    }

    #[test]
    fn a_table_without_rows_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let request = Request {
            kind: ModelKind::Ctr,
            size: Size::Small,
            seed: 1,
        };
        write_generated(folder.path(), &request, &Stop::never()).unwrap();
        let schema = TableKind::Ctr.source(1).unwrap().schema().clone();
        let table = folder.path().join("none.rows");
        std::fs::write(&table, TableHeader::new(schema, 0, 0, 1).unwrap().encode()).unwrap();
        let invalid = |what: String| bad_usage("plan", &what);
        let error = from_files(&folder.path().join("ctr"), &table, &invalid).err().unwrap();
        assert!(error.to_string().contains("no rows"), "{error}");
    }

    #[test]
    fn no_more_rows_are_shuffled_than_the_table_has() {
        let plan = include_str!("../../../../configs/storage/accelerators.toml");
        let mut plan: OfflinePlan = toml::from_str(plan).unwrap();
        let mut raw = plan.workloads.remove("recommender").unwrap();
        (raw.rows, raw.shuffle_rows) = (Some(3), 1 << 24);
        let workload = Workload::of(Path::new("plan"), "recommender", &raw, 1).unwrap();
        assert_eq!(workload.shuffle_rows, 3);
    }

    #[test]
    fn the_batches_of_an_accelerator_are_not_bounded_by_the_model_that_it_replaces() {
        let plan = include_str!("../../../../configs/storage/accelerators.toml");
        let plan: OfflinePlan = toml::from_str(plan).unwrap();
        for (name, raw) in plan.workloads {
            let raw = RawWorkload { rows: Some(3), ..raw };
            Workload::of(Path::new("plan"), &name, &raw, 1).unwrap();
            if raw.generate.is_some() {
                let bounded = RawWorkload {
                    accelerator: None,
                    ..raw
                };
                let error = Workload::of(Path::new("plan"), &name, &bounded, 1).err().unwrap();
                assert!(error.to_string().contains("batch_rows: 2048 rows"), "{error}");
            }
        }
    }
}
