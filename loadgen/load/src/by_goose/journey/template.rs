//! Templates: text with placeholders for values that are known during a journey. In: text such as `{"data": {vector}}`
//! and the allowed names; later the values, from JSON of replies. Out: the bytes of a request's body, or its path.
//! Knows no HTTP.
//!
//! Inside a JSON string a placeholder takes the value's text, elsewhere its JSON; in a path it takes the text,
//! percent-encoded.

use crate::template::{Part, escape, parts};
use anyhow::{Context as _, Result, anyhow, bail};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value as Json;
use std::fmt::Write as _;

/// Characters that a path has percent-encoded: all except the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Maximum length of a body.
pub const MAX_BODY_BYTES: usize = 64 << 20;

/// Use of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// A body of JSON or other text.
    Body,
    /// The path of a URL, with its query.
    Path,
}

/// Template, with names resolved to indices of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub(super) pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Value {
        slot: usize,
        form: ValueForm,
    },
    /// Shape of the tensor of a value, by the model's declaration.
    Shape {
        slot: usize,
        input: String,
        declared: Vec<i64>,
    },
}

/// ValueForm in which a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    Json,
    /// JSON, wrapped in a list unless it is one.
    List,
    InString,
    InPath,
}

impl Template {
    /// Parses a template; `names` are the values known at that placeholder, by index.
    ///
    /// # Errors
    /// An unknown name, with the known names.
    pub fn parse(text: &str, usage: Usage, names: &[String]) -> Result<Self> {
        let piece = |part| {
            let (name, is_quoted) = match part {
                Part::Text(text) => return Ok(Piece::Text(text)),
                Part::Placeholder { name, is_quoted } => (name, is_quoted),
            };
            let Some(slot) = names.iter().position(|available| *available == name) else {
                let available: Vec<String> = names.iter().map(|name| format!("{{{name}}}")).collect();
                bail!(
                    "unknown value `{{{name}}}` ({}); for the text itself write {{{{{name}}}}}",
                    if available.is_empty() {
                        "no values are known here".to_owned()
                    } else {
                        format!("known values: {}", available.join(", "))
                    }
                );
            };
            let form = match usage {
                Usage::Path => ValueForm::InPath,
                Usage::Body if is_quoted => ValueForm::InString,
                Usage::Body => ValueForm::Json,
            };
            Ok(Piece::Value { slot, form })
        };
        let pieces: Result<_> = parts(text).into_iter().map(piece).collect();
        Ok(Self { pieces: pieces? })
    }

    /// Returns the index of the value if the template consists of it alone.
    pub(super) fn alone(&self) -> Option<usize> {
        match self.pieces[..] {
            [Piece::Value { slot, .. }] => Some(slot),
            _ => None,
        }
    }

    /// Indices of its values.
    pub fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Value { slot, .. } | Piece::Shape { slot, .. } => Some(*slot),
        })
    }

    /// Fills in the values.
    ///
    /// # Errors
    /// A value of an unsuitable form for its placeholder, or text beyond [`MAX_BODY_BYTES`].
    pub(super) fn fill(&self, values: &[Option<Value>]) -> Result<String> {
        let mut out = String::new();
        for piece in &self.pieces {
            let value = |slot: usize| {
                let value = values.get(slot).and_then(Option::as_ref);
                value.context("the request needs a value that no step has extracted")
            };
            match piece {
                Piece::Text(text) => out += text,
                Piece::Value {
                    slot,
                    form: ValueForm::Json,
                } => out += &value(*slot)?.json,
                Piece::Value {
                    slot,
                    form: ValueForm::List,
                } => {
                    let json = &value(*slot)?.json;
                    if json.starts_with('[') {
                        out += json;
                    } else {
                        let _ = write!(out, "[{json}]");
                    }
                }
                Piece::Value { slot, form } => {
                    let value = value(*slot)?;
                    let text = value.text()?;
                    if *form == ValueForm::InString {
                        escape(text, &mut out);
                    } else {
                        out.extend(utf8_percent_encode(text, RESERVED));
                    }
                }
                Piece::Shape { slot, input, declared } => {
                    let filled = shape(input, declared, value(*slot)?.elements)?;
                    let _ = write!(out, "{filled:?}");
                }
            }
            if out.len() > MAX_BODY_BYTES {
                bail!("request larger than {} MiB", MAX_BODY_BYTES >> 20);
            }
        }
        Ok(out)
    }
}

/// Value, formatted once for all its uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    pub(super) json: String,
    /// Plain text, or the kind of a value without one.
    text: Result<String, &'static str>,
    pub(super) elements: usize,
}

impl Value {
    /// Creates a value from JSON.
    pub fn of(value: &Json) -> Self {
        let json = value.to_string();
        let text = match value {
            Json::Bool(_) | Json::Number(_) => Ok(json.clone()),
            Json::String(text) => Ok(text.clone()),
            Json::Null => Err("null"),
            Json::Array(_) => Err("an array"),
            Json::Object(_) => Err("an object"),
        };
        Self {
            elements: elements(value),
            json,
            text,
        }
    }

