//! What a run over tables is shown as: content once, and three thin renderers. In: figures as text. Out: text for a terminal, Markdown, one page
//! of HTML that loads nothing.

mod html;
mod markdown;
mod text;

use super::ran::Ran;
use maud::Markup;

/// All that is shown.
pub(super) struct Page<'a> {
    pub(super) ran: &'a Ran,
    /// What was measured, beside the machine and the tiers.
    pub(super) facts: Vec<String>,
    pub(super) findings: Vec<String>,
    pub(super) sections: Vec<Section>,
}

/// Tables below a heading.
pub(super) struct Section {
    pub(super) title: &'static str,
    /// Curves, in HTML alone: every figure of theirs stands in a table too.
    pub(super) curves: Markup,
    pub(super) blocks: Vec<Block>,
    /// What the columns are.
    pub(super) note: &'static str,
}

/// A table.
pub(super) struct Block {
    /// None for the only one of a section.
    pub(super) title: String,
    /// Above the table, in HTML alone.
    pub(super) bars: Vec<Bars>,
    pub(super) header: Vec<&'static str>,
    /// Columns of words, which stand to the left of those of figures.
    pub(super) words: usize,
    pub(super) rows: Vec<Vec<String>>,
}

/// A chart of bars, from nothing to the largest.
pub(super) struct Bars {
    pub(super) title: String,
    /// A name, and a value where there is one.
    pub(super) bars: Vec<(String, Option<f64>)>,
    pub(super) text: fn(f64) -> String,
}

impl Page<'_> {
    fn all_facts(&self) -> Vec<String> {
        let environment = &self.ran.environment;
        let machine = format!(
            "{}, {} cores, Linux {}",
            environment.cpu, environment.cores, environment.kernel
        );
        let tiers = self.ran.tiers.iter();
        let tiers = tiers.map(|(tier, notes)| format!("{tier}: {}", notes.join(", ")));
        [machine, environment.date.clone()]
            .into_iter()
            .chain(self.facts.iter().cloned())
            .chain(tiers)
            .collect()
    }
}
