//! The terminal table of a run.
//!
//! In: a summarised run. Out: text of at most 160 columns: a table per mode, model and batch size, then the legend, a
//! sentence per tier, and what to beware of. Knows nothing of files.

use crate::content::{cautions, cold_starts, costs, instrument, reach, words};
use crate::style::STYLE;
use crate::units::{NONE, dollars_spread, latency_interval, percent, rate, thousands};
use comfy_table::{CellAlignment, ContentArrangement, Table};
use tierlab_analysis::curves::Curve;
use tierlab_analysis::record::{Point, Run};

const HEADER: [&str; 11] = [
    "tier",
    "cache",
    "offered/s",
    "p50",
    "p95",
    "p99",
    "good/s",
    "hits",
    "errors",
    "$/10k inferences",
    "verdict",
];

const LEGEND: &str = "Latency runs from the scheduled send to the last byte of the reply; [lo–hi] and ± are 95 % intervals; \
                      n/a: too few independent samples.\nsaturated: the server could not keep up at this rate; invalid: the \
                      measurement broke one of its own rules (reasons below).";

/// The text.
#[must_use]
pub fn table(run: &Run) -> String {
    let mut text = cold_starts::text(run);
    for (name, curves) in words::groups(run) {
        text += &format!("{name}\n{}\n\n", grid(run, &curves));
    }
    text += LEGEND;
    text += "\n\n";
    for (_, curves) in words::groups(run) {
        for curve in &curves {
            text += &format!("• {}\n", words::sentence(run, curve));
        }
        for line in costs::mix_shares(run, &curves) {
            text += &format!("• {line}\n");
        }
    }
    let reached: Vec<String> = run
        .findings
        .iter()
        .filter_map(|finding| reach::reach(run, finding))
        .collect();
    if !reached.is_empty() {
        text += &format!("\n{}\n", reach::REACH);
        for line in reached {
            text += &format!("• {line}\n");
        }
        text += "\n";
    }
    if let Some(floor) = words::noise_floor(run) {
        text += &format!("• {floor}\n");
    }
    // Those that prove nothing stand among what to beware of.
    for sentence in instrument::not_refused(run) {
        text += &format!("• {sentence}\n");
    }
    if let Some(pricing) = &run.pricing {
        text += "\nPrices:\n";
        for source in &pricing.sources {
            text += &format!("  {source}\n");
        }
    }
    let cautions = cautions::cautions(run);
    if !cautions.is_empty() {
        text += "\nBeware:\n";
        for caution in cautions {
            text += &format!("  {caution}\n");
        }
    }
    text
}

fn grid(run: &Run, curves: &[Curve<'_>]) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(HEADER);
    for (number, curve) in curves.iter().enumerate() {
        if number > 0 {
            table.add_row([""; 11]);
        }
        for (index, point) in curve.points.iter().enumerate() {
            table.add_row(row(run, point, index == 0));
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    for index in 2..10 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(run: &Run, point: &Point, first: bool) -> [String; 11] {
    let factors = &point.factors;
    // A curve is named once: the eye finds the next one by the name.
    let [tier, cache] = if first {
        [words::tier(run, &factors.tier), words::cache(factors)]
    } else {
        [String::new(), String::new()]
    };
    let offered = rate(factors.offered_rps);
    let Some(summary) = &point.summary else {
        let none = || NONE.to_owned();
        return [
            tier,
            cache,
            offered,
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            "not summarised".to_owned(),
        ];
    };
    [
        tier,
        cache,
        offered,
        latency_interval(summary.p50_us.as_ref()),
        latency_interval(summary.p95_us.as_ref()),
        latency_interval(summary.p99_us.as_ref()),
        rate(summary.achieved_rps.value),
        summary.cache_hit_ratio.map_or_else(|| "–".to_owned(), percent),
        if summary.errors == 0 {
            "0".to_owned()
        } else {
            thousands(summary.errors)
        },
        dollars_spread(summary.usd_per_10k.as_ref()),
        words::verdict(&summary.verdict).to_owned(),
    ]
}
