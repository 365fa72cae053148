//! Tables of Delta: which files are in the newest version. In: the names below a table's folder, and the files of its log. Out: the
//! files that were added and not removed. Source: the Delta Lake protocol, "Actions" and "Checkpoints".
//!
//! A version is the log from version 0 on, or from a checkpoint, which says what was there at its own version: older logs are cleaned away.

use super::listing::{Chosen, Listing};
use crate::error::ModelsError;
use arrow_array::cast::AsArray;
use arrow_array::{Array as _, MapArray, StringArray, StructArray};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

const LOG: &str = "_delta_log/";
/// Under which names columns lie in the files.
const MAPPING: &str = "delta.columnMapping.mode";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Action {
    add: Option<Add>,
    remove: Option<Remove>,
    meta_data: Option<MetaData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Add {
    path: String,
    #[serde(default)]
    deletion_vector: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Remove {
    path: String,
}

#[derive(Deserialize)]
struct MetaData {
    #[serde(default)]
    configuration: BTreeMap<String, Option<String>>,
}

/// What is there at a version.
#[derive(Default)]
struct Version {
    /// Of each file, whether some of its rows are deleted.
    live: BTreeMap<String, bool>,
    mapping: Option<String>,
}

/// Whether a folder is a table of Delta.
pub(super) fn is_one(folder: &Listing) -> bool {
    folder.names.iter().any(|name| name.starts_with(LOG))
}

/// Follows the log from its beginning, or from its newest checkpoint where that is gone.
pub(super) fn choose(
    folder: &Listing,
    read: &dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
) -> Result<Chosen, ModelsError> {
    let bad = |what: &str| ModelsError::bad(&folder.name, &format!("a table of Delta: {what}"));
    let logs = logs(folder);
    let mut at = Version::default();
    let mut next = 0;
    // Where the log is whole, no checkpoint is needed: neither one that is damaged, nor one of a kind that is not read.
    let is_whole = (0..).zip(&logs).all(|(wanted, (version, _))| *version == wanted) && !logs.is_empty();
    if let Some((version, parts)) = newest_checkpoint(folder).filter(|_| !is_whole) {
        for name in parts {
            let bytes = read(name)?;
            at.add_checkpoint(bytes)
                .map_err(|what| bad(&format!("{name}: {what}")))?;
        }
        next = version + 1;
    }
    let first = next;
    for (version, name) in logs.into_iter().filter(|&(version, _)| version >= first) {
        if version != next {
            return Err(bad(&format!(
                "version {next} is not in its log, and there is no checkpoint behind it that is read (those with sidecars are not): write it \
                 anew, or name its Parquet files one by one"
            )));
        }
        at.add_log(&read(name)?)
            .map_err(|what| bad(&format!("{name}, {what}")))?;
        next += 1;
    }
    let Some(newest) = next.checked_sub(1) else {
        return Err(bad("its log has no versions"));
    };
    at.check(folder).map_err(|what| bad(&what))?;
    let is_left = |name: &&String| !name.starts_with(LOG) && !at.live.contains_key(*name);
    let left = folder.names.iter().filter(is_left).count();
    Ok(Chosen {
        names: at.live.into_keys().collect(),
        left_out: vec![format!(
            "{}: a table of Delta at version {newest}: {left} files beside its log are not in this version",
            folder.name
        )],
    })
}

/// The versions of the log, in order.
fn logs(folder: &Listing) -> Vec<(u64, &String)> {
    let logs = folder.names.iter().filter_map(|name| {
        let version = name.strip_prefix(LOG)?.strip_suffix(".json")?;
        Some((number(version, 20)?, name))
    });
    let mut logs: Vec<(u64, &String)> = logs.collect();
    logs.sort();
    logs
}

/// A number of so many digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let is_one = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| text.parse().ok()).flatten()
}

/// The newest version that a checkpoint holds whole, and its files: one, or as many as each of them says.
fn newest_checkpoint(folder: &Listing) -> Option<(u64, Vec<&String>)> {
    let mut found: BTreeMap<(u64, u64), Vec<&String>> = BTreeMap::new();
    for name in &folder.names {
        let steps = name.strip_prefix(LOG).map(|name| name.split('.').collect::<Vec<_>>());
        let (version, parts) = match steps.as_deref() {
            Some([version, "checkpoint", "parquet"]) => (version, 1),
            Some([version, "checkpoint", part, of, "parquet"]) if number(part, 10).is_some() => {
                (version, number(of, 10).unwrap_or(0))
            }
            _ => continue,
        };
        if let Some(version) = number(version, 20) {
            found.entry((version, parts)).or_default().push(name);
        }
    }
    let whole = found
        .into_iter()
        .rev()
        .find(|((_, parts), names)| names.len() as u64 == *parts);
    whole.map(|((version, _), names)| (version, names))
}

impl Version {
    /// One file of the log.
    fn add_log(&mut self, text: &[u8]) -> Result<(), String> {
        let mut added = Vec::new();
        for (line, text) in text.split(|&byte| byte == b'\n').enumerate() {
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let action: Action =
                serde_json::from_slice(text).map_err(|e| format!("line {}: no action: {e}", line + 1))?;
            if let Some(remove) = action.remove {
                self.live.remove(&decoded(&remove.path));
            }
            if let Some(mut metadata) = action.meta_data {
                self.mapping = metadata.configuration.remove(MAPPING).flatten();
            }
            added.extend(action.add);
        }
        // A commit replaces a file by itself with other rows deleted: what it removes goes first, in whatever order it stands.
        for add in added {
            let has_deleted = add.deletion_vector.is_some_and(|vector| !vector.is_null());
            self.live.insert(decoded(&add.path), has_deleted);
        }
        Ok(())
    }

    /// One file of a checkpoint. Its reader may panic on damage.
    fn add_checkpoint(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        let read = catch_unwind(AssertUnwindSafe(|| self.add_parquet(bytes)));
        let read = read.unwrap_or_else(|_| Err("its reader gave up".to_owned()));
        read.map_err(|what| format!("no checkpoint: {what}"))
    }

    fn add_parquet(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).map_err(|e| e.to_string())?;
        let wanted = [
            "add.path",
            "add.deletionVector",
            "metaData.configuration",
            "sidecar.path",
        ];
        let mask = ProjectionMask::columns(builder.parquet_schema(), wanted);
        let reader = builder.with_projection(mask).build().map_err(|e| e.to_string())?;
        for batch in reader {
            let batch = StructArray::from(batch.map_err(|e| e.to_string())?);
            let of = |name: &str| batch.column_by_name(name).and_then(|column| column.as_struct_opt());
            if of("sidecar").is_some_and(|sidecars| sidecars.null_count() < sidecars.len()) {
                return Err("its files stand in sidecars, which are not read".to_owned());
            }
            if let Some(metadata) = of("metaData") {
                self.mapping = mapping_of(metadata).or(self.mapping.take());
            }
            let adds = of("add").ok_or("no files that it adds")?;
            let paths = adds
                .column_by_name("path")
                .and_then(|column| column.as_string_opt::<i32>());
            let paths = paths.ok_or("no paths of files")?;
            let vectors = adds.column_by_name("deletionVector");
            for row in (0..adds.len()).filter(|&row| adds.is_valid(row) && paths.is_valid(row)) {
                let has_deleted = vectors.is_some_and(|vectors| vectors.is_valid(row));
                self.live.insert(decoded(paths.value(row)), has_deleted);
            }
        }
        Ok(())
    }

    /// Whether its files can be read as they are.
    fn check(&self, folder: &Listing) -> Result<(), String> {
        if let Some(mode) = self.mapping.as_deref().filter(|&mode| mode != "none") {
            return Err(format!(
                "its columns have other names in its files (`{MAPPING}` is `{mode}`), which is not read: write it anew without"
            ));
        }
        if let Some((name, _)) = self.live.iter().find(|(_, has_deleted)| **has_deleted) {
            return Err(format!(
                "{name} has a deletion vector, which is not read: write it anew with `REORG TABLE ... APPLY (PURGE)`"
            ));
        }
        let there: BTreeSet<&String> = folder.names.iter().collect();
        match self.live.keys().find(|name| !there.contains(name)) {
            Some(missing) => Err(format!("its log names {missing}, which is not there")),
            None => Ok(()),
        }
    }
}

