//! Tables of Iceberg: the files of the newest snapshot, and the columns of the current schema in them. In: the names
//! below a table's folder, and its metadata. Out: the files of the snapshot. Source: the Iceberg table specification,
//! "Table Metadata" and "Column Projection".
//!
//! The newest metadata names a snapshot, the snapshot a list of manifests, and each manifest files with their status.
//! All names are full addresses; addresses below the table's own are resolved in its folder, even after a move.

use super::super::read::catch_panic;
use super::columns::{FileColumns, TableColumn, of_schema};
use super::{ChosenFiles, Listing};
use crate::error::ModelsError;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch, StringArray, StructArray};
use arrow_avro::reader::ReaderBuilder;
use arrow_cast::display::array_value_to_string;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{Cursor, Read as _};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const METADATA: &str = "metadata/";
const ENDING: &str = ".metadata.json";
/// Content of a manifest that lists deleted rows, instead of files of rows.
const CONTENT_DELETES: i32 = 1;
/// Newest supported version of the format.
const FORMAT_VERSION: u32 = 3;
/// Property with the names of columns in files without field ids.
const NAME_MAPPING: &str = "schema.name-mapping.default";

/// First bytes of compressed metadata.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Maximum bytes of unpacked metadata.
const MAX_METADATA_BYTES: u64 = 256 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    location: String,
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    snapshots: Vec<Snapshot>,
    format_version: u32,
    /// Only schema, in the first version of the format.
    schema: Option<IcebergSchema>,
    #[serde(default)]
    schemas: Vec<IcebergSchema>,
    current_schema_id: Option<i32>,
    #[serde(default)]
    partition_spec: Vec<PartitionField>,
    #[serde(default)]
    partition_specs: Vec<PartitionSpec>,
    #[serde(default)]
    properties: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct IcebergSchema {
    #[serde(default)]
    schema_id: i32,
    fields: Vec<IcebergField>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct IcebergField {
    id: i32,
    name: String,
    #[serde(rename = "type")]
    kind: Value,
    #[serde(default)]
    initial_default: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PartitionSpec {
    spec_id: i32,
    fields: Vec<PartitionField>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PartitionField {
    source_id: Option<i32>,
    transform: String,
}

/// Names of a column in files without field ids.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MappedField {
    field_id: Option<i32>,
    names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Snapshot {
    snapshot_id: i64,
    /// File of manifests; the first version of the format may list the manifests here instead.
    manifest_list: Option<String>,
    #[serde(default)]
    manifests: Vec<String>,
}

/// True if a folder is a table of Iceberg.
pub(in super::super) fn is_table(folder: &Listing) -> bool {
    folder.files.keys().any(|name| version_of(name).is_some())
}

/// Returns the version of a metadata file: `v3.metadata.json`, or `00003-UUID.metadata.json`.
fn version_of(name: &str) -> Option<u64> {
    let stem = name.strip_prefix(METADATA)?;
    let stem = stem.strip_suffix(".gz").unwrap_or(stem).strip_suffix(ENDING)?;
    let stem = stem.strip_suffix(".gz").unwrap_or(stem);
    let digits = stem.strip_prefix('v').unwrap_or(stem);
    let end = digits.find(|char: char| !char.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// Follows the newest metadata to the files of its snapshot.
pub(in super::super) fn choose(
    folder: &Listing,
    read: &dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
) -> Result<ChosenFiles, ModelsError> {
    let bad = |what: &dyn Display| bad(folder, what);
    let (version, newest) = newest_metadata(folder).map_err(|what| bad(&what))?;
    let metadata = parse_metadata(&read(newest)?).map_err(|what| bad(&format!("{newest}: no metadata: {what}")))?;
    let table = metadata.columns().map_err(|what| bad(&format!("{newest}: {what}")))?;
    let current = metadata.current_snapshot_id.unwrap_or(-1);
    let mut snapshots = metadata.snapshots.iter();
    let snapshot = snapshots.find(|snapshot| snapshot.snapshot_id == current);
    let snapshot = snapshot.ok_or_else(|| bad(&format!("{newest} has no current snapshot, so no rows")))?;
    let files = TableFiles {
        folder,
        location: &metadata.location,
        read,
    };
    let manifests = match &snapshot.manifest_list {
        Some(list) => files.records(list, parse_manifests)?,
        None => {
            let (content, spec) = (0, 0);
            let addresses = snapshot.manifests.iter().cloned();
            addresses.map(|address| Manifest { address, content, spec }).collect()
        }
    };
    let mut live: BTreeMap<String, FileColumns> = BTreeMap::new();
    for manifest in &manifests {
        for (name, file) in files.manifest_files(manifest)? {
            live.insert(name.clone(), metadata.columns_of(&file, manifest.spec, &table));
        }
    }
    let version = format!("Iceberg at version {version}");
    Ok(ChosenFiles::of_version(folder, METADATA, live, &version))
}

fn bad(folder: &Listing, what: &dyn Display) -> ModelsError {
    ModelsError::bad(&folder.name, &format!("a table of Iceberg: {what}"))
}

/// Files of a table, by their addresses.
struct TableFiles<'a> {
    folder: &'a Listing,
    /// Address of the folder when the metadata was written.
    location: &'a str,
    read: &'a dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
}

impl<'a> TableFiles<'a> {
    /// Returns the name and the length of a file in the folder.
    fn entry_of(&self, address: &str) -> Result<(&'a String, u64), ModelsError> {
        let bad = |what: String| bad(self.folder, &what);
        let outside = || bad(format!("{address} lies outside of {}{REWRITE_ADVICE}", self.location));
        let name = relative_to(self.location, address).ok_or_else(outside)?;
        // The search also excludes addresses with `..`.
        let found = self.folder.files.get_key_value(name);
        let missing = || bad(format!("its newest snapshot names {name}, which does not exist"));
        found.map(|(name, bytes)| (name, *bytes)).ok_or_else(missing)
    }

    /// Reads the records of an Avro file as `parse` does.
    fn records<T>(
        &self,
        address: &str,
        parse: impl Fn(&[RecordBatch]) -> Result<Vec<T>>,
    ) -> Result<Vec<T>, ModelsError> {
        let (name, _) = self.entry_of(address)?;
        let parsed = read_records((self.read)(name)?).and_then(|batches| parse(&batches));
        parsed.map_err(|what| bad(self.folder, &format!("{name}: {what}")))
    }

    /// Returns the files of rows in a manifest.
    fn manifest_files(&self, manifest: &Manifest) -> Result<Vec<(&'a String, DataFile)>, ModelsError> {
        let fail = |what: String| Err(bad(self.folder, &what));
        let mut files = Vec::new();
        for file in self.records(&manifest.address, parse_data_files)? {
            let (address, format, bytes) = (&file.address, &file.format, file.bytes);
            if manifest.content == CONTENT_DELETES {
                return fail(format!(
                    "{address} lists deleted rows, which is not supported{REWRITE_ADVICE}"
                ));
            }
            if !format.eq_ignore_ascii_case("parquet") {
                return fail(format!("{address} is {format}, which is not supported{REWRITE_ADVICE}"));
            }
            let (name, found) = self.entry_of(address)?;
            if found != bytes {
                return fail(format!(
                    "{name} has another length than the {bytes} bytes that it had when it was added: it was damaged or written over"
                ));
            }
            files.push((name, file));
        }
        Ok(files)
    }
}

impl Metadata {
    /// Returns the columns of the current schema.
    fn columns(&self) -> Result<Arc<Vec<TableColumn>>> {
        let version = self.format_version;
        ensure!(
            version <= FORMAT_VERSION,
            "its format has version {version}, the newest supported is {FORMAT_VERSION}: rewrite the table"
        );
        let mut schemas = self.schemas.iter();
        let current = schemas.find(|schema| Some(schema.schema_id) == self.current_schema_id);
        let schema = current.or(self.schema.as_ref().filter(|_| self.schemas.is_empty()));
        let schema = schema.context("no current schema")?;
        let mapping = self.properties.get(NAME_MAPPING).map_or("[]", String::as_str);
        let mapping: Vec<MappedField> =
            serde_json::from_str(mapping).map_err(|e| anyhow!("its `{NAME_MAPPING}` cannot be read: {e}"))?;
        let column = |field: &IcebergField| {
            let names = mapping.iter().filter(|mapped| mapped.field_id == Some(field.id));
            Ok(TableColumn {
                name: field.name.clone(),
                arrow: of_schema(&field.kind).map_err(|what| anyhow!("column `{}`: {what}", field.name))?,
                id: Some(field.id),
                file_names: names.flat_map(|mapped| mapped.names.iter().cloned()).collect(),
                default: match &field.initial_default {
                    Value::Null => None,
                    Value::String(text) => Some(text.clone()),
                    other => Some(other.to_string()),
                },
            })
        };
        let columns = schema.fields.iter().map(column).collect::<Result<_>>();
        columns.map(Arc::new)
    }

    /// Returns the columns of a file. A column missing in the file may be the partition column.
    fn columns_of(&self, file: &DataFile, spec: i32, table: &Arc<Vec<TableColumn>>) -> FileColumns {
        let specs = self.partition_specs.iter().find(|found| found.spec_id == spec);
        let fields = specs.map_or(&self.partition_spec, |spec| &spec.fields);
        FileColumns::of_table(table, |column| {
            let mut partition_fields = fields.iter().zip(&file.partition);
            let is_value = |field: &PartitionField| field.transform == "identity" && field.source_id == column.id;
            partition_fields.find_map(|(field, value)| value.clone().filter(|_| is_value(field)))
        })
    }
}

/// Returns the newest file of metadata, and its version.
fn newest_metadata(folder: &Listing) -> Result<(u64, &String)> {
    let versions = folder.files.keys().filter_map(|name| Some((version_of(name)?, name)));
    let mut versions: Vec<(u64, &String)> = versions.collect();
    versions.sort();
    match &versions[..] {
        [.., (before, other), (last, name)] if before == last => {
            bail!("{other} and {name} are both of version {last}: only its catalog knows the current one")
        }
        [.., last] => Ok(*last),
        [] => bail!("it has no metadata"),
    }
}

fn parse_metadata(bytes: &[u8]) -> Result<Metadata> {
    if !bytes.starts_with(&GZIP) {
        return Ok(serde_json::from_slice(bytes)?);
    }
    let mut unpacked = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(MAX_METADATA_BYTES);
    reader.read_to_end(&mut unpacked)?;
    Ok(serde_json::from_slice(&unpacked)?)
}

/// Returns an address relative to another. Hadoop writes one address with more or fewer slashes, and `s3` as `s3a`.
fn relative_to<'a>(location: &str, address: &'a str) -> Option<&'a str> {
    let rest = path(address).strip_prefix(path(location).trim_end_matches('/'))?;
    rest.strip_prefix('/')
}

/// Strips the scheme and the slashes after it from an address.
fn path(address: &str) -> &str {
    let is_scheme = |prefix: &str| prefix.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let scheme = address.split_once(':').filter(|(prefix, _)| is_scheme(prefix));
    scheme.map_or(address, |(_, rest)| rest).trim_start_matches('/')
}

/// Advice for users.
const REWRITE_ADVICE: &str = "; rewrite the table (rewrite_data_files), or name its Parquet files one by one";

/// Maximum time to read a manifest, beside [`READ_TIME_PER_MIB`].
const READ_TIME: Duration = Duration::from_secs(5);
const READ_TIME_PER_MIB: Duration = Duration::from_secs(1);
/// Status of a removed file; other files were added or exist.
const STATUS_DELETED: i32 = 2;

/// Returns the records of an Avro file.
///
/// # Errors
/// Damage, on which the reader may panic or never end.
fn read_records(bytes: Vec<u8>) -> Result<Vec<RecordBatch>> {
    let mebibytes = u32::try_from(bytes.len() >> 20).unwrap_or(u32::MAX);
    read_records_within(bytes, READ_TIME + READ_TIME_PER_MIB.saturating_mul(mebibytes))
}

fn read_records_within(bytes: Vec<u8>, limit: Duration) -> Result<Vec<RecordBatch>> {
    let (sender, receiver) = mpsc::channel();
    // A reader past the limit cannot be stopped: its thread ends with the process.
    thread::spawn(move || {
        let read = catch_panic(|| {
            let reader = ReaderBuilder::new().build(Cursor::new(bytes))?;
            anyhow::Ok(reader.collect::<Result<Vec<_>, _>>()?)
        });
        let _ = sender.send(read);
    });
    let read = receiver.recv_timeout(limit);
    let read = read.unwrap_or_else(|_| Err(anyhow!("its reader does not end within {limit:?}")));
    read.map_err(|what| anyhow!("it is damaged, or no Avro: {what}"))
}

/// Manifest of a list.
struct Manifest {
    address: String,
    /// 1 if its files list deleted rows.
    content: i32,
    /// Partition spec of its files.
    spec: i32,
}

/// Returns the manifests of a list.
fn parse_manifests(batches: &[RecordBatch]) -> Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for batch in batches {
        let batch = StructArray::from(batch.clone());
        let paths = text_column(&batch, "manifest_path")?;
        manifests.extend((0..batch.len()).map(|row| Manifest {
            address: paths.value(row).to_owned(),
            content: int_or_zero(&batch, "content", row),
            spec: int_or_zero(&batch, "partition_spec_id", row),
        }));
    }
    Ok(manifests)
}

/// Existing file of a manifest.
struct DataFile {
    address: String,
    format: String,
    bytes: u64,
    /// Partition values as text, in the order of the spec, because Avro has other names for some fields; the inner `None` is
    /// null, the outer a value without a text form.
    partition: Vec<Option<Option<String>>>,
}

fn parse_data_files(batches: &[RecordBatch]) -> Result<Vec<DataFile>> {
    let mut files = Vec::new();
    for batch in batches {
        let batch = StructArray::from(batch.clone());
        let file = struct_column(&batch, "data_file");
        let file = file.context("no records of `data_file`: not a manifest")?;
        let (paths, formats) = (text_column(file, "file_path")?, text_column(file, "file_format")?);
        let sizes = file.column_by_name("file_size_in_bytes");
        let sizes = sizes.and_then(|column| column.as_primitive_opt::<Int64Type>());
        let sizes = sizes.context("no `file_size_in_bytes`: not a manifest")?;
        let partitions = struct_column(file, "partition");
        for row in 0..batch.len() {
            if int_or_zero(&batch, "status", row) != STATUS_DELETED {
                files.push(DataFile {
                    address: paths.value(row).to_owned(),
                    format: formats.value(row).to_owned(),
                    bytes: u64::try_from(sizes.value(row)).unwrap_or(0),
                    partition: partitions.map_or_else(Vec::new, |partitions| partition_values(partitions, row)),
                });
            }
        }
    }
    Ok(files)
}

fn partition_values(partitions: &StructArray, row: usize) -> Vec<Option<Option<String>>> {
    let value = |column: &ArrayRef| {
        let text = column.is_valid(row).then(|| array_value_to_string(column, row));
        text.transpose().ok()
    };
    partitions.columns().iter().map(value).collect()
}

fn struct_column<'a>(records: &'a StructArray, name: &str) -> Option<&'a StructArray> {
    records.column_by_name(name)?.as_struct_opt()
}

