//! Tables of Iceberg: which files are in the newest snapshot. In: the names below a table's folder, and its metadata. Out: the files of the
//! snapshot. Source: the Iceberg table specification, "Table Metadata", "Snapshots" and "Manifests".
//!
//! The newest metadata names a snapshot, the snapshot a list of manifests, and each manifest files, with what became of them. All of them are
//! named by whole addresses; what lies below the table's own address lies below its folder, wherever that was moved.

use super::listing::{Chosen, Listing};
use crate::error::ModelsError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array as _, RecordBatch, StringArray, StructArray};
use arrow_avro::reader::ReaderBuilder;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::{Cursor, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

const METADATA: &str = "metadata/";
const ENDING: &str = ".metadata.json";
/// What a manifest lists: files of rows, or files that say which rows are deleted.
const DELETES: i32 = 1;
/// What became of a file of a manifest: it is there, it was added, or it is gone.
const GONE: i32 = 2;

/// How metadata begins that was packed.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The most metadata that is unpacked, in bytes.
const MAX_METADATA_BYTES: u64 = 256 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    location: String,
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    snapshots: Vec<Snapshot>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Snapshot {
    snapshot_id: i64,
    /// A file of manifests; in the first version of the format they may stand here themselves.
    manifest_list: Option<String>,
    #[serde(default)]
    manifests: Vec<String>,
}

/// Whether a folder is a table of Iceberg.
pub(super) fn is_one(folder: &Listing) -> bool {
    folder.names.iter().any(|name| version_of(name).is_some())
}

/// The version that a file of metadata is of: `v3.metadata.json`, or `00003-UUID.metadata.json`.
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
pub(super) fn choose(
    folder: &Listing,
    read: &dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
) -> Result<Chosen, ModelsError> {
    let bad = |what: &str| ModelsError::bad(&folder.name, &format!("a table of Iceberg: {what}"));
    let (version, newest) = newest(folder).map_err(|what| bad(&what))?;
    let metadata = metadata_of(&read(newest)?).map_err(|what| bad(&format!("{newest}: no metadata: {what}")))?;
    let current = metadata.current_snapshot_id.unwrap_or(-1);
    let mut snapshots = metadata.snapshots.iter();
    let snapshot = snapshots.find(|snapshot| snapshot.snapshot_id == current);
    let snapshot = snapshot.ok_or_else(|| bad(&format!("{newest} has no current snapshot, so no rows")))?;

    // A file of the table by its address.
    let named = |address: &str| {
        let name = below(&metadata.location, address)
            .ok_or_else(|| bad(&format!("{address} lies outside of {}{ANEW}", metadata.location)))?;
        // Steps upwards are no names of the folder either.
        let at = folder.names.binary_search_by(|known| known.as_str().cmp(name)).ok();
        let at = at.ok_or_else(|| bad(&format!("its newest snapshot names {name}, which is not there")))?;
        Ok::<_, ModelsError>((&folder.names[at], folder.bytes.get(at).copied()))
    };
    let records = |address: &str| {
        let (name, _) = named(address)?;
        let found = records_of(&read(name)?).map_err(|what| bad(&format!("{name}: {what}")));
        Ok::<_, ModelsError>((name, found?))
    };
    let manifests = match &snapshot.manifest_list {
        Some(list) => {
            let (name, batches) = records(list)?;
            manifests_of(&batches).map_err(|what| bad(&format!("{name}: {what}")))?
        }
        None => snapshot.manifests.iter().map(|address| (address.clone(), 0)).collect(),
    };
    let mut live: BTreeSet<&String> = BTreeSet::new();
    for (address, holds) in &manifests {
        let (name, batches) = records(address)?;
        let files = files_of(&batches).map_err(|what| bad(&format!("{name}: {what}")))?;
        if let (DELETES, Some(first)) = (*holds, files.first()) {
            return Err(bad(&format!(
                "{} says which rows are deleted, which is not read{ANEW}",
                first.address
            )));
        }
        for file in files {
            if !file.format.eq_ignore_ascii_case("parquet") {
                return Err(bad(&format!(
                    "{} is {}, which is not read{ANEW}",
                    file.address, file.format
                )));
            }
            let (name, found) = named(&file.address)?;
            if found != Some(file.bytes) {
                return Err(bad(&format!(
                    "{name} has another length than the {} bytes that it had when it was added: it was damaged or written over",
                    file.bytes
                )));
            }
            live.insert(name);
        }
    }
    let is_left = |name: &&String| !name.starts_with(METADATA) && !live.contains(name);
    let left = folder.names.iter().filter(is_left).count();
    Ok(Chosen {
        names: live.into_iter().cloned().collect(),
        left_out: vec![format!(
            "{}: a table of Iceberg at version {version}: {left} files beside its metadata are not in its newest snapshot",
            folder.name
        )],
    })
}

/// The newest file of metadata, and its version.
fn newest(folder: &Listing) -> Result<(u64, &String), String> {
    let versions = folder.names.iter().filter_map(|name| Some((version_of(name)?, name)));
    let mut versions: Vec<(u64, &String)> = versions.collect();
    versions.sort();
    let (version, newest) = match &versions[..] {
        [.., (before, other), (last, name)] if before == last => {
            return Err(format!(
                "{other} and {name} are both of version {last}: which of them counts, its catalog knows"
            ));
        }
        [.., last] => *last,
        [] => return Err("it has no metadata".to_owned()),
    };
    Ok((version, newest))
}

fn metadata_of(bytes: &[u8]) -> Result<Metadata, String> {
    let mut unpacked = Vec::new();
    let bytes = if bytes.starts_with(&GZIP) {
        let read = MultiGzDecoder::new(bytes)
            .take(MAX_METADATA_BYTES)
            .read_to_end(&mut unpacked);
        read.map_err(|e| e.to_string())?;
        &unpacked
    } else {
        bytes
    };
    serde_json::from_slice(bytes).map_err(|e| e.to_string())
}

/// The name of an address below another. Hadoop writes one address with more or fewer slashes, and `s3` as `s3a`.
fn below<'a>(location: &str, address: &'a str) -> Option<&'a str> {
    let rest = path(address).strip_prefix(path(location).trim_end_matches('/'))?;
    rest.strip_prefix('/')
}

