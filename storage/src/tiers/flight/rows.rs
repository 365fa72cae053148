//! Conversion of a feature table's rows to Arrow columns, and back. In: either, with the table's header. Out: the
//! other. Rows are verified before their values are sent, and sealed after columns are laid out. Knows nothing of the
//! wire format.

use anyhow::{Context as _, Result, anyhow, bail};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Int64Array, RecordBatch, StringArray, make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType as Arrow, SchemaRef};
use bytes::Bytes;
use std::sync::Arc;
use tierlab_formats::table::{KeyColumn, KeyKind, TableHeader};

/// Converts rows to typed columns, in the order of `ids`; `schema` comes from [`of_table`](super::schema::of_table).
pub fn to_batch(header: &TableHeader, schema: &SchemaRef, ids: &[i64], rows: &[Bytes]) -> Result<RecordBatch> {
    for (&id, row) in ids.iter().zip(rows) {
        header.check_row(id, row)?;
    }
    let mut columns: Vec<ArrayRef> = vec![match &header.schema.key {
        None => Arc::new(Int64Array::from(ids.to_vec())),
        Some(key) => keys(key, rows)?,
    }];
    for (column, field) in header.schema.columns.iter().zip(schema.fields().iter().skip(1)) {
        let (from, len) = (column.offset as usize, column.byte_len().unwrap_or(0));
        // Aligned for every element type.
        let mut data = MutableBuffer::with_capacity(len * rows.len());
        for row in rows {
            data.extend_from_slice(&row[from..from + len]);
        }
        columns.push(array(field.data_type(), data, rows.len())?);
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Column of the rows' keys.
fn keys(column: &KeyColumn, rows: &[Bytes]) -> Result<ArrayRef> {
    let keys: Option<Vec<&[u8]>> = rows.iter().map(|row| column.get(row)).collect();
    let keys = keys.context("a row's key is truncated")?;
    Ok(match column.kind {
        KeyKind::Int64 => {
            let ids = keys.into_iter().map(|key| key.try_into().map(i64::from_le_bytes));
            let ids = ids.collect::<Result<Vec<i64>, _>>();
            Arc::new(Int64Array::from(ids.map_err(|_| anyhow!("a key is not an INT64"))?))
        }
        KeyKind::String | KeyKind::Uuid => {
            let texts = keys.into_iter().map(|key| Some(column.kind.to_text(key)));
            Arc::new(texts.collect::<StringArray>())
        }
    })
}

fn array(arrow: &Arrow, data: MutableBuffer, len: usize) -> Result<ArrayRef, ArrowError> {
    Ok(match arrow {
        Arrow::FixedSizeList(item, count) => {
            let values = array(item.data_type(), data, len * usize::try_from(*count).unwrap_or(0))?;
            let item = Arc::clone(item);
            let list = FixedSizeListArray::try_new_with_length(item, *count, values, None, len)?;
            Arc::new(list)
        }
        Arrow::Boolean => {
            let bytes = data.as_slice();
            let flags = BooleanBuffer::collect_bool(len, |i| bytes[i] != 0);
            Arc::new(BooleanArray::new(flags, None))
        }
        _ => {
            let data = ArrayData::builder(arrow.clone()).len(len).add_buffer(data.into());
            make_array(data.build()?)
        }
    })
}

/// Appends the columns of a batch to `out` as rows, in order, each sealed for its id. The batch must hold exactly the rows of
/// `ids`, in this order, and have the header's columns. If entities have keys, `id_column` is the key column, and `ids`
/// are row numbers, which the batch does not hold. The rows' checksums then show whether these are the requested rows.
///
/// # Errors
/// Fails if a column is missing or has another size, if rows have other ids, or if a row cannot hold a key.
pub fn lay_out(
    header: &TableHeader,
    id_column: &str,
    batch: &RecordBatch,
    ids: &[i64],
    out: &mut Vec<u8>,
) -> Result<()> {
    let (stride, before) = (header.stride as usize, out.len());
    out.resize(before + stride * ids.len(), 0);
    let rows = &mut out[before..];
    let found = batch.column_by_name(id_column);
    match &header.schema.key {
        Some(key) => {
            let found = found.with_context(|| format!("missing key column `{id_column}`"))?;
            put_keys(key, found, rows.chunks_exact_mut(stride))?;
        }
        None => {
            let found = found.and_then(|column| column.as_any().downcast_ref::<Int64Array>());
            let found = found.with_context(|| format!("missing int64 column `{id_column}`"))?;
            if found.null_count() > 0 || found.values()[..] != *ids {
                bail!("reply has rows of other entities, or in another order");
            }
        }
    }
    for column in &header.schema.columns {
        let name = &column.name;
        let array = batch.column_by_name(name);
        let array = array.with_context(|| format!("column `{name}`: missing"))?;
        let bytes = element_bytes(array).map_err(|e| anyhow!("column `{name}`: {e}"))?;
        let (from, len) = (column.offset as usize, column.byte_len().unwrap_or(0));
        if bytes.len() != len * ids.len() {
            let (bytes, rows) = (bytes.len(), ids.len());
            bail!("column `{name}`: {bytes} bytes for {rows} rows of {len} bytes each");
        }
        if len > 0 {
            for (row, value) in rows.chunks_exact_mut(stride).zip(bytes.chunks_exact(len)) {
                row[from..from + len].copy_from_slice(value);
            }
        }
    }
    for (&id, row) in ids.iter().zip(rows.chunks_exact_mut(stride)) {
        header.seal_row(id, row);
    }
    Ok(())
}

/// Writes keys into rows that have none yet.
fn put_keys<'a>(column: &KeyColumn, keys: &ArrayRef, rows: impl ExactSizeIterator<Item = &'a mut [u8]>) -> Result<()> {
    let named = |detail: &str| anyhow!("key column `{}`: {detail}", column.name);
    if keys.null_count() > 0 || keys.len() != rows.len() {
        return Err(named("the number of keys is not the number of rows"));
    }
    let ids = keys.as_any().downcast_ref::<Int64Array>();
    let texts = keys.as_any().downcast_ref::<StringArray>();
    for (at, row) in rows.enumerate() {
        let is_put = match (column.kind, ids, texts) {
            (KeyKind::Int64, Some(ids), _) => column.put(row, &ids.value(at).to_le_bytes()),
            (KeyKind::String | KeyKind::Uuid, _, Some(texts)) => column.put_text(row, texts.value(at).as_bytes()),
            _ => {
                let (values, kind) = (keys.data_type(), column.kind.as_str());
                return Err(named(&format!("{values} values cannot be keys of kind {kind}")));
            }
        };
        if !is_put {
            return Err(named(&format!("the key of row {at} does not fit into a row")));
        }
    }
    Ok(())
}

/// Elements of an array in order, little-endian; shares the array's memory except for booleans.
fn element_bytes(array: &ArrayRef) -> Result<Buffer> {
    let nulls = array.null_count();
    if nulls > 0 {
        bail!("{nulls} values are null; every value is required");
    }
    let any = array.as_any();
    if let Some(list) = any.downcast_ref::<FixedSizeListArray>() {
        return element_bytes(list.values());
    }
    if let Some(flags) = any.downcast_ref::<BooleanArray>() {
        return Ok(flags.values().iter().map(u8::from).collect());
    }
    let size = array.data_type().primitive_width();
    let size = size.with_context(|| format!("{} has no fixed size", array.data_type()))?;
    let data = array.to_data();
    let (start, len) = (data.offset() * size, data.len() * size);
    let values = data.buffers().first().filter(|values| values.len() >= start + len);
    match values {
        Some(values) => Ok(values.slice_with_length(start, len)),
        None if len == 0 => Ok(Buffer::default()),
        None => bail!("its values are truncated"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::content;
    use crate::tiers::flight::ID_COLUMN;
    use crate::tiers::flight::schema::{of_table, to_table};
    use proptest::prelude::*;
    use tierlab_formats::table::TableSchema;
    use tierlab_protocol::tensor::DataType;

    fn header(rows: u64, first_id: i64) -> TableHeader {
        let columns: [(&str, DataType, &[i64]); 6] = [
            ("flag", DataType::Bool, &[3]),
            ("half", DataType::Fp16, &[5]),
            ("brain", DataType::Bf16, &[2, 2]),
            ("one", DataType::Int64, &[]),
            ("none", DataType::Fp32, &[0]),
            ("image", DataType::Uint8, &[3, 4, 5]),
        ];
        TableHeader::without_blocks(TableSchema::lay_out("t", &columns).unwrap(), rows, first_id).unwrap()
    }

    /// A sealed row of any content, its padding zero as every writer leaves it.
    fn row(header: &TableHeader, id: i64) -> Bytes {
        let mut row = vec![0; header.stride as usize];
        for column in &header.schema.columns {
            let (from, len) = (column.offset as usize, column.byte_len().unwrap());
            let mut bytes = content(id.unsigned_abs(), from as u64..(from + len) as u64);
            if column.dtype == DataType::Bool {
                bytes.iter_mut().for_each(|byte| *byte &= 1);
            }
            row[from..from + len].copy_from_slice(&bytes);
        }
        header.seal_row(id, &mut row);
        row.into()
    }

    fn rows_of(header: &TableHeader, batch: &RecordBatch, ids: &[i64]) -> Result<Vec<u8>> {
        let mut rows = Vec::new();
        lay_out(header, ID_COLUMN, batch, ids, &mut rows).map(|()| rows)
    }

    proptest! {
        #[test]
        fn rows_read_back_from_columns(ids in proptest::collection::vec(-20_i64..80, 0..30)) {
            let header = header(100, -20);
            let schema: SchemaRef = of_table(&header, "v").unwrap().into();
            let rows: Vec<Bytes> = ids.iter().map(|&id| row(&header, id)).collect();
            let batch = to_batch(&header, &schema, &ids, &rows).unwrap();
            prop_assert_eq!(&to_table("t", ID_COLUMN, &schema).unwrap().schema, &header.schema);
            prop_assert_eq!(rows_of(&header, &batch, &ids).unwrap(), rows.concat());
            // A slice begins inside its buffers.
            if let [_, rest @ ..] = &ids[..] {
                let sliced = rows_of(&header, &batch.slice(1, rest.len()), rest).unwrap();
                prop_assert_eq!(sliced, rows[1..].concat());
            }
        }
    }

    #[test]
    fn damage_and_other_rows_are_seen() {
        let header = header(10, 0);
        let schema: SchemaRef = of_table(&header, "v").unwrap().into();
        let rows = [row(&header, 3), row(&header, 4)];
        let batch = to_batch(&header, &schema, &[3, 4], &rows).unwrap();
        for ids in [&[4, 3][..], &[3], &[3, 4, 5], &[]] {
            assert!(rows_of(&header, &batch, ids).is_err(), "{ids:?}");
        }
        assert!(
            to_batch(&header, &schema, &[4, 3], &rows)
                .unwrap_err()
                .to_string()
                .contains("entity 4")
        );
        let mut damaged = rows[1].to_vec();
        damaged[9] ^= 1;
        let rows = [rows[0].clone(), damaged.into()];
        assert!(
            to_batch(&header, &schema, &[3, 4], &rows)
                .unwrap_err()
                .to_string()
                .contains("entity 4")
        );
    }
}
