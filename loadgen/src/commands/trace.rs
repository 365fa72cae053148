//! The `trace` command: converts a server's request log to a trace that plans replay.
//!
//! In: a CSV file and the names of its columns. Out: a CSV file with `timestamp` (seconds from the first request,
//! ascending), and if the log has them `entity_id` (several separated by spaces) and `batch_size`: the default column
//! names of `arrival.file`, `keys.file` and `mix.trace`. Knows nothing of plans.

use crate::error::RunError;
use crate::store::time::parse_rfc3339;
use clap::{Args, ValueEnum};
use csv::StringRecord;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::SystemTime;

/// Maximum number of rows read.
const MAX_ROWS: usize = 4_000_000;
/// Largest batch size in a plan.
const MAX_BATCH: u64 = 65_536;

/// Unit of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// Seconds since any origin.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
    /// `2026-11-20T12:00:00.5Z`.
    Rfc3339,
}

/// Options of `trace`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Request log: CSV with a header
    pub log: PathBuf,
    /// File to write the trace to
    #[arg(long)]
    pub out: PathBuf,
    /// Column of request times
    #[arg(long, default_value = "timestamp")]
    pub time: String,
    /// Unit of request times
    #[arg(long, value_enum, default_value_t = Unit::S)]
    pub unit: Unit,
    /// Column of entity ids, separated by spaces or semicolons
    #[arg(long)]
    pub ids: Option<String>,
    /// Column of batch sizes [default: the number of a request's ids]
    #[arg(long)]
    pub batch: Option<String>,
    /// Rounds batch sizes up to powers of two, because a mix has at most 32 sizes
    #[arg(long)]
    pub round_batches: bool,
}

/// One request of a trace.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    at_s: f64,
    ids: Vec<i64>,
    batch_size: Option<u64>,
}

/// Converts the log and prints a summary of the trace.
///
/// # Errors
/// A file that cannot be read or written, a missing column, or an invalid value, with its row.
pub fn run(options: &Options) -> Result<(), RunError> {
    let mut rows = read(options).map_err(|what| RunError::Usage(format!("{}: {what}", options.log.display())))?;
    rows.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let text = written(&rows).map_err(|error| RunError::Unsound(format!("{}: {error}", options.out.display())))?;
    std::fs::write(&options.out, text).map_err(RunError::io(&options.out))?;
    let length_s = rows.last().map_or(0.0, |last| last.at_s) - rows.first().map_or(0.0, |first| first.at_s);
    println!(
        "{} requests in {length_s:.1} s, {:.1} per second; a plan replays them with `arrivals = \"trace\"` and `arrival.file = \"{}\"`",
        rows.len(),
        (rows.len() as f64 - 1.0) / length_s.max(1e-9),
        options.out.display()
    );
    Ok(())
}

fn read(options: &Options) -> Result<Vec<Row>, String> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(&options.log)
        .map_err(|error| error.to_string())?;
    let headers = reader.headers().map_err(|error| error.to_string())?.clone();
    let column = |name: &str| {
        headers.iter().position(|header| header == name).ok_or_else(|| {
            let there: Vec<&str> = headers.iter().collect();
            format!("no column `{name}`; there are {}", there.join(", "))
        })
    };
    let time = column(&options.time)?;
    let ids = options.ids.as_deref().map(column).transpose()?;
    let batch = options.batch.as_deref().map(column).transpose()?;
    let mut rows: Vec<Row> = Vec::new();
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|error| error.to_string())?;
        let cell = |column: usize| record.get(column).unwrap_or_default();
        let row = row(&record, options, (time, ids, batch))
            .map_err(|what| format!("row {}: {what} (time `{}`)", index + 1, cell(time)))?;
        rows.push(row);
        if rows.len() > MAX_ROWS {
            return Err(format!("more than {MAX_ROWS} rows; cut it"));
        }
    }
    match rows.len() {
        0 | 1 => Err(format!("{} rows: a trace needs two", rows.len())),
        _ => Ok(rows),
    }
}

type Columns = (usize, Option<usize>, Option<usize>);

