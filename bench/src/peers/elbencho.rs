//! Job of elbencho for a point, and its CSV. Source: its csv-docs.md and `--help-all` (the project breuner/elbencho).

use super::PeerFigures;
use crate::plan::{Access, CacheState, Operation, Pattern, Point, Way};
use anyhow::{Context, Result};
use std::path::Path;

/// Result file, in a temporary folder.
pub(super) const FILE: &str = "elbencho.csv";
/// Amount to read at random, more than it can read in its time.
const MUCH: &str = "1T";

/// Returns its arguments; `None` if it has no such job.
pub(super) fn arguments(point: &Point, access: &Access, file: &Path) -> Option<Vec<String>> {
    let random = match point.pattern {
        Pattern::Random => true,
        Pattern::Sequential if point.depth == 1 => false,
        _ => return None,
    };
    // elbencho can drop a file from the page cache only with rights over all of it.
    let is_same = point.operation == Operation::Read && point.rate == 0 && point.files == 1;
    if !is_same || point.cache == CacheState::Cold {
        return None;
    }
    let (threads, depth, direct) = match point.way {
        Way::Direct => (1, point.depth, true),
        Way::PreadDirect => (point.depth, 1, true),
        Way::Pread => (point.depth, 1, false),
        _ => return None,
    };
    let mut words: Vec<String> = ["--read", "--lat", "--latpercent", "--nolive", "--csvfile", FILE]
        .map(str::to_owned)
        .into();
    words.extend([
        format!("--block={}", point.block_bytes),
        format!("--threads={threads}"),
        format!("--iodepth={depth}"),
        format!("--timelimit={}", access.window.as_secs_f64().ceil().max(1.0)),
        format!("--size={}", access.size),
    ]);
    if direct {
        words.push("--direct".to_owned());
    }
    if random {
        words.extend(["--rand".to_owned(), format!("--randamount={MUCH}")]);
    }
    words.push(file.display().to_string());
    Some(words)
}

/// Returns its figures: the row of the reads, by column name.
pub(super) fn figures(csv: &str) -> Result<PeerFigures> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(csv.as_bytes());
    let header = reader.headers().context("no header")?.clone();
    let column = |name: &str| header.iter().position(|column| column.trim() == name);
    let operation = column("operation").context("no column `operation`")?;
    let rows = reader.records().filter_map(Result::ok);
    let row = rows.filter(|row| row.get(operation) == Some("READ")).last();
    let row = row.context("no row of the operation READ")?;
    let number = |name: &str| {
        let value = column(name)
            .and_then(|at| row.get(at))
            .and_then(|text| text.trim().parse::<f64>().ok());
        value.with_context(|| format!("no number in `{name}`"))
    };
    Ok(PeerFigures {
        iops: number("IOPS [last]")?,
        mb_per_s: number("MiB/s [last]")? * 1.048_576,
        // The CSV lacks percentiles, and its histogram gives only bucket bounds: left out rather than guessed.
        ..PeerFigures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_the_reads_is_read_by_its_columns() {
        let text = "ISO date,label,path type,operation,time ms [first],time ms [last],IOPS [first],IOPS [last],MiB/s [first],MiB/s [last]\n\
                    2026-11-23T00:00:00,,file,WRITE,1,2,3,4,5,6\n2026-11-23T00:00:01,,file,READ,1000,1001,70000,71000.5,273,277\n";
        let figures = figures(text).unwrap();
        assert_eq!(figures.iops, 71_000.5);
        assert!((figures.mb_per_s - 277.0 * 1.048_576).abs() < 1e-9);
        assert_eq!(figures.p50_us, None);
        for bad in [
            "",
            "a,b\n1,2\n",
            "operation,IOPS [last]\nREAD,x\n",
            "operation\nWRITE\n",
        ] {
            assert!(super::figures(bad).is_err(), "{bad}");
        }
    }
}
