//! JSON text, value by value, with Triton's literals for numbers that JSON cannot write.
//!
//! In: bytes. Out: strings, numbers and literals, or an error with its line and column. No tree is built: objects and
//! arrays call a closure for each value. Triton reads and writes `NaN`, `Infinity` and `-Infinity` through RapidJSON
//! (`kParseNanAndInfFlag`, `kWriteNanAndInfFlag`), which also reads `Inf`; Python's `json` reads and writes them by
//! default.

use super::{BadRequest, MemoryBudget, OVER_BUDGET};
use std::borrow::Cow;

/// Powers of ten that a double holds exactly; with a significand below 2^53, one multiplication or division rounds
/// correctly (W. D. Clinger, "How to read floating point numbers accurately", 1990).
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
/// Digits of a significand that always fit below 2^53.
const MAX_DIGITS: usize = 15;
/// Maximum depth of skipped values.
const MAX_DEPTH: usize = 128;
/// Maximum memory per byte of a string with escapes: it grows by doubling, and is copied once.
const STRING_COPIES: usize = 4;
/// Strings up to this size are not reserved: it bounds the memory for reading them.
const SMALL_STRING_BYTES: usize = 64 << 10;

pub(super) type Read<T> = Result<T, BadRequest>;

/// A value that is neither an array nor an object.
#[derive(Clone, Copy)]
pub(super) enum Scalar<'a> {
    Bool(bool),
    Unsigned(u64),
    /// Negative integer.
    Signed(i64),
    Float(f64),
    Text(&'a str),
    Null,
}

/// Position in a text.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    text: &'a [u8],
    rest: &'a [u8],
    pub(super) budget: &'a dyn MemoryBudget,
    /// Bytes reserved for strings with escapes; each string reuses the memory of the one before.
    reserved: usize,
}