fn text_column<'a>(records: &'a StructArray, name: &str) -> Result<&'a StringArray> {
    let column = records.column_by_name(name).and_then(|column| column.as_string_opt());
    let column = column.filter(|column: &&StringArray| column.null_count() == 0);
    column.with_context(|| format!("no texts `{name}`"))
}

/// Returns a small number; 0 if it is missing, as in the first version of the format.
fn int_or_zero(records: &StructArray, name: &str, row: usize) -> i32 {
    let column = records.column_by_name(name);
    let numbers = column.and_then(|column| column.as_primitive_opt::<Int32Type>());
    let numbers = numbers.filter(|numbers| numbers.is_valid(row));
    numbers.map_or(0, |numbers| numbers.value(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], metadata: &str) -> String {
        let files = names.iter().map(|&name| (name.to_owned(), 1)).collect();
        let name = "t".into();
        let folder = Listing { name, files };
        assert!(is_table(&folder));
        let read = |_: &str| Ok(metadata.as_bytes().to_vec());
        choose(&folder, &read).unwrap_err().to_string()
    }

    #[test]
    fn metadata_that_cannot_be_followed_is_refused() {
        let table =
            |rest: &str| format!(r#"{{"location":"file:///wh/t","format-version":1,"schema":{{"fields":[]}}{rest}}}"#);
        let snapshot = |rest: &str| {
            table(&format!(
                r#","current-snapshot-id":7,"snapshots":[{{"snapshot-id":7{rest}}}]"#
            ))
        };
        let one = [
            "data/a.parquet",
            "metadata/v2.metadata.json",
            "metadata/v1.metadata.json",
            "metadata/s.avro",
            "metadata/m.avro",
        ];
        for (metadata, word) in [
            (table(r#","current-snapshot-id":-1"#), "no rows"),
            ("{".to_owned(), "v2.metadata.json: no metadata"),
            (r#"{"location":"t","format-version":4}"#.to_owned(), "version 4"),
            (r#"{"location":"t","format-version":2}"#.to_owned(), "no current schema"),
            (
                r#"{"location":"t","format-version":3,"schema":{"fields":[{"id":1,"name":"x","type":"variant"}]}}"#
                    .to_owned(),
                "column `x`: unknown type `variant`",
            ),
            (
                snapshot(r#","manifest-list":"file:///elsewhere/s.avro""#),
                "file:///elsewhere/s.avro lies outside",
            ),
            (
                snapshot(r#","manifest-list":"file:///wh/t/../elsewhere/s.avro""#),
                "../elsewhere/s.avro, which does not exist",
            ),
            (
                snapshot(r#","manifest-list":"file:///wh/t/metadata/s.avro""#),
                "metadata/s.avro: it is damaged, or no Avro",
            ),
            (
                snapshot(r#","manifests":["file:///wh/t/metadata/m.avro"]"#),
                "metadata/m.avro: it is damaged, or no Avro",
            ),
        ] {
            let error = chosen(&one, &metadata);
            assert!(error.contains(word), "{error}");
        }
        let twice = ["metadata/00002-a.metadata.json", "metadata/00002-b.metadata.json"];
        assert!(chosen(&twice, "{}").contains("both of version 2"));
    }

    #[test]
    fn an_address_is_followed_however_it_is_written() {
        for (location, address, name) in [
            ("file:///wh/t", "file:///wh/t/data/a", Some("data/a")),
            ("file:/wh/t/", "file:///wh/t/data/a", Some("data/a")),
            ("s3://b/t", "s3a://b/t/data/x=1/a", Some("data/x=1/a")),
            ("/wh/t", "/wh/t/data/a:b", Some("data/a:b")),
            ("/wh/t", "/wh/t/data/a", Some("data/a")),
            ("s3://b/t", "s3://b/t2/data/a", None),
        ] {
            assert_eq!(relative_to(location, address), name, "{address}");
        }
    }

    /// Encodes a number, or a length.
    fn number(value: usize) -> Vec<u8> {
        let mut rest = 2 * value;
        let mut bytes = Vec::new();
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    }

    fn text(value: &str) -> Vec<u8> {
        [&number(value.len())[..], value.as_bytes()].concat()
    }

    /// Creates a file with one record of these fields.
    fn avro(fields: &str, record: &[u8]) -> Vec<u8> {
        let schema = format!(r#"{{"type":"record","name":"r","fields":[{fields}]}}"#);
        let sync = [7; 16];
        [
            &b"Obj\x01\x02"[..],
            &text("avro.schema"),
            &text(&schema),
            &[0],
            &sync,
            &number(1),
            &number(record.len()),
            record,
            &sync,
        ]
        .concat()
    }

    #[test]
    fn deleted_rows_and_files_other_than_parquet_are_refused_by_name() {
        const LIST: &str = r#"{"name":"manifest_path","type":"string"},{"name":"content","type":"int"},
            {"name":"partition_spec_id","type":"int"}"#;
        const MANIFEST: &str = r#"{"name":"status","type":"int"},{"name":"data_file","type":{"type":"record","name":"f",
            "fields":[{"name":"file_path","type":"string"},{"name":"file_format","type":"string"},
            {"name":"file_size_in_bytes","type":"long"}]}}"#;
        const TABLE: &str = r#"{"location":"file:///wh/t","format-version":2,"current-schema-id":0,
            "schemas":[{"schema-id":0,"fields":[]}],"current-snapshot-id":7,
            "snapshots":[{"snapshot-id":7,"manifest-list":"file:///wh/t/metadata/s.avro"}]}"#;
        let names = [
            "data/a",
            "metadata/v1.metadata.json",
            "metadata/s.avro",
            "metadata/m.avro",
        ];
        let files = names.iter().map(|&name| (name.to_owned(), 1)).collect();
        let name = "t".into();
        let folder = Listing { name, files };
        let chosen = |content: usize, format: &str| {
            let manifest = [text("file:///wh/t/metadata/m.avro"), number(content), number(0)];
            let file = [number(1), text("file:///wh/t/data/a"), text(format), number(1)];
            let read = |name: &str| {
                Ok(match name {
                    "metadata/s.avro" => avro(LIST, &manifest.concat()),
                    "metadata/m.avro" => avro(MANIFEST, &file.concat()),
                    _ => TABLE.as_bytes().to_vec(),
                })
            };
            choose(&folder, &read).map(drop).map_err(|e| e.to_string())
        };
        assert_eq!(chosen(0, "PARQUET"), Ok(()));
        for (content, format, word) in [
            (1, "PARQUET", "data/a lists deleted rows"),
            (1, "PUFFIN", "data/a lists deleted rows"),
            (0, "ORC", "data/a is ORC"),
        ] {
            let refused = chosen(content, format).unwrap_err();
            assert!(
                refused.contains(word) && refused.contains("rewrite_data_files"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_reader_that_does_not_end_is_given_up() {
        let long = |record: &[u8]| avro(r#"{"name":"a","type":"long"}"#, record);
        let whole = read_records(long(&[84])).unwrap();
        assert_eq!(whole.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        // Bytes behind the record.
        let error = read_records_within(long(&[84, 84]), Duration::from_millis(500));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains("does not end"), "{error}");
    }
}
