//! Text format of protocol buffers, as far as `config.pbtxt` files use it: scalars, enums, strings, messages, lists,
//! comments. Language: <https://protobuf.dev/reference/protobuf/textformat-spec/>.
//!
//! In: text. Out: a tree of fields, each with its place, or the first error with its place. Extensions and expanded `Any`
//! messages are refused. Knows nothing of the meaning of fields.

pub mod model;

use anyhow::{Context as _, bail};
use std::collections::BTreeSet;

/// Maximum length of a text, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Maximum nesting depth of messages.
const MAX_DEPTH: usize = 32;

/// Parses a text to a field without a name, whose message holds the others.
fn parse(text: &str) -> Result<Field, FieldError> {
    let mut parser = Parser {
        text,
        rest: text,
        path: Vec::new(),
    };
    if text.len() > MAX_BYTES {
        let what = format!("{} bytes; the limit is {MAX_BYTES}", text.len());
        return parser.fail(0, what);
    }
    Ok(Field {
        name: String::new(),
        key: String::new(),
        offset: 0,
        value: Value::Message(parser.message(None)?),
    })
}

struct Parser<'a> {
    text: &'a str,
    /// Text after the current position.
    rest: &'a str,
    /// Names of the fields around the position.
    path: Vec<&'a str>,
}

fn is_blank(char: char) -> bool {
    char.is_ascii_whitespace() || matches!(char, '\u{b}' | '\u{feff}')
}

fn is_in_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

impl<'a> Parser<'a> {
    fn offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn fail<T>(&self, offset: usize, what: impl Into<String>) -> Result<T, FieldError> {
        Err(FieldError {
            offset,
            key: self.path.join("."),
            what: what.into(),
        })
    }

    /// Refuses the next piece of the text.
    fn expected<T>(&mut self, wanted: &str) -> Result<T, FieldError> {
        let found = match self.peek() {
            None => "the end of the text".to_owned(),
            Some('"' | '\'') => "a string".to_owned(),
            Some(first) => {
                let word = self.rest.split(|char| !is_in_word(char)).next().unwrap_or_default();
                match word {
                    "" => format!("`{first}`"),
                    word => format!("`{}`", short(word)),
                }
            }
        };
        self.fail(self.offset(), format!("expected {wanted}, found {found}"))
    }

