//! Shards of samples as batches: tar archives and TFRecord files; types from the first samples, then all samples. In: a
//! file. Out: batches with a column for each value of a sample. Knows nothing of keys or tables.

mod samples;
mod webdataset;

use super::batch::{Batch, BatchBuilder};
use super::request::CsvOptions;
use anyhow::{Result, anyhow, bail};
use arrow_schema::{Schema, SchemaRef};
use prost::Message as _;
use samples::{ShardSample, TYPE_SAMPLE_BYTES, TYPE_SAMPLES, Value, push, schema};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use tierlab_formats::shards::example::{Example, Kind};
use tierlab_formats::shards::tfrecord::{FOOT_BYTES, HEAD_BYTES, length, record};
use tierlab_protocol::tensor::DataType;

/// Format of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardFormat {
    /// Tar archive with names as `WebDataset` defines them.
    Tar,
    /// Records of TensorFlow.
    Records,
}

/// Opened shard.
#[derive(Debug)]
pub(super) struct ShardFile {
    format: ShardFormat,
    csv: CsvOptions,
    pub(in super::super) schema: SchemaRef,
}

impl ShardFile {
    /// Takes the columns from `fixed`, or from the first samples.
    pub(super) fn open(path: &Path, format: ShardFormat, csv: &CsvOptions, fixed: Option<&Schema>) -> Result<Self> {
        let csv = csv.clone();
        if let Some(fixed) = fixed {
            let schema = SchemaRef::new(fixed.clone());
            return Ok(Self { format, csv, schema });
        }
        let (mut samples, mut bytes) = (Vec::new(), 0);
        for_each_sample::<anyhow::Error>((format, &csv), path, None, &mut |sample, _| {
            bytes += sample.len();
            samples.push(sample);
            // A single sample does not show that all have its length.
            Ok(samples.len() < 2 || samples.len() < TYPE_SAMPLES && bytes < TYPE_SAMPLE_BYTES)
        })?;
        // An empty part of TFRecord has no bytes.
        if samples.is_empty() && format == ShardFormat::Tar {
            bail!("no samples: no file is named KEY.EXTENSION");
        }
        let schema = schema(&samples, &csv);
        Ok(Self { format, csv, schema })
    }

    /// Passes all rows to `each`.
    pub(super) fn read<E: From<anyhow::Error>>(
        &self,
        path: &Path,
        columns: &[&str],
        on_batch: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rows = BatchBuilder::new(&self.schema, columns)?;
        let mut emitted_bytes = 0;
        let columns = self.csv.takes_some.then_some(columns);
        let is_new = |name: &&String| self.schema.field_with_name(name).is_err();
        let end = for_each_sample::<E>((self.format, &self.csv), path, columns, &mut |sample, end| {
            // Without --columns, nothing is left out in silence.
            if let (None, None, Some(new)) = (columns, &sample.error, sample.values.keys().find(is_new)) {
                let what = anyhow!("{}: `{new}` is not in the first samples: pass --columns", sample.name);
                return Err(what.into());
            }
            push(&mut rows, sample, &self.csv);
            if rows.is_full() {
                on_batch(rows.finish(end - emitted_bytes)?)?;
                emitted_bytes = end;
            }
            Ok(true)
        })?;
        on_batch(rows.finish(end - emitted_bytes)?)
    }
}

fn for_each_sample<E: From<anyhow::Error>>(
    (format, csv): (ShardFormat, &CsvOptions),
    path: &Path,
    columns: Option<&[&str]>,
    on_sample: &mut dyn FnMut(ShardSample, u64) -> Result<bool, E>,
) -> Result<u64, E> {
    match format {
        ShardFormat::Tar => webdataset::for_each_sample(path, &csv.texts, columns, on_sample),
        ShardFormat::Records => for_each_record(path, columns, on_sample),
    }
}

/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Sequential reader of a file in large pieces: the file, with the piece that was read last.
pub(super) struct Window {
    file: File,
    pub(super) len: u64,
    start: u64,
    piece: Vec<u8>,
}

impl Window {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| anyhow!("cannot open it: {e}"))?;
        let len = file.metadata().map_err(|e| anyhow!("cannot read it: {e}"))?.len();
        Ok(Self {
            file,
            len,
            start: 0,
            piece: Vec::new(),
        })
    }

    /// Returns the bytes of a range, fewer at the end of the file. The caller limits its length.
    pub(super) fn get(&mut self, range: Range<u64>) -> Result<&[u8]> {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        let wanted = (end - start) as usize;
        let buffered = self.start..self.start + self.piece.len() as u64;
        if start < buffered.start || end > buffered.end {
            let rest = usize::try_from(self.len - start).unwrap_or(usize::MAX);
            self.piece.resize(wanted.max(PIECE_BYTES.min(rest)), 0);
            self.start = start;
            let read = self.file.read_exact_at(&mut self.piece, start);
            if let Err(e) = read {
                self.piece.clear();
                bail!("offset {start}: it cannot be read: {e}");
            }
        }
        let from = (start - self.start) as usize;
        Ok(&self.piece[from..from + wanted])
    }
}

/// Passes the records of a `TFRecord` file on as samples, each with the offset of its end, until the callback returns
/// false. Returns the last offset.
fn for_each_record<E: From<anyhow::Error>>(
    path: &Path,
    columns: Option<&[&str]>,
    on_sample: &mut dyn FnMut(ShardSample, u64) -> Result<bool, E>,
) -> Result<u64, E> {
    let wanted = |name: &str| columns.is_none_or(|columns| columns.contains(&name));
    let mut file = Window::open(path)?;
    let mut at = 0;
    while at < file.len {
        let head = file.get(at..at + HEAD_BYTES as u64)?;
        let body = length(head, at).map_err(anyhow::Error::from)?;
        let end = at + HEAD_BYTES as u64 + body + FOOT_BYTES as u64;
        let (record, _) = record(file.get(at..end)?, at).map_err(anyhow::Error::from)?;
        let example = Example::decode(record).map_err(|e| anyhow!("offset {at}: no tf.train.Example: {e}"))?;
        let features = example.features.unwrap_or_default().feature;
        let features = features.into_iter().filter(|(name, _)| wanted(name));
        let values = features.filter_map(|(name, feature)| Some((name, value(feature.kind?)?)));
        let (name, values, error) = (format!("the record at offset {at}"), values.collect(), None);
        let sample = ShardSample { name, values, error };
        at = end;
        if !on_sample(sample, at)? {
            break;
        }
    }
    Ok(at)
}

/// Returns a feature's value; `None` if it is empty.
fn value(kind: Kind) -> Option<Value> {
    let (dtype, bytes): (_, Vec<u8>) = match kind {
        Kind::FloatList(list) => (
            DataType::Fp32,
            list.value.into_iter().flat_map(f32::to_le_bytes).collect(),
        ),
        Kind::Int64List(list) => (
            DataType::Int64,
            list.value.into_iter().flat_map(i64::to_le_bytes).collect(),
        ),
        Kind::BytesList(mut list) if list.value.len() < 2 => return list.value.pop().map(Value::bytes),
        Kind::BytesList(list) => return Some(Value::Nested(list.value.concat())),
    };
    let is_list = None;
    (!bytes.is_empty()).then_some(Value::Numbers { dtype, is_list, bytes })
}
