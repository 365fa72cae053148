//! What is asked of an import: columns, keys and the rules for what does not fit. In: words of the command line. Out:
//! checked values, or a sentence that names the flag. Reads no file.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;
use tierlab_formats::table::KeyKind;
use tierlab_protocol::tensor::DataType;

/// An import as it is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Files, folders and URLs, in this order.
    pub inputs: Vec<String>,
    /// The folder of feature tables.
    pub out: PathBuf,
    /// What becomes of the rows.
    pub columns: ColumnRequest,
    /// How CSV is written.
    pub csv: CsvOptions,
    /// Bytes of memory for rows on their way.
    pub memory_bytes: u64,
    /// Bad rows that are kept aside before the import gives up.
    pub max_bad_rows: u64,
    /// Which part of the inputs this process reads.
    pub part: Part,
    /// What this process does.
    pub step: ImportStep,
    /// Whether to begin anew, whatever lies there of an import that was begun.
    pub restart: bool,
    /// Whether to replace a table of that name.
    pub replace: bool,
}

/// Which columns are taken, as what. Processes of one import have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnRequest {
    /// The table's name.
    pub name: String,
    /// The column of keys; `@row` for the number of the row in the one file, from 0.
    pub key: String,
    /// What the keys are; as the column says without.
    pub key_kind: Option<KeyKind>,
    /// The longest text that is a key, in bytes: every row has room for the longest there is.
    pub max_key_bytes: usize,
    /// Columns to take; all without.
    pub only: Vec<String>,
    /// Columns gathered into vectors.
    pub vectors: Vec<Vector>,
    /// Element types that differ from the file's, by column of the table; the name `*` is every other one.
    pub types: Vec<TypeOf>,
    /// Text columns that become numbers.
    pub hashed: Vec<HashedColumn>,
    /// What a null becomes.
    pub nulls: NullRule,
    /// What happens to a key that stands twice.
    pub duplicates: DuplicateRule,
}

/// As the column of keys: the number of the row in its file, from 0.
pub(super) const ROW: &str = "@row";

/// Columns of the input that make one column of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// In the table.
    pub name: String,
    /// In the input.
    pub columns: Vec<String>,
}

/// The element type of a column of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeOf {
    /// The column, or `*`.
    pub column: String,
    /// Its type.
    pub dtype: DataType,
}

/// A text column whose values are hashed into so many buckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedColumn {
    /// In the input.
    pub column: String,
    /// Values run from 0 to this, without it.
    pub buckets: u64,
}

/// What a null becomes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NullRule {
    /// The import stops.
    Refuse,
    /// The row is kept aside.
    Aside,
    /// Not a number; in columns of integers the row is kept aside.
    Nan,
    /// This number.
    Value(f64),
}

impl Eq for NullRule {}

/// What happens to a key that stands twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DuplicateRule {
    /// The import stops.
    Refuse,
    /// The first row counts, in the order of the inputs.
    First,
    /// The last row counts.
    Last,
}

/// How CSV is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvOptions {
    /// Between two fields; by the file's ending without: a tab for `.tsv`, else a comma.
    pub delimiter: Option<u8>,
    /// Names of the columns, where the files have no header line.
    pub names: Vec<String>,
    /// Fields that are null, beside empty ones.
    #[serde(default)]
    pub null_values: Vec<String>,
    /// Columns that are text, whatever they look like.
    #[serde(default)]
    pub texts: Vec<String>,
    /// Declared types of the input's columns; `*` is every other one but the key.
    #[serde(default)]
    pub types: Vec<TypeOf>,
    /// Column of keys.
    #[serde(default)]
    pub key: Option<String>,
}

impl CsvOptions {
    /// Adds the types that the request declares.
    pub(super) fn with_types_of(&self, columns: &ColumnRequest) -> Self {
        let mut options = self.clone();
        options.key = Some(columns.key.clone());
        if matches!(columns.key_kind, Some(KeyKind::String | KeyKind::Uuid)) {
            options.texts.push(columns.key.clone());
        }
        options
            .texts
            .extend(columns.hashed.iter().map(|hashed| hashed.column.clone()));
        for of in &columns.types {
            let vector = columns.vectors.iter().find(|vector| vector.name == of.column);
            let named = match vector {
                Some(vector) => &vector.columns[..],
                None => std::slice::from_ref(&of.column),
            };
            options.types.extend(named.iter().map(|column| TypeOf {
                column: column.clone(),
                dtype: of.dtype,
            }));
        }
        options
    }

