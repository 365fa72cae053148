//! Where in a plan's text a key stands. In: the text, and a key as errors name it. Out: a line, or that of the table which
//! lacks the key. Knows nothing of what keys mean; a text that is no TOML never comes here.

use toml_edit::{Document, Item, TableLike, Value};

/// The line, from 1, of a key such as `load[1].rates` or `search.slo`; of a key that is not there, the line of the
/// innermost table that is. `None` where not even that is there.
pub(in crate::plan) fn line_of(text: &str, key: &str) -> Option<usize> {
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
    begin.map(|begin| 1 + text[..begin].matches('\n').count())
}

/// What a part of a key stands for.
struct Found<'d> {
    /// Its first byte in the text; none of a table that only tables below it imply.
    begin: Option<usize>,
    /// Where the next part is looked up.
    table: Option<&'d dyn TableLike>,
}

/// One part of a key, such as `load[1]`; `load` alone is the first of an array's tables.
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
            // What is missing is missing in its table.
            ("keys.exponent", Some(3)),
            ("load[1].mode", Some(9)),
            ("search.slo", None),
            ("prices", None),
        ] {
            assert_eq!(line_of(PLAN, key), line, "{key}");
        }
    }

    #[test]
    fn what_stands_inside_of_values_is_no_key() {
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

    proptest! {
        #[test]
        fn any_text_has_lines_only_where_it_has_them(text in "[a-c\\[\\].= \"\n]{0,60}", key in "[a-c.\\[\\]0]{0,10}") {
            if let Some(line) = line_of(&text, &key) {
                prop_assert!(line >= 1 && line <= text.lines().count());
            }
        }
    }
}
