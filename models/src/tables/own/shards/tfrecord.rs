//! `TFRecord` files of `tf.train.Example`s as batches: a column for each feature. In: a file. Out: batches. Knows nothing of tables.

use super::super::batch::Batch;
use super::samples::{self, Making, SAMPLED, Sample, Value};
use super::window::Window;
use arrow_schema::{Schema, SchemaRef};
use prost::Message as _;
use std::collections::BTreeMap;
use std::path::Path;
use tierlab_formats::shards::example::{Example, Kind};
use tierlab_formats::shards::tfrecord::{FOOT_BYTES, HEAD_BYTES, length, record};
use tierlab_protocol::tensor::DataType;

/// A file that was looked at.
#[derive(Debug)]
pub(in super::super) struct RecordFile {
    schema: SchemaRef,
}

impl RecordFile {
    /// Takes the columns from what is known, or from the first records.
    pub(in super::super) fn open(path: &Path, known: Option<&Schema>) -> Result<Self, String> {
        if let Some(known) = known {
            return Ok(Self {
                schema: SchemaRef::new(known.clone()),
            });
        }
        let mut samples = Vec::new();
        each_sample::<String>(path, &|_| true, &mut |sample, _| {
            samples.push(sample);
            Ok(samples.len() < SAMPLED)
        })?;
        if samples.is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok(Self {
            schema: samples::schema(&samples),
        })
    }

    pub(in super::super) fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// Hands all rows to `each`.
    pub(in super::super) fn read<E: From<String>>(
        &self,
        path: &Path,
        columns: &[&str],
        each: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut making = Making::new(&self.schema, columns)?;
        let mut taken = 0;
        let end = each_sample::<E>(path, &|name| columns.contains(&name), &mut |sample, end| {
            making.push(sample);
            if making.is_full() {
                each(making.finish(end - taken)?)?;
                taken = end;
            }
            Ok(true)
        })?;
        each(making.finish(end - taken)?)
    }
}

/// Whether a file begins with a record.
pub(in super::super) fn begins_as_one(head: &[u8]) -> bool {
    length(head, 0).is_ok()
}

/// Hands samples on, each with the offset of its end, until it answers no. Answers where it stopped.
fn each_sample<E: From<String>>(
    path: &Path,
    wanted: &dyn Fn(&str) -> bool,
    each: &mut dyn FnMut(Sample, u64) -> Result<bool, E>,
) -> Result<u64, E> {
    let mut file = Window::open(path)?;
    let mut at = 0;
    while at < file.len() {
        let head = file.get(at..at + HEAD_BYTES as u64)?;
        let body = length(head, at).map_err(|e| e.to_string())?;
        let end = at + HEAD_BYTES as u64 + body + FOOT_BYTES as u64;
        let (record, _) = record(file.get(at..end)?, at).map_err(|e| e.to_string())?;
        let example = Example::decode(record).map_err(|e| format!("offset {at}: no tf.train.Example: {e}"))?;
        let features = example.features.unwrap_or_default().feature;
        let values = features.into_iter().filter(|(name, _)| wanted(name));
        let values: BTreeMap<String, Value> = values
            .filter_map(|(name, feature)| Some((name, value(feature.kind?)?)))
            .collect();
        let name = format!("the record at offset {at}");
        at = end;
        let sample = Sample {
            name,
            values,
            wrong: None,
        };
        if !each(sample, at)? {
            break;
        }
    }
    Ok(at)
}

/// A feature's value; an empty one is none.
fn value(kind: Kind) -> Option<Value> {
    let of_numbers = |dtype, bytes: Vec<u8>| {
        (!bytes.is_empty()).then_some(Value::Numbers {
            dtype,
            is_list: None,
            bytes,
        })
    };
    match kind {
        Kind::Float(list) => of_numbers(
            DataType::Fp32,
            list.value.iter().flat_map(|float| float.to_le_bytes()).collect(),
        ),
        Kind::Int64(list) => of_numbers(
            DataType::Int64,
            list.value.iter().flat_map(|int| int.to_le_bytes()).collect(),
        ),
        Kind::Bytes(mut list) if list.value.len() == 1 => list.value.pop().map(Value::bytes),
        Kind::Bytes(list) if list.value.is_empty() => None,
        Kind::Bytes(list) => Some(Value::Nested(list.value.concat())),
    }
}
