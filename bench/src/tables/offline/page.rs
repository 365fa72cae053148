//! The report of an offline run.

use super::OfflineFigures;
use super::statements::{AcceleratorFigures, OfflineStatement};
use crate::report::{Bars, Column, Page, Part, RunFacts, levels, or_none, table};
use tierlab_instrument::units::{amount, bytes, latency, percent, spread};

const COLUMNS: [Column<OfflineStatement>; 11] = [
    ("case", |one| one.case.to_string()),
    ("loader rows/s", |one| spread(&one.loader_per_s)),
    ("model rows/s", |one| spread(&one.inference_per_s)),
    ("both rows/s", |one| spread(&one.both_per_s)),
    ("one by one rows/s", |one| spread(&one.naive_per_s)),
    ("of the slower", |one| percent(one.of_slower.value)),
    ("idle", |one| percent(one.idle_share)),
    ("for reads, decoding, batching", idle_causes),
    ("CPU/row", |one| latency(one.both_cpu_us)),
    ("peak memory", |one| bytes(one.peak_bytes)),
    ("$/million", |one| or_none(one.usd_per_million, usd_text)),
];
const NOTE: &str = "loader: rows read, decoded, shuffled and assembled into discarded batches; model: the same batches from memory; both: the \
loader's batches through the model; one by one: one read, its batch through the model, then the next read. Rates have 95 % \
                    intervals over the repeats. of the slower: both over the slower of loader and model. idle: share of the sessions' time spent waiting \
                    for a batch in both, and its causes: time in which the batching thread waits for a piece is split like the pieces' time between \
                    reading and decoding. CPU: of the whole process, in both. $: the instance's price for that time, and the tier's charges.";

fn idle_causes(one: &OfflineStatement) -> String {
    let causes = [one.idle_reading_share, one.idle_decoding_share, one.idle_batching_share];
    causes.map(percent).join(", ")
}

const ACCELERATOR_COLUMNS: [Column<AcceleratorFigures>; 3] = [
    ("accelerators", |row| row.count.to_string()),
    ("utilisation in %", |row| {
        spread(&row.utilisation.map(|share| 100.0 * share))
    }),
    ("rows/s", |row| spread(&row.rows_per_s)),
];

const ACCELERATOR_NOTE: &str = "utilisation: rows that arrived over the rows that the accelerators would take \
without waiting, with its 95 % interval over the repeats. Accelerators are emulated: each takes a batch of the loader \
and sleeps for `compute_ms_per_batch`, like DLIO.";

/// Dollars with at least two significant digits: a million samples can cost far less than a cent.
fn usd_text(usd: f64) -> String {
    let digits = match usd > 0.0 {
        true => (1.0 - usd.log10().floor()).clamp(2.0, 9.0) as usize,
        false => 2,
    };
    format!("{usd:.digits$}")
}

/// A table of all cases, the fastest first.
pub(super) fn page<'a>(run: &'a RunFacts, facts: Vec<String>, figures: &OfflineFigures) -> Page<'a> {
    let finding = |one: &OfflineStatement| format!("{}: {}", one.case, one.diagnosis.join("; "));
    let mut statements = figures.statements.clone();
    statements.sort_by(|a, b| b.both_per_s.value.total_cmp(&a.both_per_s.value));
    let bars: Vec<Bars> = statements.iter().map(bars).collect();
    let all = table("", &COLUMNS, 1, &statements);
    let is_first = |name: &str| matches!(name, "case" | "both rows/s" | "of the slower" | "idle" | "$/million");
    // A table of the accelerators that each case fed.
    let accelerators = statements.iter().filter(|one| !one.accelerators.is_empty());
    let accelerators = accelerators.map(|one| table(&one.case.to_string(), &ACCELERATOR_COLUMNS, 0, &one.accelerators));
    let findings = statements.iter().map(finding).chain(figures.failed.clone());
    Page {
        run,
        facts,
        badges: Vec::new(),
        findings: findings.collect(),
        overview: all.named(is_first),
        chart: levels(&bars),
        parts: vec![
            Part::Tables("Accelerators", accelerators.collect(), ACCELERATOR_NOTE),
            Part::Tables("Rows a second", vec![all], NOTE),
        ],
    }
}

/// The four rates of a case.
fn bars(one: &OfflineStatement) -> Bars {
    let rates = [
        ("loader", one.loader_per_s),
        ("model", one.inference_per_s),
        ("both", one.both_per_s),
        ("one by one", one.naive_per_s),
    ];
    Bars {
        title: one.case.to_string(),
        bars: rates.map(|(name, rate)| (name.to_owned(), Some(rate.value))).into(),
        text: amount,
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
