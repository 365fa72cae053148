//! Columns of a file as its table defines them: found by field id or by name, read as the table's types, null if the
//! file lacks them, and constant if the table's metadata or the file's folder has the value. In: a table's columns and
//! a file's schema. Out: batches. Source of the types: the Delta Lake protocol, "Schema Serialization Format" and "Type
//! Widening"; the Iceberg specification, "Schema Evolution".

use super::super::convert::STRICT;
use anyhow::{Context as _, Result, anyhow, bail};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use arrow_cast::cast_with_options;
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef, TimeUnit};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Key of a field's metadata for a column of folder names. Shards, which are read by a schema of the first file, lack
/// such columns of it.
const FOLDER: &str = "folder";

/// Column of a table.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct TableColumn {
    pub(super) name: String,
    pub(super) arrow: Arrow,
    /// Field id, in files with field ids.
    pub(super) id: Option<i32>,
    /// Names in files without field ids.
    pub(super) file_names: Vec<String>,
    /// Value in files written before the column was added.
    pub(super) default: Option<String>,
}

/// Columns of one file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in super::super) struct FileColumns {
    /// Columns of the table; `None` uses the file's own.
    pub(super) table: Option<Arc<Vec<TableColumn>>>,
    /// Constant values for all rows of the file, as text, by name.
    pub(super) constants: BTreeMap<String, (Arrow, Option<String>)>,
}

/// Source of a column.
#[derive(Debug)]
enum ColumnSource {
    /// Column of the file, by its name there.
    File(String),
    /// One value for all rows; `None` is null.
    Constant(Option<String>),
}

/// Resolved columns of a file.
#[derive(Debug)]
pub(in super::super) struct View {
    pub(in super::super) schema: SchemaRef,
    sources: Vec<ColumnSource>,
    /// Column to read if no other is.
    fallback: Option<String>,
}

impl FileColumns {
    /// Creates the columns of a table's file. `value` returns the constant of a column that has one; its inner `None`
    /// is null.
    pub(super) fn of_table(
        table: &Arc<Vec<TableColumn>>,
        value: impl Fn(&TableColumn) -> Option<Option<String>>,
    ) -> Self {
        let constants = table
            .iter()
            .filter_map(|column| Some((column.name.clone(), (column.arrow.clone(), value(column)?))));
        Self {
            constants: constants.collect(),
            table: Some(Arc::clone(table)),
        }
    }

    /// Returns text that differs whenever the columns do.
    pub(in super::super) fn digest(&self) -> String {
        hex::encode(crc32c::crc32c(format!("{self:?}").as_bytes()).to_be_bytes())
    }

    /// Resolves the columns in a file of this schema, whose fields have these ids.
    ///
    /// # Errors
    /// A file without field ids in a table without column names, or a column whose type does not fit the table's.
    pub(in super::super) fn resolve(&self, file: &Schema, ids: &[Option<i32>]) -> Result<View> {
        let (mut fields, mut sources) = (Vec::new(), Vec::new());
        let has_ids = ids.iter().any(Option::is_some);
        for column in self.table.iter().flat_map(|table| table.iter()) {
            let found = column.find(file, ids, has_ids)?;
            let (source, arrow) = match (found, self.constants.get(&column.name)) {
                (Some(field), _) => {
                    let (name, found, wanted) = (&column.name, field.data_type(), &column.arrow);
                    let arrow = read_as(found, wanted).with_context(|| {
                        format!(
                            "column `{name}` is {found} in this file and {wanted} in the table, which cannot hold it: rewrite the file"
                        )
                    })?;
                    (ColumnSource::File(field.name().clone()), arrow)
                }
                (None, Some((_, value))) => (ColumnSource::Constant(value.clone()), column.arrow.clone()),
                (None, None) => (ColumnSource::Constant(column.default.clone()), column.arrow.clone()),
            };
            sources.push(source);
            fields.push(Field::new(&column.name, arrow, true));
        }
        if self.table.is_none() {
            let fields_of_file = file.fields().iter();
            for field in fields_of_file.filter(|field| !field.metadata().contains_key(FOLDER)) {
                sources.push(ColumnSource::File(field.name().clone()));
                fields.push(field.as_ref().clone());
            }
            for (name, (arrow, value)) in &self.constants {
                if fields.iter().all(|field| field.name() != name) {
                    let mark = HashMap::from([(FOLDER.to_owned(), String::new())]);
                    sources.push(ColumnSource::Constant(value.clone()));
                    fields.push(Field::new(name, arrow.clone(), true).with_metadata(mark));
                }
            }
        }
        Ok(View {
            schema: Arc::new(Schema::new(fields)),
            sources,
            fallback: file.fields().first().map(|field| field.name().clone()),
        })
    }
}

