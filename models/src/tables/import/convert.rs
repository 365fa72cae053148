//! Conversion of Arrow batches to keys and rows' bytes. In: a batch and the layout. Out: for each row its key and its
//! columns' bytes, or the reason for which it is bad. Knows no file.

use super::layout::{Layout, dtype_of, is_float, is_text, payload_bytes};
use super::request::NullRule;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt16Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch, UInt8Array};
use arrow_buffer::i256;
use arrow_cast::display::FormatOptions;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType as Arrow;
use half::{bf16, f16};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tierlab_formats::table::{KeyHash, KeyKind, TableSchema};
use tierlab_protocol::tensor::DataType;
use tierlab_storage::tiers::flight::schema::is_bf16;

/// Rules of the conversion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) layout: &'a Layout,
    /// Columns of a row, in the layout's order.
    pub(super) table: &'a TableSchema,
    pub(super) nulls: NullRule,
    pub(super) max_key_bytes: usize,
}

/// Rows of one batch.
#[derive(Debug, Default)]
pub(super) struct Rows {
    keys: Vec<u8>,
    ends: Vec<usize>,
    payload: Vec<u8>,
    payload_bytes: usize,
    /// Bad rows with their reasons.
    pub(super) bad: BTreeMap<usize, String>,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn key(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start..self.ends[row]]
    }

    pub(super) fn payload(&self, row: usize) -> &[u8] {
        &self.payload[row * self.payload_bytes..(row + 1) * self.payload_bytes]
    }

    fn mark_bad(&mut self, row: usize, reason: String) {
        self.bad.entry(row).or_insert(reason);
    }
}

/// Row of a batch at which an import stops, and the reason.
type FatalRow = (usize, anyhow::Error);

/// Place of one column's values in rows.
struct RowTarget<'a> {
    column: &'a str,
    dtype: DataType,
    /// Byte offset in a row.
    at: usize,
    width: usize,
    nulls: NullRule,
    /// True for BF16 in the bits of UINT16.
    is_bf16: bool,
}

/// Converts a batch to rows.
///
/// # Errors
/// A null if nulls are refused; a batch with column types other than the layout's, at its first row.
pub(super) fn convert(rules: Rules<'_>, batch: &RecordBatch) -> Result<Rows, FatalRow> {
    let payload_bytes = payload_bytes(rules.table);
    let mut rows = Rows {
        payload: vec![0; payload_bytes * batch.num_rows()],
        payload_bytes,
        ..Rows::default()
    };
    let at_first_row = |reason| (0, reason);
    let column = |name: &str| {
        let column = batch.column_by_name(name);
        column.ok_or_else(|| at_first_row(anyhow!("no column `{name}`")))
    };
    convert_keys(rules, column(&rules.layout.key)?, &mut rows).map_err(at_first_row)?;
    for (out, column_of_table) in rules.layout.columns.iter().zip(&rules.table.columns) {
        let size = out.dtype.size().unwrap_or(1);
        let mut at = column_of_table.offset as usize;
        for source in &out.sources {
            let target = RowTarget {
                column: &source.column,
                dtype: out.dtype,
                at,
                width: source.width,
                nulls: rules.nulls,
                is_bf16: batch.schema_ref().field_with_name(&source.column).is_ok_and(is_bf16),
            };
            let array = column(&source.column)?;
            match source.buckets {
                Some(buckets) => target.write_hashed(array, buckets, &mut rows)?,
                None => target.write_column(array, &mut rows)?,
            }
            at += source.width * size;
        }
    }
    Ok(rows)
}

/// Appends the bytes of a row's key.
type PutKey<'a> = dyn Fn(usize, &mut Vec<u8>) -> Result<()> + 'a;

