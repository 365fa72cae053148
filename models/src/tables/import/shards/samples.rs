//! Samples of shards as columns: typed values become batches of one schema. In: named values, sample by sample. Out:
//! the schema of the first samples, and batches; misfit samples are separated. Knows no format.

use super::super::batch::BatchBuilder;
use super::super::csv_file::ADVICE;
use super::super::layout::element_of;
use super::super::request::CsvOptions;
use anyhow::{Context as _, Result, bail};
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tierlab_protocol::tensor::DataType;
use tierlab_storage::tiers::flight::schema::element;

/// Maximum samples, and approximate bytes, from which types are detected.
pub(super) const TYPE_SAMPLES: usize = 100;
pub(super) const TYPE_SAMPLE_BYTES: usize = 32 << 20;

/// Value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Little-endian elements. `is_list` is `None` if one element may be a list or a number.
    Numbers {
        dtype: DataType,
        is_list: Option<bool>,
        bytes: Vec<u8>,
    },
    Text(String),
    /// Bytes of an unknown kind.
    Bytes(Vec<u8>),
    /// Unsupported value: an object or a list of texts.
    Nested(Vec<u8>),
    /// File or value that cannot be read, with the reason.
    Unreadable(String),
}

impl Value {
    /// Creates an integer.
    pub(super) fn int(value: i64) -> Self {
        Self::Numbers {
            dtype: DataType::Int64,
            is_list: Some(false),
            bytes: value.to_le_bytes().to_vec(),
        }
    }

    /// Creates a text if the bytes are valid UTF-8, else bytes.
    pub(super) fn bytes(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|e| Self::Bytes(e.into_bytes()), Self::Text)
    }

    fn len(&self) -> usize {
        match self {
            Self::Numbers { bytes, .. } | Self::Bytes(bytes) | Self::Nested(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
            Self::Unreadable(_) => 0,
        }
    }

    /// Type of numbers; true if they are a list, false if one number, `None` if one element may be either.
    fn numbers(&self) -> Option<(DataType, Option<bool>)> {
        match self {
            Self::Numbers { dtype, is_list, .. } => Some((*dtype, *is_list)),
            _ => None,
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::Numbers { dtype, .. } => dtype.as_str(),
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes that are not text",
            Self::Nested(_) => "an object or a list of texts",
            Self::Unreadable(_) => "a file that cannot be read",
        }
    }
}

/// Sample of a shard.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShardSample {
    /// Name for people.
    pub(super) name: String,
    pub(super) values: BTreeMap<String, Value>,
    /// Reason for which it cannot be used.
    pub(super) error: Option<String>,
}

impl ShardSample {
    /// Bytes of its values.
    pub(super) fn len(&self) -> usize {
        self.values.values().map(Value::len).sum()
    }
}

/// Returns the schema of the samples without errors, or of all samples if each has one: no column may need the files
/// that cannot be read. Integers of a column that `csv` declares a float are floats.
pub(super) fn schema(samples: &[ShardSample], csv: &CsvOptions) -> SchemaRef {
    let mut columns: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let has_good = samples.iter().any(|sample| sample.error.is_none());
    let used = samples.iter().filter(|sample| !has_good || sample.error.is_none());
    for sample in used {
        for (name, value) in &sample.values {
            columns.entry(name).or_default().push(value);
        }
    }
    let field = |(name, values): (&str, Vec<&Value>)| {
        let advice = values.iter().find_map(|value| match value {
            Value::Unreadable(what) => Some((ADVICE.to_owned(), what.clone())),
            _ => None,
        });
        Field::new(name, type_of(&values, csv.is_float(name)), true).with_metadata(HashMap::from_iter(advice))
    };
    Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>()))
}