/// The mode of the names, where one of these rows has a configuration.
fn mapping_of(metadata: &StructArray) -> Option<String> {
    let configuration: &MapArray = metadata.column_by_name("configuration")?.as_map_opt()?;
    let keys: &StringArray = configuration.keys().as_string_opt::<i32>()?;
    let values: &StringArray = configuration.values().as_string_opt::<i32>()?;
    let at = (0..keys.len()).find(|&at| keys.is_valid(at) && keys.value(at) == MAPPING)?;
    values.is_valid(at).then(|| values.value(at).to_owned())
}

/// A path of the log, whose odd characters are percent-encoded.
fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(logs: &[&str]) -> Result<Chosen, String> {
        let name = |version: usize| format!("{LOG}{version:020}.json");
        let mut names: Vec<String> = (0..logs.len()).map(name).collect();
        names.extend(["a.parquet", "b.parquet", "d=x y/c.parquet"].map(str::to_owned));
        let read = |wanted: &str| {
            let at = (0..logs.len()).find(|&version| name(version) == wanted).unwrap();
            Ok(logs[at].as_bytes().to_vec())
        };
        let listing = Listing {
            name: "t".into(),
            names,
            bytes: Vec::new(),
        };
        choose(&listing, &read).map_err(|e| e.to_string())
    }

    #[test]
    fn what_was_removed_is_not_read() {
        let chosen = follow(&[
            "{\"protocol\":{}}\n{\"add\":{\"path\":\"a.parquet\"}}\n{\"add\":{\"path\":\"d=x%20y/c.parquet\"}}\n",
            "{\"remove\":{\"path\":\"a.parquet\"}}\n{\"add\":{\"path\":\"b.parquet\",\"deletionVector\":null}}",
        ]);
        let chosen = chosen.unwrap();
        assert_eq!(chosen.names, ["b.parquet", "d=x y/c.parquet"]);
        assert!(
            chosen.left_out[0].contains("version 1: 1 files"),
            "{:?}",
            chosen.left_out
        );
    }

    #[test]
    fn deleted_rows_count_only_in_files_that_are_still_there() {
        let with = "{\"add\":{\"path\":\"a.parquet\",\"deletionVector\":{\"storageType\":\"u\"}}}";
        let (add, remove) = (
            "{\"add\":{\"path\":\"a.parquet\"}}",
            "{\"remove\":{\"path\":\"a.parquet\"}}",
        );
        // A commit may name what it adds before what it removes.
        let deleted = format!("{with}\n{remove}");
        assert!(follow(&[add, &deleted]).unwrap_err().contains("deletion vector"));
        let purged = format!("{remove}\n{{\"add\":{{\"path\":\"b.parquet\"}}}}");
        assert_eq!(follow(&[add, &deleted, &purged]).unwrap().names, ["b.parquet"]);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for (log, word) in [
            ("{\"add\":{\"path\":\"z.parquet\"}}", "z.parquet"),
            ("no json", "line 1"),
            (
                r#"{"metaData":{"configuration":{"delta.columnMapping.mode":"name"}}}"#,
                "other names in its files",
            ),
            (
                "{\"add\":{\"path\":\"a.parquet\",\"deletionVector\":{}}}",
                "deletion vector",
            ),
        ] {
            let error = follow(&[log]).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_newest_whole_checkpoint_is_the_one_to_begin_from() {
        let found = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| format!("{LOG}{name}")).collect();
            let bytes = vec![0; names.len()];
            let name = "t".into();
            let found = newest_checkpoint(&Listing { name, names, bytes })?.0;
            Some(found)
        };
        let (ten, part) = (
            "00000000000000000010.checkpoint.parquet",
            "00000000000000000020.checkpoint.0000000001.0000000002.parquet",
        );
        assert_eq!(found(&[ten, "00000000000000000011.json"]), Some(10));
        assert_eq!(found(&[ten, part]), Some(10));
        let other = part.replace("0000000001.", "0000000002.");
        assert_eq!(found(&[ten, part, &other]), Some(20));
        let with_sidecars = "00000000000000000030.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet";
        assert_eq!(found(&[with_sidecars, "00000000000000000010.json"]), None);
    }
}
