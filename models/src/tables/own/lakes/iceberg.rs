//! Tables of Iceberg: the files of the newest snapshot, and the columns of the current schema in them. In: the names
//! below a table's folder, and its metadata. Out: the files of the snapshot. Source: the Iceberg table specification,
//! "Table Metadata" and "Column Projection".
//!
//! The newest metadata names a snapshot, the snapshot a list of manifests, and each manifest files with their status.
//! All names are full addresses; addresses below the table's own are resolved in its folder, even after a move.

use super::columns::{FileColumns, TableColumn, of_schema};
use super::manifests::{File, Manifest, files_of, manifests_of, records_of};
use super::{Chosen, Listing};
use crate::error::ModelsError;
use arrow_array::RecordBatch;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

const METADATA: &str = "metadata/";
const ENDING: &str = ".metadata.json";
/// Content of a manifest that lists deleted rows, instead of files of rows.
const DELETES: i32 = 1;
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
    name: String,
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
pub(in super::super) fn is_one(folder: &Listing) -> bool {
    folder.files.keys().any(|name| version_of(name).is_some())
}

/// Returns the version of a metadata file: `v3.metadata.json`, or `00003-UUID.metadata.json`.
fn version_of(name: &str) -> Option<u64> {
    let stem = name.strip_prefix(METADATA)?;
    let stem = stem
        .strip_suffix(ENDING)
        .or_else(|| stem.strip_suffix(".metadata.json.gz"))?;
    let stem = stem.strip_suffix(".gz").unwrap_or(stem);
    let digits = stem.strip_prefix('v').unwrap_or(stem);
    let end = digits
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Follows the newest metadata to the files of its snapshot.
pub(in super::super) fn choose(
    folder: &Listing,
    read: &dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
) -> Result<Chosen, ModelsError> {
    let bad = |what: &str| bad(folder, what);
    let (version, newest) = newest(folder).map_err(|what| bad(&what))?;
    let metadata = metadata_of(&read(newest)?).map_err(|what| bad(&format!("{newest}: no metadata: {what}")))?;
    let table = metadata.columns().map_err(|what| bad(&format!("{newest}: {what}")))?;
    let current = metadata.current_snapshot_id.unwrap_or(-1);
    let mut snapshots = metadata.snapshots.iter();
    let snapshot = snapshots.find(|snapshot| snapshot.snapshot_id == current);
    let snapshot = snapshot.ok_or_else(|| bad(&format!("{newest} has no current snapshot, so no rows")))?;
    let files = DataFiles {
        folder,
        location: &metadata.location,
        read,
    };
    let manifests = match &snapshot.manifest_list {
        Some(list) => files.records(list, manifests_of)?,
        None => {
            let of_address = |address: &String| Manifest {
                address: address.clone(),
                content: 0,
                spec: 0,
            };
            snapshot.manifests.iter().map(of_address).collect()
        }
    };
    let mut live: BTreeMap<String, FileColumns> = BTreeMap::new();
    for manifest in &manifests {
        for (name, file) in files.of_manifest(manifest)? {
            live.insert(name.clone(), metadata.columns_of(&file, manifest.spec, &table));
        }
    }
    let version = format!("Iceberg at version {version}");
    Ok(Chosen::of_version(folder, METADATA, live, &version))
}

fn bad(folder: &Listing, what: &str) -> ModelsError {
    ModelsError::bad(&folder.name, &format!("a table of Iceberg: {what}"))
}

/// Files of a table, by their addresses.
struct DataFiles<'a> {
    folder: &'a Listing,
    /// Address of the folder when the metadata was written.
    location: &'a str,
    read: &'a dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
}

impl<'a> DataFiles<'a> {
    /// Returns the name and the length of a file in the folder.
    fn named(&self, address: &str) -> Result<(&'a String, u64), ModelsError> {
        let bad = |what: String| bad(self.folder, &what);
        let outside = || bad(format!("{address} lies outside of {}{ANEW}", self.location));
        let name = below(self.location, address).ok_or_else(outside)?;
        // The search also excludes addresses with `..`.
        let found = self.folder.files.get_key_value(name);
        let missing = || bad(format!("its newest snapshot names {name}, which is not there"));
        found.map(|(name, bytes)| (name, *bytes)).ok_or_else(missing)
    }

