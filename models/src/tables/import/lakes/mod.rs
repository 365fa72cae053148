//! Self-describing tables: Delta by its log, Iceberg by its metadata, folders by their `column=value` names. In: the
//! names below a folder and its small files. Out: the files of the table, and its columns in each of them. Reads no
//! rows.

pub(super) mod columns;
pub(super) mod delta;
pub(super) mod iceberg;

use super::request::CsvOptions;
use super::text_types::TypeGuess;
use columns::FileColumns;
use percent_encoding::percent_decode_str;
use std::collections::{BTreeMap, HashMap};

/// Folder on disk or in a store, as a list of its files.
pub(super) struct Listing {
    /// Name of the folder in messages.
    pub(super) name: String,
    /// Bytes of each file, by its name below the folder with slashes.
    pub(super) files: BTreeMap<String, u64>,
}

/// Files chosen from a folder.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ChosenFiles {
    /// Columns of each file that does not define its own, by its name below the folder.
    pub(super) files: BTreeMap<String, Option<FileColumns>>,
    /// Omitted files with reasons, in words.
    pub(super) skipped: Vec<String>,
}

impl ChosenFiles {
    /// Chooses the files of one version of a table, whose log lies below `log`.
    fn of_version(folder: &Listing, log: &str, files: BTreeMap<String, FileColumns>, version: &str) -> Self {
        let is_unused = |name: &&String| !name.starts_with(log) && !files.contains_key(*name);
        let unused = folder.files.keys().filter(is_unused).count();
        let name = &folder.name;
        let what = format!("{name}: a table of {version}: {unused} files beside its log are not in this version");
        Self {
            files: files.into_iter().map(|(name, columns)| (name, Some(columns))).collect(),
            skipped: vec![what],
        }
    }
}

/// Decodes a percent-encoded path.
fn percent_decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// Folder name of the null value, as Hive and Spark write it.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Returns each file with its columns, from folder names as `day=2024-02-29/part-0.parquet`; without columns if no folder is
/// called `column=value`.
pub(super) fn with_columns(names: Vec<String>, options: &CsvOptions) -> BTreeMap<String, Option<FileColumns>> {
    let mut guesses: BTreeMap<String, TypeGuess> = BTreeMap::new();
    for (column, value) in names.iter().flat_map(|name| partition_values(name)) {
        let value = value.unwrap_or_default();
        let guess = guesses.entry(column).or_default();
        guess.add(0, value.as_bytes(), &options.null_values);
    }
    let file_columns = |name: String| {
        let mut found: HashMap<String, Option<String>> = partition_values(&name).collect();
        let constants = guesses.iter().map(|(column, guess)| {
            let value = found.remove(column).flatten();
            let value = value.filter(|value| !options.null_values.contains(value));
            (column.clone(), (guess.arrow(column, options), value))
        });
        let constants: BTreeMap<_, _> = constants.collect();
        let table = None;
        let columns = (!constants.is_empty()).then_some(FileColumns { table, constants });
        (name, columns)
    };
    names.into_iter().map(file_columns).collect()
}

/// Returns the columns in a file's name, with their values.
fn partition_values(name: &str) -> impl Iterator<Item = (String, Option<String>)> {
    let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').filter_map(|step| {
        let (column, value) = step.split_once('=').filter(|(column, _)| !column.is_empty())?;
        let value = Some(percent_decoded(value)).filter(|value| value != NULL && !value.is_empty());
        Some((percent_decoded(column), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::DataType as Arrow;

    #[test]
    fn folders_are_columns_of_the_type_of_all_their_values() {
        let names = [
            "a=1/b=x%20y/0.csv",
            "a=-2/b=__HIVE_DEFAULT_PARTITION__/1.csv",
            "c/2.csv",
        ];
        let names = names.map(str::to_owned);
        let found = with_columns(names.to_vec(), &CsvOptions::default());
        let of = |file: usize, column: &str| found[&names[file]].as_ref().unwrap().constants[column].clone();
        assert_eq!(of(0, "a"), (Arrow::Int64, Some("1".to_owned())));
        assert_eq!(of(0, "b"), (Arrow::Utf8, Some("x y".to_owned())));
        assert_eq!(of(1, "b"), (Arrow::Utf8, None));
        assert_eq!(of(2, "a"), (Arrow::Int64, None));
        let plain = with_columns(names[2..].to_vec(), &CsvOptions::default());
        assert_eq!(plain[&names[2]], None);
    }
}
