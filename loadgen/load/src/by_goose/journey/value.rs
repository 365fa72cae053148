//! Values passed between the steps of a journey. In: JSON from a reply. Out: its JSON text, and its plain text if it
//! has one. Knows nothing of templates.

use serde_json::Value as Json;

/// Value, formatted once for all its uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    json: String,
    /// Plain text; absent for arrays and objects.
    text: Option<String>,
    kind: &'static str,
    elements: usize,
}

impl Value {
    /// Creates a value from JSON.
    #[must_use]
    pub fn of(value: &Json) -> Self {
        let json = value.to_string();
        let (kind, text) = match value {
            Json::Null => ("null", None),
            Json::Bool(_) => ("a truth value", Some(json.clone())),
            Json::Number(_) => ("a number", Some(json.clone())),
            Json::String(text) => ("a string", Some(text.clone())),
            Json::Array(_) => ("an array", None),
            Json::Object(_) => ("an object", None),
        };
        Self {
            elements: elements(value),
            json,
            text,
            kind,
        }
    }

    /// JSON form.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    /// Text form.
    ///
    /// # Errors
    /// A value without a text form.
    pub(super) fn text(&self) -> Result<&str, String> {
        let refuse = || {
            format!(
                "a value handed on is {} and cannot stand in a string or a path",
                self.kind
            )
        };
        self.text.as_deref().ok_or_else(refuse)
    }

    /// Number of scalar elements.
    pub(super) const fn elements(&self) -> usize {
        self.elements
    }
}

/// Number of elements. Recursion is bounded by the parser's own depth limit.
fn elements(value: &Json) -> usize {
    match value {
        Json::Array(items) => items.iter().map(elements).sum(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_are_counted_through_arrays() {
        for (value, count) in [
            (json!(1), 1),
            (json!([]), 0),
            (json!([[1, 2], [3, 4]]), 4),
            (json!({"a": [1, 2]}), 1),
        ] {
            assert_eq!(Value::of(&value).elements(), count, "{value}");
        }
    }
}
