//! Report of a comparison of caches: curves, then tables of measured and of computed figures.

use super::CachingFigures;
use super::plan::CachingPlan;
use super::statements::{CachingStatement, Computed, case_label, findings, percent};
use super::strategy::{Strategy, share_text};
use crate::report::{Column, Page, Part, RunFacts, curves, table};
use maud::Markup;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{NONE, amount, bytes, digits3, dollars_interval, latency, thousands};
use tierlab_report::parts::{Axis, Chart, Figure, Line, Table, Unit};

const NOTE: &str = "hits: look-ups without a request to the origin, ± half of the 95 % interval over the repeats, which start with empty \
caches; a look-up that joins another's fetch is a hit, although it waits. computed: hits of the same policy over the \
same look-ups, one after another; with many in flight, running fetches act as further entries, and hits are \
more. best: hits of Belady's MIN, which knows the \
future, over the same look-ups in the same memory. p50, p99: service time of a look-up at this depth, and the \
                               factor to either end of its 95 % interval; n/a: too few. requests, bytes/byte: requests to the origin per look-up, and its bytes per \
                               requested byte. warm: look-ups and time until the hit ratio is within 5 % of the last quarter's; -: no \
                               hits. RAM sizes are memory, including about 500 bytes of bookkeeping per entry.";
const COMPUTED_NOTE: &str = "The same traces, extended, one look-up after another. LRU: by stack distances (Mattson et al. 1970). TinyLFU: the server's \
                                        own cache over a tier in memory; it sees an entry before it decides to keep it, which adds an occasional hit. MIN: \
                                        the best possible (Belady 1966). of MIN: TinyLFU's hits over MIN's. Memory as a share of the table's bytes, including \
                                        bookkeeping, so that more than 100 % is needed to hold the whole table.";

/// Columns; the last one is for priced tiers only.
const MEASURED: [Column<CachingStatement>; 12] = [
    ("case", case_label),
    ("strategy", |one| one.name.clone()),
    ("hits", |one| percent(&one.hit_ratio)),
    ("computed", |one| computed_percent(one.computed_hit_ratio)),
    ("best", |one| computed_percent(one.best_hit_ratio)),
    ("p50", |one| time(one.p50_us)),
    ("p99", |one| time(one.p99_us)),
    ("requests", |one| digits3(one.origin_requests_per_lookup.value)),
    ("bytes/byte", |one| digits3(one.origin_bytes_per_byte.value)),
    ("warm", warm),
    ("took", |one| latency(one.seconds.value * 1e6)),
    ("saves/GB·month", |one| {
        dollars_interval(one.saved_usd_per_gb_month.as_ref())
    }),
];
const COMPUTED: [Column<Computed>; 6] = [
    ("memory", |one| share_text(one.ram.share)),
    ("entries", |one| thousands(one.entries)),
    ("LRU", |one| percent(&one.lru)),
    ("TinyLFU", |one| percent(&one.tiny_lfu)),
    ("MIN", |one| percent(&one.min)),
    ("of MIN", |one| match one.min.value > 0.0 {
        true => format!("{:.1} %", one.tiny_lfu.value / one.min.value * 100.0),
        false => String::new(),
    }),
];
type RatioOf = fn(&Computed) -> Interval;

const POLICIES: [(&str, RatioOf); 3] = [
    ("MIN, the best possible", |one| one.min),
    ("TinyLFU, the server's", |one| one.tiny_lfu),
    ("LRU", |one| one.lru),
];

const CAPTION: &str = "Memory is a share of the table's bytes, including bookkeeping. Whiskers are 95 % intervals over the rounds, each with a trace of its own.";

