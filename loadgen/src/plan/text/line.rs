//! Where in a plan's text a key stands. In: the text, and a key as errors name it. Out: a line, or that of the table which
//! lacks the key. Knows nothing of what keys mean; a text that is no TOML never comes here.

/// The line, from 1, of a key such as `load[1].rates` or `search.slo`; of a key that is not there, the line of the
/// innermost table that is. `None` where not even that is there.
pub(in crate::plan) fn line_of(text: &str, key: &str) -> Option<usize> {
    let mut best: Option<(usize, usize)> = None;
    let mut offer = |path: &str, line: usize| {
        let depth = common_depth(path, key);
        if depth > best.map_or(0, |(known, _)| known) {
            best = Some((depth, line));
        }
    };
    let mut table = String::new();
    let mut tables: Vec<String> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("[[").and_then(|rest| rest.split("]]").next()) {
            let name = plain(name);
            let number = tables.iter().filter(|known| **known == name).count();
            table = format!("{name}[{number}]");
            tables.push(name);
            offer(&table, index + 1);
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            // A table below one of an array belongs to the last of that array.
            table = below_last(&plain(name), &tables);
            offer(&table, index + 1);
        } else if let Some((name, _)) = line.split_once('=')
            && !line.starts_with('#')
        {
            let name = plain(name);
            let path = if table.is_empty() {
                name
            } else {
                format!("{table}.{name}")
            };
            offer(&path, index + 1);
        }
    }
    best.map(|(_, line)| line)
}

/// A key without blanks and quotes.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !c.is_whitespace() && *c != '"' && *c != '\'')
        .collect()
}

fn below_last(name: &str, arrays: &[String]) -> String {
    let owner = arrays.iter().rev().find(|array| name.starts_with(&format!("{array}.")));
    owner.map_or_else(
        || name.to_owned(),
        |array| {
            let number = arrays.iter().filter(|known| *known == array).count() - 1;
            format!("{array}[{number}]{}", &name[array.len()..])
        },
    )
}

/// How many leading parts of `key` the path is; 0 where it is something else.
fn common_depth(path: &str, key: &str) -> usize {
    // `load` alone is meant by `load[0]` as well: the first of them stands for the array.
    let parts = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (path, key) = (parts(path), parts(key));
    let same = |(a, b): (&String, &String)| a == b || a.strip_suffix("[0]") == Some(b);
    let is_prefix = path.len() <= key.len() && path.iter().zip(&key).all(same);
    if is_prefix { path.len() } else { 0 }
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

    proptest! {
        #[test]
        fn any_text_has_lines_only_where_it_has_them(text in "[a-c\\[\\].= \"\n]{0,60}", key in "[a-c.\\[\\]0]{0,10}") {
            if let Some(line) = line_of(&text, &key) {
                prop_assert!(line >= 1 && line <= text.lines().count());
            }
        }
    }
}
