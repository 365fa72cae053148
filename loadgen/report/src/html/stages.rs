//! Latency of each percentile band, cut into its parts.
//!
//! In: the series of a group and the rate to show. Out: a card per series. Knows nothing of other figures.

use super::chart::Series;
use crate::content::labels;
use crate::units::{latency, percent, rate};
use maud::{Markup, html};
use tierlab_analysis::latency::tail::total_us;
use tierlab_analysis::record::{Band, Point};

/// Parts whose colour needs light text on it.
const DARK: [&str; 5] = ["send_lag", "decode", "infer", "unattributed", "untold"];
/// Width of a bar on most screens in CSS pixels, which decides if a name fits.
const BAR_PX: f64 = 150.0;
/// Width of a letter on a bar, in CSS pixels.
const LETTER_PX: f64 = 6.3;

/// Legend of the parts.
pub(super) fn legend(parts: &[&str]) -> Markup {
    html! {
        div.legend { @for name in parts { span { (swatch(&colour(name))) (labels::part(name)) } } }
    }
}

/// Cards of a group, each at the common rate if the series has a valid point there, else at its highest valid one.
pub(super) fn cards(series: &[Series<'_>], common: Option<f64>) -> Markup {
    html! {
        div.cards {
            @for one in series {
                div.card {
                    h4 { (one.style.label) }
                    @if let Some(point) = one.shown_at(common) { (card(point)) }
                    @else { p { "No valid point." } }
                }
            }
        }
    }
}

fn card(point: &Point) -> Markup {
    let summary = point.summary.as_ref();
    html! {
        p { "at " (rate(point.factors.offered_rps)) " requests per second" }
        div.bands {
            @for band in summary.map_or(&[][..], |summary| &summary.bands) {
                span { (band.name) }
                div.stack { @for (name, us) in &band.parts_us { (part(band, name, *us)) } }
                span { (mean(band)) }
            }
        }
        @if let Some(sessions) = summary.and_then(labels::sessions) { p { "Session threads: " (sessions) "." } }
    }
}

/// The band's mean, with its interval over the repeats.
fn mean(band: &Band) -> Markup {
    html! {
        (latency(band.mean_us))
        @if let Some(ends) = band.over_repeats_us { span.ci { "[" (latency(ends.lo)) "–" (latency(ends.hi)) "]" } }
    }
}

/// Part of a band, as wide as its share; nothing if it could not be seen.
fn part(band: &Band, name: &str, us: f64) -> Markup {
    let share = if band.mean_us > 0.0 { us / total_us(band) } else { 0.0 };
    if share < 0.002 {
        return Markup::default();
    }
    let (part, [us, all]) = (labels::part(name), [us, total_us(band)].map(latency));
    let (percent, count, of) = (percent(share), band.count, &band.name);
    let tip = format!("{part}: {us} of {all} ({percent})\n{count} requests, {of}");
    let style = format!("width:{:.2}%;background:{}", 100.0 * share, colour(name));
    html! {
        span class=[DARK.contains(&name).then_some("d")] style=(style) data-tip=(tip) { (label(name, share)) }
    }
}

/// Name with the share, or the share alone, or nothing: the longest that fits.
fn label(name: &str, share: f64) -> String {
    let (name, share_text) = (labels::part(name), percent(share));
    let fits = |text: &String| 8.0 + LETTER_PX * text.chars().count() as f64 <= share * BAR_PX;
    let mut texts = [format!("{name} {share_text}"), share_text].into_iter();
    texts.find(fits).unwrap_or_default()
}

/// The CSS colour of a part; parts of other versions are grey.
pub(super) fn colour(part: &str) -> String {
    match part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => format!("var(--p-{part}, #777)"),
        false => "#777".to_owned(),
    }
}

/// A small square in a colour of CSS.
pub(super) fn swatch(colour: &str) -> Markup {
    html! { span.swatch style={ "background:" (colour) } {} }
}
