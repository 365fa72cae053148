//! Wording of errors about TOML files. In: a message of serde. Out: the message in TOML's words, with the known name
//! that an unknown one resembles.

/// Words of serde for types, and those of TOML.
const WORDS: [(&str, &str); 4] = [
    ("expected f64", "expected a number"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u64", "expected a whole number from 0"),
    ("expected a sequence", "expected a list"),
];

/// Rewords a message of serde.
pub fn plain(message: &str) -> String {
    let reword = |text: String, (serde, toml): (&str, &str)| text.replace(serde, toml);
    let text = WORDS.into_iter().fold(message.trim_end().to_owned(), reword);
    let (unknown, known) = text.split_once(", expected one of ").unwrap_or_default();
    let name = unknown.rsplit('`').nth(1).unwrap_or_default();
    let known = known.lines().next().unwrap_or_default().split('`').skip(1).step_by(2);
    let near = known.map(|known| (changes(name, known), known)).min();
    let near = near.filter(|(changes, _)| *changes <= 1 + name.len() / 5);
    near.map_or_else(
        || text.clone(),
        |(_, near)| text.replacen(", expected", &format!(" (did you mean `{near}`?), expected"), 1),
    )
}

/// Letters between the beginning and the end that both names have; 1 for the beginning of the `known` name.
fn changes(name: &str, known: &str) -> usize {
    let same = |(a, b): &(u8, u8)| a == b;
    let begin = name.bytes().zip(known.bytes()).take_while(same).count();
    let end = name.bytes().rev().zip(known.bytes().rev()).take_while(same).count();
    match begin == name.len() {
        true => 1,
        false => name.len().max(known.len()).saturating_sub(begin + end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_words_of_toml() {
        for (serde, toml) in [
            (
                "invalid type: string \"800ms\", expected f64",
                "invalid type: string \"800ms\", expected a number",
            ),
            (
                "invalid type: map, expected a sequence",
                "invalid type: map, expected a list",
            ),
            (
                "invalid type: string \"5GB\", expected u64\nin `cache.capacity_bytes`\n",
                "invalid type: string \"5GB\", expected a whole number from 0\nin `cache.capacity_bytes`",
            ),
            ("missing field `seed`", "missing field `seed`"),
        ] {
            assert_eq!(plain(serde), toml);
        }
    }

    #[test]
    fn a_name_that_resembles_a_known_one_is_a_suggestion() {
        for (name, known, near) in [
            ("repeat", "`name`, `repeats`", Some("repeats")),
            ("steps_s", "`step_s`, `drain_s`", Some("step_s")),
            ("unifrom", "`uniform`, `normal`", Some("uniform")),
            ("capacity", "`block_bytes`, `capacity_bytes`", Some("capacity_bytes")),
            ("colour", "`name`, `repeats`\nin `color`", None),
        ] {
            let text = plain(&format!("unknown field `{name}`, expected one of {known}"));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            assert_eq!(text, format!("unknown field `{name}`{hint}, expected one of {known}"));
        }
    }
}
