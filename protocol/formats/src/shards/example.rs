//! Features of a `TFRecord` record, as in `tf.train.Example`, and a table's rows in them.
//!
//! `FP32` is a list of floats and `INT64` a list of integers, as training code expects; every other type is stored as
//! its little-endian bytes in a list of one element, so that nothing is rounded. Keys are integers or text. The
//! messages are generated from `protocol/formats/proto/example.proto`.

use super::ShardError;
use crate::table::{Column, KeyColumn, KeyKind, TableSchema};
pub use feature::Kind;
use prost::Message;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tierlab_protocol::tensor::DataType;

/// The feature that holds the sample's key.
pub const KEY_FEATURE: &str = "__key__";

/// Suffix of a column named [`KEY_FEATURE`], which tables made of samples have.
const SUFFIX: &str = ".column";

/// Returns the feature of a column.
fn feature_name(column: &str) -> Cow<'_, str> {
    // Two columns never share a feature.
    match column.strip_prefix(KEY_FEATURE) {
        Some(rest) if rest.is_empty() || rest.starts_with(SUFFIX) => Cow::Owned(format!("{column}{SUFFIX}")),
        _ => Cow::Borrowed(column),
    }
}

include!(concat!(env!("OUT_DIR"), "/tensorflow.rs"));

/// Returns the record of a row: a feature for each column, its key if it has one, and the sample's key. A column named
/// as the sample's key is the feature `__key__.column`.
pub fn of_row(schema: &TableSchema, key: &str, row: &[u8]) -> Vec<u8> {
    let mut feature = BTreeMap::new();
    let kind = Some(bytes_list(key.as_bytes().to_vec()));
    feature.insert(KEY_FEATURE.to_owned(), Feature { kind });
    for column in &schema.columns {
        let bytes = column.of_row(row).unwrap_or_default();
        let kind = Some(elements(column.dtype, bytes));
        feature.insert(feature_name(&column.name).into_owned(), Feature { kind });
    }
    if let Some(column) = &schema.key {
        let kind = Some(key_of_row(column, row));
        feature.insert(feature_name(&column.name).into_owned(), Feature { kind });
    }
    let features = Some(Features { feature });
    Example { features }.encode_to_vec()
}

fn key_of_row(column: &KeyColumn, row: &[u8]) -> Kind {
    let key = column.get(row).unwrap_or_default();
    match column.kind {
        KeyKind::Int64 => elements(DataType::Int64, key),
        KeyKind::String | KeyKind::Uuid => bytes_list(column.kind.to_text(key).into_bytes()),
    }
}

fn elements(dtype: DataType, bytes: &[u8]) -> Kind {
    match dtype {
        DataType::Fp32 => Kind::FloatList(FloatList {
            value: bytes.as_chunks().0.iter().map(|&le| f32::from_le_bytes(le)).collect(),
        }),
        DataType::Int64 => Kind::Int64List(Int64List {
            value: bytes.as_chunks().0.iter().map(|&le| i64::from_le_bytes(le)).collect(),
        }),
        _ => bytes_list(bytes.to_vec()),
    }
}

fn bytes_list(bytes: Vec<u8>) -> Kind {
    Kind::BytesList(BytesList { value: vec![bytes] })
}

/// Writes the columns of a record into `row`, one zeroed stride. `offset` is the record's, for errors.
///
/// # Errors
/// A record that is not an `Example` or has another key, or a column that is missing or of another type or length.
pub fn into_row(schema: &TableSchema, key: &str, record: &[u8], offset: u64, row: &mut [u8]) -> Result<(), ShardError> {
    let fail = |what: String| ShardError::new("Example", offset, what);
    let example = Example::decode(record).map_err(|e| fail(e.to_string()))?;
    let features = example.features.unwrap_or_default().feature;
    let feature_kind = |name: &str| features.get(&*feature_name(name))?.kind.as_ref();
    let key_bytes = features.get(KEY_FEATURE).and_then(|feature| match &feature.kind {
        Some(Kind::BytesList(list)) => list.value.first(),
        _ => None,
    });
    if key_bytes.map(Vec::as_slice) != Some(key.as_bytes()) {
        return Err(fail(format!(
            "the record is not the sample `{key}`: the index is of another file; lay the table out again"
        )));
    }
    for column in &schema.columns {
        let feature = feature_kind(&column.name).ok_or_else(|| fail(format!("missing feature `{}`", column.name)))?;
        put(column, feature, row).ok_or_else(|| {
            let (name, dtype, shape) = (&column.name, column.dtype, &column.shape);
            fail(format!("feature `{name}` is not a {dtype} of shape {shape:?}"))
        })?;
    }
    match &schema.key {
        Some(column) if !feature_kind(&column.name).is_some_and(|feature| put_key(column, feature, row)) => {
            let (name, kind) = (&column.name, column.kind.as_str());
            Err(fail(format!("missing feature `{name}` with a key of kind {kind}")))
        }
        _ => Ok(()),
    }
}

fn put_key(column: &KeyColumn, kind: &Kind, row: &mut [u8]) -> bool {
    match (column.kind, kind) {
        (KeyKind::Int64, Kind::Int64List(list)) => match list.value.as_slice() {
            [key] => column.put(row, &key.to_le_bytes()),
            _ => false,
        },
        (KeyKind::String | KeyKind::Uuid, Kind::BytesList(list)) => match list.value.as_slice() {
            [text] => column.put_text(row, text),
            _ => false,
        },
        _ => false,
    }
}

fn put(column: &Column, kind: &Kind, row: &mut [u8]) -> Option<()> {
    let to = column.of_row_mut(row)?;
    match (column.dtype, kind) {
        (DataType::Fp32, Kind::FloatList(list)) => fill(to, &list.value, f32::to_le_bytes),
        (DataType::Int64, Kind::Int64List(list)) => fill(to, &list.value, i64::to_le_bytes),
        (DataType::Fp32 | DataType::Int64, _) => None,
        (_, Kind::BytesList(list)) => match list.value.as_slice() {
            [only] if only.len() == to.len() => {
                to.copy_from_slice(only);
                Some(())
            }
            _ => None,
        },
        _ => None,
    }
}

fn fill<T: Copy, const N: usize>(to: &mut [u8], values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Option<()> {
    let (slots, rest) = to.as_chunks_mut::<N>();
    if slots.len() != values.len() || !rest.is_empty() {
        return None;
    }
    for (slot, &value) in slots.iter_mut().zip(values) {
        *slot = bytes(value);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_are_called_as_the_key_of_a_sample_come_back() {
        let names = [KEY_FEATURE, "__key__.column", "__key__.column.column", "__key__.x"];
        let columns = names.map(|name| (name, DataType::Fp32, &[1_i64][..]));
        let schema = TableSchema::lay_out("t", &columns).unwrap();
        let mut row = vec![0; schema.stride().unwrap() as usize];
        for (column, value) in schema.columns.iter().zip([1.0_f32, 2.0, 3.0, 4.0]) {
            column
                .of_row_mut(&mut row)
                .unwrap()
                .copy_from_slice(&value.to_le_bytes());
        }
        let record = of_row(&schema, "7", &row);
        let mut back = vec![0; row.len()];
        into_row(&schema, "7", &record, 0, &mut back).unwrap();
        assert_eq!(row, back);
        assert!(into_row(&schema, "8", &record, 0, &mut back).is_err());
    }
}
