//! Request of an import: columns, keys and rules. In: arguments of the command line. Out: checked values, or an error
//! that names the flag. Reads no file.

use crate::tables::FEATURES;
use anyhow::{Context as _, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;
use tierlab_formats::table::{KeyKind, MAX_KEY_BYTES};
use tierlab_protocol::tensor::DataType;

/// Request of an import: arguments of `import-table`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct TableRequest {
    /// Files, folders of parts (Spark, Delta, Iceberg's data) and URLs: file:///..., s3://..., gs://... and az://..., with keys,
    /// region and endpoint from the environment
    #[arg(value_name = "FILE", required = true)]
    pub inputs: Vec<String>,
    /// Conversion of the rows.
    #[command(flatten)]
    pub columns: ColumnRequest,
    /// Folder for NAME.rows
    #[arg(long, value_name = "DIR", default_value = FEATURES)]
    pub out: PathBuf,
    /// Maximum rows in NAME.bad.jsonl before the import fails
    #[arg(long, value_name = "ROWS", default_value_t = 1000)]
    pub max_bad_rows: u64,
    /// Bad rows tolerated; with more, the table is written and the exit code is 3
    #[arg(long, value_name = "ROWS", default_value_t = 0)]
    pub allow_bad_rows: u64,
    /// Format of CSV.
    #[command(flatten)]
    pub csv: CsvOptions,
    /// Memory for buffered rows, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = value_parser!(u64).range(32..=1 << 20))]
    pub memory_mib: u64,
    /// Read one part of the inputs; other processes with access to the same folder read the others
    #[arg(long, value_name = "I/N", value_parser = part)]
    pub part: Option<Part>,
    /// Write the table, after all parts were read
    #[arg(long, requires = "part")]
    pub finish: bool,
    /// Start over instead of continuing an interrupted import of this name
    #[arg(long)]
    pub restart: bool,
    /// Replace a table of that name
    #[arg(long)]
    pub replace: bool,
}

/// Columns to import, with their types. All processes of an import have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Args)]
pub struct ColumnRequest {
    /// Key column; `@row` numbers the rows of a single file, from 0
    #[arg(long, value_name = "COLUMN")]
    pub key: String,
    /// Type of the keys [default: that of the column; text that holds UUIDs is text]
    #[arg(long = "key-type", value_name = "TYPE", value_parser = key_kinds())]
    pub key_kind: Option<KeyKind>,
    /// Maximum length of a text key in bytes; every row has room for the longest key in the table
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = value_parser!(u16).range(1..=MAX_KEY_BYTES as i64))]
    pub max_key_bytes: u16,
    /// Name of the table
    #[arg(long)]
    pub name: String,
    /// Columns to import, separated by commas [default: all]
    #[arg(long = "columns", value_name = "COLUMN,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Combine columns into one vector, in this order; may be repeated
    #[arg(long = "vector", value_name = "NAME=COLUMN,...", value_parser = vector)]
    pub vectors: Vec<Vector>,
    /// Element type of a column or vector, as price=FP32, or of all others with *=FP32; may be repeated [default: that
    /// of the file]
    #[arg(long = "as", value_name = "COLUMN=TYPE")]
    pub types: Vec<ColumnType>,
    /// Convert a text column to numbers: its hash below this limit; may be repeated
    #[arg(long = "hash", value_name = "COLUMN=BUCKETS", value_parser = hashed_column)]
    pub hashed: Vec<HashedColumn>,
    /// Handling of nulls: refuse (the import stops), aside (the row goes to the bad rows), zero, nan, or a number
    #[arg(long, value_name = "RULE", default_value = "refuse", allow_hyphen_values = true, value_parser = null_rule)]
    pub nulls: NullRule,
    /// Handling of duplicate keys: the import stops, or the first or last row is used
    #[arg(long, value_enum, value_name = "RULE", default_value = "refuse")]
    pub duplicates: DuplicateRule,
}

/// Key column that stands for the row number in its file, from 0.
pub(super) const ROW: &str = "@row";

/// Columns of the input that make one column of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// Name in the table.
    pub name: String,
    /// Names in the input.
    pub columns: Vec<String>,
}

/// Element type of a column of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnType {
    /// Column name, or `*`.
    pub column: String,
    /// Type of its elements.
    pub dtype: DataType,
}