impl TableColumn {
    fn find<'a>(&self, file: &'a Schema, ids: &[Option<i32>], has_ids: bool) -> Result<Option<&'a Field>> {
        let at = if let Some(id) = self.id
            && has_ids
        {
            ids.iter().position(|found| *found == Some(id))
        } else if self.file_names.is_empty() {
            bail!(
                "it has no field ids, and the table does not say which of its columns is `{}`: rewrite the file",
                self.name
            );
        } else {
            let mut fields = file.fields().iter();
            fields.position(|field| self.file_names.contains(field.name()))
        };
        Ok(at.map(|at| file.field(at)))
    }
}

impl View {
    fn selected<'a>(&'a self, columns: &'a [&str]) -> impl Iterator<Item = (&'a Field, &'a ColumnSource)> {
        let all = self.schema.fields().iter().zip(&self.sources);
        all.map(|(field, source)| (field.as_ref(), source))
            .filter(|(field, _)| columns.contains(&field.name().as_str()))
    }

    /// Returns the columns of the file that these columns need, at least one.
    pub(in super::super) fn file_columns<'a>(&'a self, columns: &'a [&str]) -> Vec<&'a str> {
        let names = self.selected(columns).filter_map(|(_, source)| match source {
            ColumnSource::File(name) => Some(name.as_str()),
            ColumnSource::Constant(_) => None,
        });
        let mut names: Vec<&str> = names.collect();
        if names.is_empty() {
            names.extend(self.fallback.as_deref());
        }
        names
    }

    /// Converts a batch of the file to these columns.
    ///
    /// # Errors
    /// A value that the column's type cannot hold.
    pub(in super::super) fn batch(&self, rows: &RecordBatch, columns: &[&str]) -> Result<RecordBatch> {
        let mut fields = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for (field, source) in self.selected(columns) {
            let bad = |what: &dyn std::fmt::Display| anyhow!("column `{}`: {what}", field.name());
            let count = rows.num_rows();
            let cast = |array: &ArrayRef| cast_with_options(array, field.data_type(), &STRICT).map_err(|e| bad(&e));
            arrays.push(match source {
                ColumnSource::File(name) => {
                    let array = rows.column_by_name(name).ok_or_else(|| bad(&"it was not read"))?;
                    cast(array)?
                }
                ColumnSource::Constant(None) => new_null_array(field.data_type(), count),
                ColumnSource::Constant(Some(value)) => {
                    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, count)));
                    cast(&texts)?
                }
            });
            fields.push(field.clone());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }
}

/// Returns the type of a column in a schema; `Null` for structs and maps, whose columns have the file's type.
///
/// # Errors
/// An unknown type.
pub(super) fn of_schema(value: &Value) -> Result<Arrow> {
    if let Some(name) = value.as_str() {
        return primitive(name).with_context(|| format!("unknown type `{name}`"));
    }
    // Delta's `elementType`, Iceberg's `element`.
    let element = value.get("elementType").or_else(|| value.get("element"));
    match (value.get("type").and_then(Value::as_str), element) {
        (Some("array" | "list"), Some(element)) => {
            let element = of_schema(element)?;
            Ok(Arrow::List(Arc::new(Field::new("element", element, true))))
        }
        (Some("struct" | "map"), _) => Ok(Arrow::Null),
        _ => bail!("unknown type {value}"),
    }
}

fn primitive(name: &str) -> Option<Arrow> {
    Some(match name {
        "boolean" => Arrow::Boolean,
        "byte" => Arrow::Int8,
        "short" => Arrow::Int16,
        "int" | "integer" => Arrow::Int32,
        "long" => Arrow::Int64,
        "float" => Arrow::Float32,
        "double" => Arrow::Float64,
        "date" => Arrow::Date32,
        "time" => Arrow::Time64(TimeUnit::Microsecond),
        "timestamp" | "timestamp_ntz" | "timestamptz" => Arrow::Timestamp(TimeUnit::Microsecond, None),
        "timestamp_ns" | "timestamptz_ns" => Arrow::Timestamp(TimeUnit::Nanosecond, None),
        "string" => Arrow::Utf8,
        "binary" => Arrow::Binary,
        "uuid" => Arrow::FixedSizeBinary(16),
        "unknown" | "void" => Arrow::Null,
        _ => {
            let (kind, rest) = name.split_once(['(', '['])?;
            let mut numbers = rest.trim_end_matches([')', ']']).split(',').map(str::trim);
            match kind {
                "decimal" => Arrow::Decimal128(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?),
                "fixed" => Arrow::FixedSizeBinary(numbers.next()?.parse().ok()?),
                _ => return None,
            }
        }
    })
}

