//! The report of a comparison of caches: curves, then what was measured, then what was computed.

use super::Figures;
use super::chart::figure;
use super::plan::Plan;
use super::rows::{COMPUTED_NOTE, NOTE, computed, measured};
use super::statements::findings;
use crate::report::{Page, Part, Ran};
use tierlab_instrument::units::{bytes, digits3};

/// Content of the report.
pub(super) fn page<'a>(ran: &'a Ran, plan: &Plan, figures: &Figures) -> Page<'a> {
    let prices = figures.prices.as_ref();
    Page {
        ran,
        facts: facts(ran, plan, figures),
        badges: Vec::new(),
        parts: vec![
            Part::List {
                title: "Findings",
                lines: findings(&figures.measured, &figures.computed, prices),
            },
            Part::Charts {
                title: "Hits against memory",
                html: figure(&figures.computed),
            },
            Part::Tables {
                title: "Measured",
                blocks: measured(&figures.measured, prices),
                note: NOTE,
            },
            Part::Tables {
                title: "Computed",
                blocks: computed(&figures.computed),
                note: COMPUTED_NOTE,
            },
        ],
    }
}

fn facts(ran: &Ran, plan: &Plan, figures: &Figures) -> Vec<String> {
    let mut facts = vec![format!(
        "{} rows of {} bytes, {} rounds of {} look-ups, {} at a time; computed over {}",
        plan.rows, plan.row_bytes.0, ran.repeats, plan.lookups, plan.depth, plan.trace_lookups
    )];
    facts.extend(figures.prices.iter().map(|prices| {
        format!(
            "saved at {} look-ups a second on a table of {}, if hit ratios at the same shares are the same; {}",
            digits3(prices.lookups_per_s),
            bytes(prices.table_bytes),
            prices.reads.sources.join("; ")
        )
    }));
    facts
}
