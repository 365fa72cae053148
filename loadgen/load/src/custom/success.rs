//! When a reply is a success. In: a status and a body. Out: nothing, or what is wrong with it in words.

use serde::{Deserialize, Serialize};

/// What a server says is quoted up to so many characters.
const QUOTED: usize = 120;

/// The rule of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Success {
    /// The statuses of success.
    pub status: Vec<u16>,
    /// A JSON pointer (RFC 6901) to what must be in the body; nothing is looked for where there is none.
    pub pointer: Option<String>,
    /// What must be there.
    pub equals: Option<serde_json::Value>,
}

impl Default for Success {
    fn default() -> Self {
        Self {
            status: vec![200],
            pointer: None,
            equals: None,
        }
    }
}

impl Success {
    /// Holds a body against the rule.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn check_body(&self, body: &[u8]) -> Result<(), String> {
        let Some(pointer) = &self.pointer else { return Ok(()) };
        let document: serde_json::Value = serde_json::from_slice(body)
            .map_err(|_| format!("the reply is no JSON, and should have `{pointer}`: `{}`", start(body)))?;
        let Some(found) = document.pointer(pointer) else {
            return Err(format!("the reply has no `{pointer}`: `{}`", start(body)));
        };
        match &self.equals {
            Some(wanted) if !is_equal(found, wanted) => Err(format!(
                "`{pointer}` is {}, not {}",
                start(found.to_string().as_bytes()),
                start(wanted.to_string().as_bytes())
            )),
            _ => Ok(()),
        }
    }

    /// Whether a status is one of success.
    #[must_use]
    pub fn has_status(&self, status: u16) -> bool {
        self.status.contains(&status)
    }
}

/// Numbers are equal by their value: `1` and `1.0` are.
fn is_equal(found: &serde_json::Value, wanted: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (found, wanted) {
        (Number(found), Number(wanted)) => found == wanted || found.as_f64() == wanted.as_f64(),
        (Array(found), Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| is_equal(found, wanted))
        }
        (Object(found), Object(wanted)) => {
            let has = |(key, wanted)| found.get(key).is_some_and(|found| is_equal(found, wanted));
            found.len() == wanted.len() && wanted.iter().all(has)
        }
        _ => found == wanted,
    }
}

fn start(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * QUOTED)]).into_owned();
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn rule(pointer: &str, equals: Option<serde_json::Value>) -> Success {
        Success {
            pointer: Some(pointer.into()),
            equals,
            ..Success::default()
        }
    }

    #[test]
    fn what_the_pointer_names_must_be_there() {
        let body = br#"{"predictions":[0.5],"ok":true,"n":1}"#;
        assert_eq!(rule("/predictions/0", None).check_body(body), Ok(()));
        assert_eq!(rule("/ok", Some(json!(true))).check_body(body), Ok(()));
        assert_eq!(rule("/n", Some(json!(1.0))).check_body(body), Ok(()));
        assert_eq!(Success::default().check_body(b"anything"), Ok(()));
        for (rule, body, says) in [
            (rule("/predictions/1", None), &body[..], "no `/predictions/1`"),
            (rule("/ok", Some(json!(false))), body, "`/ok` is true, not false"),
            (rule("/x", None), b"<html>", "no JSON"),
        ] {
            let error = rule.check_body(body).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_judged(body in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(text) = rule("/a", None).check_body(&body) {
                prop_assert!(text.chars().count() < 3 * QUOTED);
            }
        }
    }
}