/// Text column whose values are hashed into buckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedColumn {
    /// Name in the input.
    pub column: String,
    /// Number of buckets; values run from 0 to one less.
    pub buckets: u64,
}

/// Handling of nulls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NullRule {
    /// The import stops.
    Refuse,
    /// The row goes to the bad rows.
    Aside,
    /// The null becomes NaN; in columns of integers the row goes to the bad rows.
    Nan,
    /// The null becomes this number.
    Value(f64),
}

impl Eq for NullRule {}

/// Handling of duplicate keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DuplicateRule {
    /// The import stops.
    Refuse,
    /// The first row is used, in the order of the inputs.
    First,
    /// The last row is used.
    Last,
}

/// Format of CSV.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
pub struct CsvOptions {
    /// Separator of CSV fields: one character, or `tab` [default: comma; tab in .tsv]. Also treats files without an
    /// ending as CSV
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub delimiter: Option<u8>,
    /// Column names, separated by commas, for CSV without a header line. Also treats files without an ending as CSV
    #[arg(long = "header", value_name = "NAME,...", value_delimiter = ',')]
    pub names: Vec<String>,
    /// Null values in CSV fields and folder names, separated by commas, as NULL,NA,\N; empty fields are always null
    #[arg(long, value_name = "TEXT,...", value_delimiter = ',', allow_hyphen_values = true)]
    pub null_values: Vec<String>,
    /// Columns that are always text.
    #[arg(skip)]
    pub texts: Vec<String>,
    /// Declared types of the input's columns; `*` is every other one except the key.
    #[arg(skip)]
    pub types: Vec<ColumnType>,
    /// Column of keys.
    #[arg(skip)]
    pub key: Option<String>,
    /// True if the request names the columns to take.
    #[arg(skip)]
    pub takes_some: bool,
}

impl CsvOptions {
    /// Adds the types that the request declares.
    pub(super) fn with_column_types(&self, columns: &ColumnRequest) -> Self {
        let mut options = self.clone();
        options.key = Some(columns.key.clone());
        options.takes_some = !columns.only.is_empty();
        if matches!(columns.key_kind, Some(KeyKind::String | KeyKind::Uuid)) {
            options.texts.push(columns.key.clone());
        }
        let hashed = columns.hashed.iter().map(|hashed| hashed.column.clone());
        options.texts.extend(hashed);
        for ColumnType { column, dtype } in &columns.types {
            let vector = columns.vectors.iter().find(|vector| vector.name == *column);
            let named = vector.map_or(std::slice::from_ref(column), |vector| &vector.columns[..]);
            let typed = named.iter().cloned().map(|column| ColumnType { column, dtype: *dtype });
            options.types.extend(typed);
        }
        options
    }

    pub(super) fn is_key(&self, column: &str) -> bool {
        self.key.as_deref() == Some(column)
    }

    /// True for a column that is declared a float.
    pub(super) fn is_float(&self, column: &str) -> bool {
        use DataType::{Bf16, Fp16, Fp32, Fp64};
        !self.is_key(column) && matches!(declared(&self.types, column), Some(Bf16 | Fp16 | Fp32 | Fp64))
    }
}

/// Returns the declared type of a column, by its name or by `*`.
pub(super) fn declared(types: &[ColumnType], column: &str) -> Option<DataType> {
    let named = |name: &str| types.iter().find(|entry| entry.column == name);
    named(column).or_else(|| named("*")).map(|entry| entry.dtype)
}

/// Share of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Number of the part, from 1.
    pub number: u32,
    /// Number of parts.
    pub count: u32,
}

/// Single part.
impl Default for Part {
    fn default() -> Self {
        Self { number: 1, count: 1 }
    }
}

/// Maximum number of parts.
const MAX_PARTS: u32 = 1024;

fn key_kinds() -> impl TypedValueParser<Value = KeyKind> {
    const KINDS: [(KeyKind, &str); 3] = [
        (KeyKind::Int64, "64-bit integers, in any order"),
        (KeyKind::String, "Text"),
        (KeyKind::Uuid, "UUIDs, in text or in 16 bytes"),
    ];
    let values = KINDS.map(|(kind, help)| PossibleValue::new(kind.as_str()).help(help));
    let parsed = |name: String| KINDS.into_iter().find(|(kind, _)| kind.as_str() == name);
    PossibleValuesParser::new(values).try_map(move |name| parsed(name).map(|(kind, _)| kind).ok_or("no type of keys"))
}

