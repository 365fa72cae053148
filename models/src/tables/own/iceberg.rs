//! Tables of Iceberg: whether every file below `data/` is in the newest snapshot. In: the names below a table's folder, the files chosen of them,
//! and the newest metadata. Out: what is said of it, or why the table is refused. Source: the Iceberg table specification, "Table Metadata" and
//! the totals of a snapshot's summary.
//!
//! A snapshot names its files in lists that are not read here. Its totals are: where `data/` holds as many files with as many bytes, and
//! nothing is deleted, all of them are the snapshot's. Otherwise files that were replaced or deleted lie there still, and their rows would come back.

use super::listing::Listing;
use crate::error::ModelsError;
use serde::Deserialize;
use std::collections::BTreeMap;

const METADATA: &str = "metadata/";
const ENDING: &str = ".metadata.json";

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    snapshots: Vec<Snapshot>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Snapshot {
    snapshot_id: i64,
    #[serde(default)]
    summary: BTreeMap<String, String>,
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

/// Holds the files chosen against the newest snapshot; answers what people are told.
pub(super) fn check(
    folder: &Listing,
    chosen: &[String],
    read: &dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
) -> Result<String, ModelsError> {
    let bad = |what: &str| ModelsError::bad(&folder.name, &format!("a table of Iceberg: {what}"));
    let versions = folder.names.iter().filter_map(|name| Some((version_of(name)?, name)));
    let mut versions: Vec<(u64, &String)> = versions.collect();
    versions.sort();
    let (version, newest) = match &versions[..] {
        [.., (before, other), (last, name)] if before == last => {
            return Err(bad(&format!(
                "{other} and {name} are both of version {last}: which of them counts, its catalog knows"
            )));
        }
        [.., last] => *last,
        [] => return Err(bad("it has no metadata")),
    };
    if !newest.ends_with(ENDING) || newest.ends_with(".gz.metadata.json") {
        return Err(bad(&format!(
            "{newest} is gzip, which is not read: write it anew without"
        )));
    }
    let metadata: Metadata =
        serde_json::from_slice(&read(newest)?).map_err(|e| bad(&format!("{newest}: no metadata: {e}")))?;
    let current = metadata.current_snapshot_id.unwrap_or(-1);
    let snapshot = metadata
        .snapshots
        .iter()
        .find(|snapshot| snapshot.snapshot_id == current);
    let snapshot = snapshot.ok_or_else(|| bad(&format!("{newest} has no current snapshot, so no rows")))?;
    let total = |name: &str| -> Result<u64, ModelsError> {
        let text = snapshot.summary.get(name);
        let number = text.and_then(|text| text.parse().ok());
        number.ok_or_else(|| bad(&format!("{newest}: its newest snapshot does not tell `{name}`{ANEW}")))
    };
    let deletes = total("total-delete-files")?;
    if deletes > 0 {
        return Err(bad(&format!("{deletes} files of deletes, which are not read{ANEW}")));
    }
    let bytes_of = |name: &String| {
        folder
            .names
            .binary_search(name)
            .ok()
            .and_then(|at| folder.bytes.get(at))
    };
    let found = (chosen.len() as u64, chosen.iter().filter_map(bytes_of).sum::<u64>());
    let wanted = (total("total-data-files")?, total("total-files-size")?);
    if found != wanted {
        return Err(bad(&format!(
            "its newest snapshot has {} files of {} bytes, and data/ holds {} of {}: what was replaced or deleted lies there still, or \
             files are elsewhere{ANEW}",
            wanted.0, wanted.1, found.0, found.1
        )));
    }
    Ok(format!(
        "a table of Iceberg at version {version}: every file in data/ is in its newest snapshot"
    ))
}

/// What a person can do.
const ANEW: &str = "; write the table anew (rewrite_data_files, expire_snapshots, remove_orphan_files), or name its Parquet files one by one";

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(names: &[(&str, u64)], metadata: &str) -> Result<String, String> {
        let mut names = names.to_vec();
        names.sort_unstable();
        let folder = Listing {
            name: "t".into(),
            names: names.iter().map(|(name, _)| (*name).to_owned()).collect(),
            bytes: names.iter().map(|(_, bytes)| *bytes).collect(),
        };
        assert!(is_one(&folder));
        let chosen: Vec<String> = folder
            .names
            .iter()
            .filter(|name| name.starts_with("data/"))
            .cloned()
            .collect();
        check(&folder, &chosen, &|name| {
            Ok(format!("{name}{metadata}").split_once("json").unwrap().1.into())
        })
        .map_err(|e| e.to_string())
    }

    fn metadata(summary: &str) -> String {
        format!(
            r#"{{"format-version":2,"current-snapshot-id":7,"snapshots":[{{"snapshot-id":7,"summary":{{"operation":"append"{summary}}}}}]}}"#
        )
    }

    #[test]
    fn files_that_are_not_in_the_newest_snapshot_are_never_read() {
        let names = [
            ("data/a.parquet", 10),
            ("data/b.parquet", 20),
            ("metadata/v2.metadata.json", 1),
            ("metadata/v1.metadata.json", 1),
        ];
        let totals = |files: u64, bytes: u64, deletes: u64| {
            metadata(&format!(
                r#","total-data-files":"{files}","total-files-size":"{bytes}","total-delete-files":"{deletes}""#
            ))
        };
        assert!(checked(&names, &totals(2, 30, 0)).unwrap().contains("version 2"));
        for (text, word) in [
            (totals(1, 20, 0), "1 files of 20 bytes, and data/ holds 2 of 30"),
            (totals(2, 31, 0), "2 files of 31 bytes"),
            (totals(2, 30, 1), "1 files of deletes"),
            (metadata(""), "total-delete-files"),
            (r#"{"current-snapshot-id":-1}"#.to_owned(), "no rows"),
            ("{".to_owned(), "no metadata"),
        ] {
            let error = checked(&names, &text).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let twice = [
            ("metadata/00002-a.metadata.json", 1),
            ("metadata/00002-b.metadata.json", 1),
        ];
        assert!(checked(&twice, "{}").unwrap_err().contains("both of version 2"));
        let packed = [("metadata/00002-a.gz.metadata.json", 1)];
        assert!(checked(&packed, "{}").unwrap_err().contains("gzip"));
    }
}
