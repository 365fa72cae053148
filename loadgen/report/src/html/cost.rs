//! Dollars per 10,000 inferences of each series at its highest rate, cut into what is paid for.
//!
//! In: the series of a group. Out: a figure. Knows nothing of other figures.

use super::series::Series;
use super::stages::swatch;
use crate::content::best::Best;
use crate::content::group::Group;
use crate::units::{dollars, dollars_interval, percent};
use maud::{Markup, html};
use tierlab_analysis::record::{Interval, Summary};

/// What is paid for, with its colour.
const PARTS: [(&str, &str); 5] = [
    ("compute", "var(--p-infer)"),
    ("cache memory", "var(--p-batch)"),
    ("tier capacity", "var(--p-decode)"),
    ("storage requests", "var(--p-tier)"),
    ("bytes", "var(--p-join)"),
];

/// A series at its highest rate.
struct Bar<'a> {
    label: &'a str,
    best: &'a Best<'a>,
    summary: &'a Summary,
    usd: Interval,
}

impl<'a> Bar<'a> {
    /// Of a series; `None` without a price.
    fn of(one: &'a Series<'_>) -> Option<Self> {
        let best = one.best.as_ref()?;
        let summary = best.point.summary.as_ref()?;
        Some(Self {
            label: &one.label,
            best,
            summary,
            usd: summary.usd_per_10k?,
        })
    }
}

/// The figure of a group; nothing where nothing is priced.
pub(super) fn figure(series: &[Series<'_>]) -> Markup {
    let bars: Vec<Bar<'_>> = series.iter().filter_map(Bar::of).collect();
    let ends = bars.iter().map(|bar| bar.usd.hi.min(bar.usd.value * 3.0));
    let most = ends.fold(0.0, f64::max);
    if most <= 0.0 {
        return Markup::default();
    }
    let is_paid = |name: &str| {
        let mut parts = bars.iter().flat_map(|bar| &bar.summary.usd_parts);
        parts.any(|(part, _)| part == name)
    };
    html! {
        figure {
            div.legend {
                @for (name, colour) in PARTS.iter().filter(|(name, _)| is_paid(name)) { span { (swatch(colour)) (name) } }
            }
            div.costs { @for bar in &bars { (row(bar, most)) } }
            figcaption {
                "Dollars per 10,000 inferences at each series' highest rate; the thin line is the 95 % interval. At most: even the \
                 highest rate of the plan was held, and the server's own would cost less."
            }
        }
    }
}

/// A bar out of its parts, `most` being as wide as there is room for.
fn row(bar: &Bar<'_>, most: f64) -> Markup {
    let Bar { best, usd, .. } = bar;
    let (lo, hi) = (100.0 * usd.lo / most, 100.0 * usd.hi.min(most) / most);
    html! {
        span { (bar.label) br; span.soft { "at " (best.text()) } }
        div.bar {
            @for (name, part) in &bar.summary.usd_parts {
                @let known = PARTS.iter().find(|(known, _)| known == name);
                @let colour = known.map_or("#777", |(_, colour)| colour);
                i style=(format!("width:{:.2}%;background:{colour}", 100.0 * part / most)) data-tip={
                    (name) ": " (dollars(*part)) " of " (dollars(usd.value)) " (" (percent(part / usd.value)) ")"
                } {}
            }
            b style=(format!("left:{lo:.2}%;width:{:.2}%", hi - lo)) {}
        }
        span { (best.at_most()) (dollars_interval(Some(usd))) }
    }
}

/// Who of a mix pays for what; nothing for curves that were measured alone.
pub(super) fn mix_shares(group: &Group<'_>) -> Markup {
    html! {
        @if !group.mix_shares.is_empty() {
            ul.plain { @for line in &group.mix_shares { li { (line) "." } } }
        }
    }
}
