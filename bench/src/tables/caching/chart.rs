//! Curves: hit ratio against memory, for each policy.

use super::rows::title;
use super::statements::Computed;
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

/// None for a single size, which is no curve.
fn chart(title: String, mut points: Vec<&Computed>) -> Option<Chart> {
    points.sort_by(|a, b| a.ram.share.total_cmp(&b.ram.share));
    let (first, last) = (points.first()?.ram.share, points.last()?.ram.share);
    if points.len() < 2 {
        return None;
    }
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
    Some(Chart {
        title,
        x: Axis {
            name: "memory, of the table's bytes",
            unit: Unit::Share,
            log: true,
            range: (first / 1.15, last * 1.15),
        },
        y: Axis {
            name: "hits",
            unit: Unit::Share,
            log: false,
            range: (0.0, 1.0),
        },
        lines: POLICIES.iter().enumerate().map(line).collect(),
        limits: Vec::new(),
        here: None,
        crosses: Vec::new(),
        rows: (points.iter().map(|one| one.ram.share).collect(), 0.0),
    })
}
