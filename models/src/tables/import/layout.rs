//! Layout of a row from the columns of a file. In: an Arrow schema, measured lists, and the request. Out: the place of
//! each value, or a sentence that names the column with advice. Reads no row.

use super::csv_file::ADVICE;
use super::request::{ColumnRequest, ColumnType, HashedColumn, ROW, declared};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use arrow_schema::{DataType as Arrow, Field, Schema};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use tierlab_formats::table::{KeyKind, TableSchema};
use tierlab_protocol::tensor::DataType;
use tierlab_storage::tiers::flight::schema::{dtype, is_bf16};

/// Maximum columns of a table.
const MAX_COLUMNS: usize = 10_000;

/// Conversion of columns to rows. One process determines it, and the others adopt it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    /// Column of keys.
    pub(super) key: String,
    /// Type of keys.
    pub(super) kind: KeyKind,
    /// Columns of the table.
    pub(super) columns: Vec<OutColumn>,
}

/// Column of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OutColumn {
    pub(super) name: String,
    pub(super) dtype: DataType,
    pub(super) shape: Vec<i64>,
    /// Sources of its elements, in order.
    pub(super) sources: Vec<Source>,
}

/// Column of the input, with its number of elements in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    pub(super) column: String,
    pub(super) width: usize,
    /// Upper limit of the hash that replaces text.
    pub(super) buckets: Option<u64>,
    /// Element type in the file. It must hold the type of every file, unless another type is requested.
    pub(super) native: Option<DataType>,
    /// Unit of dates, times and durations; must be the same in all files.
    pub(super) unit: Option<String>,
}

/// Returns the length of a column's lists by its name, from its first row.
pub(super) type ListLength<'a> = &'a dyn Fn(&str) -> Option<usize>;

impl Layout {
    /// Determines the columns.
    ///
    /// # Errors
    /// A requested column that is missing, or one of an unsupported type.
    pub(super) fn new(schema: &Schema, request: &ColumnRequest, list_length: ListLength<'_>) -> Result<Self> {
        let key = find_key(schema, &request.key)?;
        let kind = key_kind(&request.key, key, request.key_kind)?;
        for name in &request.only {
            find(schema, name, "--columns")?;
        }
        for hashed in &request.hashed {
            find(schema, &hashed.column, "--hash")?;
        }
        let vector_columns: HashSet<&String> = request.vectors.iter().flat_map(|vector| &vector.columns).collect();
        let mut columns = Vec::new();
        for vector in &request.vectors {
            let sources = vector.columns.iter().map(|name| {
                let field = find(schema, name, "--vector")?;
                source(field, &vector.name, request, list_length).map_err(|what| anyhow!("column `{name}`: {what}"))
            });
            let sources: Vec<(Source, DataType)> = sources.collect::<Result<_>>()?;
            let native = sources[0].1;
            let dtype = request.dtype(&vector.name).unwrap_or(native);
            if let Some((differing, other)) = sources.iter().find(|(_, other)| *other != native)
                && request.dtype(&vector.name).is_none()
            {
                bail!(
                    "--vector {}: `{}` is {native} and `{}` is {other}: set one type for the vector with --as {}=FP32",
                    vector.name,
                    sources[0].0.column,
                    differing.column,
                    vector.name
                );
            }
            let width: usize = sources.iter().map(|(source, _)| source.width).sum();
            columns.push(OutColumn {
                name: vector.name.clone(),
                dtype,
                shape: vec![width as i64],
                sources: sources.into_iter().map(|(source, _)| source).collect(),
            });
        }
        for field in schema.fields() {
            let name = field.name();
            if name == &request.key || vector_columns.contains(name) || !request.takes(name) {
                continue;
            }
            let (source, native) = source(field, name, request, list_length)
                .map_err(|what| anyhow!("column `{name}`: {what}; or leave it out: --columns names those to take"))?;
            let shape = match field.data_type() {
                arrow if is_list(arrow) => vec![source.width as i64],
                _ => Vec::new(),
            };
            columns.push(OutColumn {
                name: name.clone(),
                dtype: request.dtype(name).unwrap_or(native),
                shape,
                sources: vec![source],
            });
        }
        let layout = Self {
            key: request.key.clone(),
            kind,
            columns,
        };
        layout.check(request)?;
        Ok(layout)
    }

    fn check(&self, request: &ColumnRequest) -> Result<()> {
        let count = self.columns.len();
        ensure!(count > 0, "there is no column besides the key");
        if count > MAX_COLUMNS {
            bail!("{count} columns, a table has {MAX_COLUMNS} at most");
        }
        for ColumnType { column, dtype } in &request.types {
            if column != "*" && !self.columns.iter().any(|existing| existing.name == *column) {
                bail!("--as {column}={dtype}: the table has no such column");
            }
            if declared(&request.types, column) != Some(*dtype) {
                bail!("--as {column}={dtype}: it has another type before");
            }
        }
        let sources = self.columns.iter().flat_map(|column| &column.sources);
        for HashedColumn { column, buckets } in &request.hashed {
            if !sources.clone().any(|source| source.column == *column) {
                bail!("--hash {column}={buckets}: the column is the key, or not imported");
            }
        }
        if self.columns.iter().any(|column| column.name == self.key) {
            bail!("--vector {}: the key has this name", self.key);
        }
        self.schema(&request.name, 1).map(drop)
    }

