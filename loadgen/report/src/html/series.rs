//! How a curve looks: the same colour, dash and marker wherever it is drawn.
//!
//! In: the curves of a group. Out: their looks, and the legend. A tier has its colour and its marker, a cache state
//! its dash, so that nothing is told by colour alone.

use super::markup::escape;
use crate::content::best::Best;
use crate::content::group::Group;
use tierlab_analysis::curves::Curve;
use tierlab_analysis::record::Point;

/// Colours in `page.css`: `--s0` …
const COLOURS: usize = 7;

/// A curve with its looks.
pub(super) struct Series<'a> {
    /// The curve.
    pub(super) curve: &'a Curve<'a>,
    /// Names the series within its figure.
    pub(super) id: String,
    /// Tier and cache.
    pub(super) label: String,
    /// The point that stands for it.
    pub(super) best: Option<Best<'a>>,
    tier: usize,
    cache: usize,
}

impl<'a> Series<'a> {
    /// The looks of the curves of a group.
    pub(super) fn of(group: &'a Group<'a>) -> Vec<Self> {
        let mut caches: Vec<&str> = Vec::new();
        for row in &group.rows {
            if !caches.contains(&row.cache.as_str()) {
                caches.push(&row.cache);
            }
        }
        let curves = group.curves.iter().zip(&group.rows).enumerate();
        curves
            .map(|(index, (curve, row))| Self {
                curve,
                id: format!("s{index}"),
                label: format!("{}, {}", row.tier.printed, row.cache),
                best: row.best,
                tier: row.tier.number,
                cache: caches.iter().position(|known| *known == row.cache).unwrap_or(0),
            })
            .collect()
    }

    /// The point to show beside those of other series: the valid one at the common rate, else the best, else the
    /// highest valid one.
    pub(super) fn shown_at(&self, common: Option<f64>) -> Option<&'a Point> {
        common
            .and_then(|rps| self.curve.valid_at(rps))
            .or_else(|| Some(self.best.as_ref()?.point))
            .or_else(|| self.curve.highest_valid())
    }

    /// The CSS colour.
    pub(super) fn colour(&self) -> String {
        format!("var(--s{})", self.tier % COLOURS)
    }

    /// The CSS class that dashes its line.
    pub(super) fn dash(&self) -> &'static str {
        ["", "warm", "third"][self.cache % 3]
    }

    /// Its marker about a place, filled or hollow.
    pub(super) fn marker(&self, x: f64, y: f64, hollow: bool) -> String {
        let path = match self.tier % 4 {
            0 => format!("M{:.1} {y:.1}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", x - 4.5),
            1 => format!("M{:.1} {:.1}h8.4v8.4h-8.4z", x - 4.2, y - 4.2),
            2 => format!("M{x:.1} {:.1}l5.2 9h-10.4z", y - 5.4),
            _ => format!("M{x:.1} {:.1}l5.4 5.4l-5.4 5.4l-5.4 -5.4z", y - 5.4),
        };
        let colour = self.colour();
        if hollow {
            format!("<path class=\"hollow\" stroke=\"{colour}\" d=\"{path}\"/>")
        } else {
            format!("<path fill=\"{colour}\" d=\"{path}\"/>")
        }
    }
}

/// The legend: a button per series that shows and hides it.
pub(super) fn legend(series: &[Series<'_>]) -> String {
    let mut out = String::from("<div class=\"legend\">");
    for one in series {
        out += &format!(
            "<button type=\"button\" aria-pressed=\"true\" data-toggle=\"{}\"><svg viewBox=\"0 0 30 12\" aria-hidden=\"true\">\
             <path class=\"line {}\" stroke=\"{}\" d=\"M0 6h30\"/>{}</svg>{}</button>",
            one.id,
            one.dash(),
            one.colour(),
            one.marker(15.0, 6.0, false),
            escape(&one.label)
        );
    }
    out + "</div>"
}
