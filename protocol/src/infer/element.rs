//! JSON arrays of elements to little-endian bytes, and back, without a value in between.
//!
//! In: a serde deserializer at a `data` array, or raw bytes. Out: raw bytes, or JSON text. The array may be flat or
//! nested as the shape says; a nest of another form is refused. The memory of an array is reserved before it is
//! allocated.

use super::budget::{MemoryBudget, OVER_BUDGET};
use super::nonfinite;
use crate::tensor::{DataType, element_count};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// State shared by all arrays of a text.
#[derive(Clone, Copy)]
pub(super) struct ReadContext<'a> {
    pub(super) budget: &'a dyn MemoryBudget,
    /// Bytes of the text: it cannot hold more elements than fit into it.
    pub(super) text_bytes: usize,
    /// If true, objects with an empty key stand for numbers ([`nonfinite`]).
    pub(super) placeholders: bool,
}

impl ReadContext<'_> {
    /// Memory for `count` elements: as many as the client claims, but no more than its text can hold; for elements of any
    /// length, a part of the text's own size besides. None where the budget is spent.
    pub(super) fn reserve(&self, dtype: DataType, count: usize) -> Option<Vec<u8>> {
        let bytes = match dtype.size() {
            // The shortest element is a digit and its comma.
            Some(size) => count.min(self.text_bytes / 2 + 1).saturating_mul(size),
            // The shortest is two quotes and a comma; what text is left is theirs, up to so much each.
            None => {
                let count = count.min(self.text_bytes / 3 + 1);
                let text = self.text_bytes.saturating_sub(3 * count);
                count
                    .saturating_mul(4)
                    .saturating_add(text.min(count.saturating_mul(TEXT_BYTES)))
            }
        };
        self.budget.take(bytes).then(|| Vec::with_capacity(bytes))
    }
}

/// Bytes of one element's text that are reserved before the first is read.
const TEXT_BYTES: usize = 16;

/// Requirements on a `data` array.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) dtype: DataType,
    pub(super) shape: &'a [i64],
    /// `input `x``, for messages.
    pub(super) label: &'a str,
    /// If true, `null` among floats is NaN (replies); otherwise an error (requests).
    pub(super) null_is_nan: bool,
    pub(super) reading: ReadContext<'a>,
}

impl<'de> DeserializeSeed<'de> for Expected<'_> {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u8>, D::Error> {
        match self.dtype {
            DataType::Bool => read::<Bool, D>(self, deserializer),
            DataType::Uint8 => read::<u8, D>(self, deserializer),
            DataType::Uint16 => read::<u16, D>(self, deserializer),
            DataType::Uint32 => read::<u32, D>(self, deserializer),
            DataType::Uint64 => read::<u64, D>(self, deserializer),
            DataType::Int8 => read::<i8, D>(self, deserializer),
            DataType::Int16 => read::<i16, D>(self, deserializer),
            DataType::Int32 => read::<i32, D>(self, deserializer),
            DataType::Int64 => read::<i64, D>(self, deserializer),
            DataType::Fp32 => read::<f32, D>(self, deserializer),
            DataType::Fp64 => read::<f64, D>(self, deserializer),
            DataType::Bytes => read::<Text, D>(self, deserializer),
            DataType::Fp16 | DataType::Bf16 => Err(D::Error::custom(format_args!(
                "{}: {} has no JSON form, send it as binary data",
                self.label, self.dtype
            ))),
        }
    }
}

fn read<'de, E: Element, D: Deserializer<'de>>(expected: Expected<'_>, deserializer: D) -> Result<Vec<u8>, D::Error> {
    let count = element_count(expected.shape).ok_or_else(|| {
        D::Error::custom(format_args!(
            "{}: `shape` {:?} has a negative dimension or is too large",
            expected.label, expected.shape
        ))
    })?;
    let out = expected.reading.reserve(expected.dtype, count);
    let mut sink = Sink {
        out: out.ok_or_else(|| D::Error::custom(format_args!("{}: {OVER_BUDGET}", expected.label)))?,
        count,
        left: count,
        expected,
    };
    let level = Level::<E> {
        sink: &mut sink,
        depth: 0,
        element: PhantomData,
    };
    deserializer.deserialize_seq(level)?;
    if sink.left > 0 {
        return Err(D::Error::custom(format_args!(
            "{}: {} elements in `data`, `shape` {:?} wants {count}",
            expected.label,
            count - sink.left,
            expected.shape
        )));
    }
    Ok(sink.out)
}

/// Receiver of elements, with the number that may still follow.
struct Sink<'a> {
    out: Vec<u8>,
    /// All that the shape wants.
    count: usize,
    left: usize,
    expected: Expected<'a>,
}

