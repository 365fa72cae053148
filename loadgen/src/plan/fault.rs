//! Errors of plans. In: the path of a key such as `load[1].rates`, and the problem with its value. Out: a message, and the line of the
//! key in the plan's text.

use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tierlab_formats::model::is_plain_name;
use tierlab_formats::toml_error::plain;
use tierlab_load::driver::DriverError;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// Path of the key; empty for a problem of the whole plan.
    pub key: String,
    /// Key, and problem with its value.
    text: String,
}

impl Fault {
    /// Problem in words, without the key.
    pub(super) fn new(key: impl Into<String>, problem: impl Display) -> Self {
        let (key, problem) = (key.into(), problem.to_string());
        let text = match key.as_str() {
            "" => problem,
            key => format!("`{key}`: {problem}"),
        };
        Self { key, text }
    }

    /// The same problem with an option of the command line, which set the key.
    pub(crate) fn of_option(mut self, option: &str) -> Self {
        let (key, option) = (format!("`{}`", self.key), format!("`{option}`"));
        self.text = self.text.replacen(&key, &option, 1);
        self
    }
}

fn refused<T>(key: impl Into<String>, problem: &str) -> Result<T, Fault> {
    let key = key.into();
    let text = format!("`{key}` {problem}");
    Err(Fault { key, text })
}

/// Refuses a plan without the key.
pub(super) fn missing<T>(key: impl Into<String>, advice: impl Display) -> Result<T, Fault> {
    refused(key, &format!("is missing: {advice}"))
}

/// Refuses a list without elements.
pub(super) fn empty<T>(key: impl Into<String>) -> Result<T, Fault> {
    refused(key, "is an empty list: give at least one value")
}

/// Refuses an entry that occurs twice.
pub(super) fn duplicate<T>(key: impl Into<String>, entry: impl Display) -> Result<T, Fault> {
    refused(key, &format!("has a duplicate entry: {entry}"))
}

/// Refuses a key without its `owner`, such as `mode = "batch"` in backticks.
pub(super) fn misplaced<T>(key: impl Into<String>, owner: impl Display) -> Result<T, Fault> {
    refused(key, &format!("is only allowed with {owner}"))
}

/// Refuses two keys that exclude each other.
pub(super) fn conflict<T>(key: impl Into<String>, other: impl Display, advice: impl Display) -> Result<T, Fault> {
    refused(key, &format!("and `{other}` exclude each other: {advice}"))
}

/// Refuses the given ones of `keys` beside another key.
pub(super) fn exclusive(other: &str, advice: &str, keys: &[(&str, bool)]) -> Result<(), Fault> {
    first_set(keys).map_or(Ok(()), |key| conflict(key, other, advice))
}

/// Refuses the given ones of keys that need an `owner`.
pub(super) fn only_with(at: &str, owner: &str, keys: &[(&str, bool)]) -> Result<(), Fault> {
    first_set(keys).map_or(Ok(()), |key| misplaced(format!("{at}.{key}"), owner))
}

fn first_set<'a>(keys: &[(&'a str, bool)]) -> Option<&'a str> {
    keys.iter().find_map(|&(key, is_set)| is_set.then_some(key))
}

/// Refuses a key of loads that goose sends, in a build without it.
pub(super) fn require_goose(key: &str) -> Result<(), Fault> {
    if !cfg!(feature = "goose") {
        return Err(without_goose(key));
    }
    Ok(())
}

fn without_goose(key: &str) -> Fault {
    Fault::new(key, DriverError::NoGoose.to_string())
}

/// Fault of a key, with a formatted message.
macro_rules! fault {
    ($key:expr, $($problem:tt)+) => {
        $crate::plan::fault::Fault::new($key, format_args!($($problem)+))
    };
}

/// Returns a [`fault!`] from the function.
macro_rules! refuse {
    ($key:expr, $($problem:tt)+) => {
        return Err($crate::plan::fault::fault!($key, $($problem)+))
    };
}

pub(super) use {fault, refuse};

/// Problem with a number out of range.
pub(super) fn out_of_range<T: Display>(value: T, least: T, most: T) -> String {
    format!("{value} is not between {least} and {most}")
}

