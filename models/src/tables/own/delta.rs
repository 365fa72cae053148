//! Tables of Delta: which files are in the newest version. In: the names below a table's folder, and the files of its log. Out: the
//! files that were added and not removed. Source: the Delta Lake protocol, "Actions".

use super::listing::{Chosen, Listing};
use crate::error::ModelsError;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

const LOG: &str = "_delta_log/";

#[derive(Deserialize)]
struct Action {
    add: Option<Add>,
    remove: Option<Remove>,
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

/// Whether a folder is a table of Delta.
pub(super) fn is_one(folder: &Listing) -> bool {
    folder.names.iter().any(|name| name.starts_with(LOG))
}

/// Follows the log from its beginning.
pub(super) fn choose(
    folder: &Listing,
    read: &dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
) -> Result<Chosen, ModelsError> {
    let bad = |what: &str| ModelsError::bad(&folder.name, &format!("a table of Delta: {what}"));
    let logs = folder.names.iter().filter_map(|name| {
        let version = name.strip_prefix(LOG)?.strip_suffix(".json")?;
        let digits = version.len() == 20 && version.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| Some((version.parse::<u64>().ok()?, name))).flatten()
    });
    let mut logs: Vec<(u64, &String)> = logs.collect();
    logs.sort();
    // Of each file, whether some of its rows are deleted.
    let mut live: BTreeMap<String, bool> = BTreeMap::new();
    for (wanted, &(version, name)) in (0_u64..).zip(&logs) {
        if version != wanted {
            return Err(bad(&format!(
                "version {wanted} is not in its log, which is read from version 0 on: checkpoints are not read; write it anew, or \
                 name its Parquet files one by one"
            )));
        }
        let text = read(name)?;
        let mut added = Vec::new();
        for (line, text) in text.split(|&byte| byte == b'\n').enumerate() {
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let action: Action =
                serde_json::from_slice(text).map_err(|e| bad(&format!("{name}, line {}: no action: {e}", line + 1)))?;
            if let Some(remove) = action.remove {
                live.remove(&decoded(&remove.path));
            }
            added.extend(action.add);
        }
        // A commit replaces a file by itself with other rows deleted: what it removes goes first, in whatever order it stands.
        for add in added {
            let has_deleted = add.deletion_vector.is_some_and(|vector| !vector.is_null());
            live.insert(decoded(&add.path), has_deleted);
        }
    }
    if logs.is_empty() {
        return Err(bad("its log has no versions"));
    }
    if let Some((name, _)) = live.iter().find(|(_, has_deleted)| **has_deleted) {
        return Err(bad(&format!(
            "{name} has a deletion vector, which is not read: write it anew with `REORG TABLE ... APPLY (PURGE)`"
        )));
    }
    let there: BTreeSet<&String> = folder.names.iter().collect();
    if let Some(missing) = live.keys().find(|name| !there.contains(name)) {
        return Err(bad(&format!("its log names {missing}, which is not there")));
    }
    let left = folder
        .names
        .iter()
        .filter(|name| !name.starts_with(LOG) && !live.contains_key(*name));
    let left = left.count();
    Ok(Chosen {
        names: live.into_keys().collect(),
        left_out: vec![format!(
            "{}: a table of Delta at version {}: {left} files beside its log are not in this version",
            folder.name,
            logs.len() - 1
        )],
    })
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
                "{\"add\":{\"path\":\"a.parquet\",\"deletionVector\":{}}}",
                "deletion vector",
            ),
        ] {
            let error = follow(&[log]).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
