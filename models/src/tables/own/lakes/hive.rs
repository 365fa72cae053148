//! Columns in folder names, as `day=2024-02-29/part-0.parquet`, written by Hive and Spark.

use super::super::listing::decoded;
use super::super::request::CsvOptions;
use super::super::text_types::Guess;
use super::columns::FileColumns;
use arrow_schema::DataType as Arrow;
use std::collections::{BTreeMap, HashMap};

/// Folder name of the null value.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Returns the columns of each file; none if no folder is called `column=value`.
pub(in super::super) fn columns(names: &[String], options: &CsvOptions) -> HashMap<String, FileColumns> {
    let mut guesses: BTreeMap<String, Guess> = BTreeMap::new();
    for name in names {
        for (column, value) in values(name) {
            let value = value.unwrap_or_default();
            guesses
                .entry(column)
                .or_default()
                .add(0, value.as_bytes(), &options.null_values);
        }
    }
    if guesses.is_empty() {
        return HashMap::new();
    }
    let types: BTreeMap<String, Arrow> = guesses
        .into_iter()
        .map(|(name, guess)| {
            let arrow = guess.arrow(&name, options);
            (name, arrow)
        })
        .collect();
    let of_file = |name: &String| {
        let mut found: HashMap<String, Option<String>> = values(name).collect();
        let constants = types.iter().map(|(column, arrow)| {
            let value = found.remove(column).flatten();
            let value = value.filter(|value| !options.null_values.contains(value));
            (column.clone(), (arrow.clone(), value))
        });
        let columns = FileColumns {
            table: None,
            constants: constants.collect(),
        };
        (name.clone(), columns)
    };
    names.iter().map(of_file).collect()
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

    #[test]
    fn folders_are_columns_of_the_type_of_all_their_values() {
        let names = [
            "a=1/b=x%20y/0.csv",
            "a=-2/b=__HIVE_DEFAULT_PARTITION__/1.csv",
            "c/2.csv",
        ];
        let names = names.map(str::to_owned);
        let found = columns(&names, &CsvOptions::default());
        let of = |file: usize, column: &str| found[&names[file]].constants[column].clone();
        assert_eq!(of(0, "a"), (Arrow::Int64, Some("1".to_owned())));
        assert_eq!(of(0, "b"), (Arrow::Utf8, Some("x y".to_owned())));
        assert_eq!(of(1, "b"), (Arrow::Utf8, None));
        assert_eq!(of(2, "a"), (Arrow::Int64, None));
        assert!(columns(&names[2..], &CsvOptions::default()).is_empty());
    }
}
