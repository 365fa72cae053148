//! Columns in folder names, as `day=2024-02-29/part-0.parquet`, written by Hive and Spark.

use super::super::request::CsvOptions;
use super::super::text_types::Guess;
use super::columns::FileColumns;
use super::decoded;
use std::collections::{BTreeMap, HashMap};

/// Folder name of the null value.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Returns each file with its columns; without columns if no folder is called `column=value`.
pub(in super::super) fn with_columns(
    names: Vec<String>,
    options: &CsvOptions,
) -> BTreeMap<String, Option<FileColumns>> {
    let mut guesses: BTreeMap<String, Guess> = BTreeMap::new();
    for (column, value) in names.iter().flat_map(|name| values(name)) {
        let value = value.unwrap_or_default();
        let guess = guesses.entry(column).or_default();
        guess.add(0, value.as_bytes(), &options.null_values);
    }
    let of_file = |name: String| {
        let mut found: HashMap<String, Option<String>> = values(&name).collect();
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
    names.into_iter().map(of_file).collect()
}

/// Returns the columns in a file's name, with their values.
fn values(name: &str) -> impl Iterator<Item = (String, Option<String>)> {
    let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').filter_map(|step| {
        let (column, value) = step.split_once('=').filter(|(column, _)| !column.is_empty())?;
        let value = Some(decoded(value)).filter(|value| value != NULL && !value.is_empty());
        Some((decoded(column), value))
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
