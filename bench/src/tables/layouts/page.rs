//! The report of a comparison of layouts.

use super::plan::LayoutsPlan;
use super::statements::{LayoutStatement, findings};
use crate::report::{Bars, Block, Column, Page, Part, Ran};
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{NONE, bytes, digits3, latency, spread};

const COLUMNS: [Column<LayoutStatement>; 14] = [
    ("layout", |one| one.place.layout.to_string()),
    ("stored", |one| bytes(one.stored.stored_bytes)),
    ("objects", |one| one.stored.objects.to_string()),
    ("open", |one| latency(one.stored.open_ms * 1e3)),
    ("one p50", |one| time(one.point.p50_us)),
    ("one p95", |one| time(one.point.p95_us)),
    ("requests", |one| digits3(one.point.requests_per_sample)),
    ("batch p50", |one| time(one.batch.p50_us)),
    ("requests/row", |one| digits3(one.batch.requests_per_sample)),
    ("scan rows/s", |one| spread(&one.scan.samples_per_s)),
    ("of files", |one| one.scan.of_files.map_or_else(String::new, ratio)),
    ("bytes/row", |one| digits3(one.scan.bytes_per_sample)),
    ("decode/row", |one| latency(one.scan.decode_us_per_sample)),
    ("CPU/row", |one| latency(one.scan.cpu_us_per_sample)),
];
const NOTE: &str = "stored: all objects, including indexes. open: time to read every index or footer into memory. one: \
calls for a single entity, one after another, and their requests; batch: the same, with one call per batch. scan: rows \
in order, ± half of the 95 % interval over the repeats, and the costs per row: bytes moved by the tier, time from these bytes to a \
checked row, and CPU of the whole process. of files: rows per second relative to a file per entity in the same repeat. n/a: too few \
calls.";

fn time(us: Option<f64>) -> String {
    us.map_or_else(|| NONE.to_owned(), latency)
}

fn ratio(of: Interval) -> String {
    format!("{}x", digits3(of.value))
}

/// A table for each tier.
pub(super) fn page<'a>(ran: &'a Ran, plan: &LayoutsPlan, row_bytes: u64, statements: &[LayoutStatement]) -> Page<'a> {
    let tiers = statements.chunk_by(|a, b| a.place.tier == b.place.tier);
    Page {
        ran,
        facts: vec![format!(
            "{} rows of {row_bytes} bytes, {} rounds, batches of {}, {} pieces of a scan at a time",
            plan.rows, ran.repeats, plan.batch_rows, plan.scan_depth
        )],
        badges: Vec::new(),
        parts: vec![
            Part::List("Findings", findings(statements, plan.batch_rows)),
            Part::Tables("Every layout", tiers.map(block).collect(), NOTE),
        ],
    }
}

fn block(here: &[LayoutStatement]) -> Block {
    let bars = |title: &str, value: fn(&LayoutStatement) -> Option<f64>, text| Bars {
        title: title.to_owned(),
        bars: here
            .iter()
            .map(|one| (one.place.layout.to_string(), value(one)))
            .collect(),
        text,
    };
    Block {
        bars: vec![
            bars("One entity, p50 (less is better)", |one| one.point.p50_us, latency),
            bars("A batch, p50 (less is better)", |one| one.batch.p50_us, latency),
            bars(
                "A scan, rows a second (more is better)",
                |one| Some(one.scan.samples_per_s.value),
                digits3,
            ),
        ],
        ..Block::of(&here[0].place.tier, &COLUMNS, 1, here)
    }
}