/// Refuses numbers out of range, NaN and infinities.
pub(super) fn check_range(key: &str, value: f64, least: f64, most: f64) -> Result<(), Fault> {
    if !(least..=most).contains(&value) {
        return Err(Fault::new(key, out_of_range(value, least, most)));
    }
    Ok(())
}

/// Refuses names that are not one plain path segment.
pub(super) fn check_name(key: &str, name: &str) -> Result<(), Fault> {
    if !is_plain_name(name) {
        refuse!(key, "invalid name `{name}`; use letters, digits, `.`, `_` and `-`");
    }
    Ok(())
}

/// Refuses a file or folder that cannot be opened.
pub(super) fn check_opens(key: &str, path: &Path) -> Result<(), Fault> {
    let (opened, path) = (File::open(path), path.display());
    let problem = |error: io::Error| format!("cannot be opened: {path}: {error}; give a readable path");
    opened.map(drop).map_err(|error| Fault::new(key, problem(error)))
}

/// Refuses entries that occur twice.
pub(super) fn check_distinct<T: PartialEq + Display>(key: &str, entries: &[T]) -> Result<(), Fault> {
    let mut all = entries.iter().enumerate();
    let repeated = all.find(|(index, entry)| entries[..*index].contains(entry));
    repeated.map_or(Ok(()), |(index, entry)| duplicate(format!("{key}[{index}]"), entry))
}

/// Refuses lists with too few or too many entries.
pub(super) fn check_count(key: &str, entries: usize, least: usize, most: usize) -> Result<(), Fault> {
    if !(least..=most).contains(&entries) {
        refuse!(key, "has {entries} entries; give {least} to {most}");
    }
    Ok(())
}

/// Reads a TOML text. Errors come with the key's path and line.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, (Option<usize>, Fault)> {
    let line = |error: &toml::de::Error| error.span().map(|span| line_at(text, span.start));
    let document = toml::Deserializer::parse(text)
        .map_err(|error| (line(&error), Fault::new("", error.to_string().trim_end())))?;
    T::deserialize(document).map_err(|error| {
        // A key that the whole plan lacks has an empty span.
        let span = error.span().filter(|span| !span.is_empty());
        let key = span.and_then(|span| key_at(text, &span)).unwrap_or_default();
        (line(&error), Fault::new(key, plain(error.message())))
    })
}

/// Path of the innermost key that includes a place of the text, such as `load[1].rates`.
fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    let document = DeTable::parse(text).ok()?;
    let path = below_table(document.get_ref(), span)?;
    Some(path.trim_start_matches('.').to_owned())
}

fn below_table(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let below = match includes(&key.span(), span) {
            true => String::new(),
            false => below(value, span)?,
        };
        Some(format!(".{}{below}", key.get_ref()))
    })
}

/// Path below a value; empty for the value itself.
fn below(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
    let inner = match value.get_ref() {
        DeValue::Table(table) => below_table(table, span),
        DeValue::Array(array) => {
            let mut elements = array.iter().enumerate();
            elements.find_map(|(index, element)| Some(format!("[{index}]{}", below(element, span)?)))
        }
        _ => None,
    };
    inner.or_else(|| includes(&value.span(), span).then(String::new))
}

fn includes(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Line, from 1, of a key such as `load[1].rates` or `search.slo`; of an absent key, the line of the innermost table that exists.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = Some(document.get_ref());
    let mut begin = None;
    for part in key.split('.') {
        let (name, index) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
            Some((name, index)) => (name, index.parse::<usize>().ok()),
            None => (part, None),
        };
        let Some((key, value)) = table.and_then(|table| table.get_key_value(name)) else {
            break;
        };
        let element = index.and_then(|index| value.get_ref().get(index));
        begin = Some(element.map_or_else(|| key.span(), Spanned::span).start);
        table = element.unwrap_or(value).get_ref().as_table();
    }
    begin.map(|begin| line_at(text, begin))
}

fn line_at(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
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
    fn a_build_without_goose_names_the_key_and_the_remedy() {
        let refused = without_goose("journey[0]").to_string();
        assert!(
            refused.contains("journey[0]") && refused.contains("`make build`"),
            "{refused}"
        );
    }

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
            #[expect(dead_code, reason = "only errors are looked at")]
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
