//! `[keys]`: distribution of the requested entities. In: TOML, and the file of keys. Out: a validated distribution, or the row that
//! cannot be read. Knows nothing of how keys are drawn; [`tierlab_load::keys`] does.

use super::arrivals::RawArrival;
use super::check::Base;
use super::fault::{Fault, fault, missing, only_with, refuse};
use super::raw;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::recording::Call;

/// Maximum values read.
const MAX_ROWS: usize = 4_000_000;

pub(super) fn validate(raw: &raw::RawKeys, base: Base<'_>) -> Result<KeyDistribution, Fault> {
    use raw::RawDistribution as Raw;
    if raw.distribution != Raw::Zipf {
        let flags = [("exponent", raw.exponent.is_some())];
        only_with("keys", "`keys.distribution = \"zipf\"`", &flags)?;
    }
    if raw.distribution != Raw::File {
        let (file, column) = (raw.file.is_some(), raw.column.is_some());
        let flags = [("file", file), ("column", column), ("text", raw.text)];
        only_with("keys", "`keys.distribution = \"file\"`", &flags)?;
    }
    match raw.distribution {
        Raw::Uniform => Ok(KeyDistribution::Uniform),
        Raw::Sequential => Ok(KeyDistribution::Sequential),
        Raw::Zipf => {
            let Some(exponent) = raw.exponent else {
                return missing("keys.exponent", "zipf needs one, such as 1.1");
            };
            Ok(KeyDistribution::Zipf { exponent })
        }
        Raw::File => {
            let Some(file) = &raw.file else {
                return missing("keys.file", "a CSV file with a column of entity ids");
            };
            let column = raw.column.as_deref().unwrap_or("entity_id");
            let path = base.request_file(file);
            let (ids, texts) = if raw.text {
                texts(&path, column)?
            } else {
                (ids(&path, column)?, Vec::new())
            };
            if ids.is_empty() {
                refuse!("keys.file", "{} has no ids", path.display());
            }
            Ok(KeyDistribution::File {
                file: file.clone(),
                ids: ids.into(),
                texts: texts.into(),
            })
        }
    }
}

/// Takes the recorded entities of a replay, one a request, unless the plan has other keys.
pub(super) fn replay(keys: &mut KeyDistribution, raw: &RawArrival, calls: &[Call]) -> Result<(), Fault> {
    const KEY: &str = "arrival.file";
    let is_recorded = calls.iter().any(|call| call.values.contains_key("entity_id"));
    if !is_recorded || *keys != KeyDistribution::Uniform {
        return Ok(());
    }
    let ids = calls.iter().map(|call| {
        let Some(id) = call.values.get("entity_id") else {
            refuse!(KEY, "{} has no `entity_id`, and other requests have one", call.place());
        };
        let number = id.parse::<i64>();
        number.map_err(|_| fault!(KEY, "`entity_id` is `{id}`, and a replayed request has one number"))
    });
    *keys = KeyDistribution::File {
        file: raw.file.clone().unwrap_or_default(),
        ids: ids.collect::<Result<Vec<_>, Fault>>()?.into(),
        texts: [].into(),
    };
    Ok(())
}

/// Entity ids, in the order of the file; a cell may hold several, separated by spaces or semicolons.
pub(super) fn ids(path: &Path, column: &str) -> Result<Vec<i64>, Fault> {
    parsed(path, column, |text| {
        text.split([' ', ';']).filter(|part| !part.is_empty()).collect()
    })
}

/// Text keys in the order of the file, as indices into its distinct texts; a cell may hold several, separated by semicolons.
pub(super) fn texts(path: &Path, column: &str) -> Result<(Vec<i64>, Vec<Box<str>>), Fault> {
    let cells: Vec<String> = parsed(path, column, |text| text.split(';').collect())?;
    let mut indices: BTreeMap<String, i64> = BTreeMap::new();
    let mut texts: Vec<Box<str>> = Vec::new();
    let ids = cells.into_iter().map(|cell| {
        let next = texts.len() as i64;
        *indices.entry(cell).or_insert_with_key(|text| {
            texts.push(text.as_str().into());
            next
        })
    });
    Ok((ids.collect(), texts))
}

fn parsed<T>(path: &Path, column: &str, cells: fn(&str) -> Vec<&str>) -> Result<Vec<T>, Fault>
where
    T: FromStr,
    T::Err: Display,
{
    let refuse = |problem: String| fault!("keys.file", "{}: {problem}", path.display());
    let csv_error = |error: csv::Error| refuse(error.to_string());
    let reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path);
    let mut reader = reader.map_err(csv_error)?;
    let headers = reader.headers().map_err(csv_error)?;
    let Some(index) = headers.iter().position(|header| header == column) else {
        let found = headers.iter().collect::<Vec<_>>().join(", ");
        let problem = format!("no column `{column}` (set `keys.column`; found {found})");
        return Err(refuse(problem));
    };
    let mut values = Vec::new();
    for (row, record) in reader.records().enumerate() {
        let record = record.map_err(csv_error)?;
        for cell in cells(record.get(index).unwrap_or_default()) {
            let value = cell
                .parse()
                .map_err(|error| refuse(format!("row {}: `{cell}`: {error}", row + 1)))?;
            values.push(value);
        }
        if values.len() > MAX_ROWS {
            return Err(refuse(format!("more than {MAX_ROWS} values; shorten the file")));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(text: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn values_come_in_order_and_bad_ones_are_named() {
        let log = file(b"ts, user_id\n1.5, 7\n2.0, 8 9;10\n");
        assert_eq!(ids(log.path(), "user_id").unwrap(), [7, 8, 9, 10]);
        let named = file(b"k\nb;a\nb\n");
        let (indices, names) = texts(named.path(), "k").unwrap();
        assert_eq!((indices, names), (vec![0, 1, 0], vec!["b".into(), "a".into()]));
        let missing = ids(log.path(), "id").unwrap_err().to_string();
        assert!(
            missing.contains("`keys.column`") && missing.contains("ts, user_id"),
            "{missing}"
        );
        let bad = ids(file(b"id\n1\nx\n").path(), "id").unwrap_err().to_string();
        assert!(bad.contains("row 2") && bad.contains("`x`"), "{bad}");
        assert!(
            ids(Path::new("/no/such"), "id")
                .unwrap_err()
                .to_string()
                .contains("/no/such")
        );
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let file = file(&text);
            let _ = ids(file.path(), "id");
        }
    }
}
