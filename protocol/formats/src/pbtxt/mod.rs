//! The text format of protocol buffers, as far as `config.pbtxt` files use it: scalars, enums, strings, messages, lists,
//! comments. Language: <https://protobuf.dev/reference/protobuf/textformat-spec/>.
//!
//! In: text. Out: a tree of fields, each with its place, or what is wrong and where. Extensions and expanded `Any`
//! messages are refused. Knows nothing of what the fields mean.

mod fields;
mod lexer;
pub mod model;
mod refusals;
mod tree;

use lexer::{Lexer, Token};
pub use tree::{Field, Message, PbtxtError, Position, Value};

/// The longest text that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Messages inside messages at most.
const MAX_DEPTH: usize = 32;

/// Reads a text.
///
/// # Errors
/// The first thing that is no text format, with its place.
pub fn parse(text: &str) -> Result<Message, PbtxtError> {
    if text.len() > MAX_BYTES {
        return Err(PbtxtError {
            at: Position { line: 1, column: 1 },
            key: String::new(),
            what: format!("{} bytes, the most that is read is {MAX_BYTES}", text.len()),
        });
    }
    let mut parser = Parser {
        lexer: Lexer::new(text),
        path: Vec::new(),
    };
    parser.message(None)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The names of the fields around the place.
    path: Vec<String>,
}

impl Parser<'_> {
    fn error(&self, at: Position, what: impl Into<String>) -> PbtxtError {
        PbtxtError {
            at,
            key: self.path.join("."),
            what: what.into(),
        }
    }

    fn next(&mut self) -> Result<(Position, Token), PbtxtError> {
        self.lexer.next().map_err(|(at, what)| self.error(at, what))
    }

    fn peek(&mut self) -> Result<(Position, Token), PbtxtError> {
        self.lexer.peek().map_err(|(at, what)| self.error(at, what))
    }

    /// Fields up to the closing mark, or to the end of the text where there is none.
    fn message(&mut self, close: Option<char>) -> Result<Message, PbtxtError> {
        let mut message = Message::default();
        loop {
            match self.next()? {
                (_, Token::End) if close.is_none() => return Ok(message),
                (_, Token::Mark(mark)) if close == Some(mark) => return Ok(message),
                (_, Token::Word(name)) => {
                    self.path.push(name.clone());
                    self.values(&name, &mut message.fields)?;
                    self.path.pop();
                    if let (_, Token::Mark(',' | ';')) = self.peek()? {
                        self.next()?;
                    }
                }
                (at, Token::Mark('[')) => {
                    return Err(self.error(at, "extensions and `Any` messages are not supported"));
                }
                (at, other) => {
                    let wanted = match close {
                        Some(close) => format!("a field or `{close}`"),
                        None => "a field".to_owned(),
                    };
                    return Err(self.error(at, format!("{wanted} is expected here, not {other}")));
                }
            }
        }
    }

    /// Reads the value or list of values after a field's name.
    fn values(&mut self, name: &str, fields: &mut Vec<Field>) -> Result<(), PbtxtError> {
        let (at, token) = self.peek()?;
        let colon = token == Token::Mark(':');
        if colon {
            self.next()?;
        }
        if let (_, Token::Mark('[')) = self.peek()? {
            self.next()?;
            if let (_, Token::Mark(']')) = self.peek()? {
                self.next()?;
                return Ok(());
            }
            loop {
                self.value(name, colon, fields)?;
                match self.next()? {
                    (_, Token::Mark(',')) => {}
                    (_, Token::Mark(']')) => return Ok(()),
                    (at, other) => {
                        return Err(self.error(at, format!("`,` or `]` is expected here, not {other}")));
                    }
                }
            }
        }
        if !colon && !matches!(self.peek()?.1, Token::Mark('{' | '<')) {
            return Err(self.error(at, format!("`:` or `{{` is expected here, not {token}")));
        }
        self.value(name, colon, fields)
    }

    fn value(&mut self, name: &str, scalar: bool, fields: &mut Vec<Field>) -> Result<(), PbtxtError> {
        let (at, token) = self.next()?;
        let value = match token {
            Token::Mark(open @ ('{' | '<')) => {
                if self.path.len() > MAX_DEPTH {
                    return Err(self.error(at, format!("more than {MAX_DEPTH} messages inside each other")));
                }
                Value::Message(self.message(Some(if open == '{' { '}' } else { '>' }))?)
            }
            Token::Word(word) if scalar => Value::Word(word),
            Token::Integer(number) if scalar => Value::Integer(number),
            Token::Float(number) if scalar => Value::Float(number),
            Token::String(mut text) if scalar => {
                while let (_, Token::String(_)) = self.peek()? {
                    if let (_, Token::String(more)) = self.next()? {
                        text.extend(more);
                    }
                }
                Value::String(text)
            }
            other if scalar => return Err(self.error(at, format!("a value is expected here, not {other}"))),
            other => return Err(self.error(at, format!("`{{` is expected here, not {other}"))),
        };
        fields.push(Field {
            name: name.to_owned(),
            key: self.path.join("."),
            at,
            value,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
