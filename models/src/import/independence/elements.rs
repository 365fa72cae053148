//! Elements of tensors, row by row: bytes of seeded inputs, and values of outputs.

use crate::weights::stream_seed;
use anyhow::{Result, bail};
use half::{bf16, f16};
use ort::value::{DynValue, TensorElementType};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use std::ops::Range;
use tierlab_protocol::infer::push_bytes;
use tierlab_protocol::tensor::DataType;

/// Maximum difference of two floats, as a share of the largest value of their output.
pub const FLOAT_TOLERANCE: f64 = 1e-4;
/// Maximum difference of two FP16 or BF16 values, as a share of the largest value of their output.
pub const HALF_TOLERANCE: f64 = 2e-2;

/// Returns the maximum difference of elements of a type, as a share of the largest value.
pub(super) const fn tolerance(dtype: DataType) -> f64 {
    match dtype {
        DataType::Fp32 | DataType::Fp64 => FLOAT_TOLERANCE,
        DataType::Fp16 | DataType::Bf16 => HALF_TOLERANCE,
        _ => 0.0,
    }
}

/// Distribution of seeded inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputKind {
    /// Floats from -1 to 1.
    Small,
    /// Floats from -100 to 100; every third row repeats the one before it, and every fifth is zero.
    Wide,
    /// Floats from 0 to 1.
    Positive,
    /// Integers of the largest value, as an index that must not exceed a table.
    LargestIndex,
}

impl InputKind {
    pub(super) const ALL: [Self; 3] = [Self::Small, Self::Wide, Self::Positive];

    fn float(self, unit: f64) -> f64 {
        match self {
            Self::Small | Self::LargestIndex => 2.0 * unit - 1.0,
            Self::Wide => 200.0 * unit - 100.0,
            Self::Positive => unit,
        }
    }
}

/// Creates `rows` rows of `width` elements for an input, in the protocol's binary form; integers lie below `limit`.
pub(super) fn seeded_rows(
    name: &str,
    dtype: DataType,
    (rows, width): (usize, usize),
    kind: InputKind,
    limit: u32,
) -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::from_seed(stream_seed(name, kind as u64, 0));
    // An empty string is four zero bytes.
    let row_bytes = width * dtype.size().unwrap_or(4);
    let mut generated: Vec<Vec<u8>> = Vec::with_capacity(rows);
    for row in 0..rows {
        let mut bytes = Vec::with_capacity(row_bytes);
        if kind == InputKind::Wide && row % 3 == 2 {
            bytes.clone_from(&generated[row - 1]);
        } else if kind == InputKind::Wide && row % 5 == 4 {
            bytes.resize(row_bytes, 0);
        } else {
            (0..width).for_each(|_| push_element(dtype, rng.next_u32(), kind, limit, &mut bytes));
        }
        generated.push(bytes);
    }
    generated
}

/// Appends the element that a random number gives.
fn push_element(dtype: DataType, random: u32, kind: InputKind, limit: u32, out: &mut Vec<u8>) {
    let float = kind.float(f64::from(random) / f64::from(u32::MAX));
    let is_largest = kind == InputKind::LargestIndex;
    let index = if is_largest { limit - 1 } else { random % limit };
    match dtype {
        DataType::Fp16 => out.extend(f16::from_f64(float).to_le_bytes()),
        DataType::Bf16 => out.extend(bf16::from_f64(float).to_le_bytes()),
        DataType::Fp32 => out.extend((float as f32).to_le_bytes()),
        DataType::Fp64 => out.extend(float.to_le_bytes()),
        DataType::Bool => out.push((random & 1) as u8),
        DataType::Bytes => _ = push_bytes(format!("w{index}").as_bytes(), out),
        _ => out.extend(&u64::from(index).to_le_bytes()[..dtype.size().unwrap_or(1)]),
    }
}

/// Elements of an output.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Elements {
    Floats(Vec<f64>),
    /// Integers and truth values.
    Ints(Vec<i128>),
    Texts(Vec<String>),
}

impl Elements {
    fn len(&self) -> usize {
        match self {
            Self::Floats(elements) => elements.len(),
            Self::Ints(elements) => elements.len(),
            Self::Texts(elements) => elements.len(),
        }
    }

