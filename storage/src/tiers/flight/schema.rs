//! Conversion of feature tables to Arrow schemas, and back. In: either. Out: the other, or an error that names the
//! column. Knows nothing of rows or of the wire format.
//!
//! | table | Arrow |
//! |---|---|
//! | the entity's id | `entity_id`: int64, the first column |
//! | the entity's key | under the name of the column that it was taken from, first: int64, or utf8 (UUIDs too) |
//! | a column of shape `[]` | its element type |
//! | of shape `[n]` | a fixed-size list of n |
//! | of two dimensions or more | the extension `arrow.fixed_shape_tensor` over one fixed-size list |
//! | BF16, which Arrow has not | uint16, with `tierlab.dtype` = `BF16` in the field's metadata |
//! | name, first id, rows, version | `table`, `first_id`, `rows`, `version` in the schema's metadata |

use super::ID_COLUMN;
use anyhow::{Context as _, Result, anyhow, bail};
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType as Arrow, Field, Schema};
use std::collections::HashMap;
use std::sync::Arc;
use tierlab_formats::table::{KeyKind, TableHeader, TableSchema};
use tierlab_protocol::tensor::{DataType, element_count};

const TENSOR: &str = "arrow.fixed_shape_tensor";
const DTYPE_KEY: &str = "tierlab.dtype";
/// Metadata key that names the key column.
const KEY_KEY: &str = "key";
/// Advice about tables whose entities have keys: the index from keys to rows is only in the table's file.
const KEYS: &str = "entities have int64 ids over Flight; use another tier for a table with keys";
/// Maximum nesting of lists: more dimensions than any tensor here has.
const MAX_DIMENSIONS: usize = 16;

/// The schema of a table's rows as typed columns.
pub fn of_table(header: &TableHeader, version: &str) -> Result<Schema> {
    let mut fields = vec![match &header.schema.key {
        None => Field::new(ID_COLUMN, Arrow::Int64, false),
        Some(key) => Field::new(&key.name, key_type(key.kind), false),
    }];
    for column in &header.schema.columns {
        if column.name == *fields[0].name() {
            bail!("column `{}` has the name of the ids: import without it", column.name);
        }
        fields.push(field(&column.name, column.dtype, &column.shape)?);
    }
    Ok(Schema::new_with_metadata(fields, metadata(header, version)))
}

const fn key_type(kind: KeyKind) -> Arrow {
    match kind {
        KeyKind::Int64 => Arrow::Int64,
        KeyKind::String | KeyKind::Uuid => Arrow::Utf8,
    }
}

/// Table metadata besides its columns. If the table has keys, `key` names their column; `first_id` and ids in tickets
/// are then row numbers.
fn metadata(header: &TableHeader, version: &str) -> HashMap<String, String> {
    let key = header.schema.key.as_ref();
    let key = key.map(|key| (KEY_KEY.to_owned(), format!("{}:{}", key.name, key.kind.as_str())));
    let mut metadata = HashMap::from([
        ("table".to_owned(), header.schema.name.clone()),
        ("first_id".to_owned(), header.first_id.to_string()),
        ("rows".to_owned(), header.rows.to_string()),
        ("version".to_owned(), version.to_owned()),
    ]);
    metadata.extend(key);
    metadata
}

fn field(name: &str, dtype: DataType, shape: &[i64]) -> Result<Field> {
    let element = element(dtype).with_context(|| format!("column `{name}`: {dtype} has no fixed-size Arrow type"))?;
    let mut metadata = HashMap::new();
    if dtype == DataType::Bf16 {
        metadata.insert(DTYPE_KEY.to_owned(), dtype.to_string());
    }
    let arrow = if shape.is_empty() {
        element
    } else {
        let count = element_count(shape).and_then(|count| i32::try_from(count).ok());
        let count = count.with_context(|| format!("column `{name}`: shape {shape:?} is too large for a list"))?;
        Arrow::FixedSizeList(Arc::new(Field::new("item", element, false)), count)
    };
    if shape.len() > 1 {
        metadata.insert(EXTENSION_TYPE_NAME_KEY.to_owned(), TENSOR.to_owned());
        let json = format!("{{\"shape\":{shape:?}}}");
        metadata.insert(EXTENSION_TYPE_METADATA_KEY.to_owned(), json);
    }
    Ok(Field::new(name, arrow, false).with_metadata(metadata))
}

