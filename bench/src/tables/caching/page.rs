//! A comparison of caches as `run.json` keeps it, its CSV file and its report.

use super::chart::figure;
use super::price::Prices;
use super::rows::{COMPUTED_NOTE, NOTE, computed, measured};
use super::statements::{Computed, Statement, findings};
use crate::report::{CsvRow, Page, Part, Ran};
use serde::Serialize;
use tierlab_instrument::units::{bytes, digits3};

/// A comparison of caches.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) ran: Ran,
    pub(super) rows: u32,
    pub(super) row_bytes: u64,
    pub(super) table_bytes: u64,
    pub(super) lookups: u32,
    pub(super) trace_lookups: u32,
    pub(super) depth: usize,
    pub(super) prices: Option<Prices>,
    pub(super) measured: Vec<Statement>,
    pub(super) computed: Vec<Computed>,
}

/// Rows of `caching.csv`: one for each measured strategy, and for each policy and size that was computed.
pub(super) fn csv(kept: &Kept) -> Vec<CsvRow> {
    let mut rows: Vec<CsvRow> = kept.measured.iter().map(measured_row).collect();
    for one in &kept.computed {
        for (policy, ratio) in [("lru", one.lru), ("tiny-lfu", one.tiny_lfu), ("min", one.min)] {
            let mut row = CsvRow::default();
            row.put("kind", "computed");
            row.put("tier", "");
            row.put("law", one.law);
            row.put("strategy", &format!("{policy}, {}", one.unit));
            row.put("memory_share", one.ram.share);
            row.interval("hit_ratio", ratio);
            row.put("best_hit_ratio", one.min.value);
            rows.push(row);
        }
    }
    rows
}

fn measured_row(one: &Statement) -> CsvRow {
    let mut row = CsvRow::default();
    row.put("kind", "measured");
    row.put("tier", &one.tier);
    row.put("law", one.law);
    row.put("strategy", &one.name);
    row.some("memory_share", one.strategy.ram().map(|ram| ram.share));
    row.interval("hit_ratio", one.hit_ratio);
    row.some("best_hit_ratio", one.best_hit_ratio.map(|best| best.value));
    row.interval("p50_us", one.p50_us);
    row.interval("p99_us", one.p99_us);
    row.put("origin_requests_per_lookup", one.origin_requests_per_lookup.value);
    row.put("origin_bytes_per_lookup", one.origin_bytes_per_lookup.value);
    row.put("origin_bytes_per_byte", one.origin_bytes_per_byte.value);
    row.some("warm_after_lookups", one.warm_after_lookups);
    row.some("warm_after_s", one.warm_after_s);
    row.put("seconds", one.seconds.value);
    row.some("saved_usd_per_gb_month", one.saved_usd_per_gb_month);
    row
}

/// Content of the report: curves, then what was measured, then what was computed.
pub(super) fn page(kept: &Kept) -> Page<'_> {
    Page {
        ran: &kept.ran,
        facts: facts(kept),
        badges: Vec::new(),
        parts: vec![
            Part::List {
                title: "Findings",
                lines: findings(&kept.measured, &kept.computed, kept.prices.as_ref()),
            },
            Part::Charts {
                title: "Hits against memory",
                html: figure(&kept.computed),
            },
            Part::Tables {
                title: "Measured",
                blocks: measured(&kept.measured, kept.prices.as_ref()),
                note: NOTE,
            },
            Part::Tables {
                title: "Computed",
                blocks: computed(&kept.computed),
                note: COMPUTED_NOTE,
            },
        ],
    }
}

fn facts(kept: &Kept) -> Vec<String> {
    let mut facts = vec![format!(
        "{} rows of {} bytes, {} rounds of {} look-ups, {} at a time; computed over {}",
        kept.rows, kept.row_bytes, kept.ran.repeats, kept.lookups, kept.depth, kept.trace_lookups
    )];
    if let Some(prices) = &kept.prices {
        facts.push(format!(
            "saved at {} look-ups a second on a table of {}, if hit ratios at the same shares are the same; {}",
            digits3(prices.lookups_per_s),
            bytes(prices.table_bytes),
            prices.sources.join("; ")
        ));
    }
    facts
}
