//! The report of an offline run.

use super::OfflineFigures;
use super::statements::OfflineStatement;
use crate::report::{Bars, Block, Page, Part, Ran};
use tierlab_instrument::units::{bytes, digits3, latency, spread};
use tierlab_report::parts::Table;

const HEADER: [&str; 15] = [
    "tier",
    "layout",
    "workload",
    "depth",
    "workers",
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

fn row(one: &OfflineStatement) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let usd = |usd: Option<f64>| usd.map_or_else(|| "n/a".to_owned(), usd_text);
    vec![
        one.case.place.tier.clone(),
        one.case.place.layout.to_string(),
        one.case.place.table.clone(),
        one.case.depth.to_string(),
        one.case.workers.to_string(),
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

const FED: [&str; 4] = ["accelerators", "utilisation", "95 %", "rows/s"];
const FED_NOTE: &str = "utilisation: rows that arrived over those that so many accelerators take which never wait. Accelerators are emulated: each \
                        takes a batch of the loader and sleeps for `compute_ms_per_batch`, as DLIO does.";

/// Dollars with two digits at least that are not zero: a million samples can cost far less than a cent.
fn usd_text(usd: f64) -> String {
    let digits = match usd > 0.0 {
        true => (1.0 - usd.log10().floor()).clamp(2.0, 9.0) as usize,
        false => 2,
    };
    format!("{usd:.digits$}")
}

/// A table of all places.
pub(super) fn page<'a>(ran: &'a Ran, facts: Vec<String>, figures: &OfflineFigures) -> Page<'a> {
    let finding = |one: &OfflineStatement| format!("{}: {}", one.case, one.diagnosis.join("; "));
    let statements = figures.statements.iter();
    let block = Block {
        table: Table::of_rows("", &HEADER, 3, statements.clone().map(row)),
        bars: statements.clone().map(bars).collect(),
    };
    Page {
        ran,
        facts,
        badges: Vec::new(),
        parts: vec![
            Part::List(
                "Findings",
                statements.clone().map(finding).chain(figures.failed.clone()).collect(),
            ),
            Part::Tables("Accelerators", accelerators(statements), FED_NOTE),
            Part::Tables("Rows a second", vec![block], NOTE),
        ],
    }
}

/// A table of the accelerators that each place fed.
fn accelerators<'a>(statements: impl Iterator<Item = &'a OfflineStatement>) -> Vec<Block> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let of = |one: &'a OfflineStatement| {
        let rows = one.accelerators.iter().map(|fed| {
            let utilisation = fed.utilisation;
            vec![
                fed.count.to_string(),
                percent(utilisation.value),
                format!("{} to {}", percent(utilisation.lo), percent(utilisation.hi)),
                spread(&fed.rows_per_s),
            ]
        });
        Block {
            table: Table::of_rows(&one.case.to_string(), &FED, 0, rows),
            bars: Vec::new(),
        }
    };
    statements.filter(|one| !one.accelerators.is_empty()).map(of).collect()
}

/// The four rates of a place.
fn bars(one: &OfflineStatement) -> Bars {
    let rates = [
        ("loader", one.loader_per_s),
        ("model", one.inference_per_s),
        ("both", one.both_per_s),
        ("one by one", one.naive_per_s),
    ];
    Bars {
        title: one.case.to_string(),
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
