//! An offline run as `run.json` keeps it, its CSV file and its report.

use super::price::Prices;
use super::statements::Statement;
use crate::report::{Bars, Block, CsvRow, Page, Part, Ran};
use serde::Serialize;
use std::collections::BTreeMap;
use tierlab_instrument::units::{bytes, digits3, latency, spread};

const HEADER: [&str; 13] = [
    "tier",
    "layout",
    "workload",
    "loader rows/s",
    "model rows/s",
    "both rows/s",
    "one by one rows/s",
    "of the slower",
    "idle",
    "for reads, decoding, batching",
    "CPU/row",
    "peak memory",
    "$/million",
];
const NOTE: &str = "loader: rows read, decoded, shuffled and put together as batches that nobody takes; model: the same batches from memory; both: the \
                    batches of the loader through the model; one by one: one read, its batch through the model, then the next read. ± is half of the 95 % \
                    interval over the repeats. of the slower: both over the slower of loader and model. idle: share of the sessions' time that they waited \
                    for a batch in both, and what for: while the thread that makes batches waits for a piece, its time is split as the pieces' own between \
                    reading and decoding. CPU: of the whole process, in both. $: the instance for as long as it takes, and what the tier charges.";

/// An offline run.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) ran: Ran,
    /// Table of each workload.
    pub(super) tables: BTreeMap<String, KeptTable>,
    pub(super) window_s: f64,
    pub(super) sessions: usize,
    pub(super) session_threads: usize,
    pub(super) statements: Vec<Statement>,
    pub(super) prices: Option<Prices>,
    /// Places that could not be measured, and why.
    pub(super) failed: Vec<String>,
}

/// A table, and the rows of a batch.
#[derive(Debug, Serialize)]
pub(super) struct KeptTable {
    pub(super) rows: u64,
    pub(super) row_bytes: u64,
    pub(super) batch_rows: usize,
    pub(super) shuffle_rows: usize,
}

/// Rows of `offline.csv`, one for each workload in each layout on each tier.
pub(super) fn csv(kept: &Kept) -> impl Iterator<Item = CsvRow> + '_ {
    kept.statements.iter().map(|one| {
        let mut row = CsvRow::default();
        row.put("tier", &one.tier);
        row.put("layout", one.layout);
        row.put("workload", &one.workload);
        row.interval("loader_per_s", one.loader_per_s);
        row.interval("inference_per_s", one.inference_per_s);
        row.interval("both_per_s", one.both_per_s);
        row.interval("naive_per_s", one.naive_per_s);
        row.interval("of_slower", one.of_slower);
        row.interval("of_naive", one.of_naive);
        row.put("idle_share", one.idle_share);
        row.put("idle_reading_share", one.idle_reading_share);
        row.put("idle_decoding_share", one.idle_decoding_share);
        row.put("idle_batching_share", one.idle_batching_share);
        row.put("naive_idle_share", one.naive_idle_share);
        row.put("requests_per_row", one.requests_per_row);
        row.put("bytes_per_row", one.bytes_per_row);
        row.put("loader_cpu_us", one.loader_cpu_us);
        row.put("inference_cpu_us", one.inference_cpu_us);
        row.put("both_cpu_us", one.both_cpu_us);
        row.put("taken_share", one.taken_share);
        row.put("peak_bytes", one.peak_bytes);
        row.some("usd_per_million", one.usd_per_million);
        row.some("naive_usd_per_million", one.naive_usd_per_million);
        row
    })
}

fn row(one: &Statement) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let usd = |usd: Option<f64>| usd.map_or_else(|| "n/a".to_owned(), usd_text);
    vec![
        one.tier.clone(),
        one.layout.to_string(),
        one.workload.clone(),
        spread(&one.loader_per_s),
        spread(&one.inference_per_s),
        spread(&one.both_per_s),
        spread(&one.naive_per_s),
        percent(one.of_slower.value),
        percent(one.idle_share),
        format!(
            "{}, {}, {}",
            percent(one.idle_reading_share),
            percent(one.idle_decoding_share),
            percent(one.idle_batching_share)
        ),
        latency(one.both_cpu_us),
        bytes(one.peak_bytes),
        usd(one.usd_per_million),
    ]
}

/// Dollars with two digits at least that are not zero: a million samples can cost far less than a cent.
fn usd_text(usd: f64) -> String {
    let digits = match usd > 0.0 {
        true => (1.0 - usd.log10().floor()).clamp(2.0, 9.0) as usize,
        false => 2,
    };
    format!("{usd:.digits$}")
}

/// Diagnosis of each place.
fn findings(kept: &Kept) -> Vec<String> {
    let finding = |one: &Statement| {
        let place = format!("{} as {} on {}", one.workload, one.layout, one.tier);
        format!("{place}: {}", one.diagnosis.join("; "))
    };
    kept.statements.iter().map(finding).chain(kept.failed.clone()).collect()
}

fn facts(kept: &Kept) -> Vec<String> {
    let mut facts = vec![format!(
        "{} rounds of {} s; sessions: {}, threads of each: {}",
        kept.ran.repeats, kept.window_s, kept.sessions, kept.session_threads
    )];
    facts.extend(kept.tables.iter().map(|(name, table)| {
        format!(
            "{name}: {} rows of {}, batches of {}, drawn among {}",
            table.rows,
            bytes(table.row_bytes),
            table.batch_rows,
            table.shuffle_rows
        )
    }));
    if let Some(prices) = &kept.prices {
        facts.extend(prices.sources.iter().map(|source| format!("price of {source}")));
    }
    facts
}

/// A table of all places.
pub(super) fn page(kept: &Kept) -> Page<'_> {
    let block = Block {
        title: String::new(),
        bars: kept.statements.iter().map(bars).collect(),
        header: HEADER.to_vec(),
        words: 3,
        rows: kept.statements.iter().map(|one| row(one).into()).collect(),
    };
    Page {
        ran: &kept.ran,
        facts: facts(kept),
        badges: Vec::new(),
        parts: vec![
            Part::List {
                title: "Findings",
                lines: findings(kept),
            },
            Part::Tables {
                title: "Rows a second",
                blocks: vec![block],
                note: NOTE,
            },
        ],
    }
}

/// The four rates of a place.
fn bars(one: &Statement) -> Bars {
    let rates = [
        ("loader", one.loader_per_s),
        ("model", one.inference_per_s),
        ("both", one.both_per_s),
        ("one by one", one.naive_per_s),
    ];
    Bars {
        title: format!("{} as {} on {}", one.workload, one.layout, one.tier),
        bars: rates
            .into_iter()
            .map(|(name, rate)| (name.to_owned(), Some(rate.value)))
            .collect(),
        text: digits3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sums_are_not_shown_as_nothing() {
        for (usd, text) in [
            (0.000_377, "0.00038"),
            (0.0604, "0.060"),
            (0.604, "0.60"),
            (12.345, "12.35"),
            (0.0, "0.00"),
        ] {
            assert_eq!(usd_text(usd), text);
        }
    }
}