    /// Reads the records of an Avro file as `parse` does.
    fn records<T>(
        &self,
        address: &str,
        parse: impl Fn(&[RecordBatch]) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>, ModelsError> {
        let (name, _) = self.named(address)?;
        let parsed = records_of((self.read)(name)?).and_then(|batches| parse(&batches));
        parsed.map_err(|what| bad(self.folder, &format!("{name}: {what}")))
    }

    /// Returns the files of rows in a manifest.
    fn of_manifest(&self, manifest: &Manifest) -> Result<Vec<(&'a String, File)>, ModelsError> {
        let fail = |what: String| Err(bad(self.folder, &what));
        let mut named = Vec::new();
        for file in self.records(&manifest.address, files_of)? {
            let (address, format, bytes) = (&file.address, &file.format, file.bytes);
            if manifest.content == DELETES {
                return fail(format!(
                    "{address} says which rows are deleted, which is not read{ANEW}"
                ));
            }
            if !format.eq_ignore_ascii_case("parquet") {
                return fail(format!("{address} is {format}, which is not read{ANEW}"));
            }
            let (name, found) = self.named(address)?;
            if found != bytes {
                return fail(format!(
                    "{name} has another length than the {bytes} bytes that it had when it was added: it was damaged or written over"
                ));
            }
            named.push((name, file));
        }
        Ok(named)
    }
}

impl Metadata {
    /// Returns the columns of the current schema.
    fn columns(&self) -> Result<Arc<Vec<TableColumn>>, String> {
        if self.format_version > FORMAT_VERSION {
            return Err(format!(
                "its format has version {}, {FORMAT_VERSION} is the newest that is read: write the table anew",
                self.format_version
            ));
        }
        let mut schemas = self.schemas.iter();
        let current = schemas.find(|schema| Some(schema.schema_id) == self.current_schema_id);
        let schema = current.or(self.schema.as_ref().filter(|_| self.schemas.is_empty()));
        let schema = schema.ok_or("no current schema")?;
        let mapping = self.properties.get(NAME_MAPPING).map_or("[]", String::as_str);
        let mapping: Vec<MappedField> =
            serde_json::from_str(mapping).map_err(|e| format!("its `{NAME_MAPPING}` cannot be read: {e}"))?;
        let column = |field: &IcebergField| {
            let names = mapping.iter().filter(|mapped| mapped.field_id == Some(field.id));
            Ok(TableColumn {
                name: field.name.clone(),
                arrow: of_schema(&field.kind).map_err(|what| format!("column `{}`: {what}", field.name))?,
                id: Some(field.id),
                file_names: names.flat_map(|mapped| mapped.names.iter().cloned()).collect(),
                default: match &field.initial_default {
                    Value::Null => None,
                    Value::String(text) => Some(text.clone()),
                    other => Some(other.to_string()),
                },
            })
        };
        let columns = schema.fields.iter().map(column).collect::<Result<_, String>>();
        columns.map(Arc::new)
    }

    /// Returns the columns of a file. A column missing in the file may be the partition column.
    fn columns_of(&self, file: &File, spec: i32, table: &Arc<Vec<TableColumn>>) -> FileColumns {
        let specs = self.partition_specs.iter().find(|found| found.spec_id == spec);
        let fields = specs.map_or(&self.partition_spec, |spec| &spec.fields);
        FileColumns::of_table(table, |column| {
            let mut of_column = fields
                .iter()
                .filter(|field| field.transform == "identity" && field.source_id == column.id);
            of_column.find_map(|field| file.partition.get(&field.name).cloned())
        })
    }
}

/// Returns the newest file of metadata, and its version.
fn newest(folder: &Listing) -> Result<(u64, &String), String> {
    let versions = folder.files.keys().filter_map(|name| Some((version_of(name)?, name)));
    let mut versions: Vec<(u64, &String)> = versions.collect();
    versions.sort();
    match &versions[..] {
        [.., (before, other), (last, name)] if before == last => Err(format!(
            "{other} and {name} are both of version {last}: which of them counts, its catalog knows"
        )),
        [.., last] => Ok(*last),
        [] => Err("it has no metadata".to_owned()),
    }
}

fn metadata_of(bytes: &[u8]) -> Result<Metadata, String> {
    if !bytes.starts_with(&GZIP) {
        return serde_json::from_slice(bytes).map_err(|e| e.to_string());
    }
    let mut unpacked = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(MAX_METADATA_BYTES);
    reader.read_to_end(&mut unpacked).map_err(|e| e.to_string())?;
    serde_json::from_slice(&unpacked).map_err(|e| e.to_string())
}

/// Returns an address relative to another. Hadoop writes one address with more or fewer slashes, and `s3` as `s3a`.
fn below<'a>(location: &str, address: &'a str) -> Option<&'a str> {
    let rest = path(address).strip_prefix(path(location).trim_end_matches('/'))?;
    rest.strip_prefix('/')
}

/// Strips the scheme and the slashes after it from an address.
fn path(address: &str) -> &str {
    let is_scheme = |before: &str| before.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let scheme = address.split_once(':').filter(|(before, _)| is_scheme(before));
    scheme.map_or(address, |(_, rest)| rest).trim_start_matches('/')
}

/// Advice for users.
const ANEW: &str = "; write the table anew (rewrite_data_files), or name its Parquet files one by one";

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], metadata: &str) -> String {
        let files = names.iter().map(|&name| (name.to_owned(), 1)).collect();
        let name = "t".into();
        let folder = Listing { name, files };
        assert!(is_one(&folder));
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
                "../elsewhere/s.avro, which is not there",
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
            assert_eq!(below(location, address), name, "{address}");
        }
    }
}