    /// True if the request says how CSV is written, so that a file of no known format is CSV.
    pub(super) const fn is_declared(&self) -> bool {
        self.delimiter.is_some() || !self.names.is_empty()
    }

    pub(super) fn is_key(&self, column: &str) -> bool {
        self.key.as_deref() == Some(column)
    }
}

/// Type that is declared for a column, by its name or by `*`.
pub(super) fn declared(types: &[TypeOf], column: &str) -> Option<DataType> {
    let named = |name: &str| types.iter().find(|of| of.column == name);
    named(column).or_else(|| named("*")).map(|of| of.dtype)
}

/// A share of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// From 1.
    pub number: u32,
    /// Of so many.
    pub of: u32,
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportStep {
    /// Reads the inputs and writes the table.
    Whole,
    /// Reads its part.
    Read,
    /// Writes the table from all parts.
    Finish,
}

/// Parts of an import at most.
const MAX_PARTS: u32 = 1024;

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((number, of)) if (1..=of).contains(&number) && of <= MAX_PARTS => Ok(Self { number, of }),
            _ => Err(format!(
                "write it as 2/8, the second of eight parts; {MAX_PARTS} at most"
            )),
        }
    }
}

impl FromStr for NullRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "refuse" => Self::Refuse,
            "aside" => Self::Aside,
            nan if nan.eq_ignore_ascii_case("nan") => Self::Nan,
            "zero" => Self::Value(0.0),
            number => {
                let number: Option<f64> = number.parse().ok().filter(|number: &f64| number.is_finite());
                Self::Value(number.ok_or("one of refuse, aside, zero, nan, or a finite number")?)
            }
        })
    }
}

impl FromStr for Vector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').filter(|(name, columns)| {
            !name.is_empty() && !columns.is_empty() && columns.split(',').all(|column| !column.is_empty())
        });
        let (name, columns) = parsed.ok_or("write it as dense=price,age,clicks")?;
        Ok(Self {
            name: name.to_owned(),
            columns: columns.split(',').map(str::to_owned).collect(),
        })
    }
}

impl FromStr for TypeOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (column, dtype) = text
            .rsplit_once('=')
            .filter(|(column, _)| !column.is_empty())
            .ok_or("write it as price=FP32, or *=FP32 for every column")?;
        let dtype: DataType = dtype
            .to_ascii_uppercase()
            .parse()
            .map_err(|e: tierlab_protocol::tensor::UnknownDataType| e.to_string())?;
        if dtype == DataType::Bytes {
            return Err("BYTES has no fixed size: rows hold numbers".to_owned());
        }
        Ok(Self {
            column: column.to_owned(),
            dtype,
        })
    }
}

impl FromStr for HashedColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .rsplit_once('=')
            .and_then(|(column, buckets)| Some((column, buckets.parse::<u64>().ok()?)))
            .filter(|&(column, buckets)| !column.is_empty() && (1..=i64::MAX as u64).contains(&buckets));
        let (column, buckets) = parsed.ok_or("write it as city=100000: text column, number of buckets")?;
        Ok(Self {
            column: column.to_owned(),
            buckets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        assert_eq!("2/8".parse(), Ok(Part { number: 2, of: 8 }));
        for bad in ["", "0/8", "9/8", "1", "a/b", "1/99999"] {
            assert!(bad.parse::<Part>().is_err(), "{bad}");
        }
        assert_eq!("zero".parse(), Ok(NullRule::Value(0.0)));
        assert_eq!("-1.5".parse(), Ok(NullRule::Value(-1.5)));
        assert_eq!("NaN".parse(), Ok(NullRule::Nan));
        // What JSON cannot say would not come back from the plan.
        for bad in ["none", "inf", "-infinity", "+nan"] {
            assert!(bad.parse::<NullRule>().is_err(), "{bad}");
        }
        assert_eq!("d=a,b".parse::<Vector>().unwrap().columns, ["a", "b"]);
        assert!("d=a,,b".parse::<Vector>().is_err());
        assert_eq!("a=fp32".parse::<TypeOf>().unwrap().dtype, DataType::Fp32);
        assert!("a=BYTES".parse::<TypeOf>().is_err() && "a=F4".parse::<TypeOf>().is_err());
        assert_eq!("a=b=7".parse::<HashedColumn>().unwrap().column, "a=b");
        assert!("a=0".parse::<HashedColumn>().is_err());
    }
}