    /// Text form.
    ///
    /// # Errors
    /// A value without a text form.
    pub(super) fn text(&self) -> Result<&str> {
        let refuse = |kind: &&str| anyhow!("{kind} cannot be used in a string or a path");
        self.text.as_deref().map_err(refuse)
    }
}

/// Number of elements. Recursion is bounded by the parser's own depth limit.
fn elements(value: &Json) -> usize {
    match value {
        Json::Array(items) => items.iter().map(elements).sum(),
        _ => 1,
    }
}

/// Returns the shape of a tensor of `elements` elements. Free dimensions are 1, except the last one, which takes the
/// remaining elements.
///
/// # Errors
/// No such shape.
pub(super) fn shape(input: &str, declared: &[i64], elements: usize) -> Result<Vec<i64>> {
    let refuse = || anyhow!("input `{input}`: {elements} elements do not fill the shape {declared:?}");
    let elements = i64::try_from(elements).map_err(|_| refuse())?;
    let mut fixed = declared.iter().filter(|dim| **dim >= 0);
    let fixed = fixed.try_fold(1_i64, |all, dim| all.checked_mul(*dim));
    let fixed = fixed.ok_or_else(refuse)?;
    let last_free = declared.iter().rposition(|dim| *dim < 0);
    let filled: Vec<i64> = declared
        .iter()
        .enumerate()
        .map(|(axis, &dim)| match dim {
            dim if dim >= 0 => dim,
            _ if Some(axis) == last_free && fixed > 0 => elements / fixed,
            _ => 1,
        })
        .collect();
    let all = filled.iter().try_fold(1_i64, |all, dim| all.checked_mul(*dim));
    (all == Some(elements)).then_some(filled).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn filled(text: &str, usage: Usage, value: &serde_json::Value) -> Result<String> {
        let template = Template::parse(text, usage, &names(&["v"])).unwrap();
        template.fill(&[Some(Value::of(value))])
    }

    #[test]
    fn values_stand_as_json_as_text_or_in_a_path() {
        let body = r#"{"a":{"b":{v}},"c":"x {v} \" {v}","d":{{v}}}"#;
        let text = filled(body, Usage::Body, &json!("q\"\n")).unwrap();
        assert_eq!(text, r#"{"a":{"b":"q\"\n"},"c":"x q\"\n \" q\"\n","d":{v}}"#);
        assert_eq!(
            filled(r#"{"d":{v}}"#, Usage::Body, &json!([1.5, 2])).unwrap(),
            r#"{"d":[1.5,2]}"#
        );
        assert_eq!(
            filled("/u/{v}?x={v}", Usage::Path, &json!("a b/c")).unwrap(),
            "/u/a%20b%2Fc?x=a%20b%2Fc"
        );
        assert_eq!(filled("/u/{v}", Usage::Path, &json!(7)).unwrap(), "/u/7");
    }

    #[test]
    fn what_cannot_stand_there_is_named() {
        let refused = filled(r#"{"text":"{v}"}"#, Usage::Body, &json!([1])).unwrap_err();
        assert!(refused.to_string().contains("an array"), "{refused}");
        let unknown = Template::parse("{vektor}", Usage::Body, &names(&["vector", "entity_id"]));
        let unknown = unknown.unwrap_err().to_string();
        assert!(
            unknown.contains("`{vektor}`") && unknown.contains("{vector}, {entity_id}"),
            "{unknown}"
        );
        assert!(unknown.contains("{{vektor}}"), "{unknown}");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused_and_text_without_names_is_kept(text in "[{}a-c\"\\\\ :é]{0,40}") {
            let _ = Template::parse(&text, Usage::Path, &names(&["a"]));
            if let Ok(template) = Template::parse(&text, Usage::Body, &[]) {
                let filled = template.fill(&[]).unwrap();
                // Doubled braces around a name lose one pair, and nothing else changes.
                prop_assert!(filled == text || text.contains("{{"));
            }
        }

        #[test]
        fn a_string_in_a_string_stays_one_string(value in ".{0,30}") {
            let text = filled(r#"{"s":"{v}"}"#, Usage::Body, &json!(value)).unwrap();
            let back: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back["s"].as_str().unwrap(), value);
        }
    }

    #[test]
    fn elements_are_counted_through_arrays() {
        for (value, count) in [
            (json!(1), 1),
            (json!([]), 0),
            (json!([[1, 2], [3, 4]]), 4),
            (json!({"a": [1, 2]}), 1),
        ] {
            assert_eq!(Value::of(&value).elements, count, "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_shape_holds_its_elements(declared in prop::collection::vec(-1_i64..9, 0..5), elements in 0_usize..4_000) {
            if let Ok(shape) = shape("x", &declared, elements) {
                prop_assert_eq!(shape.iter().product::<i64>(), elements as i64);
                prop_assert!(shape.iter().zip(&declared).all(|(dim, wanted)| *wanted < 0 || dim == wanted));
            }
        }
    }
}