fn type_of(values: &[&Value], is_float: bool) -> Arrow {
    let list = |item: Arrow| Arrow::List(Arc::new(Field::new_list_field(item, true)));
    let first = values[0];
    if values.iter().all(|value| matches!(value, Value::Text(_))) {
        return Arrow::Utf8;
    }
    if let Some((mut dtype, _)) = first.numbers() {
        let mut is_list = false;
        for value in values {
            let Some((other, declared)) = value.numbers() else {
                continue;
            };
            if dtype == DataType::Int64 && (is_float || other == DataType::Fp64) {
                dtype = DataType::Fp64;
            }
            is_list |= declared.unwrap_or_else(|| value.len() != other.size().unwrap_or(1));
        }
        let item = arrow_of(dtype);
        return if is_list { list(item) } else { item };
    }
    // Raw tensors all have one size; encoded data has many.
    let len = first.len();
    let is_flat = |value: &&Value| value.len() == len && !matches!(value, Value::Nested(_));
    match len > 0 && values.len() > 1 && values.iter().all(is_flat) {
        true => list(Arrow::UInt8),
        false => Arrow::Binary,
    }
}

/// Returns the float of an integer.
///
/// # Errors
/// An integer that the float rounds.
pub(super) fn exact_float(int: i64) -> Result<f64> {
    let float = Some(int as f64).filter(|float| *float as i128 == i128::from(int));
    float.with_context(|| format!("FP64 rounds {int}"))
}

/// Booleans are bytes here; Arrow's own are bits.
fn arrow_of(dtype: DataType) -> Arrow {
    match dtype {
        DataType::Bool | DataType::Bf16 => Arrow::UInt8,
        dtype => element(dtype).unwrap_or(Arrow::UInt8),
    }
}

/// Adds a sample as a row.
pub(super) fn push(rows: &mut BatchBuilder, sample: ShardSample, csv: &CsvOptions) {
    let (name, mut values, error) = (sample.name, sample.values, sample.error);
    let result = match error {
        Some(error) => Err(anyhow::Error::msg(error)),
        None => rows.push(|_, field, bytes| match values.remove(field.name()) {
            Some(value) => append_value(value, field.data_type(), csv.is_float(field.name()), bytes).map(|()| true),
            None => Ok(false),
        }),
    };
    if let Err(error) = result {
        rows.push_bad(error.to_string(), name);
    }
}

/// Appends the bytes of a value in a column of this type. Integers may be rounded to floats only if `rounds` is true.
fn append_value(value: Value, arrow: &Arrow, rounds: bool, out: &mut Vec<u8>) -> Result<()> {
    let is_list = matches!(arrow, Arrow::List(_));
    let item = element_of(arrow);
    let bytes: Vec<u8> = match (item, value) {
        (Arrow::Utf8 | Arrow::Binary, Value::Text(text)) => text.into_bytes(),
        (Arrow::Binary, Value::Bytes(bytes) | Value::Nested(bytes)) => bytes,
        (Arrow::UInt8, Value::Bytes(bytes)) if is_list => bytes,
        (Arrow::UInt8, Value::Text(text)) if is_list => text.into_bytes(),
        (item, Value::Numbers { dtype, bytes, .. }) if arrow_of(dtype) == *item => bytes,
        (
            Arrow::Float64,
            Value::Numbers {
                dtype: dtype @ (DataType::Int64 | DataType::Fp32),
                bytes,
                ..
            },
        ) => {
            let single = |le: &[u8; 4]| Ok(f64::from(f32::from_le_bytes(*le)));
            let integer = |le: &[u8; 8]| match i64::from_le_bytes(*le) {
                int if rounds => Ok(int as f64),
                int => exact_float(int),
            };
            let values: Result<Vec<f64>> = match dtype {
                DataType::Fp32 => bytes.as_chunks::<4>().0.iter().map(single).collect(),
                _ => bytes.as_chunks::<8>().0.iter().map(integer).collect(),
            };
            values?.into_iter().flat_map(f64::to_le_bytes).collect()
        }
        (_, Value::Unreadable(what)) => bail!(what),
        (_, value) => bail!("{}, where the first samples have {arrow}", value.type_name()),
    };
    // Texts and bytes have no width.
    if let Some(width) = item.primitive_width().filter(|width| !is_list && bytes.len() != *width) {
        let count = bytes.len() / width;
        bail!("{count} values, where the first samples have one");
    }
    out.extend_from_slice(&bytes);
    Ok(())
}
