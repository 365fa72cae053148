//! Errors of plans. In: the path of a key such as `load[1].rates`, and the problem with its value. Out: a message, and the line of the
//! key in the plan's text.

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use std::fmt;
use std::path::PathBuf;
use tierlab_formats::model::is_plain_name;
use toml_edit::{Document, Item, TableLike, Value};

/// Plan that cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{}: {fault}", file.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
pub struct PlanError {
    /// File of the plan.
    pub file: PathBuf,
    /// Line of the key, from 1, or of the table that lacks it.
    pub line: Option<usize>,
    /// Key and problem.
    pub fault: Fault,
}

/// Problem with one key of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Path of the key; empty for a problem of the whole plan.
    pub key: String,
    /// Problem with its value.
    pub problem: Problem,
}

/// Problem with the value of a key.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The key is required.
    #[error("is missing: {0}")]
    Missing(String),
    /// The list has no elements.
    #[error("is an empty list: give at least one value")]
    Empty,
    /// An entry or name occurs twice.
    #[error("has a duplicate entry: {0}")]
    Duplicate(String),
    /// The key has no meaning without the named setting.
    #[error("is only allowed with {0}")]
    Misplaced(String),
    /// Two keys exclude each other.
    #[error("and `{other}` exclude each other: {advice}")]
    Conflict {
        /// Second key.
        other: String,
        /// Reason, and what to do.
        advice: String,
    },
    /// Any other problem.
    #[error("{0}")]
    Other(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.key.as_str(), &self.problem) {
            ("", problem) => problem.fmt(f),
            (key, Problem::Other(what)) => write!(f, "`{key}`: {what}"),
            (key, problem) => write!(f, "`{key}` {problem}"),
        }
    }
}

impl Fault {
    const fn of(key: String, problem: Problem) -> Self {
        Self { key, problem }
    }

    /// Problem in words, without the key.
    pub(super) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self::of(key.into(), Problem::Other(what.into()))
    }

    pub(super) fn missing(key: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::of(key.into(), Problem::Missing(advice.into()))
    }

    pub(super) fn empty(key: impl Into<String>) -> Self {
        Self::of(key.into(), Problem::Empty)
    }

    pub(super) fn duplicate(key: impl Into<String>, entry: impl fmt::Display) -> Self {
        Self::of(key.into(), Problem::Duplicate(entry.to_string()))
    }

    /// Refuses a key without the setting `owner`, such as `mode = "batch"` in backticks.
    pub(super) fn misplaced(key: impl Into<String>, owner: impl Into<String>) -> Self {
        Self::of(key.into(), Problem::Misplaced(owner.into()))
    }

    pub(super) fn conflict(key: impl Into<String>, other: impl Into<String>, advice: impl Into<String>) -> Self {
        let (other, advice) = (other.into(), advice.into());
        Self::of(key.into(), Problem::Conflict { other, advice })
    }
}

/// Problem with a number out of range.
pub(super) fn outside<T: fmt::Display>(value: T, least: T, most: T) -> String {
    format!("{value} is not within {least} and {most}")
}

/// Refuses numbers out of range, NaN and infinities.
pub(super) fn within(key: &str, value: f64, least: f64, most: f64) -> Result<(), Fault> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(Fault::new(key, outside(value, least, most))),
    }
}

/// Refuses names that are not one plain path segment.
pub(super) fn plain(key: &str, name: &str) -> Result<(), Fault> {
    match is_plain_name(name) {
        true => Ok(()),
        false => Err(Fault::new(
            key,
            format!("invalid name `{name}`; use letters, digits, `.`, `_` and `-`"),
        )),
    }
}

/// Refuses entries that occur twice.
pub(super) fn distinct<T: PartialEq + fmt::Display>(key: &str, entries: &[T]) -> Result<(), Fault> {
    let mut all = entries.iter().enumerate();
    match all.find(|(index, entry)| entries[..*index].contains(entry)) {
        None => Ok(()),
        Some((index, entry)) => Err(Fault::duplicate(format!("{key}[{index}]"), entry)),
    }
}

/// Refuses lists with too few or too many entries.
pub(super) fn counted(key: &str, entries: usize, least: usize, most: usize) -> Result<(), Fault> {
    match (least..=most).contains(&entries) {
        true => Ok(()),
        false => Err(Fault::new(
            key,
            format!("has {entries} entries; give {least} to {most}"),
        )),
    }
}

/// Reads a TOML text. Errors come with the key's path and line.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, (Option<usize>, Fault)> {
    let line = |error: &toml::de::Error| error.span().map(|span| line_at(text, span.start));
    let document = toml::Deserializer::parse(text)
        .map_err(|error| (line(&error), Fault::new("", error.to_string().trim_end())))?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let key = key_at(error.path());
        let error = error.into_inner();
        (line(&error), Fault::new(key, error.message()))
    })
}

fn key_at(path: &Path) -> String {
    let mut key = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => key += &format!("[{index}]"),
            Segment::Map { key: name } if key.is_empty() => key += name,
            Segment::Map { key: name } => key += &format!(".{name}"),
            // A variant is the value of its key.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    key
}

