//! Fields of a parsed text, read as the types that are wanted, and the errors in them.

use std::collections::BTreeSet;

/// Maximum refusals in a message; the rest is counted.
const MAX_REFUSALS: usize = 100;

/// Field with one value. A list is as many fields as it has elements.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    /// Path from the outermost message, as `dynamic_batching.preserve_ordering`.
    pub(super) key: String,
    /// Byte offset of the value in the text.
    pub(super) at: usize,
    pub(super) value: Value,
}

/// Value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Integer(i128),
    Float(f64),
    /// Bytes between quotes, escapes resolved, neighbours joined.
    String(Vec<u8>),
    /// Bare word: `true`, `false`, or the name of an enum's value.
    Word(String),
    /// Fields between braces.
    Message(Vec<Field>),
}

/// Error at a place of a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    /// Byte offset in the text.
    pub(super) at: usize,
    /// Path of the field; empty outside of one.
    pub(super) key: String,
    pub(super) what: String,
}

impl Refusal {
    /// Returns the message, with line and column in the text. Columns count characters.
    pub(super) fn message(&self, text: &str) -> String {
        let before = &text[..self.at];
        let line = before.rsplit('\n').next().unwrap_or_default();
        let (row, column) = (before.split('\n').count(), line.chars().count() + 1);
        match self.key.as_str() {
            "" => format!("line {row}, column {column}: {}", self.what),
            key => format!("line {row}, column {column}: `{key}`: {}", self.what),
        }
    }
}

/// Errors found so far. A text is read to its end, so that its author sees all of them at once.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<Refusal>);

impl Refusals {
    /// Keeps the error, if there is one, and returns the value.
    pub(super) fn note<T>(&mut self, result: Result<T, Refusal>) -> Option<T> {
        result.map_err(|refusal| self.0.push(refusal)).ok()
    }

    pub(super) fn push(&mut self, refusal: Refusal) {
        self.0.push(refusal);
    }

    /// Reads every field of a message. A name that is not in `repeated` may be given once.
    pub(super) fn each<'a>(
        &mut self,
        message: &'a Field,
        repeated: &[&str],
        mut read: impl FnMut(&mut Self, &'a Field) -> Result<(), Refusal>,
    ) {
        let mut seen = BTreeSet::new();
        for field in self.note(message.message()).unwrap_or_default() {
            if !repeated.contains(&field.name.as_str()) && !seen.insert(&field.name) {
                self.0.push(field.refuse("duplicate field"));
            }
            let result = read(self, field);
            self.note(result);
        }
    }

    /// True if there is an error at a field of the outermost message, or below it.
    pub(super) fn concern(&self, field: &str) -> bool {
        self.0.iter().any(|error| error.key.split('.').next() == Some(field))
    }

    /// Returns a line for each error, in the order of the text; `None` without errors.
    pub(super) fn message(mut self, text: &str) -> Option<String> {
        self.0.sort_by_key(|refusal| refusal.at);
        let count = self.0.len();
        let first = self.0.iter().take(MAX_REFUSALS);
        let mut lines: Vec<String> = first.map(|refusal| refusal.message(text)).collect();
        if count < 2 {
            return lines.pop();
        }
        lines.insert(0, format!("{count} entries cannot be served as they are:"));
        if count > MAX_REFUSALS {
            lines.push(format!("and {} more", count - MAX_REFUSALS));
        }
        Some(lines.join("\n  "))
    }
}

impl Field {
    pub(super) fn refuse(&self, what: impl Into<String>) -> Refusal {
        Refusal {
            at: self.at,
            key: self.key.clone(),
            what: what.into(),
        }
    }

    /// Returns the error of an unsupported field.
    pub(super) fn unknown(&self) -> Refusal {
        self.refuse("not supported: remove it, or use config.toml instead")
    }

    pub(super) fn text(&self) -> Result<&str, Refusal> {
        match &self.value {
            Value::String(bytes) => std::str::from_utf8(bytes).map_err(|_| self.refuse("not UTF-8")),
            _ => Err(self.refuse("a string in quotes is expected")),
        }
    }

    pub(super) fn word(&self) -> Result<&str, Refusal> {
        match &self.value {
            Value::Word(word) => Ok(word),
            _ => Err(self.refuse("the name of an enum's value is expected")),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, Refusal> {
        match &self.value {
            Value::Word(word) if matches!(word.as_str(), "true" | "True" | "t") => Ok(true),
            Value::Word(word) if matches!(word.as_str(), "false" | "False" | "f") => Ok(false),
            Value::Integer(number @ (0 | 1)) => Ok(*number == 1),
            _ => Err(self.refuse("true or false is expected")),
        }
    }

    pub(super) fn message(&self) -> Result<&[Field], Refusal> {
        match &self.value {
            Value::Message(fields) => Ok(fields),
            _ => Err(self.refuse("a message in braces is expected")),
        }
    }

    /// Returns a whole number that is not negative and fits its type.
    pub(super) fn unsigned<T: TryFrom<i128>>(&self) -> Result<T, Refusal> {
        let Value::Integer(number) = self.value else {
            return Err(self.refuse("a whole number is expected"));
        };
        let fits = T::try_from(number).ok().filter(|_| number >= 0);
        fits.ok_or_else(|| self.refuse(format!("{number} is out of range")))
    }

    /// Checks that a switch is off.
    pub(super) fn is_false(&self) -> Result<(), Refusal> {
        match self.flag()? {
            true => Err(self.refuse("`true` is not supported")),
            false => Ok(()),
        }
    }

    /// Checks that an enum has its default.
    pub(super) fn is_word(&self, only: &str) -> Result<(), Refusal> {
        match self.word()? {
            word if word == only => Ok(()),
            _ => Err(self.refuse(format!("only {only} is supported"))),
        }
    }
}

/// Shortens a text from the file for a message.
pub(super) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}
