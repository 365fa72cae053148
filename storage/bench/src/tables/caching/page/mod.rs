//! What a comparison of caches is shown as. In: what is kept. Out: a page, and a table for other tools.

mod chart;
mod csv;
mod rows;

pub(super) use csv::csv;

use super::kept::Kept;
use super::statements::findings;
use crate::tables::page::{Page, Section};
use maud::Markup;
use rows::{COMPUTED_NOTE, NOTE, computed, facts, measured};

/// Curves, then what was measured, then what was computed.
pub(super) fn page(kept: &Kept) -> Page<'_> {
    Page {
        ran: &kept.ran,
        facts: facts(kept),
        findings: findings(&kept.measured, &kept.computed, kept.prices.as_ref()),
        sections: vec![
            Section {
                title: "Hits against memory",
                curves: chart::figure(kept),
                blocks: Vec::new(),
                note: "",
            },
            Section {
                title: "Measured",
                curves: Markup::default(),
                blocks: measured(kept),
                note: NOTE,
            },
            Section {
                title: "Computed",
                curves: Markup::default(),
                blocks: computed(kept),
                note: COMPUTED_NOTE,
            },
        ],
    }
}
