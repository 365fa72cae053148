//! Converts JSON arrays of elements to little-endian bytes, without intermediate values.
//!
//! In: a reader at a `data` array. Out: raw bytes. The array may be flat or nested as in `shape`; other nesting is
//! refused. The memory of an array is reserved before it is allocated.

use super::tensor::push_bytes;
use super::text::{Read, Reader, Scalar};
use super::{BadRequest, OVER_BUDGET};
use crate::tensor::{DataType, element_count};
use std::fmt;

/// Bytes reserved for one element's text before the first is read.
const TEXT_BYTES: usize = 16;

/// Requirements on a `data` array.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) dtype: DataType,
    pub(super) shape: &'a [i64],
}

impl Expected<'_> {
    /// Reads the array.
    pub(super) fn read(self, reader: &mut Reader<'_>) -> Read<Vec<u8>> {
        match self.dtype {
            DataType::Bool => self.elements::<Bool>(reader),
            DataType::Uint8 => self.elements::<u8>(reader),
            DataType::Uint16 => self.elements::<u16>(reader),
            DataType::Uint32 => self.elements::<u32>(reader),
            DataType::Uint64 => self.elements::<u64>(reader),
            DataType::Int8 => self.elements::<i8>(reader),
            DataType::Int16 => self.elements::<i16>(reader),
            DataType::Int32 => self.elements::<i32>(reader),
            DataType::Int64 => self.elements::<i64>(reader),
            DataType::Fp32 => self.elements::<f32>(reader),
            DataType::Fp64 => self.elements::<f64>(reader),
            DataType::Bytes => self.elements::<Text>(reader),
            DataType::Fp16 | DataType::Bf16 => {
                Err(reader.fault(&format!("{} has no JSON form, send it as binary data", self.dtype)))
            }
        }
    }

    fn elements<E: Element>(self, reader: &mut Reader<'_>) -> Read<Vec<u8>> {
        let shape = self.shape;
        let Some(count) = element_count(shape) else {
            return Err(reader.fault(&format!("`shape` {shape:?} has a negative dimension or is too large")));
        };
        let Some(out) = reserve(reader, self.dtype, count) else {
            return Err(reader.fault(OVER_BUDGET));
        };
        let mut sink = Sink {
            out,
            count,
            left: count,
            expected: self,
        };
        sink.array::<E>(reader, 0)?;
        if sink.left > 0 {
            let found = count - sink.left;
            let detail = format!("{found} elements in `data`, but `shape` {shape:?} requires {count}");
            return Err(reader.fault(&detail));
        }
        Ok(sink.out)
    }
}

/// Reserves memory for `count` elements: as many as the client claims, but no more than its text can hold; for elements
/// of any length, also for their text. `None` if the budget is exhausted.
fn reserve(reader: &Reader<'_>, dtype: DataType, count: usize) -> Option<Vec<u8>> {
    let bytes = match dtype.size() {
        // The shortest element is a digit and its comma.
        Some(size) => count.min(reader.len() / 2 + 1).saturating_mul(size),
        // The shortest element is two quotes and a comma; the remaining text is the elements', up to `TEXT_BYTES` each.
        None => {
            let count = count.min(reader.len() / 3 + 1);
            let text = reader.len().saturating_sub(3 * count);
            count
                .saturating_mul(4)
                .saturating_add(text.min(count.saturating_mul(TEXT_BYTES)))
        }
    };
    reader.budget.take(bytes).then(|| Vec::with_capacity(bytes))
}

/// Receiver of elements.
struct Sink<'a> {
    out: Vec<u8>,
    /// Elements required by the shape.
    count: usize,
    left: usize,
    expected: Expected<'a>,
}

