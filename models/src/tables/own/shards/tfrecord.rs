//! `TFRecord` files of `tf.train.Example`s as samples: a value for each feature. In: a file. Out: samples.

use super::Window;
use super::samples::{ShardSample, Value};
use prost::Message as _;
use std::path::Path;
use tierlab_formats::shards::example::{Example, Kind};
use tierlab_formats::shards::tfrecord::{FOOT_BYTES, HEAD_BYTES, length, record};
use tierlab_protocol::tensor::DataType;

/// True if a file begins with a record.
pub(in super::super) fn begins_as_one(head: &[u8]) -> bool {
    length(head, 0).is_ok()
}

/// Passes samples on, each with the offset of its end, until the callback returns false. Returns the last offset.
pub(super) fn each_sample<E: From<String>>(
    path: &Path,
    columns: Option<&[&str]>,
    each: &mut dyn FnMut(ShardSample, u64) -> Result<bool, E>,
) -> Result<u64, E> {
    let wanted = |name: &str| columns.is_none_or(|columns| columns.contains(&name));
    let mut file = Window::open(path)?;
    let mut at = 0;
    while at < file.len {
        let head = file.get(at..at + HEAD_BYTES as u64)?;
        let body = length(head, at).map_err(String::from)?;
        let end = at + HEAD_BYTES as u64 + body + FOOT_BYTES as u64;
        let (record, _) = record(file.get(at..end)?, at).map_err(String::from)?;
        let example = Example::decode(record).map_err(|e| format!("offset {at}: no tf.train.Example: {e}"))?;
        let features = example.features.unwrap_or_default().feature;
        let features = features.into_iter().filter(|(name, _)| wanted(name));
        let values = features.filter_map(|(name, feature)| Some((name, value(feature.kind?)?)));
        let sample = ShardSample {
            name: format!("the record at offset {at}"),
            values: values.collect(),
            wrong: None,
        };
        at = end;
        if !each(sample, at)? {
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
