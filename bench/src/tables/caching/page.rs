//! The report of a comparison of caches: curves, then tables of what was measured, then of what was computed.

use super::CachingFigures;
use super::plan::CachingPlan;
use super::statements::{CachingStatement, Computed, findings, place, usd};
use super::strategy::{Strategy, share_text};
use crate::report::{Block, Column, Page, Part, Ran, curves};
use crate::tables::price::CachingPrices;
use maud::Markup;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{NONE, bytes, digits3, latency};
use tierlab_report::parts::{Axis, Chart, Figure, Line, Unit};

const NOTE: &str = "hits: look-ups that asked nothing of the origin, ± half of the 95 % interval over the repeats, which begin with nothing \
                               cached; one that joins the fetch of another is a hit, though it waits for it. computed: hits of the same policy over the \
                               same look-ups, one after another; with many in flight, what is being fetched serves as further entries, and hits are \
                               more. best: what Belady's MIN, which knows the \
                               future, would hit over the same look-ups in the same memory. p50, p99: of a look-up, service time at this depth, and the \
                               factor that its 95 % interval reaches up and down; n/a: too few. requests, bytes/byte: of the origin, for a look-up, and for a \
                               byte that was asked for. warm: look-ups and time until it hits within 5 % as often as in the last quarter; -: it never \
                               hits. RAM sizes are memory, about 500 bytes of bookkeeping for each entry included.";
const COMPUTED_NOTE: &str = "The same traces, longer, one look-up after another. LRU: by stack distances (Mattson et al. 1970). TinyLFU: the server's \
                                        own cache over a tier in memory; it sees an entry before it decides to keep it, which is worth a hit now and then. MIN: \
                                        the best possible (Belady 1966). of MIN: TinyLFU's hits over MIN's. Memory as a share of the table's bytes, bookkeeping \
                                        included, so that more than 100 % is needed to hold all of it.";

/// The last column is of priced tiers alone.
const MEASURED: [Column<CachingStatement>; 11] = [
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
        one.saved_usd_per_gb_month.map_or_else(String::new, usd)
    }),
];
const COMPUTED: [Column<Computed>; 6] = [
    ("memory", |one| share_text(one.ram.share)),
    ("entries", |one| one.entries.to_string()),
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

const CAPTION: &str = "Memory is a share of the table's bytes, bookkeeping included. Whiskers are 95 % intervals over the rounds, each with a trace of its own.";

/// Content of the report.
pub(super) fn page<'a>(ran: &'a Ran, plan: &CachingPlan, figures: &CachingFigures) -> Page<'a> {
    let prices = figures.prices.as_ref();
    Page {
        ran,
        facts: facts(ran, plan, figures),
        badges: Vec::new(),
        parts: vec![
            Part::List("Findings", findings(&figures.measured, &figures.computed, prices)),
            Part::Charts("Hits against memory", figure(&figures.computed)),
            Part::Tables("Measured", measured(&figures.measured, prices), NOTE),
            Part::Tables("Computed", computed(&figures.computed), COMPUTED_NOTE),
        ],
    }
}

fn facts(ran: &Ran, plan: &CachingPlan, figures: &CachingFigures) -> Vec<String> {
    let mut facts = vec![format!(
        "{} rows of {} bytes, {} rounds of {} look-ups; computed over {}",
        plan.rows, plan.row_bytes.0, ran.repeats, plan.lookups, plan.trace_lookups
    )];
    facts.extend(figures.prices.iter().map(|prices| {
        format!(
            "saved at {} look-ups a second on a table of {}, if hit ratios at the same shares are the same; {}",
            digits3(prices.lookups_per_s),
            bytes(prices.table_bytes),
            prices.reads.sources.join("; ")
        )
    }));
    facts
}

fn percent(of: &Interval) -> String {
    // The longer half: the other may be cut at 0 or 1.
    let half = (of.hi - of.value).max(of.value - of.lo) * 100.0;
    match half >= 0.05 {
        true => format!("{:.1} % ±{half:.1}", of.value * 100.0),
        false => format!("{:.1} %", of.value * 100.0),
    }
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

/// A table for each tier, law and depth.
fn measured(all: &[CachingStatement], prices: Option<&CachingPrices>) -> Vec<Block> {
    let block = |here: &[CachingStatement]| {
        let is_priced = prices.is_some_and(|prices| prices.reads.tiers.contains_key(&here[0].tier));
        let columns = MEASURED.len() - usize::from(!is_priced);
        Block::of(&place(&here[0]), &MEASURED[..columns], 1, here)
    };
    all.chunk_by(|a, b| place(a) == place(b)).map(block).collect()
}

/// A table for each law and unit.
fn computed(all: &[Computed]) -> Vec<Block> {
    let block = |here: &[Computed]| Block::of(&title(&here[0]), &COMPUTED, 1, here);
    all.chunk_by(|a, b| title(a) == title(b)).map(block).collect()
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

fn chart(here: &[Computed]) -> Option<Chart> {
    let mut points: Vec<&Computed> = here.iter().collect();
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
    curves(title(&here[0]), ("memory, of the table's bytes", Unit::Share), y, lines)
}