/// Content of the report: for each tier, law and depth the strategy with the most hits first.
pub(super) fn page<'a>(run: &'a RunFacts, plan: &CachingPlan, figures: &CachingFigures) -> Page<'a> {
    let prices = figures.prices.as_ref();
    let mut ranked = figures.measured.clone();
    ranked.sort_by(|a, b| b.hit_ratio.value.total_cmp(&a.hit_ratio.value));
    ranked.sort_by_key(case_label);
    let measured = table("", &MEASURED, 2, &ranked);
    let is_first = |name: &str| matches!(name, "case" | "strategy" | "hits" | "p50" | "p99");
    Page {
        run,
        facts: facts(run, plan, figures),
        badges: Vec::new(),
        findings: findings(&figures.measured, &figures.computed, prices),
        overview: measured.named(is_first),
        chart: figure(&figures.computed),
        parts: vec![
            Part::Tables("Measured", vec![measured], NOTE),
            Part::Tables("Computed", computed(&figures.computed), COMPUTED_NOTE),
        ],
    }
}

fn facts(run: &RunFacts, plan: &CachingPlan, figures: &CachingFigures) -> Vec<String> {
    let mut facts = vec![format!(
        "rows: {}, bytes of each: {}; rounds: {}, look-ups of each: {}; computed over {}",
        plan.rows, plan.row_bytes.0, run.repeats, plan.lookups, plan.trace_lookups
    )];
    facts.extend(figures.prices.iter().map(|prices| {
        let (rate, table) = (amount(prices.lookups_per_s), bytes(prices.table_bytes));
        let sources = prices.reads.sources.join("; ");
        format!("savings at {rate} look-ups a second on a table of {table}, if hit ratios at equal shares are equal; {sources}")
    }));
    facts
}

fn time(of: Option<Interval>) -> String {
    let Some(of) = of else { return NONE.to_owned() };
    match of.hi / of.value {
        factor if factor < 1.005 => latency(of.value),
        factor if factor.is_infinite() => format!("{} ±{NONE}", latency(of.value)),
        factor if factor < 10.0 => format!("{} ×÷{factor:.2}", latency(of.value)),
        _ => format!("{} ×÷>10", latency(of.value)),
    }
}

fn computed_percent(of: Option<Interval>) -> String {
    of.map_or_else(String::new, |of| format!("{:.1} %", of.value * 100.0))
}

fn warm(one: &CachingStatement) -> String {
    match (one.warm_after_lookups, one.warm_after_s) {
        (Some(lookups), Some(seconds)) if one.strategy != Strategy::None => {
            format!("{lookups:.0}, {}", latency(seconds * 1e6))
        }
        _ => "-".to_owned(),
    }
}

/// A table for each law and unit.
fn computed(all: &[Computed]) -> Vec<Table> {
    let of_case = |rows: &[Computed]| table(&title(&rows[0]), &COMPUTED, 1, rows);
    all.chunk_by(|a, b| title(a) == title(b)).map(of_case).collect()
}

fn title(one: &Computed) -> String {
    format!("{}, kept by {}", one.law, one.unit)
}

/// A chart for each law and unit, with one legend.
fn figure(computed: &[Computed]) -> Markup {
    let charts = computed.chunk_by(|a, b| title(a) == title(b)).filter_map(chart);
    let names = POLICIES.iter().map(|(name, _)| (*name).to_owned());
    Figure::of_names(names, charts.collect(), CAPTION).html()
}

fn chart(rows: &[Computed]) -> Option<Chart> {
    let mut points: Vec<&Computed> = rows.iter().collect();
    points.sort_by(|a, b| a.ram.share.total_cmp(&b.ram.share));
    let line = |(series, (_, of)): (usize, &(&str, RatioOf))| {
        let mut line = Line {
            series,
            ..Line::default()
        };
        for one in &points {
            let ratio = of(one);
            line.push(one.ram.share, ratio.value);
            line.lo.push(ratio.lo.max(0.0));
            line.hi.push(ratio.hi.min(1.0));
        }
        line
    };
    let y = Axis::linear("hits", Unit::Share, (0.0, 1.0));
    let lines = POLICIES.iter().enumerate().map(line).collect();
    curves(title(&rows[0]), ("memory, of the table's bytes", Unit::Share), y, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_one_repeat_has_no_interval() {
        let of = |value, lo, hi| percent(&Interval { value, lo, hi });
        assert_eq!(of(0.951, 0.0, 1.0), "95.1 % ±n/a");
        assert_eq!(of(0.951, 0.94, 0.96), "95.1 % ±1.1");
        assert_eq!(of(0.5, 0.5, 0.5), "50.0 %");
    }
}
