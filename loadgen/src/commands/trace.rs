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

/// Cells of one request: its time, its ids and its batch size, as far as the log has them.
type Row = [Option<String>; 3];

/// Converts the log and prints a summary of the trace.
///
/// # Errors
/// A file that cannot be read or written, a missing column, or an invalid value, with its row.
pub fn run(options: &Options) -> Result<(), RunError> {
    let (rows, length_s) = read(options).map_err(RunError::Usage)?;
    let text = written(&rows).map_err(|error| RunError::Unsound(format!("{}: {error}", options.out.display())))?;
    std::fs::write(&options.out, text).map_err(RunError::io(&options.out))?;
    println!(
        "{} requests in {length_s:.1} s, {:.1} per second; a plan replays them with `arrivals = \"trace\"` and `arrival.file = \"{}\"`",
        rows.len(),
        (rows.len() as f64 - 1.0) / length_s,
        options.out.display()
    );
    Ok(())
}

/// Rows in the order of their times, and the time of the last one.
fn read(options: &Options) -> Result<(Vec<Row>, f64), String> {
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
    let length_s = calls.last().map_or(0.0, |last| last.at_s);
    Ok((rows.collect::<Result<_, _>>()?, length_s))
}

fn row(call: &Call, options: &Options) -> Result<Row, String> {
    let cell = |column: &String| {
        let there = || call.values.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let cell = call.values.get(column);
        cell.ok_or_else(|| format!("no column `{column}`; there are {}", there()))
    };
    let parsed = |text: &str| text.parse::<i64>().map_err(|error| format!("`{text}`: {error}"));
    let ids = match &options.ids {
        None => None,
        Some(column) => {
            let ids = cell(column)?.split([' ', ';']).filter(|id| !id.is_empty());
            Some(ids.map(parsed).collect::<Result<Vec<i64>, _>>()?)
        }
    };
    let size = match (&options.batch, &ids) {
        (Some(column), _) => Some(parsed(cell(column)?)?),
        (None, ids) => ids.as_ref().map(|ids| ids.len().max(1) as i64),
    };
    let size = match size.map(u64::try_from) {
        Some(Ok(size)) if options.round_batches => Some(size.next_power_of_two()),
        Some(size) => Some(size.unwrap_or(0)),
        None => None,
    };
    if let Some(size) = size.filter(|size| !(1..=MAX_BATCH).contains(size)) {
        return Err(format!("a batch of {size} is not within 1 and {MAX_BATCH}"));
    }
    let ids = ids.map(|ids| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(" "));
    Ok([
        Some(format!("{:.6}", call.at_s)),
        ids,
        size.map(|size| size.to_string()),
    ])
}

/// Formats the trace.
fn written(rows: &[Row]) -> csv::Result<Vec<u8>> {
    let names = ["timestamp", "entity_id", "batch_size"];
    let given = rows.first().into_iter().flatten().zip(names);
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(given.filter_map(|(cell, name)| cell.as_ref().map(|_| name)))?;
    for row in rows {
        csv.write_record(row.iter().flatten())?;
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
        let (rows, _) = read(&options(file.path())).unwrap();
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
