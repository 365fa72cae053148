//! A comparison of layouts as `run.json` keeps it, its CSV file and its report.

use super::statements::{Statement, findings};
use crate::report::{Bars, Block, CsvRow, Page, Part, Ran};
use serde::Serialize;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{bytes, digits3, latency, spread};

const HEADER: [&str; 14] = [
    "layout",
    "stored",
    "objects",
    "open",
    "one p50",
    "one p95",
    "requests",
    "batch p50",
    "requests/row",
    "scan rows/s",
    "of files",
    "bytes/row",
    "decode/row",
    "CPU/row",
];
const NOTE: &str = "stored: all objects, indexes among them. open: until every index or footer was read, which lies in memory from then on. one: \
                    a single entity, in a call of its own, one after another, and its requests; batch: likewise, a call for all of its entities. scan: rows \
                    in order, ± half of the 95 % interval over the repeats, with what each row takes: bytes that the tier moved, time from these bytes to a \
                    checked row, and CPU of the whole process. of files: rows a second over those of a file for each entity in the same repeat. n/a: too few \
                    calls.";

/// A comparison of layouts.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) ran: Ran,
    pub(super) rows: u64,
    pub(super) row_bytes: u64,
    pub(super) batch_rows: u32,
    pub(super) scan_depth: usize,
    pub(super) statements: Vec<Statement>,
}

/// Rows of `layouts.csv`, one for each layout and kind of access.
pub(super) fn csv(kept: &Kept) -> Vec<CsvRow> {
    let mut rows = Vec::new();
    for one in &kept.statements {
        for (name, access) in one.accesses() {
            let mut row = CsvRow::default();
            row.put("tier", &one.tier);
            row.put("layout", one.layout);
            row.put("access", name);
            row.put("stored_bytes", one.stored_bytes);
            row.put("objects", one.objects);
            row.put("open_ms", one.open_ms);
            row.interval("samples_per_s", access.samples_per_s);
            row.some("p50_us", access.p50_us);
            row.some("p95_us", access.p95_us);
            row.put("requests_per_sample", access.requests_per_sample);
            row.put("bytes_per_sample", access.bytes_per_sample);
            row.put("decode_us_per_sample", access.decode_us_per_sample);
            row.put("cpu_us_per_sample", access.cpu_us_per_sample);
            row.interval("of_files", access.of_files);
            rows.push(row);
        }
    }
    rows
}

fn row(one: &Statement) -> Vec<String> {
    let time = |us: Option<f64>| us.map_or_else(|| "n/a".to_owned(), latency);
    let ratio = |of: Option<Interval>| of.map_or_else(String::new, |of| format!("{}x", digits3(of.value)));
    vec![
        one.layout.to_string(),
        bytes(one.stored_bytes),
        one.objects.to_string(),
        latency(one.open_ms * 1e3),
        time(one.point.p50_us),
        time(one.point.p95_us),
        digits3(one.point.requests_per_sample),
        time(one.batch.p50_us),
        digits3(one.batch.requests_per_sample),
        spread(&one.scan.samples_per_s),
        ratio(one.scan.of_files),
        digits3(one.scan.bytes_per_sample),
        latency(one.scan.decode_us_per_sample),
        latency(one.scan.cpu_us_per_sample),
    ]
}

/// A table for each tier.
pub(super) fn page(kept: &Kept) -> Page<'_> {
    let mut tiers: Vec<&str> = kept.statements.iter().map(|one| one.tier.as_str()).collect();
    tiers.dedup();
    Page {
        ran: &kept.ran,
        facts: vec![format!(
            "{} rows of {} bytes, {} rounds, batches of {}, {} pieces of a scan at a time",
            kept.rows, kept.row_bytes, kept.ran.repeats, kept.batch_rows, kept.scan_depth
        )],
        badges: Vec::new(),
        parts: vec![
            Part::List {
                title: "Findings",
                lines: findings(&kept.statements, kept.batch_rows),
            },
            Part::Tables {
                title: "Every layout",
                blocks: tiers.into_iter().map(|tier| block(kept, tier)).collect(),
                note: NOTE,
            },
        ],
    }
}

fn block(kept: &Kept, tier: &str) -> Block {
    let here: Vec<&Statement> = kept.statements.iter().filter(|one| one.tier == tier).collect();
    let bars = |title: &str, value: fn(&Statement) -> Option<f64>, text| Bars {
        title: title.to_owned(),
        bars: here.iter().map(|one| (one.layout.to_string(), value(one))).collect(),
        text,
    };
    Block {
        title: tier.to_owned(),
        bars: vec![
            bars("One entity, p50 (less is better)", |one| one.point.p50_us, latency),
            bars("A batch, p50 (less is better)", |one| one.batch.p50_us, latency),
            bars(
                "A scan, rows a second (more is better)",
                |one| Some(one.scan.samples_per_s.value),
                digits3,
            ),
        ],
        header: HEADER.to_vec(),
        words: 1,
        rows: here.iter().map(|one| row(one).into()).collect(),
    }
}