    /// Returns the table's schema, given the longest text key in bytes.
    pub(super) fn schema(&self, name: &str, longest_key: usize) -> Result<TableSchema> {
        let columns = self.columns.iter();
        let columns = columns.map(|column| (column.name.as_str(), column.dtype, &column.shape[..]));
        let columns: Vec<(&str, DataType, &[i64])> = columns.collect();
        let key = (self.key.as_str(), self.kind);
        Ok(TableSchema::lay_out_keyed(name, &columns, key, longest_key)?)
    }

    /// Checks that a file has the columns, and no others if all are imported.
    pub(super) fn check_schema(&self, schema: &Schema, request: &ColumnRequest) -> Result<()> {
        find_key(schema, &self.key)?;
        let columns = self.columns.iter();
        let sources = columns.flat_map(|column| column.sources.iter().map(move |source| (column, source)));
        for (column, source) in sources {
            let field = schema
                .field_with_name(&source.column)
                .map_err(|_| anyhow!("no column `{}`, which the files before it have", source.column))?;
            let unit = unit_of(field.data_type());
            let found = field_dtype(field);
            if let (None, None, Some(native), Some(found)) =
                (request.dtype(&column.name), source.buckets, source.native, found)
                && !can_hold(native, found)
            {
                bail!(
                    "column `{}` is {found} in this file, {native} before, which would round it: set its type with --as {}={found}",
                    source.column,
                    column.name
                );
            }
            if unit != source.unit && *field.data_type() != Arrow::Null {
                let describe_unit = |unit: &Option<String>| unit.clone().unwrap_or_else(|| "no time".to_owned());
                let (column, found, before) = (&source.column, describe_unit(&unit), describe_unit(&source.unit));
                bail!(
                    "column `{column}` is {found} in this file, {before} before: a row holds the integers, which would count \
                     something else; write the files alike"
                );
            }
        }
        let used: HashSet<&str> = self.input_columns().collect();
        let mut names = schema.fields().iter().map(|field| field.name().as_str());
        let mut seen = HashSet::new();
        if let Some(name) = names.clone().find(|name| used.contains(name) && !seen.insert(*name)) {
            bail!("two columns are called `{name}`: rename one");
        }
        match names.find(|name| !used.contains(name)) {
            Some(name) if request.only.is_empty() => {
                bail!("column `{name}` is not in the first file: --columns names those to take")
            }
            _ => Ok(()),
        }
    }

    /// Returns the columns of the input to read.
    pub(super) fn input_columns(&self) -> impl Iterator<Item = &str> {
        let sources = self.columns.iter().flat_map(|column| &column.sources);
        std::iter::once(self.key.as_str()).chain(sources.map(|source| source.column.as_str()))
    }
}

/// Returns the bytes of a row's columns, which come before its key.
pub(super) fn payload_bytes(table: &TableSchema) -> usize {
    table.key.as_ref().map_or(0, |key| key.offset as usize)
}

impl ColumnRequest {
    /// True if a column of the input becomes one of the table, or part of one.
    pub(super) fn takes(&self, column: &str) -> bool {
        let in_vectors = self.vectors.iter().flat_map(|vector| &vector.columns);
        self.only.is_empty() || self.only.iter().chain(in_vectors).any(|name| name == column)
    }

    fn dtype(&self, column: &str) -> Option<DataType> {
        declared(&self.types, column)
    }
}

fn find<'a>(schema: &'a Schema, name: &str, flag: &str) -> Result<&'a Field> {
    schema.field_with_name(name).map_err(|_| {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        anyhow!("{flag}: no column `{name}`; columns are {}", names.join(", "))
    })
}

/// Returns the key's type: that of a column, or of row numbers.
fn find_key<'a>(schema: &'a Schema, name: &str) -> Result<&'a Arrow> {
    match find(schema, name, "--key") {
        Err(_) if name == ROW => Ok(&Arrow::Int64),
        found => found.map(Field::data_type),
    }
}

/// True if values are lists, of a fixed length or not.
pub(super) fn is_list(arrow: &Arrow) -> bool {
    matches!(
        arrow,
        Arrow::List(_) | Arrow::LargeList(_) | Arrow::FixedSizeList(..) | Arrow::FixedSizeBinary(_)
    )
}