/// Arrow type of an element; `None` if it has no fixed size.
#[must_use]
pub fn element(dtype: DataType) -> Option<Arrow> {
    Some(match dtype {
        DataType::Bool => Arrow::Boolean,
        DataType::Uint8 => Arrow::UInt8,
        DataType::Uint16 | DataType::Bf16 => Arrow::UInt16,
        DataType::Uint32 => Arrow::UInt32,
        DataType::Uint64 => Arrow::UInt64,
        DataType::Int8 => Arrow::Int8,
        DataType::Int16 => Arrow::Int16,
        DataType::Int32 => Arrow::Int32,
        DataType::Int64 => Arrow::Int64,
        DataType::Fp16 => Arrow::Float16,
        DataType::Fp32 => Arrow::Float32,
        DataType::Fp64 => Arrow::Float64,
        DataType::Bytes => return None,
    })
}

/// Tensor element type of an Arrow type; `None` if there is no equivalent.
#[must_use]
pub fn dtype(arrow: &Arrow) -> Option<DataType> {
    let named = DataType::ALL.into_iter().filter(|&dtype| dtype != DataType::Bf16);
    named.into_iter().find(|&dtype| element(dtype).as_ref() == Some(arrow))
}

/// True for a column of BF16, in the bits of UINT16.
#[must_use]
pub fn is_bf16(field: &Field) -> bool {
    field.metadata().get(DTYPE_KEY).map(String::as_str) == Some(DataType::Bf16.as_str())
}

/// Table description from a server's schema. All columns except the ids can be laid out as rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForeignTable {
    pub(super) schema: TableSchema,
    /// `rows` of the schema's metadata, if present.
    pub(super) rows: Option<u64>,
    /// `first_id` of the schema's metadata (default: 0).
    pub(super) first_id: i64,
}

/// Converts a schema; `id_column` names the column of ids.
pub(super) fn to_table(table: &str, id_column: &str, schema: &Schema) -> Result<ForeignTable> {
    let key = schema.metadata().get(KEY_KEY).and_then(|key| key.rsplit_once(':'));
    if let Some((key, _)) = key.filter(|(key, _)| schema.field_with_name(key).is_ok()) {
        bail!("table has keys in column `{key}`: {KEYS}");
    }
    let ids = schema.field_with_name(id_column).map_err(|_| {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let names = names.join(", ");
        anyhow!("missing id column `{id_column}`; columns: {names}; set `id_column`")
    })?;
    if *ids.data_type() != Arrow::Int64 {
        let detail = "(create one with `tierlab-models import-table`)";
        bail!("column `{id_column}` is {}: {KEYS} {detail}", ids.data_type());
    }
    let mut columns = Vec::new();
    for field in schema.fields().iter().filter(|field| field.name() != id_column) {
        let (dtype, shape) = column(field).map_err(|detail| anyhow!("column `{}`: {detail}", field.name()))?;
        columns.push((field.name().as_str(), dtype, shape));
    }
    let fields = columns.iter().map(|(name, dtype, shape)| (*name, *dtype, &shape[..]));
    let fields: Vec<(&str, DataType, &[i64])> = fields.collect();
    let number = |key: &str| match schema.metadata().get(key) {
        None => Ok(None),
        Some(text) => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| anyhow!("invalid `{key}` in the schema's metadata: {text:?}")),
    };
    let rows = number("rows")?
        .map(|rows| u64::try_from(rows).map_err(|_| anyhow!("`rows` of the schema's metadata is negative")))
        .transpose()?;
    Ok(ForeignTable {
        schema: TableSchema::lay_out(table, &fields)?,
        rows,
        first_id: number("first_id")?.unwrap_or(0),
    })
}

/// Element type and shape of a row's value.
fn column(field: &Field) -> Result<(DataType, Vec<i64>)> {
    let (mut arrow, mut shape) = (field.data_type(), Vec::new());
    while let Arrow::FixedSizeList(inner, count) = arrow {
        if shape.len() == MAX_DIMENSIONS {
            bail!("lists nested deeper than {MAX_DIMENSIONS}");
        }
        shape.push(i64::from(*count));
        arrow = inner.data_type();
    }
    let mut dtype = dtype(arrow).with_context(|| {
        let hint = "use numbers, booleans or fixed-size lists of them";
        format!("{} has no fixed size; {hint}", field.data_type())
    })?;
    if let Some(stated) = field.metadata().get(DTYPE_KEY) {
        if stated != DataType::Bf16.as_str() || dtype != DataType::Uint16 {
            bail!("invalid `{DTYPE_KEY}` {stated:?} for Arrow type {arrow}");
        }
        dtype = DataType::Bf16;
    }
    if field.extension_type_name() == Some(TENSOR) {
        shape = tensor_shape(field, &shape)?;
    }
    Ok((dtype, shape))
}