/// An address without its scheme and the slashes behind it.
fn path(address: &str) -> &str {
    let is_scheme = |before: &str| before.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let scheme = address.split_once(':').filter(|(before, _)| is_scheme(before));
    scheme.map_or(address, |(_, rest)| rest).trim_start_matches('/')
}

/// The records of a file of Avro. Its reader may panic on damage.
fn records_of(bytes: &[u8]) -> Result<Vec<RecordBatch>, String> {
    let read = catch_unwind(AssertUnwindSafe(|| {
        let reader = ReaderBuilder::new()
            .build(Cursor::new(bytes))
            .map_err(|e| e.to_string())?;
        reader.map(|batch| batch.map_err(|e| e.to_string())).collect()
    }));
    let read = read.unwrap_or_else(|_| Err("its reader gave up".to_owned()));
    read.map_err(|what| format!("it is damaged, or no Avro: {what}"))
}

/// The manifests of a list, each with what it holds.
fn manifests_of(batches: &[RecordBatch]) -> Result<Vec<(String, i32)>, String> {
    let mut manifests = Vec::new();
    for batch in batches {
        let batch = StructArray::from(batch.clone());
        let paths = texts(&batch, "manifest_path")?;
        for row in 0..batch.len() {
            manifests.push((paths.value(row).to_owned(), small(&batch, "content", row)));
        }
    }
    Ok(manifests)
}

/// A file of a manifest that is there.
struct File {
    address: String,
    format: String,
    bytes: u64,
}

fn files_of(batches: &[RecordBatch]) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    for batch in batches {
        let batch = StructArray::from(batch.clone());
        let file = batch
            .column_by_name("data_file")
            .and_then(|column| column.as_struct_opt());
        let file = file.ok_or("no records of `data_file`: it is no manifest")?;
        let (paths, formats) = (texts(file, "file_path")?, texts(file, "file_format")?);
        let sizes = file.column_by_name("file_size_in_bytes");
        let sizes = sizes.and_then(|column| column.as_primitive_opt::<Int64Type>());
        let sizes = sizes.ok_or("no `file_size_in_bytes`: it is no manifest")?;
        for row in 0..batch.len() {
            if small(&batch, "status", row) != GONE {
                files.push(File {
                    address: paths.value(row).to_owned(),
                    format: formats.value(row).to_owned(),
                    bytes: u64::try_from(sizes.value(row)).unwrap_or(0),
                });
            }
        }
    }
    Ok(files)
}

fn texts<'a>(records: &'a StructArray, name: &str) -> Result<&'a StringArray, String> {
    let column = records
        .column_by_name(name)
        .and_then(|column| column.as_string_opt::<i32>());
    let column = column.filter(|column| column.null_count() == 0);
    column.ok_or_else(|| format!("no texts `{name}`"))
}

/// A small number; 0 where it is not there, as in the first version of the format.
fn small(records: &StructArray, name: &str, row: usize) -> i32 {
    let column = records.column_by_name(name);
    let column = column.and_then(|column| column.as_primitive_opt::<Int32Type>());
    column
        .filter(|column| column.is_valid(row))
        .map_or(0, |column| column.value(row))
}

/// What a person can do.
const ANEW: &str = "; write the table anew (rewrite_data_files), or name its Parquet files one by one";

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], metadata: &str) -> String {
        let mut names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        names.sort();
        let bytes = vec![1; names.len()];
        let name = "t".into();
        let folder = Listing { name, names, bytes };
        assert!(is_one(&folder));
        let read = |_: &str| Ok(metadata.as_bytes().to_vec());
        choose(&folder, &read).unwrap_err().to_string()
    }

    #[test]
    fn metadata_that_cannot_be_followed_is_refused() {
        let table = |rest: &str| format!(r#"{{"location":"file:///wh/t"{rest}}}"#);
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
