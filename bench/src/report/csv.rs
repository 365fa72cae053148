//! CSV files of a run. In: rows of `run.json`. Out: text with the same names, empty for unknown values.

use anyhow::{Context, Result};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize)]
#[serde(untagged)]
enum CsvCell {
    /// In the order of the row, which a map of `serde_json` loses.
    Object(IndexMap<String, Self>),
    List(Vec<Value>),
    Value(Value),
}

impl CsvCell {
    /// Adds the columns of a value. An object's name is the prefix of its columns, except for the `value` of an interval.
    fn columns(self, name: &str, row: &mut Vec<(String, String)>) {
        match self {
            Self::Object(entries) => {
                let is_open = matches!(entries.get("hi"), Some(Self::Value(Value::Null)));
                for (key, cell) in entries {
                    match (name, key.as_str()) {
                        ("", key) => cell.columns(key, row),
                        (name, "value") => cell.columns(name, row),
                        // An estimate from a single repeat has no interval.
                        (name, "lo") if is_open => row.push((format!("{name}_lo"), String::new())),
                        (name, key) => cell.columns(&format!("{name}_{key}"), row),
                    }
                }
            }
            Self::List(values) => {
                let texts: Vec<String> = values.iter().map(text).collect();
                row.push((name.to_owned(), texts.join("; ")));
            }
            Self::Value(value) => row.push((name.to_owned(), text(&value))),
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Names and values of a row; unknown values are empty.
///
/// # Errors
/// The row is not an object.
pub(crate) fn columns(row: &impl Serialize) -> Result<Vec<(String, String)>> {
    let mut cells = Vec::new();
    let object: IndexMap<String, CsvCell> = serde_json::from_str(&serde_json::to_string(row)?)?;
    CsvCell::Object(object).columns("", &mut cells);
    Ok(cells)
}

/// Returns the text of a file with the columns of all rows. A column missing in a row is an empty cell.
///
/// # Errors
/// A row is not an object.
pub(crate) fn csv(rows: impl IntoIterator<Item = impl Serialize>) -> Result<String> {
    let mut header: Vec<String> = Vec::new();
    let mut table = Vec::new();
    for row in rows {
        let cells = columns(&row)?;
        for (name, _) in &cells {
            if !header.contains(name) {
                header.push(name.clone());
            }
        }
        table.push(cells);
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header)?;
    for cells in &table {
        let cell = |column: &String| {
            let cell = cells.iter().find(|(name, _)| name == column);
            cell.map_or("", |(_, text)| text.as_str())
        };
        writer.write_record(header.iter().map(cell))?;
    }
    let bytes = writer.into_inner().context("cannot create the CSV text")?;
    Ok(String::from_utf8(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::Interval;

    #[test]
    fn columns_are_named_as_in_the_json_and_what_is_not_known_is_empty() {
        #[derive(Serialize)]
        struct Row {
            tier: &'static str,
            p50_us: Option<Interval>,
            via: Vec<&'static str>,
        }
        let interval = Interval {
            value: 2.5,
            lo: 2.0,
            hi: 3.0,
        };
        let row = |p50_us| Row {
            tier: "a,b",
            p50_us,
            via: vec!["direct", "memory"],
        };
        // From a single repeat.
        let open = Interval {
            lo: 0.0,
            hi: f64::INFINITY,
            ..interval
        };
        assert_eq!(
            csv([None, Some(interval), Some(open)].map(row)).unwrap(),
            "tier,p50_us,via,p50_us_lo,p50_us_hi\n\"a,b\",,direct; memory,,\n\"a,b\",2.5,direct; memory,2.0,3.0\n\
             \"a,b\",2.5,direct; memory,,\n"
        );
    }
}
