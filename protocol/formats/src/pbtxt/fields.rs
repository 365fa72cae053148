//! Values of fields as the types that are wanted, or an error that says so.

use super::tree::{Field, Message, PbtxtError, Value};
use std::collections::BTreeSet;

/// Reads the value of a field.
pub(super) trait Read {
    fn text(&self) -> Result<&str, PbtxtError>;
    fn word(&self) -> Result<&str, PbtxtError>;
    fn flag(&self) -> Result<bool, PbtxtError>;
    fn message(&self) -> Result<&Message, PbtxtError>;
    /// The error of a field that has no counterpart.
    fn unknown(&self) -> PbtxtError;
}

impl Read for Field {
    fn text(&self) -> Result<&str, PbtxtError> {
        match &self.value {
            Value::String(bytes) => std::str::from_utf8(bytes).map_err(|_| self.refuse("no UTF-8 text")),
            _ => Err(self.refuse("a string in quotes is expected")),
        }
    }

    fn word(&self) -> Result<&str, PbtxtError> {
        match &self.value {
            Value::Word(word) => Ok(word),
            _ => Err(self.refuse("the name of an enum's value is expected")),
        }
    }

    fn flag(&self) -> Result<bool, PbtxtError> {
        match &self.value {
            Value::Word(word) if matches!(word.as_str(), "true" | "True" | "t") => Ok(true),
            Value::Word(word) if matches!(word.as_str(), "false" | "False" | "f") => Ok(false),
            Value::Integer(number @ (0 | 1)) => Ok(*number == 1),
            _ => Err(self.refuse("true or false is expected")),
        }
    }

    fn message(&self) -> Result<&Message, PbtxtError> {
        match &self.value {
            Value::Message(message) => Ok(message),
            _ => Err(self.refuse("a message in braces is expected")),
        }
    }

    fn unknown(&self) -> PbtxtError {
        self.refuse("has no counterpart here: remove it, or serve the model without it from config.toml")
    }
}

/// A whole number that is not negative and fits its type.
pub(super) fn read_unsigned<T: TryFrom<i128>>(field: &Field) -> Result<T, PbtxtError> {
    let Value::Integer(number) = field.value else {
        return Err(field.refuse("a whole number is expected"));
    };
    let fits = T::try_from(number).ok().filter(|_| number >= 0);
    fits.ok_or_else(|| field.refuse(format!("{number} is out of range")))
}

/// A switch that must be off.
pub(super) fn read_false(field: &Field) -> Result<(), PbtxtError> {
    if field.flag()? {
        return Err(field.refuse("`true` is not supported"));
    }
    Ok(())
}

/// An enum that must have its default.
pub(super) fn read_enum(field: &Field, only: &str) -> Result<(), PbtxtError> {
    match field.word()? {
        word if word == only => Ok(()),
        _ => Err(field.refuse(format!("only {only} is supported"))),
    }
}

/// Finds fields that are given twice and may not.
#[derive(Default)]
pub(super) struct Once<'a>(BTreeSet<&'a str>);

impl<'a> Once<'a> {
    pub(super) fn see(&mut self, field: &'a Field) -> Result<(), PbtxtError> {
        if self.0.insert(&field.name) {
            Ok(())
        } else {
            Err(field.refuse("is given twice"))
        }
    }
}

/// A text from the file, shortened for a message.
pub(super) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

/// One entry of a map: its key, and its value's field.
pub(super) fn entry(field: &Field) -> Result<(&str, &Field), PbtxtError> {
    let mut once = Once::default();
    let (mut key, mut value) = (None, None);
    for inner in &field.message()?.fields {
        once.see(inner)?;
        match inner.name.as_str() {
            "key" => key = Some(inner.text()?),
            "value" => value = Some(inner),
            _ => return Err(inner.unknown()),
        }
    }
    let key = key.ok_or_else(|| field.refuse("`key` is missing"))?;
    Ok((key, value.ok_or_else(|| field.refuse("`value` is missing"))?))
}
