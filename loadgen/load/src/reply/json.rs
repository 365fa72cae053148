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

/// Counts of what a value holds, however nested.
#[derive(Debug, Clone, Copy, Default)]
struct Leaves {
    whole: u64,
    /// Numbers with a fraction or an exponent, and names of non-finite numbers.
    fractions: u64,
    strings: u64,
    bools: u64,
    nulls: u64,
    objects: u64,
}

impl Leaves {
    const fn all(self) -> u64 {
        self.whole + self.fractions + self.strings + self.bools + self.nulls + self.objects
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
                    self.text.skip()?;
                    return Err(wrong(format_args!(
                        "the reply is an error: `{}`",
                        quoted(self.text.json[at..self.text.at].trim_ascii())
                    )));
                }
                b"outputs" => self.outputs()?,
                _ => self.text.skip()?,
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

    /// Skips a number.
    fn number(&mut self, leaves: &mut Leaves) -> Result<(), Wrong> {
        let mut is_whole = true;
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
            is_whole = self.json[fraction..self.at].iter().all(|digit| *digit == b'0');
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
            is_whole = false;
        }
        leaves.whole += u64::from(is_whole);
        leaves.fractions += u64::from(!is_whole);
        Ok(())
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

    fn word(&mut self, word: &[u8], count: &mut u64) -> Result<(), Wrong> {
        if !self.json[self.at..].starts_with(word) {
            return Err(self.unexpected());
        }
        self.at += word.len();
        *count += 1;
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

    fn skip(&mut self) -> Result<(), Wrong> {
        self.count_leaves(0, &mut Leaves::default())
    }

    /// Skips a value, and counts what it holds.
    fn count_leaves(&mut self, depth: usize, leaves: &mut Leaves) -> Result<(), Wrong> {
        let mut first = true;
        match self.peek() {
            Some(b'{') => {
                below(depth)?;
                leaves.objects += 1;
                while self.key(&mut first)?.is_some() {
                    self.count_leaves(depth + 1, leaves)?;
                }
                Ok(())
            }
            Some(b'[') => {
                below(depth)?;
                self.at += 1;
                while self.item(&mut first, b']')? {
                    self.count_leaves(depth + 1, leaves)?;
                }
                Ok(())
            }
            Some(b'"') => {
                leaves.strings += 1;
                self.string().map(|_| ())
            }
            Some(b't') => self.word(b"true", &mut leaves.bools),
            Some(b'f') => self.word(b"false", &mut leaves.bools),
            Some(b'n') => self.word(b"null", &mut leaves.nulls),
            Some(b'N') => self.word(b"NaN", &mut leaves.fractions),
            Some(b'I') => self.word(b"Infinity", &mut leaves.fractions),
            Some(b'-') if self.json.get(self.at + 1) == Some(&b'I') => self.word(b"-Infinity", &mut leaves.fractions),
            Some(_) => self.number(leaves),
            None => Err(self.unexpected()),
        }
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
                    if self.peek() != Some(b'[') {
                        return Err(wrong(format_args!("`data` is no array, at byte {}", self.at)));
                    }
                    let leaves = keys.data.insert(Leaves::default());
                    self.count_leaves(0, leaves)?;
                }
                b"parameters" => keys.binary_size = self.binary_size()?,
                _ => self.skip()?,
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
            return self.skip().map(|()| None);
        }
        let mut size = None;
        let mut first = true;
        while let Some(key) = self.key(&mut first)? {
            match &*key {
                b"binary_data_size" => size = Some(self.count()?),
                _ => self.skip()?,
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