    /// Skips blanks and comments, and returns the next character; `None` at the end of the text.
    fn peek(&mut self) -> Option<char> {
        loop {
            self.rest = self.rest.trim_start_matches(is_blank);
            if !self.rest.starts_with('#') {
                return self.rest.chars().next();
            }
            self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]);
        }
    }

    /// Takes a character if it comes next.
    fn take(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        is_next
    }

    fn take_bytes(&mut self, count: usize) -> &'a str {
        let (head, rest) = self.rest.split_at(count);
        self.rest = rest;
        head
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|char| !keep(char)).unwrap_or(self.rest.len());
        self.take_bytes(end)
    }

    /// Parses fields up to the closing mark, or to the end of the text without one.
    fn message(&mut self, close: Option<char>) -> Result<Vec<Field>, FieldError> {
        let mut fields = Vec::new();
        loop {
            match (self.peek(), close) {
                (None, None) => return Ok(fields),
                (Some(mark), Some(close)) if mark == close => {
                    self.take(close);
                    return Ok(fields);
                }
                (Some('a'..='z' | 'A'..='Z' | '_'), _) => {
                    let name = self.take_while(is_in_word);
                    self.path.push(name);
                    self.values(name, &mut fields)?;
                    self.path.pop();
                    let _ = self.take(',') || self.take(';');
                }
                (Some('['), _) => return self.fail(self.offset(), "extensions and `Any` messages are not supported"),
                (_, Some(close)) => return self.expected(&format!("a field or `{close}`")),
                (_, None) => return self.expected("a field"),
            }
        }
    }

    /// Parses the value or list of values after a field's name.
    fn values(&mut self, name: &str, fields: &mut Vec<Field>) -> Result<(), FieldError> {
        let has_colon = self.take(':');
        if self.take('[') {
            if self.take(']') {
                return Ok(());
            }
            loop {
                fields.push(self.value(name, has_colon)?);
                if self.take(']') {
                    return Ok(());
                }
                if !self.take(',') {
                    return self.expected("`,` or `]`");
                }
            }
        }
        if !has_colon && !matches!(self.peek(), Some('{' | '<')) {
            return self.expected("`:` or `{`");
        }
        fields.push(self.value(name, has_colon)?);
        Ok(())
    }

    /// Parses one value; `may_be_scalar` is false without a colon after the field's name.
    fn value(&mut self, name: &str, may_be_scalar: bool) -> Result<Field, FieldError> {
        let first = self.peek();
        let offset = self.offset();
        let value = match first {
            Some(open @ ('{' | '<')) => {
                if self.path.len() > MAX_DEPTH {
                    return self.fail(offset, format!("messages nested more than {MAX_DEPTH} deep"));
                }
                self.take(open);
                Value::Message(self.message(Some(if open == '{' { '}' } else { '>' }))?)
            }
            _ if !may_be_scalar => return self.expected("`{`"),
            Some('a'..='z' | 'A'..='Z' | '_') => Value::Word(self.take_while(is_in_word).to_owned()),
            Some('0'..='9' | '-' | '.') => self.number()?,
            Some('"' | '\'') => {
                let mut bytes = Vec::new();
                while let Some(quote @ ('"' | '\'')) = self.peek() {
                    self.string(quote, &mut bytes)?;
                }
                Value::String(bytes)
            }
            _ => return self.expected("a value"),
        };
        Ok(Field {
            name: name.to_owned(),
            key: self.path.join("."),
            offset,
            value,
        })
    }

    /// Parses a number, or a word behind a minus sign (`-inf`).
    fn number(&mut self) -> Result<Value, FieldError> {
        let offset = self.offset();
        let sign = if self.take('-') { -1 } else { 1 };
        self.peek();
        let digits = self.rest;
        let mut text = self.take_while(|char| is_in_word(char) || char == '.');
        let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        // The sign of an exponent belongs to the number.
        if text.ends_with(['e', 'E']) && hexadecimal.is_none() && self.rest.starts_with(['+', '-']) {
            let exponent = self.take_bytes(1).len() + self.take_while(is_in_word).len();
            text = &digits[..text.len() + exponent];
        }
        let is_octal = text.len() > 1 && text.starts_with('0') && text.bytes().all(|digit| digit.is_ascii_digit());
        let (integer, may_be_float) = match hexadecimal {
            Some(digits) => (i128::from_str_radix(digits, 16), false),
            None if is_octal => (i128::from_str_radix(text, 8), false),
            None => (text.parse(), true),
        };
        if let Ok(integer) = integer {
            return Ok(Value::Integer(integer.saturating_mul(sign)));
        }
        let float = text.parse::<f64>();
        let float = float.or_else(|e| text.strip_suffix(['f', 'F']).ok_or(e)?.parse());
        match float {
            Ok(float) if may_be_float => Ok(Value::Float(float * sign as f64)),
            _ => self.fail(offset, format!("invalid number: `{}`", short(text))),
        }
    }

    /// Parses one string in quotes and appends its bytes.
    fn string(&mut self, quote: char, bytes: &mut Vec<u8>) -> Result<(), FieldError> {
        let opened = self.offset();
        self.take(quote);
        loop {
            bytes.extend(
                self.take_while(|char| !matches!(char, '\\' | '\n') && char != quote)
                    .bytes(),
            );
            match self.rest.chars().next() {
                None | Some('\n') => return self.fail(opened, "a string begins here and does not end on its line"),
                Some('\\') => {
                    let offset = self.offset();
                    self.take_bytes(1);
                    self.escape(bytes).or_else(|what| self.fail(offset, what.to_string()))?;
                }
                Some(_) => {
                    self.take_bytes(1);
                    return Ok(());
                }
            }
        }
    }

    /// Parses the characters after a backslash.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        let char = self.rest.chars().next();
        let char = char.context("a string ends in the middle of an escape")?;
        if char.is_digit(8) {
            let (digits, code) = self.digits(3, 8);
            let byte = code.and_then(|code| u8::try_from(code).ok());
            bytes.push(byte.with_context(|| format!("`\\{digits}` is more than a byte"))?);
            return Ok(());
        }
        self.take_bytes(char.len_utf8());
        bytes.push(match char {
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'v' => 11,
            '\\' | '\'' | '"' | '?' => char as u8,
            'x' | 'X' => self.digits(2, 16).1.context("`\\x` without hexadecimal digits")? as u8,
            'u' | 'U' => {
                let wanted = if char == 'u' { 4 } else { 8 };
                let (digits, code) = self.digits(wanted, 16);
                let char = code.filter(|_| digits.len() == wanted).and_then(char::from_u32);
                let char = char.with_context(|| format!("invalid character: `\\{digits}`"))?;
                bytes.extend(char.encode_utf8(&mut [0; 4]).bytes());
                return Ok(());
            }
            other => bail!("invalid escape: `\\{other}`"),
        });
        Ok(())
    }

    /// Takes at most `most` digits; returns them and their value.
    fn digits(&mut self, max: usize, radix: u32) -> (&'a str, Option<u32>) {
        let is_digit = |char: &char| char.is_digit(radix);
        let count = self.rest.chars().take(max).take_while(is_digit).count();
        let digits = self.take_bytes(count);
        (digits, u32::from_str_radix(digits, radix).ok())
    }
}

