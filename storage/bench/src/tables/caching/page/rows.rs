//! The tables' cells. In: what is kept. Out: text for each cell, the same wherever it is shown.

use super::super::kept::Kept;
use super::super::statements::{Computed, Statement, usd};
use super::super::strategy::{Strategy, share_text};
use crate::tables::page::Block;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{bytes, digits3, latency};

pub(super) const NOTE: &str = "hits: look-ups that asked nothing of the origin, ± half of the 95 % interval over the repeats, which begin with nothing \
                               cached; one that joins the fetch of another is a hit, though it waits for it. best: what Belady's MIN, which knows the \
                               future, would hit over the same look-ups in the same memory. p50, p99: of a look-up, service time at this depth, and the \
                               factor that its 95 % interval reaches up and down; n/a: too few. requests, bytes/byte: of the origin, for a look-up, and for a \
                               byte that was asked for. warm: look-ups and time until it hits within 5 % as often as in the last quarter; -: it never \
                               hits. RAM sizes are memory, about 500 bytes of bookkeeping for each entry included.";
pub(super) const COMPUTED_NOTE: &str = "The same traces, longer, one look-up after another. LRU: by stack distances (Mattson et al. 1970). TinyLFU: the server's \
                                        own cache over a tier in memory; it sees an entry before it decides to keep it, which is worth a hit now and then. MIN: \
                                        the best possible (Belady 1966). of MIN: TinyLFU's hits over MIN's. Memory as a share of the table's bytes, bookkeeping \
                                        included, so that more than 100 % is needed to hold all of it.";

fn percent(of: &Interval) -> String {
    // The longer half: the other may be cut at 0 or 1.
    let half = (of.hi - of.value).max(of.value - of.lo) * 100.0;
    match half >= 0.05 {
        true => format!("{:.1} % ±{half:.1}", of.value * 100.0),
        false => format!("{:.1} %", of.value * 100.0),
    }
}

fn time(of: Option<&Interval>) -> String {
    let Some(of) = of else { return "n/a".to_owned() };
    match of.hi / of.value {
        factor if factor < 1.005 => latency(of.value),
        factor if factor < 10.0 => format!("{} ×÷{factor:.2}", latency(of.value)),
        _ => format!("{} ×÷>10", latency(of.value)),
    }
}

fn row(one: &Statement, priced: bool) -> Vec<String> {
    let warm = match (one.warm_after_lookups, one.warm_after_s) {
        (Some(lookups), Some(seconds)) if one.strategy != Strategy::None => {
            format!("{lookups:.0}, {}", latency(seconds * 1e6))
        }
        _ => "-".to_owned(),
    };
    let mut cells = vec![
        one.name.clone(),
        percent(&one.hit_ratio),
        one.best_hit_ratio
            .as_ref()
            .map_or_else(String::new, |best| format!("{:.1} %", best.value * 100.0)),
        time(one.p50_us.as_ref()),
        time(one.p99_us.as_ref()),
        digits3(one.origin_requests_per_lookup.value),
        digits3(one.origin_bytes_per_byte.value),
        warm,
        latency(one.seconds.value * 1e6),
    ];
    if priced {
        cells.push(one.saved_usd_per_gb_month.map_or_else(String::new, usd));
    }
    cells
}

fn block(title: String, header: Vec<&'static str>) -> Block {
    Block {
        title,
        bars: Vec::new(),
        header,
        words: 1,
        rows: Vec::new(),
    }
}

/// A table for each tier and law.
pub(super) fn measured(kept: &Kept) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for one in &kept.measured {
        let title = format!("{}, {}", one.tier, one.law);
        let priced = kept
            .prices
            .as_ref()
            .is_some_and(|prices| prices.tiers.contains_key(&one.tier));
        let mut header = vec![
            "strategy",
            "hits",
            "best",
            "p50",
            "p99",
            "requests",
            "bytes/byte",
            "warm",
            "took",
        ];
        if priced {
            header.push("saves/GB·month");
        }
        if blocks.last().is_none_or(|block| block.title != title) {
            blocks.push(block(title, header));
        }
        if let Some(block) = blocks.last_mut() {
            block.rows.push(row(one, priced));
        }
    }
    blocks
}

/// A table for each law and unit.
pub(super) fn computed(kept: &Kept) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for one in &kept.computed {
        let title = title(one);
        if blocks.last().is_none_or(|block| block.title != title) {
            blocks.push(block(
                title,
                vec!["memory", "entries", "LRU", "TinyLFU", "MIN", "of MIN"],
            ));
        }
        let of_min = one.tiny_lfu.value / one.min.value;
        if let Some(block) = blocks.last_mut() {
            block.rows.push(vec![
                share_text(one.ram.share),
                one.entries.to_string(),
                percent(&one.lru),
                percent(&one.tiny_lfu),
                percent(&one.min),
                match one.min.value > 0.0 {
                    true => format!("{:.1} %", of_min * 100.0),
                    false => String::new(),
                },
            ]);
        }
    }
    blocks
}

pub(super) fn title(one: &Computed) -> String {
    format!("{}, kept by {}", one.law, one.unit)
}

/// What the run was made of.
pub(super) fn facts(kept: &Kept) -> Vec<String> {
    let mut facts = vec![format!(
        "{} rows of {} bytes, {} rounds of {} look-ups, {} at a time; computed over {}",
        kept.rows, kept.row_bytes, kept.ran.repeats, kept.lookups, kept.depth, kept.trace_lookups
    )];
    if let Some(prices) = &kept.prices {
        facts.push(format!(
            "saved at {} look-ups a second on a table of {}, as far as hit ratios at the same shares are the same; {}",
            digits3(prices.lookups_per_s),
            bytes(prices.table_bytes),
            prices.sources.join("; ")
        ));
    }
    facts
}
