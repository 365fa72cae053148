//! Values passed between the steps of a journey. In: JSON from a reply. Out: its JSON text, and its plain text if it
//! has one; shapes of tensors that hold it. Knows nothing of templates.

use serde_json::Value as Json;

/// Value, formatted once for all its uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    pub(super) json: String,
    /// Plain text; absent for arrays and objects.
    text: Option<String>,
    kind: &'static str,
    pub(super) elements: usize,
}

impl Value {
    /// Creates a value from JSON.
    #[must_use]
    pub fn of(value: &Json) -> Self {
        let json = value.to_string();
        let (kind, text) = match value {
            Json::Null => ("null", None),
            Json::Bool(_) => ("a boolean", Some(json.clone())),
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

    /// Text form.
    ///
    /// # Errors
    /// A value without a text form.
    pub(super) fn text(&self) -> Result<&str, String> {
        let refuse = || format!("{} cannot be used in a string or a path", self.kind);
        self.text.as_deref().ok_or_else(refuse)
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
pub(super) fn shape(input: &str, declared: &[i64], elements: usize) -> Result<Vec<i64>, String> {
    let refuse = || format!("input `{input}`: {elements} elements do not fill the shape {declared:?}");
    let elements = i64::try_from(elements).map_err(|_| refuse())?;
    let fixed: i64 = declared
        .iter()
        .filter(|dim| **dim >= 0)
        .try_fold(1_i64, |all, dim| all.checked_mul(*dim))
        .ok_or_else(refuse)?;
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
    if all == Some(elements) {
        Ok(filled)
    } else {
        Err(refuse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

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