fn convert_keys(rules: Rules<'_>, array: &ArrayRef, rows: &mut Rows) -> Result<()> {
    let kind = rules.layout.kind;
    let error = |what: &dyn std::fmt::Display| anyhow!("column `{}`, the key: {what}", rules.layout.key);
    let nulls = array.logical_nulls();
    let mut for_each_row = |put: &PutKey| {
        for row in 0..array.len() {
            let result = match nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                true => Err(anyhow!("it is null")),
                false => put(row, &mut rows.keys),
            };
            if let Err(what) = result {
                rows.mark_bad(row, error(&what).to_string());
            }
            rows.ends.push(rows.keys.len());
        }
    };
    match array.data_type() {
        arrow if is_text(arrow) => {
            let texts = arrow_cast::cast(array, &Arrow::Utf8).map_err(|e| error(&e))?;
            let texts = texts.as_string::<i32>();
            for_each_row(&|row, keys| {
                let key = kind.of_text(texts.value(row))?;
                let (len, max_len) = (key.len(), rules.max_key_bytes);
                ensure!(len <= max_len, "{len} bytes, the most is {max_len} (--max-key-bytes)");
                keys.extend_from_slice(&key);
                Ok(())
            });
        }
        Arrow::Null => for_each_row(&|_, _| Ok(())),
        Arrow::FixedSizeBinary(16) if kind == KeyKind::Uuid => {
            let uuids = array.as_fixed_size_binary();
            for_each_row(&|row, keys| {
                keys.extend_from_slice(uuids.value(row));
                Ok(())
            });
        }
        arrow if kind == KeyKind::Int64 && arrow.is_integer() => {
            let ids = arrow_cast::cast(array, &Arrow::Int64).map_err(|e| error(&e))?;
            let ids = ids.as_primitive::<Int64Type>();
            for_each_row(&|row, keys| {
                let id = ids.is_valid(row).then(|| ids.value(row));
                keys.extend_from_slice(&id.context("it is above the largest INT64")?.to_le_bytes());
                Ok(())
            });
        }
        other => return Err(error(&format!("it is {other} in this file, {} before", kind.as_str()))),
    }
    Ok(())
}