/// Maximum errors in a message; the rest is counted.
const MAX_ERRORS: usize = 100;

/// Field with one value. A list is as many fields as it has elements.
#[derive(Debug, Clone, PartialEq)]
struct Field {
    name: String,
    /// Path from the outermost message, as `dynamic_batching.preserve_ordering`.
    key: String,
    /// Byte offset of the value in the text.
    offset: usize,
    value: Value,
}

/// Value of a field.
#[derive(Debug, Clone, PartialEq)]
enum Value {
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
struct FieldError {
    /// Byte offset in the text.
    offset: usize,
    /// Path of the field; empty outside of one.
    key: String,
    what: String,
}

impl FieldError {
    /// Returns the message, with line and column in the text. Columns count characters.
    fn message(&self, text: &str) -> String {
        let before = &text[..self.offset];
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
struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Keeps the error, if there is one, and returns the value.
    fn record<T>(&mut self, result: Result<T, FieldError>) -> Option<T> {
        result.map_err(|error| self.0.push(error)).ok()
    }

    fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Reads every field of a message. A name that is not in `repeated` may be given once.
    fn for_each<'a>(
        &mut self,
        message: &'a Field,
        repeated: &[&str],
        mut read: impl FnMut(&mut Self, &'a Field) -> Result<(), FieldError>,
    ) {
        let mut seen = BTreeSet::new();
        for field in self.record(message.message()).unwrap_or_default() {
            if !repeated.contains(&field.name.as_str()) && !seen.insert(&field.name) {
                self.0.push(field.error("duplicate field"));
            }
            let result = read(self, field);
            self.record(result);
        }
    }

    /// True if there is an error at a field of the outermost message, or below it.
    fn affect(&self, field: &str) -> bool {
        self.0.iter().any(|error| error.key.split('.').next() == Some(field))
    }

    /// Returns a line for each error, in the order of the text; `None` without errors.
    fn message(mut self, text: &str) -> Option<String> {
        self.0.sort_by_key(|error| error.offset);
        let count = self.0.len();
        let first = self.0.iter().take(MAX_ERRORS);
        let mut lines: Vec<String> = first.map(|error| error.message(text)).collect();
        if count < 2 {
            return lines.pop();
        }
        lines.insert(0, format!("{count} entries cannot be served as they are:"));
        if count > MAX_ERRORS {
            lines.push(format!("and {} more", count - MAX_ERRORS));
        }
        Some(lines.join("\n  "))
    }
}

impl Field {
    fn error(&self, what: impl Into<String>) -> FieldError {
        FieldError {
            offset: self.offset,
            key: self.key.clone(),
            what: what.into(),
        }
    }

    /// Returns the error of an unsupported field.
    fn unsupported(&self) -> FieldError {
        self.error("not supported: remove it, or use config.toml instead")
    }

    fn text(&self) -> Result<&str, FieldError> {
        match &self.value {
            Value::String(bytes) => std::str::from_utf8(bytes).map_err(|_| self.error("not UTF-8")),
            _ => Err(self.error("a string in quotes is expected")),
        }
    }

    fn word(&self) -> Result<&str, FieldError> {
        match &self.value {
            Value::Word(word) => Ok(word),
            _ => Err(self.error("the name of an enum's value is expected")),
        }
    }

    fn flag(&self) -> Result<bool, FieldError> {
        match &self.value {
            Value::Word(word) if matches!(word.as_str(), "true" | "True" | "t") => Ok(true),
            Value::Word(word) if matches!(word.as_str(), "false" | "False" | "f") => Ok(false),
            Value::Integer(number @ (0 | 1)) => Ok(*number == 1),
            _ => Err(self.error("true or false is expected")),
        }
    }

    fn message(&self) -> Result<&[Field], FieldError> {
        match &self.value {
            Value::Message(fields) => Ok(fields),
            _ => Err(self.error("a message in braces is expected")),
        }
    }

    /// Returns a whole number that is not negative and fits its type.
    fn unsigned<T: TryFrom<i128>>(&self) -> Result<T, FieldError> {
        let Value::Integer(number) = self.value else {
            return Err(self.error("a whole number is expected"));
        };
        let fits = T::try_from(number).ok().filter(|_| number >= 0);
        fits.ok_or_else(|| self.error(format!("{number} is out of range")))
    }

    /// Checks that a switch is off.
    fn expect_off(&self) -> Result<(), FieldError> {
        match self.flag()? {
            true => Err(self.error("`true` is not supported")),
            false => Ok(()),
        }
    }

    /// Checks that an enum has its default.
    fn expect_word(&self, only: &str) -> Result<(), FieldError> {
        match self.word()? {
            word if word == only => Ok(()),
            _ => Err(self.error(format!("only {only} is supported"))),
        }
    }
}

/// Shortens a text from the file for a message.
fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
