//! Check of a reply in JSON, with or without binary tensors after it. Format: the Open Inference Protocol v2, and
//! Triton's binary tensor data extension. Numbers may be `NaN`, `Infinity` and `-Infinity` as Triton writes them.

use super::expected::{Expected, Seen};
use super::found::{Found, Shape, Wrong, check_raw, quoted, wrong};
use std::borrow::Cow;
use tierlab_protocol::tensor::DataType;

/// Maximum nesting of values: a tensor has at most 16 dimensions.
const DEPTH: usize = 32;

pub(super) fn check(expected: &Expected, body: &[u8], json_len: Option<usize>) -> Result<(), Wrong> {
    let (json, binary) = match json_len {
        None => (body, &[][..]),
        Some(len) => body.split_at_checked(len).ok_or_else(|| {
            wrong(format_args!(
                "a reply of {} bytes says that its JSON has {len}",
                body.len()
            ))
        })?,
    };
    let mut reply = Reply {
        expected,
        text: Text { json, at: 0 },
        binary,
        seen: Seen::default(),
    };
    reply.object()?;
    if reply.binary.is_empty() {
        return Ok(());
    }
    Err(wrong(format_args!(
        "{} bytes behind the last tensor",
        reply.binary.len()
    )))
}

struct Reply<'a> {
    expected: &'a Expected,
    text: Text<'a>,
    /// Bytes that no tensor has used yet.
    binary: &'a [u8],
    seen: Seen,
}

/// Values of a tensor's keys, in any order.
#[derive(Default)]
struct Keys<'a> {
    name: Cow<'a, [u8]>,
    dtype: Cow<'a, [u8]>,
    shape: Option<Shape>,
    data: Option<Leaves>,
    binary_size: Option<u64>,
}

/// Elements of an array, however nested.
#[derive(Debug, Clone, Copy, Default)]
struct Leaves {
    whole: u64,
    fractions: u64,
    strings: u64,
    bools: u64,
    nulls: u64,
}

/// Kind of a JSON number, or `null` in place of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Whole,
    /// Number with a fraction or an exponent, or a name of a non-finite number.
    Fraction,
    Null,
}

impl Leaves {
    const fn all(self) -> u64 {
        self.whole + self.fractions + self.strings + self.bools + self.nulls
    }
}

impl<'a> Reply<'a> {
    fn object(&mut self) -> Result<(), Wrong> {
        if self.text.peek() != Some(b'{') {
            return Err(wrong(format_args!(
                "the reply is no JSON object: `{}`",
                quoted(self.text.json)
            )));
        }
        let mut named = false;
        let mut first = true;
        while let Some(key) = self.text.key(&mut first)? {
            match &*key {
                b"model_name" => {
                    self.expected.model_is(&self.text.string()?)?;
                    named = true;
                }
                b"error" => {
                    let at = self.text.at;
                    self.text.skip(0)?;
                    return Err(wrong(format_args!(
                        "the reply is an error: `{}`",
                        quoted(self.text.json[at..self.text.at].trim_ascii())
                    )));
                }
                b"outputs" => self.outputs()?,
                _ => self.text.skip(0)?,
            }
        }
        self.text.end()?;
        if !named {
            return Err(wrong("the reply has no `model_name`"));
        }
        self.expected.all_came(&self.seen)
    }

    fn outputs(&mut self) -> Result<(), Wrong> {
        if self.seen.count > 0 {
            return Err(wrong("`outputs` came twice"));
        }
        let mut first = true;
        self.text.open(b'[', "`outputs`")?;
        while self.text.item(&mut first, b']')? {
            let keys = self.text.tensor()?;
            self.tensor(&keys)?;
        }
        Ok(())
    }

    fn tensor(&mut self, keys: &Keys<'_>) -> Result<(), Wrong> {
        let name = &*keys.name;
        let Some(shape) = keys.shape else {
            return Err(wrong(format_args!("output `{}` has no shape", quoted(name))));
        };
        let found = Found {
            name,
            dtype: &keys.dtype,
            shape,
        };
        let (dtype, elements) = self.expected.tensor(&found, &mut self.seen)?;
        match (keys.data, keys.binary_size) {
            (Some(leaves), None) => leaves_fit(name, dtype, elements, leaves),
            (None, Some(size)) => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let Some((raw, rest)) = self.binary.split_at_checked(size) else {
                    return Err(wrong(format_args!(
                        "the bytes of output `{}` are cut off",
                        quoted(name)
                    )));
                };
                self.binary = rest;
                check_raw(name, dtype, elements, raw)
            }
            (None, None) => Err(wrong(format_args!("output `{}` has no data", quoted(name)))),
            (Some(_), Some(_)) => Err(wrong(format_args!("output `{}` has data twice", quoted(name)))),
        }
    }
}

