//! JSON arrays of elements to little-endian bytes, and back, without a value in between.
//!
//! In: a serde deserializer at a `data` array, or raw bytes. Out: raw bytes, or JSON text. The array may be flat or
//! nested as the shape says; a nest of another form is refused.

use crate::infer::bytes_elements;
use crate::tensor::{DataType, element_count};
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// What a `data` array must be.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) dtype: DataType,
    pub(super) shape: &'a [i64],
    /// `input `x``, for messages.
    pub(super) label: &'a str,
    /// Whether `null` among floats is NaN (replies) or an error (requests).
    pub(super) null_is_nan: bool,
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

/// Memory set aside before the first element: what the client claims, but no more than this.
const MAX_RESERVED_BYTES: usize = 1 << 20;

fn read<'de, E: Element, D: Deserializer<'de>>(expected: Expected<'_>, deserializer: D) -> Result<Vec<u8>, D::Error> {
    let count = element_count(expected.shape).ok_or_else(|| {
        D::Error::custom(format_args!(
            "{}: `shape` {:?} has a negative dimension or is too large",
            expected.label, expected.shape
        ))
    })?;
    let reserved = count
        .saturating_mul(expected.dtype.size().unwrap_or(4))
        .min(MAX_RESERVED_BYTES);
    let mut sink = Sink {
        out: Vec::with_capacity(reserved),
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

/// Where elements go, and how many may still come.
struct Sink<'a> {
    out: Vec<u8>,
    left: usize,
    expected: Expected<'a>,
}

/// One array of the nest.
struct Level<'s, 'a, E> {
    sink: &'s mut Sink<'a>,
    depth: usize,
    element: PhantomData<E>,
}

/// What an array held.
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
    fn put<Err: Error>(self, shown: impl fmt::Display, push: impl FnOnce(&mut Vec<u8>) -> bool) -> Result<Kind, Err> {
        let Expected {
            dtype, shape, label, ..
        } = self.sink.expected;
        if self.sink.left == 0 {
            return Err(Err::custom(format_args!(
                "{label}: more elements in `data` than `shape` {shape:?} wants"
            )));
        }
        if !push(&mut self.sink.out) {
            return Err(Err::custom(format_args!("{label}: {shown} in `data` is no {dtype}")));
        }
        self.sink.left -= 1;
        Ok(Kind::Scalar)
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
        self.put(value, |out| E::boolean(value, out))
    }

    fn visit_u64<Err: Error>(self, value: u64) -> Result<Kind, Err> {
        self.put(value, |out| E::unsigned(value, out))
    }

    fn visit_i64<Err: Error>(self, value: i64) -> Result<Kind, Err> {
        self.put(value, |out| E::signed(value, out))
    }

    fn visit_f64<Err: Error>(self, value: f64) -> Result<Kind, Err> {
        self.put(value, |out| E::float(value, out))
    }

    fn visit_str<Err: Error>(self, value: &str) -> Result<Kind, Err> {
        self.put("a string", |out| E::text(value, out))
    }

    fn visit_unit<Err: Error>(self) -> Result<Kind, Err> {
        let allowed = self.sink.expected.null_is_nan;
        self.put("null", |out| allowed && E::float(f64::NAN, out))
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
        let narrow = value as Self;
        out.extend_from_slice(&narrow.to_le_bytes());
        !narrow.is_infinite()
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

/// Writes a tensor's data as a flat JSON array. Floats are the shortest text that reads back; those that JSON cannot
/// hold (NaN, infinities) are `null`.
///
/// # Panics
/// When the type has no JSON form, or a `BYTES` element is not UTF-8.
pub(super) fn write(dtype: DataType, data: &[u8], out: &mut Vec<u8>) {
    macro_rules! numbers {
        ($number:ty) => {
            list(data.chunks_exact(size_of::<$number>()), out, |chunk, out| {
                let number = <$number>::from_le_bytes(chunk.try_into().expect("chunks have the element's size"));
                json(out, &number);
            })
        };
    }
    match dtype {
        DataType::Bool => list(data.iter(), out, |&b, out| json(out, &(b != 0))),
        DataType::Uint8 => list(data.iter(), out, |b, out| json(out, b)),
        DataType::Uint16 => numbers!(u16),
        DataType::Uint32 => numbers!(u32),
        DataType::Uint64 => numbers!(u64),
        DataType::Int8 => numbers!(i8),
        DataType::Int16 => numbers!(i16),
        DataType::Int32 => numbers!(i32),
        DataType::Int64 => numbers!(i64),
        DataType::Fp32 => numbers!(f32),
        DataType::Fp64 => numbers!(f64),
        DataType::Bytes => list(bytes_elements(data), out, |element, out| {
            let text = element.ok().and_then(|bytes| std::str::from_utf8(bytes).ok());
            json(out, text.expect("only BYTES tensors of UTF-8 are written as JSON"));
        }),
        DataType::Fp16 | DataType::Bf16 => panic!("{dtype} has no JSON form"),
    }
}

fn list<T>(items: impl Iterator<Item = T>, out: &mut Vec<u8>, mut write: impl FnMut(T, &mut Vec<u8>)) {
    out.push(b'[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// Numbers and strings cannot fail to serialise into memory.
pub(super) fn json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("writing a scalar to memory");
}
