//! Where the time goes: the latency of each percentile band, cut into its parts.
//!
//! In: the series of a group and the rate to show. Out: a card per series. Knows nothing of other figures.

use super::markup::escape;
use super::series::Series;
use crate::content::words;
use crate::units::{latency, percent, rate};
use tierlab_analysis::latency::tail::whole;
use tierlab_analysis::record::{Band, Point};

/// Parts whose colour wants light text on it.
const DARK: [&str; 7] = [
    "send_lag",
    "decode",
    "tier",
    "infer",
    "encode",
    "unattributed",
    "untold",
];
/// Width of a bar on most screens, and of a letter on it, in CSS pixels: what tells whether a name fits.
const BAR_PX: f64 = 150.0;
/// See [`BAR_PX`].
const LETTER_PX: f64 = 6.3;

/// The legend of the parts.
pub(super) fn legend(parts: &[&str]) -> String {
    let mut out = String::from("<div class=\"legend\">");
    for name in parts {
        out += &format!("<span>{}{}</span>", swatch(name), escape(words::part(name)));
    }
    out + "</div>"
}

/// The cards of a group, each at the common rate if the series has a valid point there, else at its highest valid one.
pub(super) fn cards(series: &[Series<'_>], common: Option<f64>) -> String {
    let mut out = String::from("<div class=\"cards\">");
    for one in series {
        out += &match one.shown_at(common) {
            Some(point) => card(one, point),
            None => format!(
                "<div class=\"card\"><h4>{}</h4><p>No valid point.</p></div>",
                escape(&one.label)
            ),
        };
    }
    out + "</div>"
}

fn card(one: &Series<'_>, point: &Point) -> String {
    let bands = point.summary.as_ref().map_or(&[][..], |summary| &summary.bands);
    let mut out = format!(
        "<div class=\"card\"><h4>{}</h4><p>at {} requests per second</p><div class=\"bands\">",
        escape(&one.label),
        rate(point.factors.offered_rps)
    );
    for band in bands {
        out += &format!(
            "<span>{}</span>{}<span>{}</span>",
            escape(&band.name),
            stack(band),
            mean(band)
        );
    }
    out += "</div>";
    if let Some(sessions) = point.summary.as_ref().and_then(words::sessions) {
        out += &format!("<p>Session threads: {}.</p>", escape(&sessions));
    }
    out + "</div>"
}

/// The band's mean, with its interval over the repeats.
fn mean(band: &Band) -> String {
    let interval = band.over_repeats_us.map_or_else(String::new, |interval| {
        format!(
            "<span class=\"ci\">[{}–{}]</span>",
            latency(interval.lo),
            latency(interval.hi)
        )
    });
    latency(band.mean_us) + &interval
}

fn stack(band: &Band) -> String {
    let mut out = String::from("<div class=\"stack\">");
    for (name, us) in &band.parts_us {
        let share = if band.mean_us > 0.0 { us / whole(band) } else { 0.0 };
        if share < 0.002 {
            continue;
        }
        let dark = if DARK.contains(&name.as_str()) {
            " class=\"d\""
        } else {
            ""
        };
        let label = label(name, share);
        let tip = format!(
            "{}: {} of {} ({})\n{} requests, {}",
            words::part(name),
            latency(*us),
            latency(whole(band)),
            percent(share),
            band.count,
            band.name
        );
        out += &format!(
            "<span{dark} style=\"width:{:.2}%;background:{}\" data-tip=\"{}\">{}</span>",
            100.0 * share,
            colour(name),
            escape(&tip),
            escape(&label)
        );
    }
    out + "</div>"
}

/// The name with the share, or either alone, or nothing: whatever fits.
fn label(name: &str, share: f64) -> String {
    let (name, share_text) = (words::part(name), percent(share));
    [format!("{name} {share_text}"), share_text]
        .into_iter()
        .find(|text| 8.0 + LETTER_PX * text.chars().count() as f64 <= share * BAR_PX)
        .unwrap_or_default()
}

/// The CSS colour of a part; parts of other versions are grey.
pub(super) fn colour(part: &str) -> String {
    let known = part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if known {
        format!("var(--p-{part}, #777)")
    } else {
        "#777".to_owned()
    }
}

/// A small square in the colour of a part.
pub(super) fn swatch(part: &str) -> String {
    format!("<span class=\"swatch\" style=\"background:{}\"></span>", colour(part))
}
