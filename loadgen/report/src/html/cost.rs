//! Dollars per 10,000 inferences of each series at its highest rate, cut into what is paid for, and against the rate.
//!
//! In: the series of a group. Out: a figure. Knows nothing of other figures.

use super::chart::{Axis, Chart, Figure, Line, Unit, short};
use super::markup::escape;
use super::series::Series;
use crate::content::best::Best;
use crate::content::group::Group;
use crate::units::{dollars, dollars_interval, percent};
use tierlab_analysis::curves::is_valid;
use tierlab_analysis::record::{Interval, Summary};

/// What is paid for, with its colour.
const PARTS: [(&str, &str); 5] = [
    ("compute", "var(--p-infer)"),
    ("cache memory", "var(--p-batch)"),
    ("tier capacity", "var(--p-decode)"),
    ("storage requests", "var(--p-tier)"),
    ("bytes", "var(--p-join)"),
];

/// The figure of a group; nothing where nothing is priced.
pub(super) fn figure(series: &[Series<'_>]) -> String {
    let rows: Vec<(&Series<'_>, &Best<'_>, &Summary, Interval)> = series
        .iter()
        .filter_map(|one| {
            let best = one.best.as_ref()?;
            let summary = best.point.summary.as_ref()?;
            Some((one, best, summary, summary.usd_per_10k?))
        })
        .collect();
    let most = rows
        .iter()
        .map(|(.., usd)| usd.hi.min(usd.value * 3.0))
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let paid = |name: &str| {
        rows.iter()
            .any(|(_, _, summary, _)| summary.usd_parts.iter().any(|(part, _)| part == name))
    };
    let mut out = String::from("<figure><div class=\"legend\">");
    for (name, colour) in PARTS.iter().filter(|(name, _)| paid(name)) {
        out += &format!("<span><span class=\"swatch\" style=\"background:{colour}\"></span>{name}</span>");
    }
    out += "</div><div class=\"costs\">";
    for (one, best, summary, usd) in rows {
        out += &format!(
            "<span>{}<br><span class=\"soft\">at {}</span></span><div class=\"bar\">",
            escape(&one.label),
            escape(&best.text())
        );
        for (name, part) in &summary.usd_parts {
            let colour = PARTS
                .iter()
                .find(|(known, _)| known == name)
                .map_or("#777", |(_, colour)| colour);
            let tip = format!(
                "{name}: {} of {} ({})",
                dollars(*part),
                dollars(usd.value),
                percent(part / usd.value)
            );
            out += &format!(
                "<i style=\"width:{:.2}%;background:{colour}\" data-tip=\"{}\"></i>",
                100.0 * part / most,
                escape(&tip)
            );
        }
        let (lo, hi) = (100.0 * usd.lo / most, 100.0 * usd.hi.min(most) / most);
        out += &format!(
            "<b style=\"left:{lo:.2}%;width:{:.2}%\"></b></div><span>{}{}</span>",
            hi - lo,
            best.at_most(),
            escape(&dollars_interval(Some(&usd)))
        );
    }
    out += "</div><figcaption>Dollars per 10,000 inferences at each series' highest rate; the thin line is the 95 % \
            interval. At most: even the highest rate of the plan was held, and the server's own would cost less.</figcaption></figure>";
    out
}

/// Against the offered rate; nothing where nothing is priced.
pub(super) fn against_rate(series: &[Series<'_>]) -> String {
    let mut lines = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let mut line = Line {
            series: index,
            ..Line::default()
        };
        for point in one.curve.points.iter().filter(|point| is_valid(point)) {
            if let Some(usd) = point.summary.as_ref().and_then(|summary| summary.usd_per_10k) {
                line.push(point.factors.offered_rps, usd.value);
                line.lo.push(short(usd.lo));
                line.hi.push(short(usd.hi));
            }
        }
        if !line.x.is_empty() {
            lines.push(line);
        }
    }
    let mut rates: Vec<f64> = lines.iter().flat_map(|line| &line.x).copied().collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let values = || lines.iter().flat_map(|line| &line.y).copied().filter(|usd| *usd > 0.0);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let (&[first, .., last], true) = (&rates[..], low.is_finite()) else {
        return String::new();
    };
    let margin = (last / first).powf(0.04);
    let chart = Chart {
        title: "$/10k inferences against the offered rate".to_owned(),
        x: Axis {
            name: "requests offered per second",
            unit: Unit::Rate,
            log: true,
            range: (first / margin, last * margin),
        },
        y: Axis {
            name: "dollars per 10,000 inferences",
            unit: Unit::Dollars,
            log: true,
            range: (low / 1.2, high * 1.2),
        },
        lines,
        here: None,
        limits: Vec::new(),
        crosses: Vec::new(),
        rows: (rates, 0.0),
    };
    let caption =
        "An instance that is paid by the hour costs the less an inference the more of it is used. Valid points only.";
    Figure::new(series, vec![chart], caption).html()
}

/// Who of a mix pays for what; nothing for curves that were measured alone.
pub(super) fn mix_shares(group: &Group<'_>) -> String {
    if group.mix_shares.is_empty() {
        return String::new();
    }
    let items = group.mix_shares.iter();
    let items: String = items.map(|line| format!("<li>{}.</li>", escape(line))).collect();
    format!("<ul class=\"plain\">{items}</ul>")
}