fn delimiter(text: &str) -> Result<u8> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        &[byte] => Ok(byte),
        _ => bail!("one character, or `tab`"),
    }
}

fn part(text: &str) -> Result<Part> {
    let parsed = text.split_once('/').and_then(|(number, count)| {
        let (number, count) = (number.parse().ok()?, count.parse().ok()?);
        ((1..=count).contains(&number) && count <= MAX_PARTS).then_some(Part { number, count })
    });
    parsed.with_context(|| format!("write it as 2/8, the second of eight parts; {MAX_PARTS} at most"))
}

fn null_rule(text: &str) -> Result<NullRule> {
    Ok(match text {
        "refuse" => NullRule::Refuse,
        "aside" => NullRule::Aside,
        nan if nan.eq_ignore_ascii_case("nan") => NullRule::Nan,
        "zero" => NullRule::Value(0.0),
        number => {
            let is_exact = |value: &f64| value.is_finite() && !is_rounded_by_floats(number);
            let value = number.parse().ok().filter(is_exact);
            NullRule::Value(value.context("one of refuse, aside, zero, nan, or a finite number of FP64")?)
        }
    })
}

/// True for an integer that an FP64 rounds.
pub(super) fn is_rounded_by_floats(text: &str) -> bool {
    let integer = text.trim().parse::<i128>();
    integer.is_ok_and(|integer| integer as f64 as i128 != integer)
}

fn vector(text: &str) -> Result<Vector> {
    let parsed = text.split_once('=').filter(|(name, columns)| {
        !name.is_empty() && !columns.is_empty() && columns.split(',').all(|column| !column.is_empty())
    });
    let (name, columns) = parsed.context("write it as dense=price,age,clicks")?;
    Ok(Vector {
        name: name.to_owned(),
        columns: columns.split(',').map(str::to_owned).collect(),
    })
}

/// Parses `price=FP32` for `--as` and for the fuzz target of CSV.
impl FromStr for ColumnType {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.rsplit_once('=').filter(|(column, _)| !column.is_empty());
        let (column, dtype) = parsed.context("write it as price=FP32, or *=FP32 for every column")?;
        let column = column.to_owned();
        match dtype.to_ascii_uppercase().parse::<DataType>()? {
            DataType::Bytes => bail!("BYTES has no fixed size: rows hold numbers"),
            dtype => Ok(Self { column, dtype }),
        }
    }
}

fn hashed_column(text: &str) -> Result<HashedColumn> {
    let parsed = text
        .rsplit_once('=')
        .and_then(|(column, buckets)| Some((column, buckets.parse::<u64>().ok()?)))
        .filter(|&(column, buckets)| !column.is_empty() && (1..=i64::MAX as u64).contains(&buckets));
    let (column, buckets) = parsed.context("write it as city=100000: text column, number of buckets")?;
    let column = column.to_owned();
    Ok(HashedColumn { column, buckets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        assert_eq!(part("2/8").unwrap(), Part { number: 2, count: 8 });
        for bad in ["", "0/8", "9/8", "1", "a/b", "1/99999"] {
            assert!(part(bad).is_err(), "{bad}");
        }
        assert_eq!(null_rule("zero").unwrap(), NullRule::Value(0.0));
        assert_eq!(null_rule("-1.5").unwrap(), NullRule::Value(-1.5));
        assert_eq!(null_rule("NaN").unwrap(), NullRule::Nan);
        // JSON cannot represent these values, so they would not come back from the plan.
        for bad in ["none", "inf", "-infinity", "+nan", "9007199254740993"] {
            assert!(null_rule(bad).is_err(), "{bad}");
        }
        assert_eq!(
            null_rule("9007199254740992").unwrap(),
            NullRule::Value(9_007_199_254_740_992.0)
        );
        assert_eq!(vector("d=a,b").unwrap().columns, ["a", "b"]);
        assert!(vector("d=a,,b").is_err());
        assert_eq!("a=fp32".parse::<ColumnType>().unwrap().dtype, DataType::Fp32);
        assert!("a=BYTES".parse::<ColumnType>().is_err() && "a=F4".parse::<ColumnType>().is_err());
        assert_eq!(hashed_column("a=b=7").unwrap().column, "a=b");
        assert!(hashed_column("a=0").is_err());
    }
}
