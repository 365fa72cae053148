//! Characters to words, numbers, strings and marks.

use super::tree::Position;
use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// The smallest piece of a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Word(String),
    Integer(i128),
    Float(f64),
    String(Vec<u8>),
    Mark(char),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{}`", word.chars().take(64).collect::<String>()),
            Self::Integer(number) => write!(f, "the number {number}"),
            Self::Float(number) => write!(f, "the number {number}"),
            Self::String(_) => f.write_str("a string"),
            Self::Mark(mark) => write!(f, "`{mark}`"),
            Self::End => f.write_str("the end of the text"),
        }
    }
}

type Lexed<T> = Result<T, (Position, String)>;

/// Reads a text piece by piece.
pub(super) struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    at: Position,
    peeked: Option<(Position, Token)>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            chars: text.chars().peekable(),
            at: Position { line: 1, column: 1 },
            peeked: None,
        }
    }

    pub(super) fn peek(&mut self) -> Lexed<(Position, Token)> {
        let next = self.next()?;
        self.peeked = Some(next.clone());
        Ok(next)
    }

    pub(super) fn next(&mut self) -> Lexed<(Position, Token)> {
        if let Some(peeked) = self.peeked.take() {
            return Ok(peeked);
        }
        self.skip_blanks();
        let at = self.at;
        let Some(&first) = self.chars.peek() else {
            return Ok((at, Token::End));
        };
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' => Token::Word(self.word()),
            '0'..='9' | '-' | '.' => self.number().map_err(|what| (at, what))?,
            '"' | '\'' => Token::String(self.string()?),
            '{' | '}' | '<' | '>' | '[' | ']' | ':' | ',' | ';' => {
                self.bump();
                Token::Mark(first)
            }
            other => return Err((at, format!("{other:?} has no meaning here"))),
        };
        Ok((at, token))
    }

    fn bump(&mut self) -> Option<char> {
        let char = self.chars.next()?;
        if char == '\n' {
            self.at.line += 1;
            self.at.column = 1;
        } else {
            self.at.column += 1;
        }
        Some(char)
    }

    /// Blanks, and comments up to the end of their line.
    fn skip_blanks(&mut self) {
        while let Some(&char) = self.chars.peek() {
            if char == '#' {
                while self.chars.peek().is_some_and(|&char| char != '\n') {
                    self.bump();
                }
            } else if char.is_ascii_whitespace() || char == '\u{b}' || char == '\u{feff}' {
                self.bump();
            } else {
                return;
            }
        }
    }

    fn word(&mut self) -> String {
        self.take_while(|char| char.is_ascii_alphanumeric() || char == '_')
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(&char) = self.chars.peek().filter(|&&char| keep(char)) {
            taken.push(char);
            self.bump();
        }
        taken
    }

    /// A number, or a word behind a minus sign (`-inf`).
    fn number(&mut self) -> Result<Token, String> {
        let negative = self.chars.peek() == Some(&'-');
        if negative {
            self.bump();
            self.skip_blanks();
        }
        let mut text = self.take_while(|char| char.is_ascii_alphanumeric() || char == '.' || char == '_');
        // The sign of an exponent belongs to the number.
        let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
        if text.ends_with(['e', 'E']) && !hexadecimal && matches!(self.chars.peek(), Some('+' | '-')) {
            text.extend(self.bump());
            text.push_str(&self.take_while(|char| char.is_ascii_digit() || matches!(char, 'f' | 'F')));
        }
        let bad = || format!("`{}` is no number", text.chars().take(64).collect::<String>());
        if matches!(text.to_ascii_lowercase().as_str(), "inf" | "infinity" | "nan") {
            let float = if text.starts_with(['n', 'N']) {
                f64::NAN
            } else {
                f64::INFINITY
            };
            return Ok(Token::Float(if negative { -float } else { float }));
        }
        let integer = if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            plain_radix(digits, 16)
        } else if text.len() > 1 && text.starts_with('0') && text.bytes().all(|digit| digit.is_ascii_digit()) {
            // An octal number, or no number at all: 089.
            return match plain_radix(&text[1..], 8) {
                Some(number) => Ok(Token::Integer(if negative { -number } else { number })),
                None => Err(bad()),
            };
        } else {
            plain_radix(&text, 10)
        };
        if let Some(number) = integer {
            return Ok(Token::Integer(if negative { -number } else { number }));
        }
        let float = text.strip_suffix(['f', 'F']).unwrap_or(&text);
        let plain = float
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
        match float.parse::<f64>() {
            Ok(number) if plain && !hexadecimal => Ok(Token::Float(if negative { -number } else { number })),
            _ => Err(bad()),
        }
    }

    fn string(&mut self) -> Lexed<Vec<u8>> {
        let opened = self.at;
        let quote = self.bump();
        let mut bytes = Vec::new();
        loop {
            let at = self.at;
            match self.bump() {
                None | Some('\n') => return Err((opened, "a string begins here and does not end on its line".into())),
                char if char == quote => return Ok(bytes),
                Some('\\') => self.escape(&mut bytes).map_err(|what| (at, what))?,
                Some(char) => bytes.extend(char.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
    }

    /// Reads the characters after a backslash.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), String> {
        let Some(char) = self.bump() else {
            return Err("a string ends in the middle of an escape".into());
        };
        match char {
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'f' => bytes.push(12),
            'v' => bytes.push(11),
            '\\' | '\'' | '"' | '?' => bytes.push(char as u8),
            '0'..='7' => {
                let digits = format!("{char}{}", self.digits(2, |char| matches!(char, '0'..='7')));
                let byte = u8::from_str_radix(&digits, 8);
                bytes.push(byte.map_err(|_| format!("`\\{digits}` is more than a byte"))?);
            }
            'x' | 'X' => {
                let digits = self.digits(2, |char| char.is_ascii_hexdigit());
                let byte = u8::from_str_radix(&digits, 16);
                bytes.push(byte.map_err(|_| "`\\x` without hexadecimal digits".to_owned())?);
            }
            'u' | 'U' => {
                let wanted = if char == 'u' { 4 } else { 8 };
                let digits = self.digits(wanted, |char| char.is_ascii_hexdigit());
                let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == wanted);
                let char = code.and_then(char::from_u32);
                let char = char.ok_or_else(|| format!("`\\{digits}` is no character"))?;
                bytes.extend(char.encode_utf8(&mut [0; 4]).bytes());
            }
            other => return Err(format!("`\\{other}` is no escape")),
        }
        Ok(())
    }

    fn digits(&mut self, most: usize, is_digit: impl Fn(char) -> bool) -> String {
        let mut digits = String::new();
        while digits.len() < most {
            let Some(&char) = self.chars.peek().filter(|&&char| is_digit(char)) else {
                break;
            };
            digits.push(char);
            self.bump();
        }
        digits
    }
}

/// Digits and nothing else, not even a sign.
fn plain_radix(digits: &str, radix: u32) -> Option<i128> {
    let plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    plain.then(|| i128::from_str_radix(digits, radix).ok())?
}
