//! The numbers that JSON has no form for, written as Triton and Python write them: `NaN`, `Infinity`, `-Infinity`.
//!
//! In: JSON text. Out: where these words stand outside of strings, and the same text with stand-ins that a strict reader takes.
//! Triton reads and writes them through RapidJSON (`kParseNanAndInfFlag`, `kWriteNanAndInfFlag`), which reads `Inf` too, and
//! Python's `json` has them by default.

/// A stand-in is an object with the empty key and the number of a word.
const STAND_INS: [(&str, f64); 3] = [
    ("{\"\":0}", f64::NAN),
    ("{\"\":1}", f64::INFINITY),
    ("{\"\":2}", f64::NEG_INFINITY),
];

/// The word that `text` begins with: its value, and its length.
///
/// Apart from the readers that ask for it, which seldom meet one: inlined there it slows every number.
#[cold]
#[inline(never)]
pub(super) fn word(text: &[u8]) -> Option<(f64, usize)> {
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let found = [
        (&b"NaN"[..], f64::NAN),
        (b"Infinity", f64::INFINITY),
        (b"Inf", f64::INFINITY),
    ];
    let (word, value) = found.into_iter().find(|(word, _)| unsigned.starts_with(word))?;
    // The sign of a NaN says nothing.
    let value = if negative && !value.is_nan() { -value } else { value };
    Some((value, word.len() + usize::from(negative)))
}

/// The number that a stand-in stands for.
pub(super) fn stands_for(key: &str, number: u64) -> Option<f64> {
    let (_, value) = STAND_INS.get(usize::try_from(number).ok()?)?;
    key.is_empty().then_some(*value)
}

/// What a text holds that costs its reader memory of its own.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Survey {
    /// Words outside of strings.
    pub(super) words: usize,
    /// Bytes of the longest string, as it is written.
    pub(super) longest_string: usize,
}

impl Survey {
    /// Looks a text over.
    pub(super) fn of(json: &[u8]) -> Self {
        let mut found = Self::default();
        walk(json, |part| match part {
            Part::Word(..) => found.words += 1,
            Part::Text(bytes) => found.longest_string = found.longest_string.max(bytes.len()),
            Part::Other(_) => {}
        });
        found
    }

    /// Bytes of the text with stand-ins, at most.
    pub(super) fn replaced_bytes(self, json: &[u8]) -> usize {
        json.len() + self.words * STAND_INS[0].0.len()
    }

    /// The text with stand-ins in the place of its words.
    pub(super) fn replace(self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.replaced_bytes(json));
        walk(json, |part| match part {
            Part::Word(value) => {
                let same = |stand_in: f64| stand_in == value || (stand_in.is_nan() && value.is_nan());
                let (text, _) = STAND_INS
                    .iter()
                    .find(|(_, stand_in)| same(*stand_in))
                    .unwrap_or(&STAND_INS[0]);
                out.extend_from_slice(text.as_bytes());
            }
            Part::Text(bytes) | Part::Other(bytes) => out.extend_from_slice(bytes),
        });
        out
    }
}

/// A part of a text.
enum Part<'a> {
    Word(f64),
    /// A string with its quotes; one that does not end goes to the end of the text.
    Text(&'a [u8]),
    /// Neither.
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
            Some(_) => match word(next) {
                Some((value, len)) => {
                    part(Part::Word(value));
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
        // What is escaped is passed over.
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_found_outside_of_strings_alone() {
        let text = br#"{"NaN \" Infinity":[NaN,-Infinity, Infinity,-Inf,Inf,-1,-NaN],"I":"\\","N":N}"#;
        let survey = Survey::of(text);
        assert_eq!((survey.words, survey.longest_string), (6, 17));
        let replaced = String::from_utf8(survey.replace(text)).unwrap();
        let expected = r#"{"NaN \" Infinity":[{"":0},{"":2}, {"":1},{"":2},{"":1},-1,{"":0}],"I":"\\","N":N}"#;
        assert_eq!(replaced, expected);
        assert!(replaced.len() <= survey.replaced_bytes(text));
    }

    proptest! {
        #[test]
        fn any_text_is_walked_whole(text in "([\"\\\\NaInfity\\-,1 ]|NaN|-?Infinity){0,40}") {
            let survey = Survey::of(text.as_bytes());
            let replaced = survey.replace(text.as_bytes());
            prop_assert!(replaced.len() <= survey.replaced_bytes(text.as_bytes()));
            if survey.words == 0 {
                prop_assert_eq!(&replaced, text.as_bytes());
            }
        }
    }
}