/// Line, from 1, of a key such as `load[1].rates` or `search.slo`; of an absent key, the line of the innermost table that exists.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = Document::parse(text).ok()?;
    let mut table: Option<&dyn TableLike> = Some(document.as_table());
    let mut begin = None;
    for part in key.split('.') {
        let Some(found) = table.and_then(|table| find(table, part)) else {
            break;
        };
        begin = found.begin.or(begin);
        table = found.table;
    }
    begin.map(|begin| line_at(text, begin))
}

fn line_at(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

/// Part of a key's path in the text.
struct Found<'d> {
    /// First byte in the text; `None` for a table that only its subtables imply.
    begin: Option<usize>,
    /// Table of the path's next part.
    table: Option<&'d dyn TableLike>,
}

/// Finds one part of a key, such as `load[1]`; `load` alone is the first of an array's tables.
fn find<'d>(table: &'d dyn TableLike, part: &str) -> Option<Found<'d>> {
    let (name, index) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
        Some((name, index)) => (name, index.parse::<usize>().ok()),
        None => (part, None),
    };
    let (key, item) = table.get_key_value(name)?;
    let of_table = |table: &'d toml_edit::Table| Found {
        begin: table.span().map(|span| span.start),
        table: Some(table),
    };
    match item {
        Item::None => None,
        Item::Table(table) => Some(of_table(table)),
        Item::ArrayOfTables(tables) => tables.get(index.unwrap_or(0)).map(of_table),
        Item::Value(value) => {
            let element = index.and_then(|index| value.as_array()?.get(index));
            let span = element.map_or_else(|| key.span(), Value::span);
            Some(Found {
                begin: span.map(|span| span.start),
                table: element
                    .unwrap_or(value)
                    .as_inline_table()
                    .map(|table| table as &dyn TableLike),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PLAN: &str = "name = \"t\"\n# rates = 3\n[keys]\ndistribution = \"zipf\"\n\n[[load]]\nmode = \"batch\"\nrates = [1]\n\
                        [[load]]\nrates = [-1]\n[lab]\ntiers = []\n[[lab.cache]]\nshare = 2\n[lab.cache.more]\nx = 1\n\
                        shape = { kind = \"ramp\", from = 1 }\n";

    #[test]
    fn keys_are_found_in_their_tables() {
        for (key, line) in [
            ("name", Some(1)),
            ("keys.distribution", Some(4)),
            ("load[0].rates", Some(8)),
            ("load[1].rates", Some(10)),
            ("load[1]", Some(9)),
            ("load", Some(6)),
            ("lab.tiers", Some(12)),
            ("lab.cache[0].share", Some(14)),
            ("lab.cache[0].more.x", Some(16)),
            // An absent key has the line of its table.
            ("keys.exponent", Some(3)),
            ("load[1].mode", Some(9)),
            ("search.slo", None),
            ("prices", None),
        ] {
            assert_eq!(line_of(PLAN, key), line, "{key}");
        }
    }

    #[test]
    fn text_inside_values_is_not_a_key() {
        const NESTED: &str = "note = \"\"\"\n[search]\nmodel = 1\n\"\"\"\nmodel = \"m\"\n[[load]]\npairs = [\n  [1, 2],\n  [3, 4],\n]\n\
                              rates = -1 # [keys]\nmix = [\n  { share = 1 },\n  { share = 2 },\n]\nshape.kind = \"ramp\"\n[ 'keys' ]\n\
                              \"exponent\" = 2\n";
        for (key, line) in [
            ("model", Some(5)),
            ("search", None),
            ("load[0].pairs", Some(7)),
            ("load[0].pairs[1]", Some(9)),
            ("load[0].rates", Some(11)),
            ("load[0].mix[1].share", Some(14)),
            ("load[0].mix[2]", Some(12)),
            ("load[0].shape.kind", Some(16)),
            ("keys.exponent", Some(18)),
            ("keys", Some(17)),
        ] {
            assert_eq!(line_of(NESTED, key), line, "{key}");
        }
    }

    #[test]
    fn errors_of_serde_name_key_and_line() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Plan {
            #[allow(dead_code)]
            load: Vec<BTreeMap<String, f64>>,
        }
        for (text, line, says) in [
            (
                "[[load]]\na = 1\n[[load]]\nb = \"x\"\n",
                Some(4),
                "`load[1].b`: invalid type: string \"x\"",
            ),
            ("lod = 1\n", Some(1), "`lod`: unknown field `lod`, expected `load`"),
            ("\nload = \n", Some(2), "line 2"),
        ] {
            let (found, fault) = read::<Plan>(text).expect_err(text);
            assert_eq!(found, line, "{fault}");
            assert!(fault.to_string().contains(says), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn lines_lie_within_any_text(text in "[a-c\\[\\].= \"\n]{0,60}", key in "[a-c.\\[\\]0]{0,10}") {
            if let Some(line) = line_of(&text, &key) {
                prop_assert!(line >= 1 && line <= text.lines().count());
            }
        }
    }
}
