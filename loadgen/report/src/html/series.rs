//! How a curve looks: the same colour, dash and marker wherever it is drawn.
//!
//! In: the curves of a group. Out: their looks. A tier has its colour and its marker, a cache state its dash, so that
//! nothing is told by colour alone.

use crate::content::best::Best;
use crate::content::group::Group;
use tierlab_analysis::curves::Curve;
use tierlab_analysis::record::{Interval, Point};

/// A curve with its looks: numbers of a colour, a dash and a marker of `page.css` and `page.js`, which begin anew where they
/// end.
pub(super) struct Series<'a> {
    /// The curve.
    pub(super) curve: &'a Curve<'a>,
    /// Its tier.
    pub(super) tier: String,
    /// Tier and cache.
    pub(super) label: String,
    /// The point that stands for it.
    pub(super) best: Option<Best<'a>>,
    /// The highest rate that stands for it, as far as that is known.
    pub(super) highest: Option<Interval>,
    /// Its colour.
    pub(super) colour: usize,
    /// Its dash.
    pub(super) dash: usize,
    /// Its marker.
    pub(super) marker: usize,
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
        let mut names: Vec<&str> = group.rows.iter().map(|row| row.tier.name.as_str()).collect();
        names.sort_unstable();
        // Variants differ by name: neither a cache nor a dash tells them apart.
        let are_variants = names.windows(2).all(|pair| pair[0] != pair[1]);
        let curves = group.curves.iter().zip(&group.rows);
        curves
            .map(|(curve, row)| Self {
                curve,
                tier: row.tier.printed.clone(),
                label: if are_variants {
                    row.tier.printed.clone()
                } else {
                    format!("{}, {}", row.tier.printed, row.cache)
                },
                best: row.best,
                highest: row.highest,
                colour: row.tier.number,
                dash: match are_variants {
                    true => 0,
                    false => caches.iter().position(|known| *known == row.cache).unwrap_or(0),
                },
                marker: row.tier.number,
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
}