/// Shape that the extension `arrow.fixed_shape_tensor` gives a flat list.
fn tensor_shape(field: &Field, flat: &[i64]) -> Result<Vec<i64>> {
    #[derive(serde::Deserialize)]
    struct TensorShape {
        shape: Vec<i64>,
        permutation: Option<Vec<usize>>,
    }
    let text = field.extension_type_metadata().unwrap_or_default();
    let stated: TensorShape = serde_json::from_str(text).map_err(|e| anyhow!("invalid tensor shape: {e}"))?;
    let identity = |order: &[usize]| order.iter().enumerate().all(|(i, &at)| i == at);
    if stated.permutation.is_some_and(|order| !identity(&order)) {
        bail!("permuted tensors are not supported");
    }
    let count = element_count(&stated.shape);
    if stated.shape.len() > MAX_DIMENSIONS || count.is_none() || count != element_count(flat) {
        bail!("tensor shape {:?} does not match {flat:?}", stated.shape);
    }
    Ok(stated.shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> TableHeader {
        let fixed: Vec<_> = DataType::ALL
            .into_iter()
            .filter(|&dtype| dtype != DataType::Bytes)
            .collect();
        let shapes: [&[i64]; 4] = [&[], &[1], &[5], &[2, 3, 4]];
        let mut columns = Vec::new();
        let names: Vec<String> = (0..fixed.len() * shapes.len()).map(|i| format!("c{i}")).collect();
        for (i, name) in names.iter().enumerate() {
            columns.push((name.as_str(), fixed[i / shapes.len()], shapes[i % shapes.len()]));
        }
        TableHeader::new(TableSchema::lay_out("all", &columns).unwrap(), 10, -3, 1).unwrap()
    }

    #[test]
    fn every_column_reads_back() {
        let header = header();
        let schema = of_table(&header, "v1").unwrap();
        assert_eq!(schema.field(0).name(), ID_COLUMN);
        assert_eq!(schema.metadata()["version"], "v1");
        let table = to_table("all", ID_COLUMN, &schema).unwrap();
        assert_eq!((table.rows, table.first_id), (Some(10), -3));
        assert_eq!(table.schema, header.schema);
    }

    #[test]
    fn a_column_under_the_name_of_the_ids_is_refused() {
        let schema = TableSchema::lay_out("t", &[(ID_COLUMN, DataType::Fp32, &[])]).unwrap();
        let header = TableHeader::new(schema, 10, 0, 1).unwrap();
        let error = of_table(&header, "v1").unwrap_err().to_string();
        assert!(error.contains("column `entity_id` has the name of the ids"), "{error}");
    }

    #[test]
    fn what_cannot_be_laid_out_is_refused_by_name() {
        let id = || Field::new(ID_COLUMN, Arrow::Int64, false);
        let one = |arrow| vec![id(), Field::new("odd", arrow, true)];
        let tensor = |metadata: &str| {
            let list = Arrow::new_fixed_size_list(Arrow::Int8, 6, false);
            let metadata = [
                (EXTENSION_TYPE_NAME_KEY, TENSOR),
                (EXTENSION_TYPE_METADATA_KEY, metadata),
            ];
            let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
            vec![
                id(),
                Field::new("odd", list, true).with_metadata(HashMap::from(metadata)),
            ]
        };
        for (fields, word) in [
            (one(Arrow::Utf8), "odd"),
            (one(Arrow::new_list(Arrow::Int8, true)), "odd"),
            (one(Arrow::Decimal128(3, 1)), "odd"),
            (vec![Field::new("a", Arrow::Int8, false)], "entity_id"),
            (vec![Field::new(ID_COLUMN, Arrow::Int32, false)], "int64"),
            (vec![id()], "column"),
            (tensor("{\"shape\":[2,4]}"), "odd"),
            (tensor("{\"shape\":[-2,-3]}"), "odd"),
            (tensor("{\"shape\":[2,3],\"permutation\":[1,0]}"), "permuted"),
            (tensor("no json"), "odd"),
        ] {
            let error = to_table("t", ID_COLUMN, &Schema::new(fields)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let metadata = HashMap::from([(KEY_KEY.to_owned(), "user:int64".to_owned())]);
        let keyed = Schema::new_with_metadata(vec![Field::new("user", Arrow::Int64, false)], metadata);
        let error = to_table("t", "user", &keyed).unwrap_err().to_string();
        assert!(error.contains("`user`") && error.contains("another tier"), "{error}");
        let good = to_table("t", ID_COLUMN, &Schema::new(tensor("{\"shape\":[2,3]}"))).unwrap();
        assert_eq!(good.schema.columns[0].shape, [2, 3]);
    }
}