fn row(record: &StringRecord, options: &Options, (time, ids, batch): Columns) -> Result<Row, String> {
    let cell = |column: usize| record.get(column).unwrap_or_default();
    let at_s = seconds(cell(time), options.unit)?;
    let parts = ids.map_or("", cell).split([' ', ';']).filter(|part| !part.is_empty());
    let ids = parts.map(number).collect::<Result<Vec<i64>, _>>()?;
    let size: Option<u64> = match batch {
        Some(column) => Some(number(cell(column))?),
        None => Some(ids.len() as u64).filter(|count| *count > 0),
    };
    let batch_size = match options.round_batches {
        true => size.map(u64::next_power_of_two),
        false => size,
    };
    match batch_size.filter(|size| !(1..=MAX_BATCH).contains(size)) {
        Some(size) => Err(format!("a batch of {size} is not within 1 and {MAX_BATCH}")),
        None => Ok(Row { at_s, ids, batch_size }),
    }
}

fn number<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

fn seconds(text: &str, unit: Unit) -> Result<f64, String> {
    let per_s = match unit {
        Unit::S => 1.0,
        Unit::Ms => 1e3,
        Unit::Us => 1e6,
        Unit::Ns => 1e9,
        Unit::Rfc3339 => {
            let time = parse_rfc3339(text).ok_or_else(|| format!("`{text}` is no time as 2026-11-20T12:00:00.5Z"))?;
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            return since
                .map(|since| since.as_secs_f64())
                .map_err(|_| format!("`{text}` lies before 1970"));
        }
    };
    match text.parse::<f64>() {
        Ok(time) if time.is_finite() => Ok(time / per_s),
        _ => Err(format!("`{text}` is no time in {unit:?}")),
    }
}

/// Formats the trace; rows ascend.
fn written(rows: &[Row]) -> csv::Result<Vec<u8>> {
    let first = rows.first().map_or(0.0, |row| row.at_s);
    let has_ids = rows.iter().any(|row| !row.ids.is_empty());
    let has_sizes = rows.iter().any(|row| row.batch_size.is_some());
    let columns = ["timestamp", "entity_id", "batch_size"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let ids: Vec<String> = row.ids.iter().map(i64::to_string).collect();
        let size = row.batch_size.unwrap_or(1).to_string();
        [format!("{:.6}", row.at_s - first), ids.join(" "), size]
    });
    let mut csv = csv::Writer::from_writer(Vec::new());
    for [time, ids, size] in std::iter::once(columns).chain(cells) {
        let given = [Some(time), has_ids.then_some(ids), has_sizes.then_some(size)];
        csv.write_record(given.iter().flatten())?;
    }
    Ok(csv.into_inner().map_err(csv::IntoInnerError::into_error)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn options(log: &Path) -> Options {
        Options {
            log: log.to_owned(),
            out: PathBuf::new(),
            time: "at".into(),
            unit: Unit::Ms,
            ids: Some("users".into()),
            batch: None,
            round_batches: true,
        }
    }

    fn log(text: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_log_becomes_a_trace() {
        let file = log(b"at,users\n2500,7 8 9\n1000,5\n1500.5,6;4\n");
        let mut rows = read(&options(file.path())).unwrap();
        rows.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        assert_eq!(
            String::from_utf8(written(&rows).unwrap()).unwrap(),
            "timestamp,entity_id,batch_size\n0.000000,5,1\n0.500500,6 4,2\n1.500000,7 8 9,4\n"
        );
        assert_eq!(seconds("2026-11-20T12:00:01Z", Unit::Rfc3339).unwrap() % 60.0, 1.0);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, named) in [
            ("when,users\n1,2\n", "no column `at`; there are when, users"),
            ("at,users\n1,2\n", "a trace needs two"),
            ("at,users\n1,2\nnoon,3\n", "row 2: `noon` is no time in Ms"),
            ("at,users\n1,2\n2,x\n", "row 2: `x`"),
        ] {
            let error = read(&options(log(text.as_bytes()).path())).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut text = text;
            text.splice(0..0, *b"at,users\n");
            let _ = read(&options(log(&text).path()));
        }
    }
}
