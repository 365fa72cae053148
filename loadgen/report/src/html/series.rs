//! Looks of curves: the same colour, dash and marker in every chart.
//!
//! In: the curves of a group. Out: their looks. A tier has its colour and its marker, a cache state its dash, so that colour alone
//! tells nothing.

use crate::content::group::{Group, Row};
use serde::Serialize;
use tierlab_analysis::curves::Curve;
use tierlab_analysis::record::Point;

/// Look of a series in every chart: its name, and numbers of a colour, a dash and a marker of `page.css` and `page.js`, which begin
/// anew at their ends.
#[derive(Clone, Serialize)]
pub(super) struct Look {
    pub(super) label: String,
    pub(super) colour: usize,
    pub(super) dash: usize,
    pub(super) marker: usize,
}

/// A curve with its look.
pub(super) struct Series<'a> {
    pub(super) curve: &'a Curve<'a>,
    pub(super) row: &'a Row<'a>,
    pub(super) look: Look,
}

impl<'a> Series<'a> {
    /// Curves of a group with their looks.
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
        let look = |row: &Row<'_>| match are_variants {
            true => (row.tier.printed.clone(), 0),
            false => (
                format!("{}, {}", row.tier.printed, row.cache),
                caches.iter().position(|known| *known == row.cache).unwrap_or(0),
            ),
        };
        let curves = group.curves.iter().zip(&group.rows);
        curves
            .map(|(curve, row)| {
                let (label, dash) = look(row);
                let (colour, marker) = (row.tier.number, row.tier.number);
                Self {
                    curve,
                    row,
                    look: Look {
                        label,
                        colour,
                        dash,
                        marker,
                    },
                }
            })
            .collect()
    }

    /// Point to show beside those of other series: the valid one at the common rate, else the best, else the highest valid one.
    pub(super) fn shown_at(&self, common: Option<f64>) -> Option<&'a Point> {
        common
            .and_then(|rps| self.curve.valid_at(rps))
            .or_else(|| Some(self.row.best.as_ref()?.point))
            .or_else(|| self.curve.highest_valid())
    }
}
