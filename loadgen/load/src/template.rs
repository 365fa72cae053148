//! Text with placeholders for values: `{"instances": [{"id": {entity_id}, "name": "{name}"}]}`.
//!
//! In: text. Out: its parts. A placeholder is a name between braces with nothing else inside, which is never valid
//! JSON. Any other brace is literal, so that JSON needs no escapes; `{{name}}` is the text `{name}`.

/// Part of a template; texts are not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Placeholder {
        name: String,
        /// True within JSON quotes.
        is_quoted: bool,
    },
}

/// Parses a template.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
    let mut quotes = Quotes::default();
    while let Some(at) = rest.find('{') {
        plain.push_str(&rest[..at]);
        quotes.pass(&rest[..at]);
        rest = &rest[at..];
        if let Some(name) = rest.strip_prefix("{{").and_then(|rest| name_before(rest, "}}")) {
            plain += &format!("{{{name}}}");
            rest = &rest[name.len() + 4..];
        } else if let Some(name) = name_before(&rest[1..], "}") {
            parts.push(Part::Text(std::mem::take(&mut plain)));
            parts.push(Part::Placeholder {
                name: name.to_owned(),
                is_quoted: quotes.inside,
            });
            rest = &rest[name.len() + 2..];
        } else {
            plain.push('{');
            rest = &rest[1..];
        }
    }
    plain.push_str(rest);
    parts.push(Part::Text(plain));
    parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
    parts
}

/// Returns the name at the start of a text, if `end` follows it.
fn name_before<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    let len = text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))?;
    let name = &text[..len];
    let is_name = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    (is_name && text[len..].starts_with(end)).then_some(name)
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

/// Escapes text for a JSON string, without its quotes.
pub(crate) fn escape(text: &str, out: &mut String) {
    let quoted = serde_json::Value::from(text).to_string();
    out.push_str(&quoted[1..quoted.len() - 1]);
}
