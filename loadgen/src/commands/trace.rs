//! The `trace` command: converts a server's request log to a trace that plans replay.
//!
//! In: a request log and the names of its columns. Out: a CSV file with `timestamp` (seconds from the first request,
//! ascending), and if the log has them `entity_id` (several separated by spaces) and `batch_size`: the default column
//! names of `arrival.file`, `keys.file` and `mix.trace`. Knows nothing of plans.

use crate::error::RunError;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use tierlab_load::recording::{Call, RecordingSpec, Unit};

/// Largest batch size in a plan.
const MAX_BATCH: u64 = 65_536;

/// Units of `--unit`; times of RFC 3339 are read in any of them.
const UNITS: [(&str, Unit); 5] = [
    ("s", Unit::S),
    ("ms", Unit::Ms),
    ("us", Unit::Us),
    ("ns", Unit::Ns),
    ("rfc3339", Unit::S),
];

/// Parses `--unit`.
fn unit() -> impl TypedValueParser<Value = Unit> {
    let unit = |name: String| {
        UNITS
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(Unit::S, |(_, unit)| *unit)
    };
    PossibleValuesParser::new(UNITS.map(|(name, _)| name)).map(unit)
}

/// Options of `trace`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Request log: CSV with a header, JSON lines, a HAR file, or an access log of nginx or Apache
    pub log: PathBuf,
    /// File to write the trace to
    #[arg(long)]
    pub out: PathBuf,
    /// Column of request times
    #[arg(long, default_value = "timestamp")]
    pub time: String,
    /// Unit of request times
    #[arg(long, default_value = "s", value_parser = unit())]
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
    let rows = read(options).map_err(RunError::Usage)?;
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
    let recording = RecordingSpec {
        file: options.log.clone(),
        column: options.time.clone(),
        unit: Some(options.unit),
    };
    let calls = recording.read()?;
    let rows = calls.iter().enumerate().map(|(index, call)| {
        row(call, options).map_err(|what| {
            let (file, row) = (options.log.display(), index + 1);
            format!("{file}: request {row} by time, at {:.6} s: {what}", call.at_s)
        })
    });
    rows.collect()
}

fn row(call: &Call, options: &Options) -> Result<Row, String> {
    let cell = |column: &String| {
        let there = || call.values.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let cell = call.values.get(column);
        cell.ok_or_else(|| format!("no column `{column}`; there are {}", there()))
    };
    let ids = match &options.ids {
        Some(column) => cell(column)?
            .split([' ', ';'])
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().map_err(|error| format!("`{part}`: {error}")))
            .collect::<Result<Vec<i64>, _>>()?,
        None => Vec::new(),
    };
    let size = match &options.batch {
        Some(column) => {
            let cell = cell(column)?;
            Some(cell.parse::<u64>().map_err(|error| format!("`{cell}`: {error}"))?)
        }
        None if ids.is_empty() => None,
        None => Some(ids.len() as u64),
    };
    let batch_size = size.map(|size| {
        if options.round_batches {
            size.next_power_of_two()
        } else {
            size
        }
    });
    match batch_size.filter(|size| !(1..=MAX_BATCH).contains(size)) {
        Some(size) => Err(format!("a batch of {size} is not within 1 and {MAX_BATCH}")),
        None => Ok(Row {
            at_s: call.at_s,
            ids,
            batch_size,
        }),
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
        let rows = read(&options(file.path())).unwrap();
        assert_eq!(
            String::from_utf8(written(&rows).unwrap()).unwrap(),
            "timestamp,entity_id,batch_size\n0.000000,5,1\n0.500500,6 4,2\n1.500000,7 8 9,4\n"
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, named) in [
            ("when,users\n1,2\n", "row 1: no column `at`; there are users, when"),
            ("at,who\n1,2\n2,3\n", "no column `users`; there are who"),
            ("at,users\n1,2\n", "a recording needs two"),
            ("at,users\n1,2\nnoon,3\n", "row 2: `noon` is no time"),
            ("at,users\n1,2\n2,x\n", "request 2 by time, at 0.001000 s: `x`"),
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