/// A string as written.
struct Quoted<'a> {
    /// Text with its quotes.
    text: &'a [u8],
    has_escapes: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a [u8], budget: &'a dyn MemoryBudget) -> Self {
        Self {
            text,
            rest: text,
            budget,
            reserved: 0,
        }
    }

    /// Bytes of the whole text.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns an error at this position.
    #[cold]
    pub(super) fn fault(&self, detail: &str) -> BadRequest {
        let read = &self.text[..self.text.len() - self.rest.len()];
        let line = 1 + read.iter().filter(|&&byte| byte == b'\n').count();
        let column = 1 + read.iter().rev().take_while(|&&byte| byte != b'\n').count();
        BadRequest(format!("{detail} at line {line} column {column}"))
    }

    /// Returns the error of an unexpected value.
    #[cold]
    pub(super) fn expected(&self, expected: &str) -> BadRequest {
        let found = match self.rest.first() {
            None => "EOF".to_owned(),
            Some(byte) => format!("`{}`", byte.escape_ascii()),
        };
        self.fault(&format!("expected {expected}, got {found}"))
    }

    /// Skips space and returns the next byte.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    /// Takes `byte`, after any space.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        if self.rest.first() != Some(&byte) {
            self.peek();
        }
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes a word, after any space.
    fn take_literal(&mut self, word: &str) -> bool {
        self.peek();
        let rest = self.rest.strip_prefix(word.as_bytes());
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Checks that nothing follows.
    pub(super) fn end(&mut self) -> Read<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault("trailing characters")),
        }
    }

    /// Calls `value` for every key, with the reader at the key's value. `label` describes the object in errors.
    pub(super) fn object(&mut self, label: &str, mut value: impl FnMut(&mut Self, &str) -> Read<()>) -> Read<()> {
        self.items([b'{', b'}'], label, |reader| {
            reader.peek();
            let key = reader.string()?;
            if !reader.take(b':') {
                return Err(reader.expected("`:`"));
            }
            value(reader, &key)
        })
    }

    /// Calls `item` for every item of an array. `label` describes the array in errors.
    #[inline]
    pub(super) fn array(&mut self, label: &str, item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.items([b'[', b']'], label, item)
    }

    /// Calls `item` for everything that commas separate between two brackets.
    #[inline]
    fn items(&mut self, [open, close]: [u8; 2], label: &str, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        if !self.take(open) {
            return Err(self.expected(label));
        }
        if self.take(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.take(b',') {
                break;
            }
        }
        match self.take(close) {
            true => Ok(()),
            false => Err(self.expected(&format!("`,` or `{}`", char::from(close)))),
        }
    }

    /// Reads the value of a key that must be unique; errors name the key.
    pub(super) fn once<T>(
        &mut self,
        slot: &mut Option<T>,
        key: &str,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<()> {
        if slot.is_some() {
            return Err(self.fault(&format!("duplicate `{key}`")));
        }
        *slot = Some(read(self).map_err(|e| BadRequest(format!("`{key}`: {e}")))?);
        Ok(())
    }

    /// Same as [`Reader::once`], but null counts as absent: MLServer and its clients (pydantic) write null for missing
    /// values.
    pub(super) fn once_or_null<T>(
        &mut self,
        slot: &mut Option<T>,
        key: &str,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<()> {
        if slot.is_none() && self.take_literal("null") {
            return Ok(());
        }
        self.once(slot, key, read)
    }

    /// Skips a value of any type.
    pub(super) fn skip(&mut self) -> Read<()> {
        self.skip_within(MAX_DEPTH)
    }

    fn skip_within(&mut self, depth: usize) -> Read<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.fault("nested too deeply"));
        };
        match self.peek() {
            Some(b'{') => self.object("", |reader, _| reader.skip_within(depth)),
            Some(b'[') => self.array("", |reader| reader.skip_within(depth)),
            Some(b'"') => self.quoted().map(drop),
            _ => self.scalar().map(drop),
        }
    }

    /// A string.
    pub(super) fn string(&mut self) -> Read<Cow<'a, str>> {
        let quoted = self.quoted()?;
        self.unescaped(&quoted)
    }

    /// Reads a string of at most `most` bytes.
    pub(super) fn short_string(&mut self, most: usize) -> Read<String> {
        let quoted = self.quoted()?;
        // The longest escape of a byte is `\u0000`.
        let most_written = if quoted.has_escapes { 6 * most } else { most };
        if quoted.text.len() - 2 <= most_written {
            let text = self.unescaped(&quoted)?;
            if text.len() <= most {
                return Ok(text.into_owned());
            }
        }
        Err(self.fault(&format!("longer than {most} bytes")))
    }

    fn quoted(&mut self) -> Read<Quoted<'a>> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a string"));
        }
        let text = self.rest;
        let (mut at, mut has_escapes) = (1, false);
        loop {
            let special = text.get(at..).and_then(|rest| {
                let special = |&byte: &u8| matches!(byte, b'"' | b'\\') || byte < b' ';
                rest.iter().position(special)
            });
            at += special.ok_or_else(|| self.fault("EOF in a string"))?;
            match text[at] {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    // Skips the escaped character.
                    at += 2;
                }
                _ => return Err(self.fault("a control character in a string")),
            }
        }
        let (text, rest) = text.split_at(at + 1);
        self.rest = rest;
        Ok(Quoted { text, has_escapes })
    }

    fn unescaped(&mut self, quoted: &Quoted<'a>) -> Read<Cow<'a, str>> {
        let text = quoted.text;
        if !quoted.has_escapes {
            let plain = std::str::from_utf8(&text[1..text.len() - 1]);
            return plain
                .map(Cow::Borrowed)
                .map_err(|_| self.fault("a string is not UTF-8"));
        }
        let wanted = text.len().saturating_mul(STRING_COPIES);
        let more = wanted.saturating_sub(self.reserved);
        if text.len() > SMALL_STRING_BYTES && more > 0 {
            if !self.budget.take(more) {
                return Err(self.fault(OVER_BUDGET));
            }
            self.reserved = wanted;
        }
        let read: serde_json::Result<String> = serde_json::from_slice(text);
        read.map(Cow::Owned)
            .map_err(|_| self.fault("a string is not UTF-8 or has an invalid escape"))
    }

    /// A number, a literal, `true`, `false` or `null`.
    pub(super) fn scalar(&mut self) -> Read<Scalar<'static>> {
        self.peek();
        match self.short_number() {
            Some(number) => Ok(number),
            None => self.rare_scalar(),
        }
    }

    /// Reads a number of few digits. Inlined, or its result would go through memory for every element.
    #[inline(always)]
    pub(super) fn short_number(&mut self) -> Option<Scalar<'static>> {
        let text = self.rest;
        let negative = text.first() == Some(&b'-');
        let start = usize::from(negative);
        let (mut at, mut significand) = digits(text, start, 0);
        let mut all = at - start;
        if all == 0 || (all > 1 && text[start] == b'0') {
            return None;
        }
        let mut power = 0_i32;
        let mut is_float = false;
        if text.get(at) == Some(&b'.') {
            is_float = true;
            let point = at + 1;
            (at, significand) = digits(text, point, significand);
            let decimals = at - point;
            if decimals == 0 {
                return None;
            }
            all += decimals;
            power = -i32::try_from(decimals).ok()?;
        }
        if all > MAX_DIGITS {
            return None;
        }
        if let Some(b'e' | b'E') = text.get(at) {
            is_float = true;
            let sign = text.get(at + 1).copied();
            let first = at + 1 + usize::from(matches!(sign, Some(b'-' | b'+')));
            let (end, value) = digits(text, first, 0);
            if !(1..=3).contains(&(end - first)) {
                return None;
            }
            at = end;
            let value = i32::try_from(value).ok()?;
            power += if sign == Some(b'-') { -value } else { value };
        }
        if !is_float {
            self.rest = text.get(at..)?;
            // Returned early, as most numbers are: in one `match` with the others, the variant goes through memory.
            if !negative {
                return Some(Scalar::Unsigned(significand));
            }
            // At most MAX_DIGITS digits are far below 2^63.
            return Some(match significand {
                0 => Scalar::Float(-0.0),
                _ => Scalar::Signed(-(significand as i64)),
            });
        }
        let scale = *POWERS.get(power.unsigned_abs() as usize)?;
        self.rest = text.get(at..)?;
        let value = significand as f64;
        let value = if power < 0 { value / scale } else { value * scale };
        Some(Scalar::Float(if negative { -value } else { value }))
    }

    /// Reads all other scalars. Callers seldom meet one: inlined there, it slows every number.
    #[cold]
    #[inline(never)]
    pub(super) fn rare_scalar(&mut self) -> Read<Scalar<'static>> {
        let (number, rest) = self.rest.split_at(number_len(self.rest));
        if number.is_empty() {
            return self.literal();
        }
        let number = std::str::from_utf8(number).unwrap_or_default();
        let float = number.parse::<f64>().unwrap_or(f64::INFINITY);
        if float.is_infinite() {
            return Err(self.fault("number out of range"));
        }
        self.rest = rest;
        if number.contains(['.', 'e', 'E']) {
            return Ok(Scalar::Float(float));
        }
        // Integers that do not fit in 64 bits become floats.
        let unsigned = number.parse().ok().map(Scalar::Unsigned);
        let integer = unsigned.or_else(|| number.parse().ok().map(Scalar::Signed));
        Ok(integer.unwrap_or(Scalar::Float(float)))
    }

    fn literal(&mut self) -> Read<Scalar<'static>> {
        // The sign of NaN is ignored.
        for (word, value) in [
            ("true", Scalar::Bool(true)),
            ("false", Scalar::Bool(false)),
            ("null", Scalar::Null),
            ("NaN", Scalar::Float(f64::NAN)),
            ("-NaN", Scalar::Float(f64::NAN)),
            ("Infinity", Scalar::Float(f64::INFINITY)),
            ("-Infinity", Scalar::Float(f64::NEG_INFINITY)),
            ("Inf", Scalar::Float(f64::INFINITY)),
            ("-Inf", Scalar::Float(f64::NEG_INFINITY)),
        ] {
            if self.take_literal(word) {
                return Ok(value);
            }
        }
        Err(self.expected("a value"))
    }
}

/// Appends the digits from `at` to `value`, and returns their end and the value, which is exact up to [`MAX_DIGITS`].
#[inline]
fn digits(text: &[u8], mut at: usize, mut value: u64) -> (usize, u64) {
    while let Some(digit) = text
        .get(at)
        .map(|byte| byte.wrapping_sub(b'0'))
        .filter(|digit| *digit < 10)
    {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (at, value)
}

/// Returns the bytes of the JSON number at the start of a text; 0 if there is none.
fn number_len(text: &[u8]) -> usize {
    let end_of_digits = |from: usize| digits(text, from, 0).0;
    let start = usize::from(text.first() == Some(&b'-'));
    let mut at = end_of_digits(start);
    if at == start || (at > start + 1 && text[start] == b'0') {
        return 0;
    }
    if text.get(at) == Some(&b'.') {
        let point = at + 1;
        at = end_of_digits(point);
        if at == point {
            return 0;
        }
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let signed = matches!(text.get(at + 1), Some(b'+' | b'-'));
        let first = at + 1 + usize::from(signed);
        at = end_of_digits(first);
        if at == first {
            return 0;
        }
    }
    at
}
