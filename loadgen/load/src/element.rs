//! One element of a tensor: conversion of numbers to and from little-endian bytes in any of the protocol's types.
//!
//! In: a number and a type. Out: bytes, or nothing if the type cannot hold it. `BYTES` has no numbers.

use half::{bf16, f16};
pub use tierlab_protocol::infer::push_bytes;
use tierlab_protocol::tensor::DataType;

/// Number from a file, plan or reply.
#[derive(Debug, Clone, Copy, PartialEq, strum::Display)]
pub enum Number {
    /// Integer, exact in every integer type.
    #[strum(transparent)]
    Int(i128),
    /// Any other number.
    #[strum(transparent)]
    Float(f64),
}

/// True for the types of floating-point numbers.
pub(crate) const fn is_float(dtype: DataType) -> bool {
    matches!(dtype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
}

/// Largest integer below which all integers are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Number {
    /// Returns the integer value; `None` for a fraction, or a float too large to be exact.
    pub fn whole(self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(value),
            Self::Float(value) => (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i128),
        }
    }

    /// Value as a double; a large integer loses its last digits.
    pub const fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// Appends a number as an element of a type. Returns `false` and appends nothing if the type cannot hold it: a fraction
/// in an integer, a value out of range, anything in `BYTES`.
pub fn push(dtype: DataType, value: Number, out: &mut Vec<u8>) -> bool {
    macro_rules! float {
        ($narrow:expr) => {{
            let narrow = $narrow;
            // A finite value that became infinite is too large.
            if f64::from(narrow).is_infinite() && value.float().is_finite() {
                return false;
            }
            out.extend_from_slice(&narrow.to_le_bytes());
        }};
    }
    match (dtype, dtype.integers(), value.whole()) {
        (_, Some(integers), Some(whole)) if integers.contains(&whole) => {
            // Two's complement: the low bytes are those of the narrower integer.
            let size = dtype.size().unwrap_or_default();
            out.extend_from_slice(&whole.to_le_bytes()[..size]);
        }
        (DataType::Fp16, ..) => float!(f16::from_f64(value.float())),
        (DataType::Bf16, ..) => float!(bf16::from_f64(value.float())),
        (DataType::Fp32, ..) => float!(value.float() as f32),
        (DataType::Fp64, ..) => float!(value.float()),
        _ => return false,
    }
    true
}

/// Returns the number of an element; `None` if the bytes are not one element of the type, or the type is `BYTES`.
pub fn read(dtype: DataType, bytes: &[u8]) -> Option<Number> {
    if dtype.size() != Some(bytes.len()) {
        return None;
    }
    if let Some(integers) = dtype.integers() {
        let is_negative = integers.start < 0 && *bytes.last()? >= 0x80;
        let mut wide = [if is_negative { 0xff } else { 0 }; size_of::<i128>()];
        wide[..bytes.len()].copy_from_slice(bytes);
        return Some(Number::Int(i128::from_le_bytes(wide)));
    }
    Some(Number::Float(match dtype {
        DataType::Fp16 => f16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
        DataType::Bf16 => bf16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
        DataType::Fp32 => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        DataType::Fp64 => f64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Numbers of every type read back as written, floats up to the type's precision.
        #[test]
        fn numbers_read_back(value: i64, float: f64, which in 0_usize..13) {
            let dtype = DataType::ALL[which];
            let mut out = Vec::new();
            if push(dtype, Number::Int(value.into()), &mut out) {
                prop_assert_eq!(Some(out.len()), dtype.size());
                let back = read(dtype, &out).unwrap();
                let near = (back.float() - value as f64).abs() <= (value as f64).abs() / 200.0;
                prop_assert!(near, "{} became {}", value, back);
                if back.whole().is_some() && matches!(back, Number::Int(_)) {
                    prop_assert_eq!(back, Number::Int(value.into()));
                }
            } else {
                prop_assert!(out.is_empty());
            }
            out.clear();
            if push(dtype, Number::Float(float), &mut out) {
                prop_assert_eq!(Some(out.len()), dtype.size());
            }
        }

        #[test]
        fn any_bytes_are_an_element_or_none(bytes in prop::collection::vec(any::<u8>(), 0..10), which in 0_usize..14) {
            let dtype = DataType::ALL[which];
            prop_assert_eq!(read(dtype, &bytes).is_some(), dtype.size() == Some(bytes.len()));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let fits = |dtype, value| push(dtype, value, &mut Vec::new());
        for (dtype, value) in [
            (DataType::Uint8, Number::Int(256)),
            (DataType::Uint64, Number::Int(-1)),
            (DataType::Int32, Number::Float(0.5)),
            (DataType::Int64, Number::Float(1e300)),
            (DataType::Bool, Number::Int(2)),
            (DataType::Fp16, Number::Float(1e5)),
            (DataType::Fp32, Number::Float(1e300)),
            (DataType::Bytes, Number::Int(1)),
        ] {
            assert!(!fits(dtype, value), "{dtype} took {value}");
        }
        for (dtype, value) in [
            (DataType::Int64, Number::Int(i128::from(i64::MIN))),
            (DataType::Uint64, Number::Int(i128::from(u64::MAX))),
            (DataType::Int32, Number::Float(-3.0)),
            (DataType::Fp16, Number::Float(f64::INFINITY)),
            (DataType::Bf16, Number::Float(1e30)),
        ] {
            assert!(fits(dtype, value), "{dtype} refused {value}");
        }
    }
}