fn leaves_fit(name: &[u8], dtype: DataType, elements: u64, leaves: Leaves) -> Result<(), Wrong> {
    let of_type = match dtype {
        DataType::Bytes => leaves.strings,
        DataType::Bool => leaves.bools + leaves.whole,
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => leaves.whole + leaves.fractions,
        _ => leaves.whole,
    };
    if of_type == elements && leaves.all() == elements {
        return Ok(());
    }
    let name = quoted(name);
    Err(if leaves.nulls > 0 {
        wrong(format_args!("output `{name}` holds null, which is no {dtype}"))
    } else if leaves.all() == elements {
        wrong(format_args!("output `{name}` holds what is no {dtype}"))
    } else {
        wrong(format_args!(
            "output `{name}` has {} values for {elements} elements",
            leaves.all()
        ))
    })
}

/// JSON with the read position.
struct Text<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    /// Returns the next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.json.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn open(&mut self, byte: u8, what: &str) -> Result<(), Wrong> {
        if self.takes(byte) {
            return Ok(());
        }
        Err(wrong(format_args!(
            "{what} does not begin with `{}`, at byte {}",
            byte as char, self.at
        )))
    }

    fn end(&mut self) -> Result<(), Wrong> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected()),
        }
    }

    fn unexpected(&self) -> Wrong {
        match self.json.get(self.at..) {
            Some(rest) if !rest.is_empty() => {
                let rest = &rest[..rest.len().min(20)];
                wrong(format_args!("no JSON at byte {}: `{}`", self.at, quoted(rest)))
            }
            _ => wrong(format_args!("the reply's JSON is cut off at byte {}", self.at)),
        }
    }

    /// True if another item follows in an array or object; consumes its end.
    fn item(&mut self, first: &mut bool, end: u8) -> Result<bool, Wrong> {
        if *first {
            *first = false;
            return Ok(!self.takes(end));
        }
        if self.takes(b',') {
            return Ok(true);
        }
        if self.takes(end) {
            return Ok(false);
        }
        Err(self.unexpected())
    }

    /// Returns the next key of an object; the first call consumes its `{`.
    fn key(&mut self, first: &mut bool) -> Result<Option<Cow<'a, [u8]>>, Wrong> {
        if *first {
            self.open(b'{', "an object")?;
        }
        if !self.item(first, b'}')? {
            return Ok(None);
        }
        let key = self.string()?;
        if !self.takes(b':') {
            return Err(self.unexpected());
        }
        Ok(Some(key))
    }

    fn string(&mut self) -> Result<Cow<'a, [u8]>, Wrong> {
        if !self.takes(b'"') {
            return Err(self.unexpected());
        }
        let start = self.at;
        let mut plain = true;
        loop {
            match self.json.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    self.at += 2;
                }
                Some(0x20..) => self.at += 1,
                _ => return Err(self.unexpected()),
            }
        }
        let inside = &self.json[start..self.at];
        self.at += 1;
        if plain {
            return Ok(Cow::Borrowed(inside));
        }
        match serde_json::from_slice::<String>(&self.json[start - 1..self.at]) {
            Ok(text) => Ok(Cow::Owned(text.into_bytes())),
            Err(_) => Err(wrong(format_args!("no JSON at byte {start}: `{}`", quoted(inside)))),
        }
    }

    /// Skips a number, `null` or a name of an infinity.
    fn number(&mut self) -> Result<Number, Wrong> {
        for name in [&b"null"[..], b"NaN", b"Infinity", b"-Infinity"] {
            if self.json[self.at..].starts_with(name) {
                self.at += name.len();
                return Ok(if name == b"null" {
                    Number::Null
                } else {
                    Number::Fraction
                });
            }
        }
        let mut kind = Number::Whole;
        let start = self.at;
        self.at += usize::from(self.byte() == Some(b'-'));
        let whole = self.at;
        self.digits()?;
        if self.json[whole] == b'0' && self.at > whole + 1 {
            self.at = start;
            return Err(self.unexpected());
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            let fraction = self.at;
            self.digits()?;
            // Decoders accept 1.0 as an integer.
            if self.json[fraction..self.at].iter().any(|digit| *digit != b'0') {
                kind = Number::Fraction;
            }
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
            kind = Number::Fraction;
        }
        Ok(kind)
    }

    fn byte(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn digits(&mut self) -> Result<(), Wrong> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Wrong> {
        if !self.json[self.at..].starts_with(word) {
            return Err(self.unexpected());
        }
        self.at += word.len();
        Ok(())
    }

    /// Parses a non-negative integer.
    fn count(&mut self) -> Result<u64, Wrong> {
        self.peek();
        let start = self.at;
        self.digits()?;
        let digits = std::str::from_utf8(&self.json[start..self.at]).ok();
        digits
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| wrong(format_args!("a number too large at byte {start}")))
    }

    /// Skips a value.
    fn skip(&mut self, depth: usize) -> Result<(), Wrong> {
        match self.peek() {
            Some(b'{') => {
                below(depth)?;
                let mut first = true;
                while self.key(&mut first)?.is_some() {
                    self.skip(depth + 1)?;
                }
                Ok(())
            }
            Some(b'[') => {
                below(depth)?;
                self.at += 1;
                let mut first = true;
                while self.item(&mut first, b']')? {
                    self.skip(depth + 1)?;
                }
                Ok(())
            }
            Some(b'"') => self.string().map(|_| ()),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(_) => self.number().map(|_| ()),
            None => Err(self.unexpected()),
        }
    }

    /// Counts the elements of an array.
    fn leaves(&mut self, depth: usize, leaves: &mut Leaves) -> Result<(), Wrong> {
        below(depth)?;
        self.open(b'[', "`data`")?;
        let mut first = true;
        while self.item(&mut first, b']')? {
            match self.peek() {
                Some(b'[') => self.leaves(depth + 1, leaves)?,
                Some(b'"') => {
                    self.string()?;
                    leaves.strings += 1;
                }
                Some(b't') => {
                    self.word(b"true")?;
                    leaves.bools += 1;
                }
                Some(b'f') => {
                    self.word(b"false")?;
                    leaves.bools += 1;
                }
                Some(_) => match self.number()? {
                    Number::Whole => leaves.whole += 1,
                    Number::Fraction => leaves.fractions += 1,
                    Number::Null => leaves.nulls += 1,
                },
                None => return Err(self.unexpected()),
            }
        }
        Ok(())
    }

    fn tensor(&mut self) -> Result<Keys<'a>, Wrong> {
        let mut keys = Keys::default();
        let mut first = true;
        while let Some(key) = self.key(&mut first)? {
            match &*key {
                b"name" => keys.name = self.string()?,
                b"datatype" => keys.dtype = self.string()?,
                b"shape" => keys.shape = Some(self.shape()?),
                b"data" => {
                    let mut leaves = Leaves::default();
                    self.leaves(0, &mut leaves)?;
                    keys.data = Some(leaves);
                }
                b"parameters" => keys.binary_size = self.binary_size()?,
                _ => self.skip(0)?,
            }
        }
        Ok(keys)
    }

    fn shape(&mut self) -> Result<Shape, Wrong> {
        let mut shape = Shape::default();
        self.open(b'[', "`shape`")?;
        let mut first = true;
        while self.item(&mut first, b']')? {
            shape.push(self.count()?)?;
        }
        Ok(shape)
    }

    fn binary_size(&mut self) -> Result<Option<u64>, Wrong> {
        // KServe's model server sends null for a missing value.
        if self.peek() == Some(b'n') {
            return self.skip(0).map(|()| None);
        }
        let mut size = None;
        let mut first = true;
        while let Some(key) = self.key(&mut first)? {
            match &*key {
                b"binary_data_size" => size = Some(self.count()?),
                _ => self.skip(0)?,
            }
        }
        Ok(size)
    }
}

fn below(depth: usize) -> Result<(), Wrong> {
    if depth < DEPTH {
        return Ok(());
    }
    Err(wrong(format_args!("values nested deeper than {DEPTH}")))
}
