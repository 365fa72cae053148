//! Conversion of numbers between types. In: values of Arrow. Out: little-endian elements. A number that does not fit is
//! refused; floats are rounded to the requested type, but never to infinity.

use arrow_cast::CastOptions;
use arrow_cast::display::FormatOptions;
use half::{bf16, f16};
use tierlab_protocol::tensor::DataType;

/// Options for Arrow casts that fail for a value that does not fit, instead of returning null.
pub(super) const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

/// True for elements that may be NaN.
pub(super) fn is_float(dtype: DataType) -> bool {
    matches!(dtype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
}

/// Number of any type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// Writes the number as an element; returns false if the type cannot hold it.
    #[inline]
    pub(super) fn put(self, dtype: DataType, slot: &mut [u8]) -> bool {
        match dtype {
            DataType::Fp64 => copy(slot, &self.float().to_le_bytes()),
            DataType::Fp32 => self.put_rounded(self.float() as f32, f32::to_le_bytes, slot),
            DataType::Fp16 => self.put_rounded(f16::from_f64(self.float()), f16::to_le_bytes, slot),
            DataType::Bf16 => self.put_rounded(bf16::from_f64(self.float()), bf16::to_le_bytes, slot),
            DataType::Bytes => false,
            _ => self.int().is_some_and(|int| put_int(int, dtype, slot)),
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }

    /// Writes the number as it was rounded, unless that turned a finite number into infinity.
    #[inline]
    fn put_rounded<T: Copy + Into<f64>, const N: usize>(
        self,
        rounded: T,
        bytes: fn(T) -> [u8; N],
        slot: &mut [u8],
    ) -> bool {
        (rounded.into().is_finite() || !self.float().is_finite()) && copy(slot, &bytes(rounded))
    }

    /// Returns the integer, if it is one.
    fn int(self) -> Option<i128> {
        match self {
            Self::Int(int) => Some(int),
            Self::Float(float) if float.fract() == 0.0 && float.abs() < 1e19 => Some(float as i128),
            Self::Float(_) => None,
        }
    }
}

fn put_int(int: i128, dtype: DataType, slot: &mut [u8]) -> bool {
    let bits = 8 * slot.len();
    let range = match dtype {
        DataType::Bool => 0..2,
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 | DataType::Uint64 => 0..1 << bits,
        _ => -(1 << (bits - 1))..1 << (bits - 1),
    };
    // Two's complement: the low bytes are those of the narrower integer.
    range.contains(&int) && copy(slot, &int.to_le_bytes()[..slot.len()])
}

#[inline]
fn copy(slot: &mut [u8], bytes: &[u8]) -> bool {
    slot.copy_from_slice(bytes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut slot = [0; 8];
        assert!(!Number::Int(300).put(DataType::Uint8, &mut slot[..1]));
        assert!(!Number::Int(-1).put(DataType::Uint64, &mut slot));
        assert!(!Number::Float(1.5).put(DataType::Int64, &mut slot));
        assert!(!Number::Float(f64::NAN).put(DataType::Int64, &mut slot));
        assert!(!Number::Int(2).put(DataType::Bool, &mut slot[..1]));
        assert!(!Number::Float(1e39).put(DataType::Fp32, &mut slot[..4]));
        assert!(!Number::Int(70_000).put(DataType::Fp16, &mut slot[..2]));
        assert!(!Number::Float(-f64::MAX).put(DataType::Bf16, &mut slot[..2]));
        assert!(Number::Float(f64::INFINITY).put(DataType::Fp16, &mut slot[..2]));
        assert!(Number::Float(f64::NAN).put(DataType::Fp32, &mut slot[..4]));
        assert!(Number::Int(65_504).put(DataType::Fp16, &mut slot[..2]));
        assert!(Number::Float(3.0).put(DataType::Uint8, &mut slot[..1]) && slot[0] == 3);
    }

    proptest! {
        #[test]
        fn numbers_keep_their_value(int: i64, float: f64) {
            let mut slot = [0; 8];
            prop_assert!(Number::Int(int.into()).put(DataType::Int64, &mut slot));
            prop_assert_eq!(i64::from_le_bytes(slot), int);
            prop_assert!(Number::Float(float).put(DataType::Fp64, &mut slot));
            prop_assert_eq!(f64::from_le_bytes(slot).to_bits(), float.to_bits());
        }
    }
}
