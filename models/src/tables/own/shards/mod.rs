//! Shards of samples as batches: tar archives and TFRecord files; types from the first samples, then all samples. In: a
//! file. Out: batches with a column for each value of a sample. Knows nothing of keys or tables.

mod samples;
mod tfrecord;
mod webdataset;
mod window;

pub(super) use tfrecord::begins_as_one;

use super::batch::{Batch, BatchBuilder};
use arrow_schema::{Schema, SchemaRef};
use samples::{SAMPLED, SAMPLED_BYTES, ShardSample, push, schema};
use std::path::Path;

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
    schema: SchemaRef,
}

impl ShardFile {
    /// Takes the columns from `known`, or from the first samples.
    pub(super) fn open(path: &Path, format: ShardFormat, known: Option<&Schema>) -> Result<Self, String> {
        if let Some(known) = known {
            return Ok(Self {
                format,
                schema: SchemaRef::new(known.clone()),
            });
        }
        let (mut samples, mut bytes) = (Vec::new(), 0);
        each_sample::<String>(format, path, None, &mut |sample, _| {
            bytes += sample.len();
            samples.push(sample);
            // A single sample does not show that all have its length.
            Ok(samples.len() < 2 || samples.len() < SAMPLED && bytes < SAMPLED_BYTES)
        })?;
        if samples.is_empty() {
            return Err(match format {
                ShardFormat::Tar => "there is no sample in it: no file is named as KEY.EXTENSION",
                ShardFormat::Records => "it is empty",
            }
            .to_owned());
        }
        Ok(Self {
            format,
            schema: schema(&samples),
        })
    }

    pub(super) fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// Passes all rows to `each`.
    pub(super) fn read<E: From<String>>(
        &self,
        path: &Path,
        columns: &[&str],
        each: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rows = BatchBuilder::new(&self.schema, columns)?;
        let mut taken = 0;
        let end = each_sample::<E>(self.format, path, Some(columns), &mut |sample, end| {
            push(&mut rows, sample);
            if rows.is_full() {
                each(rows.finish(end - taken)?)?;
                taken = end;
            }
            Ok(true)
        })?;
        each(rows.finish(end - taken)?)
    }
}

fn each_sample<E: From<String>>(
    format: ShardFormat,
    path: &Path,
    columns: Option<&[&str]>,
    each: &mut dyn FnMut(ShardSample, u64) -> Result<bool, E>,
) -> Result<u64, E> {
    match format {
        ShardFormat::Tar => webdataset::each_sample(path, columns, each),
        ShardFormat::Records => tfrecord::each_sample(path, columns, each),
    }
}