impl Sink<'_> {
    /// Reads one array of the nest.
    fn array<E: Element>(&mut self, reader: &mut Reader<'_>, depth: usize) -> Read<()> {
        let shape = self.expected.shape;
        let before = self.left;
        // Arrays inside this one, and the elements directly in it.
        let (mut arrays, mut inside) = (0, 0);
        reader.array("an array as `data`", |reader| {
            reader.peek();
            // Numbers come first and separately: handled with all other values, each would go through memory.
            if let Some(number) = reader.short_number() {
                return self.put::<E>(reader, number);
            }
            match reader.peek() {
                Some(b'[') if depth + 1 >= shape.len() => {
                    Err(reader.fault(&format!("`data` is nested deeper than `shape` {shape:?}")))
                }
                Some(b'[') => {
                    let left = self.left;
                    self.array::<E>(reader, depth + 1)?;
                    arrays += 1;
                    inside += left - self.left;
                    Ok(())
                }
                Some(b'"') => {
                    let text = reader.string()?;
                    if !self.grows(reader, text.len().saturating_add(4)) {
                        return Err(reader.fault(OVER_BUDGET));
                    }
                    self.put::<E>(reader, Scalar::Text(&text))
                }
                _ => {
                    let scalar = reader.rare_scalar()?;
                    self.put::<E>(reader, scalar)
                }
            }
        })?;
        let scalars = before - self.left - inside;
        if arrays > 0 && scalars > 0 {
            return Err(reader.fault("`data` mixes arrays and values"));
        }
        let len = i64::try_from(arrays + scalars).unwrap_or(i64::MAX);
        let flat = depth == 0 && arrays == 0;
        let innermost = depth + 1 == shape.len();
        if flat || (shape.get(depth) == Some(&len) && (innermost || scalars == 0)) {
            return Ok(());
        }
        Err(reader.fault(&format!(
            "`data` is neither flat nor nested as `shape` {shape:?}: an array of {len} at depth {depth}"
        )))
    }

    /// Makes room for `bytes` more, as elements of any length may need; false if the budget is exhausted.
    fn grows(&mut self, reader: &Reader<'_>, bytes: usize) -> bool {
        if bytes <= self.out.capacity() - self.out.len() {
            return true;
        }
        let capacity = (self.out.len() + bytes).max(self.out.capacity() * 2);
        let granted = reader.budget.take(capacity);
        if granted {
            self.out.reserve_exact(capacity - self.out.len());
        }
        granted
    }

    #[inline(always)]
    fn put<E: Element>(&mut self, reader: &Reader<'_>, scalar: Scalar<'_>) -> Read<()> {
        if self.left == 0 || !E::push(scalar, &mut self.out) {
            return Err(self.refused(reader, scalar));
        }
        self.left -= 1;
        Ok(())
    }

    #[cold]
    fn refused(&self, reader: &Reader<'_>, scalar: Scalar<'_>) -> BadRequest {
        let Expected { dtype, shape } = self.expected;
        if self.left == 0 {
            return reader.fault(&format!("more elements in `data` than `shape` {shape:?} allows"));
        }
        let (index, hint) = (self.count - self.left, scalar.hint(dtype));
        let detail = format!("element {index}: {scalar} in `data` is not a valid {dtype}{hint}");
        reader.fault(&detail)
    }
}

/// Whole numbers below this are exact as doubles.
const MAX_EXACT: f64 = 9e15;

impl Scalar<'_> {
    /// Returns advice for the error, if there is any.
    fn hint(self, dtype: DataType) -> String {
        let float = matches!(dtype, DataType::Fp32 | DataType::Fp64);
        match self {
            Self::Float(value) if !float && value.fract() == 0.0 && value.abs() < MAX_EXACT => {
                // Adding 0 drops the sign of -0.
                format!(
                    " (integers do not have a point or an exponent: write {:.0})",
                    value + 0.0
                )
            }
            Self::Null | Self::Text(_) if float => " (write NaN, Infinity or -Infinity, without \
                quotes, or send binary data with the header Inference-Header-Content-Length)"
                .to_owned(),
            Self::Float(_) if float => " (too large: send FP64, or Infinity)".to_owned(),
            _ => String::new(),
        }
    }
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            // Printed with a point or an exponent, as written.
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(_) => f.write_str("a string"),
            Self::Null => f.write_str("null"),
        }
    }
}

/// Pushes one JSON value as an element; false if the type cannot hold it.
trait Element {
    fn push(scalar: Scalar<'_>, out: &mut Vec<u8>) -> bool;
}

/// Element of a `BOOL` tensor.
struct Bool;
/// Element of a `BYTES` tensor.
struct Text;

impl Element for Bool {
    fn push(scalar: Scalar<'_>, out: &mut Vec<u8>) -> bool {
        let Scalar::Bool(value) = scalar else { return false };
        out.push(u8::from(value));
        true
    }
}

impl Element for Text {
    fn push(scalar: Scalar<'_>, out: &mut Vec<u8>) -> bool {
        let Scalar::Text(text) = scalar else { return false };
        push_bytes(text.as_bytes(), out)
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Element for $int {
            #[inline(always)]
            fn push(scalar: Scalar<'_>, out: &mut Vec<u8>) -> bool {
                let value = match scalar {
                    Scalar::Unsigned(value) => <$int>::try_from(value).ok(),
                    Scalar::Signed(value) => <$int>::try_from(value).ok(),
                    _ => None,
                };
                value.is_some_and(|value| { out.extend_from_slice(&value.to_le_bytes()); true })
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Element for f32 {
    #[inline(always)]
    fn push(scalar: Scalar<'_>, out: &mut Vec<u8>) -> bool {
        let value = match scalar {
            Scalar::Unsigned(value) => value as Self,
            Scalar::Signed(value) => value as Self,
            Scalar::Float(value) if value.is_nan() => Self::NAN,
            Scalar::Float(value) => value as Self,
            _ => return false,
        };
        out.extend_from_slice(&value.to_le_bytes());
        // A finite value that becomes infinite is too large; an infinite value is accepted.
        !value.is_infinite() || matches!(scalar, Scalar::Float(value) if value.is_infinite())
    }
}

impl Element for f64 {
    #[inline(always)]
    fn push(scalar: Scalar<'_>, out: &mut Vec<u8>) -> bool {
        let value = match scalar {
            Scalar::Unsigned(value) => value as Self,
            Scalar::Signed(value) => value as Self,
            Scalar::Float(value) => value,
            _ => return false,
        };
        out.extend_from_slice(&value.to_le_bytes());
        true
    }
}
