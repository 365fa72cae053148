//! Report of a run: one content, three renderers. In: figures as text. Out: text for a terminal, Markdown, a self-contained HTML page.

mod html;
mod text;

pub(crate) use html::under;

use crate::machine::Environment;
use crate::plan::Common;
use crate::stop::Stop;
use maud::Markup;
use serde::Serialize;
use std::collections::BTreeMap;
use tierlab_report::parts::Table;

/// Facts of every run, in `run.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Ran {
    pub(crate) schema_version: u32,
    pub(crate) name: String,
    pub(crate) interrupted: bool,
    pub(crate) environment: Environment,
    /// Notes of each tier: location, wrappers, emulation.
    pub(crate) tiers: BTreeMap<String, Vec<String>>,
    pub(crate) repeats: u32,
    pub(crate) plan: String,
}

impl Ran {
    /// Creates the facts of a finished run, with the notes of its tiers.
    pub(crate) fn of(
        common: &Common,
        stop: &Stop,
        environment: Environment,
        tiers: BTreeMap<String, Vec<String>>,
    ) -> Self {
        Self {
            schema_version: 1,
            name: common.name.clone(),
            interrupted: stop.is_asked(),
            environment,
            tiers,
            repeats: common.repeats,
            plan: common.text.clone(),
        }
    }
}

/// Content of a report.
pub(crate) struct Page<'a> {
    pub(crate) ran: &'a Ran,
    /// Facts shown in addition to the machine and the tiers.
    pub(crate) facts: Vec<String>,
    /// Badges in the header of the HTML page: a CSS class and a text.
    pub(crate) badges: Vec<(&'static str, String)>,
    /// Parts in the order of HTML and Markdown. A terminal shows tables, then lists.
    pub(crate) parts: Vec<Part>,
}

/// Part of a report, with its title. Empty parts are left out.
pub(crate) enum Part {
    /// Sentences, one per line.
    List(&'static str, Vec<String>),
    /// Charts, only in HTML: each of their figures is also in a table.
    Charts(&'static str, Markup),
    /// Tables, and an explanation of their columns.
    Tables(&'static str, Vec<Block>, &'static str),
    /// Preformatted text, in HTML and Markdown.
    Text(&'static str, String),
}

/// A table with its charts.
pub(crate) struct Block {
    /// Charts above the table, only in HTML.
    pub(crate) bars: Vec<Bars>,
    /// Table, without a title if it is the only one of a part.
    pub(crate) table: Table,
}

/// Column of a table: its heading, and the cell text of a row.
pub(crate) type Column<R> = (&'static str, fn(&R) -> String);

impl Block {
    /// Creates a table without charts. The columns after the first `words` hold figures.
    pub(crate) fn of<R>(title: &str, columns: &[Column<R>], words: usize, rows: &[R]) -> Self {
        let header: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let cells = |row: &R| -> Vec<String> { columns.iter().map(|(_, text)| text(row)).collect() };
        Self {
            bars: Vec::new(),
            table: Table::of_rows(title, &header, words, rows.iter().map(cells)),
        }
    }
}

/// A chart of bars, from zero to the largest.
pub(crate) struct Bars {
    pub(crate) title: String,
    /// Name and value of each bar.
    pub(crate) bars: Vec<(String, Option<f64>)>,
    pub(crate) text: fn(f64) -> String,
}

impl Page<'_> {
    fn all_facts(&self) -> Vec<String> {
        let Environment { date, host, .. } = &self.ran.environment;
        let machine = format!("{}, {} cores, Linux {}", host.cpu, host.cores, host.kernel);
        let tiers = self.ran.tiers.iter();
        let tiers = tiers.map(|(tier, notes)| format!("{tier}: {}", notes.join(", ")));
        [machine, date.clone()]
            .into_iter()
            .chain(self.facts.iter().cloned())
            .chain(tiers)
            .collect()
    }
}