impl Sink<'_> {
    /// Makes room for `bytes` more, as elements of any length may need; false where the budget is spent.
    fn grows(&mut self, bytes: usize) -> bool {
        if bytes <= self.out.capacity() - self.out.len() {
            return true;
        }
        let capacity = (self.out.len() + bytes).max(self.out.capacity() * 2);
        let granted = self.expected.reading.budget.take(capacity);
        if granted {
            self.out.reserve_exact(capacity - self.out.len());
        }
        granted
    }
}

/// One array of the nest.
struct Level<'s, 'a, E> {
    sink: &'s mut Sink<'a>,
    depth: usize,
    element: PhantomData<E>,
}

/// Kind of values in an array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scalar,
    Array,
}

impl<'de, E: Element> Visitor<'de> for Level<'_, '_, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array as `data` of {}", self.sink.expected.label)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { sink, depth, .. } = self;
        let mut seen: Option<Kind> = None;
        let mut len = 0_i64;
        while let Some(kind) = seq.next_element_seed(Item::<E> {
            sink,
            depth,
            element: PhantomData,
        })? {
            if seen.is_some_and(|seen| seen != kind) {
                return Err(A::Error::custom(format_args!(
                    "{}: `data` mixes arrays and values",
                    sink.expected.label
                )));
            }
            seen = Some(kind);
            len += 1;
        }
        let shape = sink.expected.shape;
        let flat = depth == 0 && seen != Some(Kind::Array);
        let innermost = depth + 1 == shape.len();
        let nested = shape.get(depth) == Some(&len) && (innermost || seen != Some(Kind::Scalar));
        if flat || nested {
            Ok(())
        } else {
            Err(A::Error::custom(format_args!(
                "{}: `data` is neither flat nor nested as `shape` {shape:?}: an array of {len} at depth {depth}",
                sink.expected.label
            )))
        }
    }
}

/// One item of an array: an element, or an array one level down.
struct Item<'s, 'a, E> {
    sink: &'s mut Sink<'a>,
    depth: usize,
    element: PhantomData<E>,
}

impl<'de, E: Element> DeserializeSeed<'de> for Item<'_, '_, E> {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<E: Element> Item<'_, '_, E> {
    fn put<Err: Error>(self, value: Value<'_>) -> Result<Kind, Err> {
        let Expected {
            dtype, shape, label, ..
        } = self.sink.expected;
        if self.sink.left == 0 {
            return Err(Err::custom(format_args!(
                "{label}: more elements in `data` than `shape` {shape:?} wants"
            )));
        }
        if let Value::Text(text) = value
            && !self.sink.grows(text.len().saturating_add(4))
        {
            return Err(Err::custom(format_args!("{label}: {OVER_BUDGET}")));
        }
        let out = &mut self.sink.out;
        let taken = match value {
            Value::Bool(value) => E::boolean(value, out),
            Value::Unsigned(value) => E::unsigned(value, out),
            Value::Signed(value) => E::signed(value, out),
            Value::Float(value) => E::float(value, out),
            Value::Text(value) => E::text(value, out),
            Value::Null => self.sink.expected.null_is_nan && E::float(f64::NAN, out),
        };
        if !taken {
            let (index, hint) = (self.sink.count - self.sink.left, value.hint(dtype));
            let what = format_args!("{label}: element {index}: {value} in `data` is no {dtype}{hint}");
            return Err(Err::custom(what));
        }
        self.sink.left -= 1;
        Ok(Kind::Scalar)
    }
}

/// An element as JSON has it.
#[derive(Clone, Copy)]
enum Value<'a> {
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
    Null,
}

/// Whole numbers below this are the same as a double and as an integer.
const MAX_WHOLE: f64 = 9e15;

impl Value<'_> {
    /// Advice for the error, if there is any.
    fn hint(self, dtype: DataType) -> String {
        let float = matches!(dtype, DataType::Fp32 | DataType::Fp64);
        match self {
            Self::Float(value) if !float && value.fract() == 0.0 && value.abs() < MAX_WHOLE => {
                // Added to 0, which has no sign in an integer.
                format!(": integers have no point and no exponent, write {:.0}", value + 0.0)
            }
            Self::Null | Self::Text(_) if float => {
                ": what is no number is written NaN, Infinity or -Infinity, without \
                quotes, or sent as binary data (the header Inference-Header-Content-Length)"
                    .to_owned()
            }
            Self::Float(_) if float => ": it is too large; send FP64, or Infinity".to_owned(),
            _ => String::new(),
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            // With a point or an exponent, as it was written.
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(_) => f.write_str("a string"),
            Self::Null => f.write_str("null"),
        }
    }
}

