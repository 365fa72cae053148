//! Pages of a bucket's keys. In: a prefix, a delimiter and a start. Out: a page, in byte order of the keys.

use super::folder::{Folder, FolderError, Stored};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use tierlab_storage::ObjectPath;

/// Parameters of a listing.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    pub(super) prefix: String,
    /// Keys that share everything up to the next delimiter are rolled up into one prefix.
    pub(super) delimiter: Option<String>,
    /// Key after which the page starts.
    pub(super) start_after: Option<String>,
    /// Token of the page before.
    pub(super) token: Option<String>,
    /// Maximum keys and prefixes per page.
    pub(super) max_keys: usize,
}

/// Page of a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<(String, Stored)>,
    pub(super) prefixes: Vec<String>,
    /// Token of the next page; `None` on the last.
    pub(super) next: Option<String>,
}

/// An entry of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Entry {
    Key(String),
    Prefix(String),
}

impl Entry {
    fn token(&self) -> String {
        // Cannot fail: it is only text.
        hex::encode(serde_json::to_string(self).unwrap_or_default())
    }

    fn from_token(token: &str) -> Result<Self, FolderError> {
        let text = hex::decode(token).ok();
        let entry = text.and_then(|text| serde_json::from_slice(&text).ok());
        entry.ok_or_else(|| FolderError::BadKey("unknown continuation token".to_owned()))
    }

    fn is_past(&self, key: &str) -> bool {
        match self {
            Self::Key(last) => key > last.as_str(),
            Self::Prefix(last) => key > last.as_str() && !key.starts_with(last.as_str()),
        }
    }
}

impl Folder {
    /// Lists a page of a bucket.
    pub(super) fn list(&self, bucket: &str, query: &Query) -> Result<Page, FolderError> {
        let folder = self.bucket(bucket)?;
        let after = match (&query.token, &query.start_after) {
            (Some(token), _) => Some(Entry::from_token(token)?),
            (None, after) => after.clone().map(Entry::Key),
        };
        let mut keys = keys_below(&folder, &query.prefix)?;
        keys.sort_unstable();
        let (entries, next) = paginate(keys, query, after.as_ref());
        let mut page = Page {
            next,
            ..Page::default()
        };
        for entry in entries {
            match entry {
                Entry::Prefix(prefix) => page.prefixes.push(prefix),
                // A key that was removed since is left out.
                Entry::Key(key) => {
                    if let Ok(meta) = fs::symlink_metadata(folder.join(&key)) {
                        page.objects.push((key, Stored::of(&meta)));
                    }
                }
            }
        }
        Ok(page)
    }
}

/// Returns every key that begins with `prefix`, unordered. Symbolic links are not followed and not listed.
fn keys_below(bucket: &Path, prefix: &str) -> Result<Vec<String>, FolderError> {
    let start = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
    if !start.is_empty() && ObjectPath::new(start).is_err() {
        return Ok(Vec::new());
    }
    let top = bucket.join(start);
    if !matches!(fs::canonicalize(&top), Ok(real) if real == top) {
        return Ok(Vec::new());
    }
    let mut keys = Vec::new();
    let mut folders = vec![start.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(bucket.join(&folder)) {
            Ok(entries) => entries,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(e) => return Err(e.into()),
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let key = match folder.is_empty() {
                true => name,
                false => format!("{folder}/{name}"),
            };
            let kind = entry.file_type()?;
            let related = key.starts_with(prefix) || prefix.starts_with(&key);
            if kind.is_dir() && related {
                folders.push(key);
            } else if kind.is_file() && key.starts_with(prefix) {
                keys.push(key);
            }
        }
    }
    Ok(keys)
}

/// Cuts a page out of sorted keys.
fn paginate(keys: Vec<String>, query: &Query, after: Option<&Entry>) -> (Vec<Entry>, Option<String>) {
    let mut entries: Vec<Entry> = Vec::new();
    for key in keys {
        if after.is_some_and(|after| !after.is_past(&key)) {
            continue;
        }
        let delimiter = query.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
        let rolled = delimiter.and_then(|delimiter| {
            let end = key[query.prefix.len()..].find(delimiter)? + query.prefix.len() + delimiter.len();
            Some(key[..end].to_owned())
        });
        let entry = rolled.map_or(Entry::Key(key), Entry::Prefix);
        if entries.last() == Some(&entry) {
            continue;
        }
        if entries.len() == query.max_keys {
            let token = entries.last().map(Entry::token);
            return (entries, token);
        }
        entries.push(entry);
    }
    (entries, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn query(prefix: &str, delimiter: Option<&str>, max_keys: usize) -> Query {
        Query {
            prefix: prefix.to_owned(),
            delimiter: delimiter.map(str::to_owned),
            max_keys,
            ..Query::default()
        }
    }

    #[test]
    fn folders_roll_up() {
        let keys = ["a", "b/1", "b/2", "b/c/3", "d"].map(str::to_owned).to_vec();
        let names = |entries: Vec<Entry>| -> Vec<String> {
            entries
                .into_iter()
                .map(|e| match e {
                    Entry::Key(k) | Entry::Prefix(k) => k,
                })
                .collect()
        };
        assert_eq!(
            names(paginate(keys.clone(), &query("", Some("/"), 10), None).0),
            ["a", "b/", "d"]
        );
        let below = keys.into_iter().filter(|k| k.starts_with("b/")).collect();
        assert_eq!(
            names(paginate(below, &query("b/", Some("/"), 10), None).0),
            ["b/1", "b/2", "b/c/"]
        );
    }

    #[test]
    fn a_foreign_token_is_refused() {
        assert!(Entry::from_token("zz").is_err());
        assert!(Entry::from_token(&hex::encode("x")).is_err());
        assert!(Entry::from_token("").is_err());
    }

    proptest! {
        #[test]
        fn pages_join_to_the_whole(
            keys in prop::collection::btree_set("[ab]{1,2}(/[ab]{1,2}){0,2}", 0..25),
            max_keys in 1_usize..5,
            rolled: bool,
        ) {
            let delimiter = rolled.then_some("/");
            let keys: Vec<String> = keys.into_iter().collect();
            let whole = paginate(keys.clone(), &query("", delimiter, usize::MAX), None).0;
            let mut joined = Vec::new();
            let mut after = None;
            loop {
                let (page, next) = paginate(keys.clone(), &query("", delimiter, max_keys), after.as_ref());
                prop_assert!(page.len() <= max_keys);
                joined.extend(page);
                match next {
                    Some(token) => after = Some(Entry::from_token(&token).unwrap()),
                    None => break,
                }
            }
            prop_assert_eq!(&joined, &whole);
            let plain: BTreeSet<_> = joined.iter().map(Entry::token).collect();
            prop_assert_eq!(plain.len(), joined.len(), "nothing twice");
        }
    }
}
