//! A text that was read: fields with their values and places, and what is wrong with one.

use std::fmt;

/// A place in a text; both begin at 1. Columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Error in a text: position, key and message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {}{what}", if key.is_empty() { String::new() } else { format!("`{key}`: ") })]
pub struct PbtxtError {
    /// The place.
    pub at: Position,
    /// The path of the field, as `dynamic_batching.preserve_ordering`; empty outside of one.
    pub key: String,
    /// Error message.
    pub what: String,
}

/// The fields of a message, in the order of the text. A list is as many fields as it has elements.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// The fields.
    pub fields: Vec<Field>,
}

/// One field.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its path from the outermost message.
    pub key: String,
    /// Position of its value.
    pub at: Position,
    /// Its value.
    pub value: Value,
}

impl Field {
    /// An error at this field.
    #[must_use]
    pub fn refuse(&self, what: impl Into<String>) -> PbtxtError {
        PbtxtError {
            at: self.at,
            key: self.key.clone(),
            what: what.into(),
        }
    }
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i128),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// Bytes between quotes, escapes resolved, neighbours joined.
    String(Vec<u8>),
    /// A bare word: `true`, `false`, or the name of an enum's value.
    Word(String),
    /// A message between braces.
    Message(Message),
}
