//! Body with places: `{"instances": [{"id": {entity_id}, "name": "{name}"}]}`.
//!
//! In: text. Out: the text between places, and their names. A place is a name between braces with nothing else inside,
//! which is never valid JSON; `{{name}}` is the text `{name}`. Values within JSON quotes are escaped.

/// Place of one entity's id.
pub const ENTITY_ID: &str = "entity_id";
/// Place of all ids of a request, separated by commas.
pub const ENTITY_IDS: &str = "entity_ids";
/// Maximum places of a template.
const MOST_PLACES: usize = 10_000;

/// Body with places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    tail: String,
}

/// Text, and the place after it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    text: String,
    place: String,
    /// True within JSON quotes.
    is_quoted: bool,
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// Too many places.
    pub fn parse(text: &str, is_json: bool) -> Result<Self, String> {
        let mut template = Self::default();
        let (mut plain, mut rest) = (String::new(), text);
        let mut quotes = Quotes::default();
        while let Some(at) = rest.find('{') {
            plain.push_str(&rest[..at]);
            quotes.pass(&rest[..at]);
            rest = &rest[at..];
            if let Some(name) = rest.strip_prefix("{{").and_then(|rest| name_before(rest, "}}")) {
                plain += &format!("{{{name}}}");
                rest = &rest[name.len() + 4..];
            } else if let Some(name) = name_before(&rest[1..], "}") {
                if template.parts.len() == MOST_PLACES {
                    return Err(format!("more than {MOST_PLACES} places in braces"));
                }
                template.parts.push(Part {
                    text: std::mem::take(&mut plain),
                    place: name.to_owned(),
                    is_quoted: is_json && quotes.inside,
                });
                rest = &rest[name.len() + 2..];
            } else {
                plain.push('{');
                rest = &rest[1..];
            }
        }
        plain.push_str(rest);
        template.tail = plain;
        Ok(template)
    }

    /// Names of its places.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.place.as_str())
    }

    /// True if the template has a placeholder of that name.
    #[must_use]
    pub fn has(&self, place: &str) -> bool {
        self.places().any(|name| name == place)
    }

    /// Returns the text with the result of `value` in each place.
    #[must_use]
    pub fn fill<'a>(&self, mut value: impl FnMut(&str) -> std::borrow::Cow<'a, str>) -> String {
        let mut text = String::with_capacity(self.tail.len() + 64);
        for part in &self.parts {
            text.push_str(&part.text);
            let value = value(&part.place);
            if part.is_quoted {
                let escaped = serde_json::Value::from(value.as_ref()).to_string();
                // Without the surrounding quotes.
                text.push_str(&escaped[1..escaped.len() - 1]);
            } else {
                text.push_str(&value);
            }
        }
        text.push_str(&self.tail);
        text
    }
}

/// Returns the name at the start of a text, if `end` follows it.
fn name_before<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    let len = text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))?;
    let name = &text[..len];
    let begins = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    (begins && text[len..].starts_with(end)).then_some(name)
}

/// Tracks whether a JSON text is inside quotes.
#[derive(Default)]
struct Quotes {
    inside: bool,
    escaped: bool,
}

impl Quotes {
    fn pass(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = self.inside,
                '"' => self.inside = !self.inside,
                _ => {}
            }
        }
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
