//! Samples of shards as columns: values with a type of their own become batches of one schema. In: named values, sample by sample. Out: the
//! schema that the first of them tell, and batches; a sample that does not fit is set apart. Knows no format.

use super::super::batch::{Batch, Numbers, positions};
use arrow_array::{ArrayRef, RecordBatch, StringArray, make_array};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierlab_protocol::tensor::DataType;

/// Samples that types are taken from, and their bytes, about.
pub(super) const SAMPLED: usize = 100;
pub(super) const SAMPLED_BYTES: usize = 32 << 20;
/// Samples of a batch, and their bytes, about.
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 16 << 20;

/// A value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Elements, little-endian. Whether it is a list; of one element nobody may know.
    Numbers {
        dtype: DataType,
        is_list: Option<bool>,
        bytes: Vec<u8>,
    },
    Text(String),
    /// Bytes of which nothing is known.
    Bytes(Vec<u8>),
    /// What has no place in a row: objects, lists of texts.
    Nested(Vec<u8>),
}

impl Value {
    /// An integer.
    pub(super) fn int(value: i64) -> Self {
        Self::Numbers {
            dtype: DataType::Int64,
            is_list: Some(false),
            bytes: value.to_le_bytes().to_vec(),
        }
    }

    /// Bytes that are text where they can be.
    pub(super) fn bytes(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|e| Self::Bytes(e.into_bytes()), Self::Text)
    }

    fn len(&self) -> usize {
        match self {
            Self::Numbers { bytes, .. } | Self::Bytes(bytes) | Self::Nested(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
        }
    }

    fn shown(&self) -> &'static str {
        match self {
            Self::Numbers { dtype, .. } => dtype.as_str(),
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes that are no text",
            Self::Nested(_) => "an object or a list of texts",
        }
    }
}

/// A sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// What people find it by.
    pub(super) name: String,
    pub(super) values: BTreeMap<String, Value>,
    /// Why it cannot be used.
    pub(super) wrong: Option<String>,
}

impl Sample {
    /// Bytes of its values.
    pub(super) fn len(&self) -> usize {
        self.values.values().map(Value::len).sum()
    }
}

/// The schema that samples tell.
pub(super) fn schema(samples: &[Sample]) -> SchemaRef {
    let mut columns: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.wrong.is_none()) {
        for (name, value) in &sample.values {
            columns.entry(name).or_default().push(value);
        }
    }
    let fields: Vec<Field> = columns
        .into_iter()
        .map(|(name, values)| Field::new(name, type_of(&values), true))
        .collect();
    Arc::new(Schema::new(fields))
}

fn type_of(values: &[&Value]) -> Arrow {
    let list = |item: Arrow| Arrow::List(Arc::new(Field::new_list_field(item, true)));
    let first = values[0];
    if values.iter().all(|value| matches!(value, Value::Text(_))) {
        return Arrow::Utf8;
    }
    if let Value::Numbers { dtype, .. } = first {
        let mut dtype = *dtype;
        let mut is_list = false;
        for value in values {
            if let Value::Numbers {
                dtype: other,
                is_list: told,
                bytes,
            } = value
            {
                if (dtype, *other) == (DataType::Int64, DataType::Fp64) {
                    dtype = *other;
                }
                is_list |= told.unwrap_or_else(|| bytes.len() != other.size().unwrap_or(1));
            }
        }
        let item = arrow_of(dtype);
        return if is_list { list(item) } else { item };
    }
    // Tensors as they lie in memory all have one size; what is encoded has many.
    let len = first.len();
    let is_flat = |value: &&Value| value.len() == len && !matches!(value, Value::Nested(_));
    match len > 0 && values.len() > 1 && values.iter().all(is_flat) {
        true => list(Arrow::UInt8),
        false => Arrow::Binary,
    }
}

/// Booleans are bytes here: Arrow's own are bits.
const fn arrow_of(dtype: DataType) -> Arrow {
    match dtype {
        DataType::Int8 => Arrow::Int8,
        DataType::Int16 => Arrow::Int16,
        DataType::Int32 => Arrow::Int32,
        DataType::Int64 => Arrow::Int64,
        DataType::Uint16 => Arrow::UInt16,
        DataType::Uint32 => Arrow::UInt32,
        DataType::Uint64 => Arrow::UInt64,
        DataType::Fp16 => Arrow::Float16,
        DataType::Fp32 => Arrow::Float32,
        DataType::Fp64 => Arrow::Float64,
        DataType::Bool | DataType::Uint8 | DataType::Bf16 | DataType::Bytes => Arrow::UInt8,
    }
}

/// Rows on their way to a batch.
pub(super) struct Making {
    schema: SchemaRef,
    columns: Vec<Column>,
    numbers: Vec<u64>,
    bad: Vec<(u64, String, String)>,
    bytes: usize,
    row: u64,
}

impl Making {
    /// For these columns of the schema, which a batch has in the schema's order.
    pub(super) fn new(schema: &Schema, columns: &[&str]) -> Result<Self, String> {
        let wanted = positions(schema, columns);
        let schema = Arc::new(schema.project(&wanted).map_err(|e| e.to_string())?);
        Ok(Self {
            columns: schema
                .fields()
                .iter()
                .map(|field| Column::new(field.data_type()))
                .collect(),
            schema,
            numbers: Vec::new(),
            bad: Vec::new(),
            bytes: 0,
            row: 0,
        })
    }