/// True if values are text, in any encoding.
pub(super) fn is_text(arrow: &Arrow) -> bool {
    match arrow {
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => true,
        Arrow::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

fn key_kind(name: &str, arrow: &Arrow, wanted: Option<KeyKind>) -> Result<KeyKind> {
    let found = match arrow {
        arrow if is_text(arrow) => KeyKind::String,
        Arrow::FixedSizeBinary(16) => KeyKind::Uuid,
        arrow if arrow.is_integer() => KeyKind::Int64,
        other => bail!("--key: column `{name}` is {other}; keys are integers, texts or UUIDs (text, or 16 bytes)"),
    };
    match wanted {
        Some(wanted) if found != KeyKind::String && found != wanted => {
            let (wanted, found) = (wanted.as_str(), found.as_str());
            bail!("--key-type {wanted}: column `{name}` is {arrow}, whose keys are {found}")
        }
        _ => Ok(wanted.unwrap_or(found)),
    }
}

/// Returns a column's part of a row, with its element type. `to` is the table's column, whose type may be requested.
fn source(field: &Field, to: &str, request: &ColumnRequest, list_length: ListLength<'_>) -> Result<(Source, DataType)> {
    let (name, arrow) = (field.name(), field.data_type());
    let hashed = request.hashed.iter().find(|hashed| &hashed.column == name);
    let buckets = hashed.map(|hashed| hashed.buckets);
    if buckets.is_some() != is_text(arrow) {
        match (buckets, field.metadata().get(ADVICE)) {
            (Some(_), _) => bail!("{arrow} is not hashed, text is"),
            (None, Some(advice)) => bail!("it is text: {advice}"),
            (None, None) => bail!("text has no fixed size: convert it to numbers with --hash {name}=100000"),
        }
    }
    let element = element_of(arrow);
    let width = match arrow {
        Arrow::FixedSizeList(_, count) | Arrow::FixedSizeBinary(count) => usize::try_from(*count).unwrap_or(0),
        Arrow::List(_) | Arrow::LargeList(_) => {
            list_length(name).context("its first value is null or missing, so its length is unknown")?
        }
        _ => 1,
    };
    let native = match (buckets, element, request.dtype(to)) {
        (Some(_), ..) => DataType::Int64,
        (None, element, Some(wanted)) if element.is_decimal() || *element == Arrow::Null => wanted,
        (None, element, None) if element.is_decimal() => bail!("{arrow}: set a type with --as {to}=FP64"),
        (None, Arrow::Null, None) => {
            bail!("the first rows have no value that shows its type: set it with --as {to}=FP32")
        }
        (None, ..) => field_dtype(field).with_context(|| match field.metadata().get(ADVICE) {
            Some(advice) => advice.clone(),
            None => format!("{arrow} has no place in a row of numbers"),
        })?,
    };
    ensure!(width > 0, "its lists are empty");
    let source = Source {
        column: name.clone(),
        width,
        buckets,
        native: Some(native),
        unit: unit_of(arrow),
    };
    Ok((source, native))
}

/// True for elements that may be NaN.
pub(super) fn is_float(dtype: DataType) -> bool {
    matches!(dtype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
}

/// True if a type holds all values of another.
fn can_hold(wide: DataType, narrow: DataType) -> bool {
    use DataType::{Bf16, Bool, Fp16, Fp32, Fp64};
    match (wide, narrow) {
        (Fp64, Fp32 | Fp16 | Bf16) | (Fp32, Fp16 | Bf16) => true,
        (wide, narrow) if is_float(wide) && is_float(narrow) => wide == narrow,
        // Integers of 32 bits and more have more digits than the float.
        (Fp32 | Fp64, narrow) => narrow.size() < wide.size() || narrow == Bool,
        (wide, narrow) if is_float(wide) => wide == narrow,
        // An integer that does not fit makes a bad row.
        _ => true,
    }
}

/// Returns the unit of a date, time or duration, lists included; `None` for other types. A zone does not change it.
fn unit_of(arrow: &Arrow) -> Option<String> {
    match element_of(arrow) {
        Arrow::Dictionary(_, values) => unit_of(values),
        Arrow::Timestamp(unit, _) => Some(format!("Timestamp({unit:?})")),
        time @ (Arrow::Date32 | Arrow::Date64 | Arrow::Time32(_) | Arrow::Time64(_) | Arrow::Duration(_)) => {
            Some(time.to_string())
        }
        _ => None,
    }
}

/// Returns the type of a list's elements, or of the value itself.
pub(super) fn element_of(arrow: &Arrow) -> &Arrow {
    match arrow {
        Arrow::FixedSizeList(item, _) | Arrow::List(item) | Arrow::LargeList(item) => item.data_type(),
        Arrow::FixedSizeBinary(_) => &Arrow::UInt8,
        other => other,
    }
}

/// Returns the element type of a column.
fn field_dtype(field: &Field) -> Option<DataType> {
    let marked = is_bf16(field).then_some(DataType::Bf16);
    marked.or_else(|| dtype_of(element_of(field.data_type())))
}

/// Returns the element type of a number.
pub(super) fn dtype_of(arrow: &Arrow) -> Option<DataType> {
    match arrow {
        Arrow::Date32 | Arrow::Time32(_) => Some(DataType::Int32),
        Arrow::Date64 | Arrow::Time64(_) | Arrow::Timestamp(..) | Arrow::Duration(_) => Some(DataType::Int64),
        Arrow::Dictionary(_, values) => dtype_of(values),
        number => dtype(number),
    }
}