impl RowTarget<'_> {
    fn slot<'a>(&self, rows: &'a mut Rows, row: usize, element: usize) -> &'a mut [u8] {
        let size = self.dtype.size().unwrap_or(1);
        let at = row * rows.payload_bytes + self.at + element * size;
        &mut rows.payload[at..at + size]
    }

    fn put(&self, rows: &mut Rows, row: usize, element: usize, number: Number) {
        if !number.put(self.dtype, self.slot(rows, row, element)) {
            let value = match number {
                Number::Int(int) => int.to_string(),
                Number::Float(float) => float.to_string(),
            };
            rows.mark_bad(
                row,
                format!("column `{}`: {value} does not fit {}", self.column, self.dtype),
            );
        }
    }

    /// Handles a null element, or a null value.
    fn put_null(&self, rows: &mut Rows, row: usize, elements: Range<usize>) -> Result<(), FatalRow> {
        let (column, dtype) = (self.column, self.dtype);
        let number = match self.nulls {
            NullRule::Refuse => {
                let reason = anyhow!("column `{column}` is null; choose --nulls zero, nan, a number, or aside");
                return Err((row, reason));
            }
            NullRule::Aside => {
                rows.mark_bad(row, format!("column `{column}` is null"));
                return Ok(());
            }
            NullRule::Nan if !is_float(dtype) => {
                rows.mark_bad(row, format!("column `{column}` is null, and {dtype} has no NaN"));
                return Ok(());
            }
            NullRule::Nan => Number::Float(f64::NAN),
            NullRule::Value(value) => Number::Float(value),
        };
        for element in elements {
            self.put(rows, row, element, number);
        }
        Ok(())
    }

    fn write_hashed(&self, array: &ArrayRef, buckets: u64, rows: &mut Rows) -> Result<(), FatalRow> {
        if *array.data_type() == Arrow::Null {
            return self.write_nulls(array.len(), rows);
        }
        if !is_text(array.data_type()) {
            let what = format!("it is {} in this file, text before", array.data_type());
            return Err(self.fatal(&what));
        }
        let texts = arrow_cast::cast(array, &Arrow::Utf8).map_err(|e| self.fatal(&e))?;
        let texts = texts.as_string::<i32>();
        for row in 0..texts.len() {
            if texts.is_null(row) {
                self.put_null(rows, row, 0..1)?;
            } else {
                let bucket = KeyHash::of(texts.value(row).as_bytes()).low() % buckets;
                self.put(rows, row, 0, Number::Int(bucket.into()));
            }
        }
        Ok(())
    }

    /// Handles a column without a type, in which the file's writer saw only nulls.
    fn write_nulls(&self, count: usize, rows: &mut Rows) -> Result<(), FatalRow> {
        (0..count).try_for_each(|row| self.put_null(rows, row, 0..self.width))
    }

    fn write_column(&self, array: &ArrayRef, rows: &mut Rows) -> Result<(), FatalRow> {
        let if_valid = |row: usize| (!array.is_null(row)).then_some(row);
        match array.data_type() {
            Arrow::Null => self.write_nulls(array.len(), rows),
            Arrow::Dictionary(..) => self.write_column(&self.without_dictionary(array)?, rows),
            Arrow::FixedSizeList(_, _) => {
                let list = array.as_fixed_size_list();
                let len = list.value_length() as usize;
                let span = |row: usize| if_valid(row).map(|row| (list.value_offset_at(row), len));
                self.write_values(list.values(), array.len(), span, rows)
            }
            Arrow::List(_) => self.write_lists::<i32>(array, rows),
            Arrow::LargeList(_) => self.write_lists::<i64>(array, rows),
            Arrow::FixedSizeBinary(len) => {
                let binary = array.as_fixed_size_binary();
                let bytes: ArrayRef = Arc::new(UInt8Array::new(binary.values().clone().into(), None));
                let len = usize::try_from(*len).unwrap_or(0);
                let span = |row: usize| if_valid(row).map(|row| (row * len, len));
                self.write_values(&bytes, array.len(), span, rows)
            }
            _ => self.write_values(array, array.len(), |row| Some((row, 1)), rows),
        }
    }

    fn write_lists<O: OffsetSizeTrait>(&self, array: &ArrayRef, rows: &mut Rows) -> Result<(), FatalRow> {
        let list = array.as_list::<O>();
        let span = |row: usize| {
            let start = list.value_offsets()[row].as_usize();
            list.is_valid(row).then(|| (start, list.value_length(row).as_usize()))
        };
        self.write_values(list.values(), array.len(), span, rows)
    }

    /// Returns values without a dictionary.
    fn without_dictionary(&self, array: &ArrayRef) -> Result<ArrayRef, FatalRow> {
        match array.data_type() {
            Arrow::Dictionary(_, values) => arrow_cast::cast(array, values).map_err(|e| self.fatal(&e)),
            _ => Ok(array.clone()),
        }
    }

    fn fatal(&self, what: &dyn std::fmt::Display) -> FatalRow {
        (0, anyhow!("column `{}`: {what}", self.column))
    }

    /// Takes the values of `count` rows; `span` returns the start and the number of a row's values.
    fn write_values(
        &self,
        values: &ArrayRef,
        count: usize,
        span: impl Fn(usize) -> Option<(usize, usize)>,
        rows: &mut Rows,
    ) -> Result<(), FatalRow> {
        let values = &self.without_dictionary(values)?;
        let data = values.to_data();
        let size = self.dtype.size().unwrap_or(1);
        // Booleans are bits in Arrow and bytes in a row.
        let is_same = dtype_of(values.data_type()) == Some(self.dtype) && self.dtype != DataType::Bool;
        let of_bf16 = |bits| Number::Float(bf16::from_bits(bits).to_f64());
        let converted = match values.data_type() {
            Arrow::UInt16 if self.is_bf16 => Some(numbers_of::<UInt16Type>(values, of_bf16)),
            _ if is_same && values.null_count() == 0 => None,
            _ => Some(numbers(values).map_err(|what| self.fatal(&what))?),
        };
        for row in 0..count {
            let Some((start, len)) = span(row) else {
                self.put_null(rows, row, 0..self.width)?;
                continue;
            };
            if len != self.width {
                let (column, width) = (self.column, self.width);
                let reason = format!("column `{column}`: a list of {len}, the first one has {width}");
                rows.mark_bad(row, reason);
                continue;
            }
            match &converted {
                None => {
                    let (from, to) = ((data.offset() + start) * size, row * rows.payload_bytes + self.at);
                    rows.payload[to..to + len * size].copy_from_slice(&data.buffers()[0][from..from + len * size]);
                }
                Some(converted) => {
                    for element in 0..len {
                        match converted(start + element) {
                            Some(number) => self.put(rows, row, element, number),
                            None => self.put_null(rows, row, element..element + 1)?,
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Values of any numeric column, without loss, by their positions; `None` for nulls.
type Numbers = Box<dyn Fn(usize) -> Option<Number>>;

/// Converts whole decimals to integers, and other decimals to floats. Times and dates are their integers.
fn numbers(values: &ArrayRef) -> Result<Numbers> {
    let cast = |to: Arrow| cast_with_options(values, &to, &STRICT);
    let floats = || cast(Arrow::Float64).map(|floats| numbers_of::<Float64Type>(&floats, Number::Float));
    Ok(match values.data_type() {
        Arrow::UInt64 => numbers_of::<UInt64Type>(values, |value| Number::Int(value.into())),
        Arrow::Decimal32(_, scale)
        | Arrow::Decimal64(_, scale)
        | Arrow::Decimal128(_, scale)
        | Arrow::Decimal256(_, scale) => match *scale {
            1.. => decimals(&cast(Arrow::Decimal256(76, *scale))?, *scale, floats()?),
            _ => numbers_of::<Decimal128Type>(&cast(Arrow::Decimal128(38, 0))?, Number::Int),
        },
        arrow if arrow.is_floating() => floats()?,
        arrow if dtype_of(arrow).is_some() => {
            numbers_of::<Int64Type>(&cast(Arrow::Int64)?, |value| Number::Int(value.into()))
        }
        other => bail!("{other} in this file, which has no place in a row"),
    })
}

/// Returns whole decimals as integers, because a float would round them above 2^53, and the others as `floats` does.
fn decimals(decimals: &ArrayRef, scale: i8, floats: Numbers) -> Numbers {
    let decimals = decimals.as_primitive::<Decimal256Type>().clone();
    let unit = i256::from_i128(10).wrapping_pow(scale.unsigned_abs().into());
    Box::new(move |at| {
        let parts = decimals.is_valid(at).then(|| decimals.value(at).checked_div_rem(unit));
        let (whole, rest) = parts.flatten()?;
        let whole = whole.to_i128().filter(|_| rest == i256::ZERO);
        whole.map(Number::Int).or_else(|| floats(at))
    })
}

fn numbers_of<T: ArrowPrimitiveType>(array: &ArrayRef, number: fn(T::Native) -> Number) -> Numbers {
    let array = array.as_primitive::<T>().clone();
    Box::new(move |at| array.is_valid(at).then(|| number(array.value(at))))
}

/// Options for Arrow casts that fail for a value that does not fit, instead of returning null.
pub(super) const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

/// Number of any type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// Writes the number as an element; returns false if the type cannot hold it.
    #[inline]
    pub(super) fn put(self, dtype: DataType, slot: &mut [u8]) -> bool {
        match dtype {
            DataType::Fp64 => copy(slot, &self.float().to_le_bytes()),
            DataType::Fp32 => self.put_rounded(self.float() as f32, f32::to_le_bytes, slot),
            DataType::Fp16 => self.put_rounded(f16::from_f64(self.float()), f16::to_le_bytes, slot),
            DataType::Bf16 => self.put_rounded(bf16::from_f64(self.float()), bf16::to_le_bytes, slot),
            DataType::Bytes => false,
            _ => self.int().is_some_and(|int| put_int(int, dtype, slot)),
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }

    /// Writes the number as it was rounded, unless that turned a finite number into infinity.
    #[inline]
    fn put_rounded<T: Copy + Into<f64>, const N: usize>(
        self,
        rounded: T,
        bytes: fn(T) -> [u8; N],
        slot: &mut [u8],
    ) -> bool {
        (rounded.into().is_finite() || !self.float().is_finite()) && copy(slot, &bytes(rounded))
    }

    /// Returns the integer, if it is one.
    fn int(self) -> Option<i128> {
        match self {
            Self::Int(int) => Some(int),
            Self::Float(float) if float.fract() == 0.0 && float.abs() < 1e19 => Some(float as i128),
            Self::Float(_) => None,
        }
    }
}

fn put_int(int: i128, dtype: DataType, slot: &mut [u8]) -> bool {
    let fits = dtype.integers().is_some_and(|integers| integers.contains(&int));
    // Two's complement: the low bytes are those of the narrower integer.
    fits && copy(slot, &int.to_le_bytes()[..slot.len()])
}

#[inline]
fn copy(slot: &mut [u8], bytes: &[u8]) -> bool {
    slot.copy_from_slice(bytes);
    true
}

#[cfg(test)]
mod tests {
    use super::super::layout::{OutColumn, Source};
    use super::*;
    use arrow_array::types::{Int8Type, UInt8Type};
    use arrow_array::{DictionaryArray, FixedSizeBinaryArray, Int8Array, Int64Array, ListArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Field;
    use proptest::prelude::*;

    #[test]
    fn bytes_and_lists_are_those_of_the_slice() {
        let bytes = [Some([1_u8, 2]), None, Some([5, 6])].into_iter();
        let lists = [[1, 2], [3, 4], [5, 6]].map(|list| Some(list.map(Some)));
        let keys = Int8Array::from(vec![0, 0, 1, 0, 1, 1]);
        let coded = DictionaryArray::<Int8Type>::new(keys, Arc::new(UInt8Array::from(vec![70, 80])));
        let item = Arc::new(Field::new("item", coded.data_type().clone(), true));
        let coded = ListArray::new(item, OffsetBuffer::from_lengths([2; 3]), Arc::new(coded), None);
        let columns: [(&str, ArrayRef); 4] = [
            ("id", Arc::new(Int64Array::from(vec![7, 8, 9]))),
            (
                "bytes",
                Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 2).unwrap()),
            ),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<UInt8Type, _, _>(lists)),
            ),
            ("coded", Arc::new(coded)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap().slice(1, 2);
        let out = |name: &str| OutColumn {
            name: name.to_owned(),
            dtype: DataType::Uint8,
            shape: vec![2],
            sources: vec![Source {
                column: name.to_owned(),
                width: 2,
                buckets: None,
                native: None,
                unit: None,
            }],
        };
        let layout = Layout {
            key: "id".to_owned(),
            kind: KeyKind::Int64,
            columns: vec![out("bytes"), out("list"), out("coded")],
        };
        let rules = Rules {
            layout: &layout,
            table: &layout.schema("t", 1).unwrap(),
            nulls: NullRule::Value(9.0),
            max_key_bytes: 8,
        };
        let rows = convert(rules, &batch).unwrap();
        assert_eq!(
            (rows.key(0), rows.key(1)),
            (&8_i64.to_le_bytes()[..], &9_i64.to_le_bytes()[..])
        );
        assert_eq!(
            (rows.payload(0), rows.payload(1)),
            (&[9, 9, 3, 4, 80, 70][..], &[5, 6, 5, 6, 80, 80][..])
        );
        assert!(rows.bad.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut slot = [0; 8];
        assert!(!Number::Int(300).put(DataType::Uint8, &mut slot[..1]));
        assert!(!Number::Int(-1).put(DataType::Uint64, &mut slot));
        assert!(!Number::Float(1.5).put(DataType::Int64, &mut slot));
        assert!(!Number::Float(f64::NAN).put(DataType::Int64, &mut slot));
        assert!(!Number::Int(2).put(DataType::Bool, &mut slot[..1]));
        assert!(!Number::Float(1e39).put(DataType::Fp32, &mut slot[..4]));
        assert!(!Number::Int(70_000).put(DataType::Fp16, &mut slot[..2]));
        assert!(!Number::Float(-f64::MAX).put(DataType::Bf16, &mut slot[..2]));
        assert!(Number::Float(f64::INFINITY).put(DataType::Fp16, &mut slot[..2]));
        assert!(Number::Float(f64::NAN).put(DataType::Fp32, &mut slot[..4]));
        assert!(Number::Int(65_504).put(DataType::Fp16, &mut slot[..2]));
        assert!(Number::Float(3.0).put(DataType::Uint8, &mut slot[..1]) && slot[0] == 3);
    }

    proptest! {
        #[test]
        fn numbers_keep_their_value(int: i64, float: f64) {
            let mut slot = [0; 8];
            prop_assert!(Number::Int(int.into()).put(DataType::Int64, &mut slot));
            prop_assert_eq!(i64::from_le_bytes(slot), int);
            prop_assert!(Number::Float(float).put(DataType::Fp64, &mut slot));
            prop_assert_eq!(f64::from_le_bytes(slot).to_bits(), float.to_bits());
        }
    }
}