/// Returns the type as which a file's column is read for the table; `None` if the table's type cannot hold every value
/// of the file's.
pub(super) fn read_as(file: &Arrow, table: &Arrow) -> Option<Arrow> {
    use Arrow::{
        Binary, BinaryView, Date32, Decimal128, Dictionary, FixedSizeBinary, FixedSizeList, Float32, Float64, Int8,
        Int16, Int32, Int64, LargeBinary, LargeList, LargeUtf8, List, Null, Timestamp, Utf8, Utf8View,
    };
    let with_item = |item: &Arc<Field>, table: &Arc<Field>| {
        let read = read_as(item.data_type(), table.data_type())?;
        Some(Arc::new(item.as_ref().clone().with_data_type(read)))
    };
    match (file, table) {
        (file, table) if file == table => Some(file.clone()),
        (Null, _) => Some(table.clone()),
        // Structs and maps, and text and bytes in any encoding.
        (file, Null) => Some(file.clone()),
        (LargeUtf8 | Utf8View, Utf8) | (LargeBinary | BinaryView | FixedSizeBinary(_), Binary) => Some(file.clone()),
        (Dictionary(_, values), table) => read_as(values, table).map(|read| match read == **values {
            true => file.clone(),
            false => read,
        }),
        (Int8, Int16 | Int32 | Int64 | Float64)
        | (Int16, Int32 | Int64 | Float64)
        | (Int32, Int64 | Float64)
        | (Float32, Float64)
        | (Date32, Timestamp(..))
        | (Int8 | Int16 | Int32 | Int64, Decimal128(_, 0..)) => Some(table.clone()),
        (Decimal128(digits, scale), Decimal128(wider, finer)) => {
            let fits =
                finer >= scale && i16::from(*wider) - i16::from(*finer) >= i16::from(*digits) - i16::from(*scale);
            fits.then(|| table.clone())
        }
        // The file's zone does not change the integers.
        (Timestamp(from, zone), Timestamp(to, _)) => (from <= to).then(|| Timestamp(*to, zone.clone())),
        (List(item), List(wanted)) => with_item(item, wanted).map(List),
        (LargeList(item), List(wanted)) => with_item(item, wanted).map(LargeList),
        (FixedSizeList(item, count), List(wanted)) => with_item(item, wanted).map(|item| FixedSizeList(item, *count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_are_read_by_name() {
        for (value, wanted) in [
            (json!("long"), Arrow::Int64),
            (json!("decimal(9, 2)"), Arrow::Decimal128(9, 2)),
            (json!("decimal(9,2)"), Arrow::Decimal128(9, 2)),
            (json!("fixed[4]"), Arrow::FixedSizeBinary(4)),
            (json!({"type": "struct", "fields": []}), Arrow::Null),
        ] {
            assert_eq!(of_schema(&value).unwrap(), wanted);
        }
        let list = of_schema(&json!({"type": "list", "element": "float"})).unwrap();
        assert!(matches!(&list, Arrow::List(item) if *item.data_type() == Arrow::Float32));
        for bad in [json!("variant"), json!("fixed"), json!({"type": "list"}), json!(7)] {
            assert!(of_schema(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_read_as_wider_types_and_never_as_narrower() {
        let micros = Arrow::Timestamp(TimeUnit::Microsecond, None);
        let zoned = |unit| Arrow::Timestamp(unit, Some("UTC".into()));
        assert_eq!(read_as(&Arrow::Int32, &Arrow::Int64), Some(Arrow::Int64));
        assert_eq!(read_as(&Arrow::Float64, &Arrow::Float32), None);
        assert_eq!(read_as(&Arrow::Int64, &Arrow::Float64), None);
        assert_eq!(
            read_as(&Arrow::Int64, &Arrow::Decimal128(22, 2)),
            Some(Arrow::Decimal128(22, 2))
        );
        assert_eq!(
            read_as(&zoned(TimeUnit::Millisecond), &micros),
            Some(zoned(TimeUnit::Microsecond))
        );
        assert_eq!(read_as(&zoned(TimeUnit::Nanosecond), &micros), None);
        let (narrow, wide) = (Arrow::Decimal128(9, 2), Arrow::Decimal128(11, 4));
        assert_eq!(read_as(&narrow, &wide), Some(wide.clone()));
        assert_eq!(read_as(&wide, &narrow), None);
    }
}