    /// Returns row `row` of `rows`.
    pub(super) fn row(&self, row: usize, rows: usize) -> Row<'_> {
        let width = self.len() / rows;
        let range = row * width..(row + 1) * width;
        Row { elements: self, range }
    }

    /// Returns the largest finite absolute value.
    pub(super) fn largest(&self) -> f64 {
        match self {
            Self::Floats(elements) => {
                let finite = elements.iter().filter(|element| element.is_finite());
                finite.fold(0.0, |largest, element| element.abs().max(largest))
            }
            Self::Ints(_) | Self::Texts(_) => 0.0,
        }
    }

    /// True if any row differs from the first by more than rounding.
    pub(super) fn rows_vary(&self, rows: usize, tolerance: f64) -> bool {
        let first = self.row(0, rows);
        let differs = |row| {
            let difference = first.difference(&self.row(row, rows));
            difference.is_finite() && difference > tolerance * self.largest()
        };
        (1..rows).any(differs)
    }

    /// Returns the shape and the elements of an output.
    pub(super) fn from_value(value: &DynValue) -> Result<(Vec<i64>, Self)> {
        macro_rules! numbers {
            ($kind:ident, $element:ty, $convert:expr) => {{
                let (shape, elements) = value.try_extract_tensor::<$element>()?;
                let elements = elements.iter().map(|element| $convert(*element)).collect();
                Ok((shape.to_vec(), Self::$kind(elements)))
            }};
        }
        match value.dtype().tensor_type() {
            Some(TensorElementType::Float16) => numbers!(Floats, f16, f64::from),
            Some(TensorElementType::Bfloat16) => numbers!(Floats, bf16, f64::from),
            Some(TensorElementType::Float32) => numbers!(Floats, f32, f64::from),
            Some(TensorElementType::Float64) => numbers!(Floats, f64, f64::from),
            Some(TensorElementType::Bool) => numbers!(Ints, bool, i128::from),
            Some(TensorElementType::Uint8) => numbers!(Ints, u8, i128::from),
            Some(TensorElementType::Uint16) => numbers!(Ints, u16, i128::from),
            Some(TensorElementType::Uint32) => numbers!(Ints, u32, i128::from),
            Some(TensorElementType::Uint64) => numbers!(Ints, u64, i128::from),
            Some(TensorElementType::Int8) => numbers!(Ints, i8, i128::from),
            Some(TensorElementType::Int16) => numbers!(Ints, i16, i128::from),
            Some(TensorElementType::Int32) => numbers!(Ints, i32, i128::from),
            Some(TensorElementType::Int64) => numbers!(Ints, i64, i128::from),
            Some(TensorElementType::String) => {
                let (shape, texts) = value.try_extract_strings()?;
                let elements = texts.iter().map(ToString::to_string).collect();
                Ok((shape.to_vec(), Self::Texts(elements)))
            }
            _ => bail!("outputs of type {} are not compared", value.dtype()),
        }
    }
}

/// One row of a tensor.
pub(super) struct Row<'a> {
    pub(super) elements: &'a Elements,
    range: Range<usize>,
}

impl Row<'_> {
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns the largest difference of two elements: 1 for different texts, infinite for a number beside NaN.
    pub(super) fn difference(&self, other: &Self) -> f64 {
        let (a, b) = (self.range.clone(), other.range.clone());
        match (self.elements, other.elements) {
            (Elements::Floats(x), Elements::Floats(y)) => {
                let pairs = x[a].iter().zip(&y[b]);
                pairs.map(|(&x, &y)| distance(x, y)).fold(0.0, f64::max)
            }
            (Elements::Ints(x), Elements::Ints(y)) => {
                let largest = x[a].iter().zip(&y[b]).map(|(x, y)| x.abs_diff(*y)).max();
                largest.unwrap_or_default() as f64
            }
            (Elements::Texts(x), Elements::Texts(y)) if x[a.clone()] == y[b.clone()] => 0.0,
            _ => 1.0,
        }
    }
}

fn distance(x: f64, y: f64) -> f64 {
    if x == y || (x.is_nan() && y.is_nan()) {
        return 0.0;
    }
    let difference = (x - y).abs();
    if difference.is_nan() { f64::INFINITY } else { difference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_held_against_each_other_by_type() {
        let floats = Elements::Floats(vec![1.0, f64::NAN, 1.5, f64::NAN, 1.0, 2.0]);
        let row = |row| floats.row(row, 3);
        assert_eq!(row(0).difference(&row(1)), 0.5);
        assert_eq!(row(0).difference(&row(2)), f64::INFINITY);
        assert!(floats.rows_vary(3, 0.1) && !floats.rows_vary(3, 0.3));
        assert_eq!(floats.largest(), 2.0);
        let ints = Elements::Ints(vec![i128::from(i64::MAX), i128::from(i64::MAX - 1)]);
        assert_eq!(ints.row(0, 2).difference(&ints.row(1, 2)), 1.0);
        let texts = Elements::Texts(vec!["a".into(), "a".into(), "b".into()]);
        assert_eq!(texts.row(0, 3).difference(&texts.row(1, 3)), 0.0);
        assert_eq!(texts.row(0, 3).difference(&texts.row(2, 3)), 1.0);
        assert!(texts.rows_vary(3, 0.0));
    }

    #[test]
    fn inputs_with_long_names_have_rows_of_their_own() {
        let rows = |name| seeded_rows(name, DataType::Fp32, (2, 4), InputKind::Small, 100);
        assert_ne!(rows("input_ids_sentence_a"), rows("input_ids_sentence_b"));
    }

    #[test]
    fn wide_rows_repeat_and_vanish() {
        let rows = seeded_rows("x", DataType::Fp32, (6, 4), InputKind::Wide, 100);
        assert_eq!(rows[1], rows[2]);
        assert_ne!(rows[0], rows[1]);
        assert_eq!(rows[4], [0; 16]);
    }
}