impl<'de, E: Element> Visitor<'de> for Item<'_, '_, E> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} elements in `data` of {}",
            self.sink.expected.dtype, self.sink.expected.label
        )
    }

    fn visit_bool<Err: Error>(self, value: bool) -> Result<Kind, Err> {
        self.put(Value::Bool(value))
    }

    fn visit_u64<Err: Error>(self, value: u64) -> Result<Kind, Err> {
        self.put(Value::Unsigned(value))
    }

    fn visit_i64<Err: Error>(self, value: i64) -> Result<Kind, Err> {
        self.put(Value::Signed(value))
    }

    fn visit_f64<Err: Error>(self, value: f64) -> Result<Kind, Err> {
        self.put(Value::Float(value))
    }

    fn visit_str<Err: Error>(self, value: &str) -> Result<Kind, Err> {
        self.put(Value::Text(value))
    }

    fn visit_unit<Err: Error>(self) -> Result<Kind, Err> {
        self.put(Value::Null)
    }

    /// A placeholder of a number that JSON cannot write.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        if !self.sink.expected.reading.placeholders {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        let entry: Option<(&str, u64)> = map.next_entry()?;
        let value = entry.and_then(|(key, number)| nonfinite::number_of(key, number));
        match value {
            Some(value) => self.put(Value::Float(value)),
            None => Err(A::Error::invalid_type(Unexpected::Map, &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Kind, A::Error> {
        let depth = self.depth + 1;
        if depth >= self.sink.expected.shape.len() {
            return Err(A::Error::custom(format_args!(
                "{}: `data` is nested deeper than `shape` {:?}",
                self.sink.expected.label, self.sink.expected.shape
            )));
        }
        Level::<E> {
            sink: self.sink,
            depth,
            element: PhantomData,
        }
        .visit_seq(seq)?;
        Ok(Kind::Array)
    }
}

/// Pushes one JSON value as an element; false where the type cannot hold it.
pub(super) trait Element {
    fn boolean(_: bool, _: &mut Vec<u8>) -> bool {
        false
    }
    fn unsigned(_: u64, _: &mut Vec<u8>) -> bool {
        false
    }
    fn signed(_: i64, _: &mut Vec<u8>) -> bool {
        false
    }
    fn float(_: f64, _: &mut Vec<u8>) -> bool {
        false
    }
    fn text(_: &str, _: &mut Vec<u8>) -> bool {
        false
    }
}

/// Runs a block with `$element` as the [`Element`] of a number's type; leaves the function with nothing for other types.
macro_rules! push_with {
    ($dtype:expr, $element:ident => $block:block) => {{
        macro_rules! with {
            ($number:ty) => {{
                type $element = $number;
                $block
            }};
        }
        match $dtype {
            DataType::Uint8 => with!(u8),
            DataType::Uint16 => with!(u16),
            DataType::Uint32 => with!(u32),
            DataType::Uint64 => with!(u64),
            DataType::Int8 => with!(i8),
            DataType::Int16 => with!(i16),
            DataType::Int32 => with!(i32),
            DataType::Int64 => with!(i64),
            DataType::Fp32 => with!(f32),
            DataType::Fp64 => with!(f64),
            DataType::Bool | DataType::Bytes | DataType::Fp16 | DataType::Bf16 => return None,
        }
    }};
}
pub(super) use push_with;

/// Element of a `BOOL` tensor.
struct Bool;
/// Element of a `BYTES` tensor.
struct Text;

impl Element for Bool {
    fn boolean(value: bool, out: &mut Vec<u8>) -> bool {
        out.push(u8::from(value));
        true
    }
}

impl Element for Text {
    fn text(value: &str, out: &mut Vec<u8>) -> bool {
        let Ok(len) = u32::try_from(value.len()) else {
            return false;
        };
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(value.as_bytes());
        true
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Element for $int {
            fn unsigned(value: u64, out: &mut Vec<u8>) -> bool {
                <$int>::try_from(value).is_ok_and(|v| { out.extend_from_slice(&v.to_le_bytes()); true })
            }
            fn signed(value: i64, out: &mut Vec<u8>) -> bool {
                <$int>::try_from(value).is_ok_and(|v| { out.extend_from_slice(&v.to_le_bytes()); true })
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Element for f32 {
    fn unsigned(value: u64, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&(value as Self).to_le_bytes());
        true
    }
    fn signed(value: i64, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&(value as Self).to_le_bytes());
        true
    }
    fn float(value: f64, out: &mut Vec<u8>) -> bool {
        let narrow = if value.is_nan() { Self::NAN } else { value as Self };
        out.extend_from_slice(&narrow.to_le_bytes());
        // What became infinite is too large; what was is what the client means.
        !narrow.is_infinite() || value.is_infinite()
    }
}

impl Element for f64 {
    fn unsigned(value: u64, out: &mut Vec<u8>) -> bool {
        Self::float(value as Self, out)
    }
    fn signed(value: i64, out: &mut Vec<u8>) -> bool {
        Self::float(value as Self, out)
    }
    fn float(value: f64, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&value.to_le_bytes());
        true
    }
}