    /// Takes a sample, whole or not at all.
    pub(super) fn push(&mut self, mut sample: Sample) {
        let row = self.row;
        self.row += 1;
        if let Some(wrong) = sample.wrong {
            self.bad.push((row, wrong, sample.name));
            return;
        }
        let mut values = Vec::with_capacity(self.columns.len());
        for (field, column) in self.schema.fields().iter().zip(&self.columns) {
            let value = sample.values.remove(field.name());
            match value.map(|value| column.fit(value)).transpose() {
                Ok(value) => values.push(value),
                Err(what) => {
                    let what = format!("`{}`: {what}", field.name());
                    self.bad.push((row, what, sample.name));
                    return;
                }
            }
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            self.bytes += value.as_ref().map_or(0, Vec::len);
            column.push(value);
        }
        self.numbers.push(row);
    }

    pub(super) fn is_full(&self) -> bool {
        self.numbers.len() + self.bad.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The batch, of so many bytes of the file; the next one begins.
    pub(super) fn finish(&mut self, bytes: u64) -> Result<Batch, String> {
        let columns = self.columns.iter_mut().map(Column::finish);
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, String>>()?;
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|e| e.to_string())?;
        self.bytes = 0;
        Ok(Batch {
            rows,
            numbers: Numbers::These(std::mem::take(&mut self.numbers)),
            bad: std::mem::take(&mut self.bad),
            bytes,
        })
    }
}

/// A column being built: all values one after another, and where each ends.
struct Column {
    arrow: Arrow,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    valid: Vec<bool>,
}

impl Column {
    fn new(arrow: &Arrow) -> Self {
        Self {
            arrow: arrow.clone(),
            bytes: Vec::new(),
            ends: Vec::new(),
            valid: Vec::new(),
        }
    }

    fn item(&self) -> &Arrow {
        match &self.arrow {
            Arrow::List(item) => item.data_type(),
            own => own,
        }
    }

    /// The bytes that stand for a value here.
    fn fit(&self, value: Value) -> Result<Vec<u8>, String> {
        let wrong = |value: &Value| {
            Err(format!(
                "{}, where the first samples have {}",
                value.shown(),
                self.arrow
            ))
        };
        let is_list = matches!(self.arrow, Arrow::List(_));
        let bytes = match (self.item(), value) {
            (Arrow::Utf8, Value::Text(text)) => return Ok(text.into_bytes()),
            (Arrow::Binary, Value::Text(text)) => return Ok(text.into_bytes()),
            (Arrow::Binary, Value::Bytes(bytes) | Value::Nested(bytes)) => return Ok(bytes),
            (Arrow::UInt8, Value::Bytes(bytes)) if is_list => bytes,
            (Arrow::UInt8, Value::Text(text)) if is_list => text.into_bytes(),
            (
                Arrow::Float64,
                Value::Numbers {
                    dtype: DataType::Int64,
                    bytes,
                    ..
                },
            ) => {
                let (values, _) = bytes.as_chunks::<8>();
                let float = |le: &[u8; 8]| (i64::from_le_bytes(*le) as f64).to_le_bytes();
                values.iter().flat_map(float).collect()
            }
            (item, Value::Numbers { dtype, bytes, .. }) if arrow_of(dtype) == *item => bytes,
            (_, value) => return wrong(&value),
        };
        let width = self.item().primitive_width().unwrap_or(1);
        if !is_list && bytes.len() != width {
            let count = bytes.len() / width;
            return Err(format!("{count} values, where the first samples have one"));
        }
        Ok(bytes)
    }

    fn push(&mut self, value: Option<Vec<u8>>) {
        self.valid.push(value.is_some());
        match value {
            Some(value) => self.bytes.extend_from_slice(&value),
            None if matches!(self.arrow, Arrow::List(_) | Arrow::Utf8 | Arrow::Binary) => {}
            None => self
                .bytes
                .resize(self.bytes.len() + self.item().primitive_width().unwrap_or(0), 0),
        }
        self.ends.push(self.bytes.len());
    }

    fn finish(&mut self) -> Result<ArrayRef, String> {
        let done = std::mem::replace(self, Self::new(&self.arrow));
        let len = done.ends.len();
        let nulls = NullBuffer::from(done.valid);
        let error = |e: arrow_schema::ArrowError| e.to_string();
        let offsets = |unit: usize| {
            let ends = done.ends.iter().map(|end| i32::try_from(end / unit));
            let offsets: Result<Vec<i32>, _> = std::iter::once(Ok(0)).chain(ends).collect();
            offsets.map_err(|_| "a batch of more than 2 GiB".to_owned())
        };
        let data = match &done.arrow {
            Arrow::Utf8 => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets(1)?));
                let array = StringArray::try_new(offsets, Buffer::from_vec(done.bytes), Some(nulls));
                return Ok(Arc::new(array.map_err(error)?));
            }
            Arrow::Binary => ArrayData::builder(Arrow::Binary)
                .len(len)
                .add_buffer(Buffer::from_vec(offsets(1)?))
                .add_buffer(Buffer::from_vec(done.bytes)),
            Arrow::List(item) => {
                let item = item.data_type();
                let width = item.primitive_width().unwrap_or(1);
                let offsets = Buffer::from_vec(offsets(width)?);
                let values = ArrayData::builder(item.clone())
                    .len(done.bytes.len() / width)
                    .add_buffer(Buffer::from_vec(done.bytes))
                    .align_buffers(true)
                    .build()
                    .map_err(error)?;
                ArrayData::builder(done.arrow.clone())
                    .len(len)
                    .add_buffer(offsets)
                    .add_child_data(values)
            }
            own => ArrayData::builder(own.clone())
                .len(len)
                .add_buffer(Buffer::from_vec(done.bytes)),
        };
        let data = data.nulls(Some(nulls)).align_buffers(true).build().map_err(error)?;
        Ok(make_array(data))
    }
}
