//! The shape of the tables beside the curves, of what is no latency over a rate: each with what to know of it in words. Knows nothing of
//! runs, nor of markup.

use std::borrow::Cow;

/// A column: its name, and whether it holds figures.
pub(crate) type Column = (Cow<'static, str>, bool);

/// A table with what to know of it.
pub(crate) struct SideTable {
    /// Its heading.
    pub(crate) title: &'static str,
    /// What it is, in a sentence or more, without the last full stop.
    pub(crate) intro: Cow<'static, str>,
    /// Its columns.
    pub(crate) columns: Vec<Column>,
    /// Its rows.
    pub(crate) rows: Vec<Vec<String>>,
    /// What else there is to say, a sentence each without the full stop.
    pub(crate) notes: Vec<String>,
}

/// A column of words.
pub(super) fn words(name: impl Into<Cow<'static, str>>) -> Column {
    (name.into(), false)
}

/// A column of figures.
pub(super) fn figures(name: impl Into<Cow<'static, str>>) -> Column {
    (name.into(), true)
}
