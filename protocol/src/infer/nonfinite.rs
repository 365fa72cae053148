//! Numbers that JSON cannot write: the literals `NaN`, `Infinity` and `-Infinity` of Triton and Python.
//!
//! In: JSON text. Out: how many of these literals it has outside of strings, and the same text with placeholders that a
//! strict reader accepts.
//! Triton reads and writes them through RapidJSON (`kParseNanAndInfFlag`, `kWriteNanAndInfFlag`), which reads `Inf` too, and
//! Python's `json` has them by default.

/// A placeholder is an object with the empty key and a number for the literal.
const PLACEHOLDERS: [(&str, f64); 3] = [
    ("{\"\":0}", f64::NAN),
    ("{\"\":1}", f64::INFINITY),
    ("{\"\":2}", f64::NEG_INFINITY),
];

/// The literal at the start of `text`: its value, and its length.
///
/// Apart from the readers that ask for it, which seldom meet one: inlined there it slows every number.
#[cold]
#[inline(never)]
pub(super) fn literal(text: &[u8]) -> Option<(f64, usize)> {
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let found = [
        (&b"NaN"[..], f64::NAN),
        (b"Infinity", f64::INFINITY),
        (b"Inf", f64::INFINITY),
    ];
    let (literal, value) = found.into_iter().find(|(literal, _)| unsigned.starts_with(literal))?;
    // The sign of a NaN says nothing.
    let value = if negative && !value.is_nan() { -value } else { value };
    Some((value, literal.len() + usize::from(negative)))
}

/// The number of a placeholder.
pub(super) fn number_of(key: &str, number: u64) -> Option<f64> {
    let (_, value) = PLACEHOLDERS.get(usize::try_from(number).ok()?)?;
    key.is_empty().then_some(*value)
}

/// Counts of the parts of a text that cost its reader memory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prescan {
    /// Literals outside of strings.
    pub(super) literals: usize,
    /// Bytes of the longest string, as it is written.
    pub(super) longest_string: usize,
}

impl Prescan {
    /// Scans a text.
    pub(super) fn of(json: &[u8]) -> Self {
        let mut found = Self::default();
        walk(json, |part| match part {
            Part::Literal(..) => found.literals += 1,
            Part::Text(bytes) => found.longest_string = found.longest_string.max(bytes.len()),
            Part::Other(_) => {}
        });
        found
    }

    /// Bytes of the text with placeholders, at most.
    pub(super) fn replaced_bytes(self, json: &[u8]) -> usize {
        json.len() + self.literals * PLACEHOLDERS[0].0.len()
    }

    /// The text with placeholders for its literals.
    pub(super) fn replace(self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.replaced_bytes(json));
        walk(json, |part| match part {
            Part::Literal(value) => {
                let same = |placeholder: f64| placeholder == value || (placeholder.is_nan() && value.is_nan());
                let (text, _) = PLACEHOLDERS
                    .iter()
                    .find(|(_, placeholder)| same(*placeholder))
                    .unwrap_or(&PLACEHOLDERS[0]);
                out.extend_from_slice(text.as_bytes());
            }
            Part::Text(bytes) | Part::Other(bytes) => out.extend_from_slice(bytes),
        });
        out
    }
}

/// A part of a text.
enum Part<'a> {
    Literal(f64),
    /// A string with its quotes; one that does not end goes to the end of the text.
    Text(&'a [u8]),
    /// Neither of them.
    Other(&'a [u8]),
}

fn walk<'a>(json: &'a [u8], mut part: impl FnMut(Part<'a>)) {
    let mut rest = json;
    while !rest.is_empty() {
        let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'N' | b'I' | b'-'));
        let (other, next) = rest.split_at(plain.unwrap_or(rest.len()));
        if !other.is_empty() {
            part(Part::Other(other));
        }
        let len = match next.first() {
            None => return,
            Some(b'"') => {
                let len = string_len(next);
                part(Part::Text(&next[..len]));
                len
            }
            Some(_) => match literal(next) {
                Some((value, len)) => {
                    part(Part::Literal(value));
                    len
                }
                None => {
                    part(Part::Other(&next[..1]));
                    1
                }
            },
        };
        rest = &next[len..];
    }
}

/// Bytes of the string that a text begins with, its quotes included.
fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(step) = text
        .get(at..)
        .and_then(|rest| rest.iter().position(|b| matches!(b, b'"' | b'\\')))
    {
        at += step + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        // The escaped character is skipped.
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn literals_are_found_outside_of_strings_alone() {
        let text = br#"{"NaN \" Infinity":[NaN,-Infinity, Infinity,-Inf,Inf,-1,-NaN],"I":"\\","N":N}"#;
        let prescan = Prescan::of(text);
        assert_eq!((prescan.literals, prescan.longest_string), (6, 17));
        let replaced = String::from_utf8(prescan.replace(text)).unwrap();
        let expected = r#"{"NaN \" Infinity":[{"":0},{"":2}, {"":1},{"":2},{"":1},-1,{"":0}],"I":"\\","N":N}"#;
        assert_eq!(replaced, expected);
        assert!(replaced.len() <= prescan.replaced_bytes(text));
    }

    proptest! {
        #[test]
        fn any_text_is_walked_whole(text in "([\"\\\\NaInfity\\-,1 ]|NaN|-?Infinity){0,40}") {
            let prescan = Prescan::of(text.as_bytes());
            let replaced = prescan.replace(text.as_bytes());
            prop_assert!(replaced.len() <= prescan.replaced_bytes(text.as_bytes()));
            if prescan.literals == 0 {
                prop_assert_eq!(&replaced, text.as_bytes());
            }
        }
    }
}
