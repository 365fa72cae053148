//! Body of a request to any endpoint, with places for ids and for columns of a file. In: text. Out: bodies. Values within
//! JSON quotes are escaped.

use crate::template::{Part, escape, parts};
use std::borrow::Cow;

/// Place of one entity's id.
pub(super) const ENTITY_ID: &str = "entity_id";
/// Place of all ids of a request, separated by commas.
pub(super) const ENTITY_IDS: &str = "entity_ids";
/// Maximum places of a template.
const MOST_PLACES: usize = 10_000;

/// Body with places.
#[derive(Debug, Clone)]
pub(super) struct Template {
    parts: Vec<Part>,
    is_json: bool,
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// Too many places.
    pub(super) fn parse(text: &str, is_json: bool) -> Result<Self, String> {
        let parts = parts(text);
        let template = Self { parts, is_json };
        if template.places().count() > MOST_PLACES {
            return Err(format!("more than {MOST_PLACES} places in braces"));
        }
        Ok(template)
    }

    /// Names of its places.
    pub(super) fn places(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Place { name, .. } => Some(name.as_str()),
        })
    }

    /// True if the template has a place of that name.
    pub(super) fn has(&self, place: &str) -> bool {
        self.places().any(|name| name == place)
    }

    /// Returns the text with the result of `value` in each place.
    pub(super) fn fill<'a>(&self, mut value: impl FnMut(&str) -> Cow<'a, str>) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text += plain,
                Part::Place { name, is_quoted: true } if self.is_json => escape(&value(name), &mut text),
                Part::Place { name, .. } => text += &value(name),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(text: &str, value: &str) -> String {
        Template::parse(text, true).unwrap().fill(|_| value.to_owned().into())
    }

    #[test]
    fn places_are_told_from_the_braces_of_json() {
        for (text, value, body) in [
            (
                r#"{"instances":[{"id":{entity_id}}]}"#,
                "7",
                r#"{"instances":[{"id":7}]}"#,
            ),
            (r#"{"a":{"b":{}}}"#, "7", r#"{"a":{"b":{}}}"#),
            (r#"{"text":"{t}"}"#, "say \"x\"\n", r#"{"text":"say \"x\"\n"}"#),
            (r#"{"text":"\"{t}"}"#, "\"", r#"{"text":"\"\""}"#),
            (r#"{"text":"{{t}}"}"#, "7", r#"{"text":"{t}"}"#),
            ("no places", "7", "no places"),
            ("{", "7", "{"),
            ("{a", "7", "{a"),
            ("{0} {a b}", "7", "{0} {a b}"),
        ] {
            assert_eq!(filled(text, value), body);
        }
        let template = Template::parse("{a}{b}", false).unwrap();
        assert!(template.places().eq(["a", "b"]) && template.has("b") && !template.has("c"));
    }

    proptest! {
        #[test]
        fn what_stands_within_quotes_stays_there(value: String) {
            let body = filled(r#"{"a": "x{v}y"}"#, &value);
            let read: serde_json::Value = serde_json::from_str(&body).unwrap();
            prop_assert_eq!(read["a"].as_str().unwrap(), format!("x{value}y"));
        }

        #[test]
        fn any_text_is_a_template(text in "[{}a\"\\\\ü ]{0,40}") {
            let places = Template::parse(&text, true).unwrap().places().count();
            prop_assert!(places <= text.len());
        }
    }
}
