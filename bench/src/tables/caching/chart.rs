//! Curves: hit ratio against memory, for each policy.

use super::page::title;
use super::statements::Computed;
use crate::report::curves;
use maud::Markup;
use tierlab_analysis::record::Interval;
use tierlab_report::parts::{Axis, Chart, Figure, Line, Unit};

type Of = fn(&Computed) -> Interval;

const POLICIES: [(&str, Of); 3] = [
    ("MIN, the best possible", |one| one.min),
    ("TinyLFU, the server's", |one| one.tiny_lfu),
    ("LRU", |one| one.lru),
];

const CAPTION: &str = "Memory is a share of the table's bytes, bookkeeping included. Whiskers are 95 % intervals over the rounds, each with a trace of its own.";

/// A chart for each law and unit, with one legend.
pub(super) fn figure(computed: &[Computed]) -> Markup {
    let mut titles: Vec<String> = computed.iter().map(title).collect();
    titles.dedup();
    let charts = titles.into_iter().filter_map(|name| {
        let points: Vec<&Computed> = computed.iter().filter(|one| title(one) == name).collect();
        chart(name, points)
    });
    let names = POLICIES.iter().map(|(name, _)| (*name).to_owned());
    Figure::of_names(names, charts.collect(), CAPTION).html()
}

fn chart(title: String, mut points: Vec<&Computed>) -> Option<Chart> {
    points.sort_by(|a, b| a.ram.share.total_cmp(&b.ram.share));
    let line = |(series, (_, of)): (usize, &(&str, Of))| {
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
    let y = Axis {
        name: "hits",
        unit: Unit::Share,
        log: false,
        range: (0.0, 1.0),
    };
    let lines = POLICIES.iter().enumerate().map(line).collect();
    curves(title, ("memory, of the table's bytes", Unit::Share), y, lines)
}
