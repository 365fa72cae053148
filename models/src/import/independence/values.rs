//! Elements of tensors, row behind row: seeded ones for inputs, those of outputs, and ONNX Runtime's values of both.

use crate::weights::stream_seed;
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{DynValue, Tensor, TensorElementType};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use std::ops::Range;

/// How far two floats may lie apart, as a share of the largest value of their output.
pub const FLOAT_TOLERANCE: f64 = 1e-4;
/// The same for FP16 and BF16.
pub const HALF_TOLERANCE: f64 = 2e-2;

/// How far elements of a type may lie apart, as a share of the largest value.
pub(super) fn tolerance(element: TensorElementType) -> f64 {
    match element {
        TensorElementType::Float32 | TensorElementType::Float64 => FLOAT_TOLERANCE,
        TensorElementType::Float16 | TensorElementType::Bfloat16 => HALF_TOLERANCE,
        _ => 0.0,
    }
}

/// What the elements of seeded inputs look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Floats from -1 to 1.
    Small,
    /// Floats from -100 to 100; every third row repeats the one before it, and every fifth is zero.
    Wide,
    /// Floats from 0 to 1.
    Positive,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Small, Self::Wide, Self::Positive];

    fn float(self, unit: f64) -> f64 {
        match self {
            Self::Small => 2.0 * unit - 1.0,
            Self::Wide => 200.0 * unit - 100.0,
            Self::Positive => unit,
        }
    }
}

/// Elements of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cells {
    Floats(Vec<f64>),
    /// Integers and truth values.
    Ints(Vec<i128>),
    Texts(Vec<String>),
}

impl Cells {
    /// `rows` rows of `width` elements for an input; integers lie below `limit`.
    pub(super) fn seeded(
        (name, element): (&str, TensorElementType),
        (rows, width): (usize, usize),
        kind: Kind,
        limit: u32,
    ) -> Self {
        let mut rng = ChaCha8Rng::from_seed(stream_seed(name, kind as u64, 0));
        let whole = |rng: &mut ChaCha8Rng| rng.next_u32() % limit;
        match element {
            TensorElementType::Float16
            | TensorElementType::Bfloat16
            | TensorElementType::Float32
            | TensorElementType::Float64 => {
                let unit = |rng: &mut ChaCha8Rng| f64::from(rng.next_u32()) / f64::from(u32::MAX);
                Self::Floats(fill((rows, width), kind, || kind.float(unit(&mut rng))))
            }
            TensorElementType::String => Self::Texts(fill((rows, width), kind, || format!("w{}", whole(&mut rng)))),
            TensorElementType::Bool => Self::Ints(fill((rows, width), kind, || i128::from(rng.next_u32() & 1))),
            _ => Self::Ints(fill((rows, width), kind, || i128::from(whole(&mut rng)))),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Floats(cells) => cells.len(),
            Self::Ints(cells) => cells.len(),
            Self::Texts(cells) => cells.len(),
        }
    }

    /// Row `row` of `rows`.
    pub(super) fn row(&self, row: usize, rows: usize) -> Row<'_> {
        let width = self.len() / rows;
        let range = row * width..(row + 1) * width;
        Row { cells: self, range }
    }

    /// The largest finite value without its sign.
    pub(super) fn largest(&self) -> f64 {
        match self {
            Self::Floats(cells) => cells
                .iter()
                .map(|cell| cell.abs())
                .filter(|cell| cell.is_finite())
                .fold(0.0, f64::max),
            Self::Ints(_) | Self::Texts(_) => 0.0,
        }
    }

    /// Whether any row is another than the first, by more than rounding.
    pub(super) fn rows_vary(&self, rows: usize, tolerance: f64) -> bool {
        let first = self.row(0, rows);
        let differs = |row| {
            let difference = first.difference(&self.row(row, rows));
            difference.is_finite() && difference > tolerance * self.largest()
        };
        (1..rows).any(differs)
    }

    /// Some rows, in their order, as an input of a run; `dims` are those of a row.
    pub(super) fn value(
        &self,
        element: TensorElementType,
        chosen: &[usize],
        dims: &[usize],
    ) -> Result<SessionInputValue<'static>, String> {
        let width: usize = dims.iter().product();
        let shape: Vec<usize> = std::iter::once(chosen.len()).chain(dims.iter().copied()).collect();
        let at = chosen.iter().flat_map(|row| row * width..(row + 1) * width);
        let text = |e: ort::Error| e.to_string();
        macro_rules! tensor {
            ($cells:expr, $convert:expr) => {{
                let elements: Vec<_> = at.map(|at| $convert(&$cells[at])).collect();
                Ok(Tensor::from_array((shape, elements)).map_err(text)?.into())
            }};
        }
        match (self, element) {
            (Self::Floats(cells), TensorElementType::Float16) => tensor!(cells, |cell: &f64| f16::from_f64(*cell)),
            (Self::Floats(cells), TensorElementType::Bfloat16) => tensor!(cells, |cell: &f64| bf16::from_f64(*cell)),
            (Self::Floats(cells), TensorElementType::Float32) => tensor!(cells, |cell: &f64| *cell as f32),
            (Self::Floats(cells), _) => tensor!(cells, |cell: &f64| *cell),
            (Self::Ints(cells), TensorElementType::Bool) => tensor!(cells, |cell: &i128| *cell != 0),
            (Self::Ints(cells), TensorElementType::Uint8) => tensor!(cells, |cell: &i128| *cell as u8),
            (Self::Ints(cells), TensorElementType::Uint16) => tensor!(cells, |cell: &i128| *cell as u16),
            (Self::Ints(cells), TensorElementType::Uint32) => tensor!(cells, |cell: &i128| *cell as u32),
            (Self::Ints(cells), TensorElementType::Uint64) => tensor!(cells, |cell: &i128| *cell as u64),
            (Self::Ints(cells), TensorElementType::Int8) => tensor!(cells, |cell: &i128| *cell as i8),
            (Self::Ints(cells), TensorElementType::Int16) => tensor!(cells, |cell: &i128| *cell as i16),
            (Self::Ints(cells), TensorElementType::Int32) => tensor!(cells, |cell: &i128| *cell as i32),
            (Self::Ints(cells), TensorElementType::Int64) => tensor!(cells, |cell: &i128| *cell as i64),
            (Self::Ints(_), other) => Err(format!("inputs of type {other} are not tried")),
            (Self::Texts(cells), _) => {
                let texts: Vec<String> = at.map(|at| cells[at].clone()).collect();
                Ok(Tensor::from_string_array((shape, texts.as_slice()))
                    .map_err(text)?
                    .into())
            }
        }
    }

    /// The shape and the elements of an output.
    pub(super) fn of(value: &DynValue) -> Result<(Vec<i64>, Self), String> {
        let text = |e: ort::Error| e.to_string();
        macro_rules! numbers {
            ($kind:ident, $element:ty, $convert:expr) => {{
                let (shape, elements) = value.try_extract_tensor::<$element>().map_err(text)?;
                let cells = elements.iter().map(|element| $convert(*element)).collect();
                Ok((shape.to_vec(), Self::$kind(cells)))
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
                let (shape, texts) = value.try_extract_strings().map_err(text)?;
                let cells = texts.iter().map(ToString::to_string).collect();
                Ok((shape.to_vec(), Self::Texts(cells)))
            }
            _ => Err(format!("outputs of type {} are not compared", value.dtype())),
        }
    }
}

/// Elements drawn row by row, with the repeats and the zeros of a kind.
fn fill<T: Clone + Default>((rows, width): (usize, usize), kind: Kind, mut draw: impl FnMut() -> T) -> Vec<T> {
    let mut cells: Vec<T> = Vec::with_capacity(rows * width);
    for row in 0..rows {
        if kind == Kind::Wide && row % 3 == 2 {
            cells.extend_from_within((row - 1) * width..);
        } else if kind == Kind::Wide && row % 5 == 4 {
            cells.extend(std::iter::repeat_n(T::default(), width));
        } else {
            cells.extend((0..width).map(|_| draw()));
        }
    }
    cells
}

/// One row of a tensor.
pub(super) struct Row<'a> {
    cells: &'a Cells,
    range: Range<usize>,
}

impl Row<'_> {
    /// The largest distance of two elements; 1 for texts that differ, and infinite for a number beside none.
    pub(super) fn difference(&self, other: &Self) -> f64 {
        let (a, b) = (self.range.clone(), other.range.clone());
        match (self.cells, other.cells) {
            (Cells::Floats(x), Cells::Floats(y)) => {
                x[a].iter().zip(&y[b]).map(|(&x, &y)| apart(x, y)).fold(0.0, f64::max)
            }
            (Cells::Ints(x), Cells::Ints(y)) => {
                let largest = x[a].iter().zip(&y[b]).map(|(x, y)| x.abs_diff(*y)).max();
                largest.unwrap_or_default() as f64
            }
            (Cells::Texts(x), Cells::Texts(y)) if x[a.clone()] == y[b.clone()] => 0.0,
            _ => 1.0,
        }
    }
}

fn apart(x: f64, y: f64) -> f64 {
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
        let floats = Cells::Floats(vec![1.0, f64::NAN, 1.5, f64::NAN, 1.0, 2.0]);
        let row = |row| floats.row(row, 3);
        assert_eq!(row(0).difference(&row(1)), 0.5);
        assert_eq!(row(0).difference(&row(2)), f64::INFINITY);
        assert!(floats.rows_vary(3, 0.1) && !floats.rows_vary(3, 0.3));
        assert_eq!(floats.largest(), 2.0);
        let ints = Cells::Ints(vec![i128::from(i64::MAX), i128::from(i64::MAX - 1)]);
        assert_eq!(ints.row(0, 2).difference(&ints.row(1, 2)), 1.0);
        let texts = Cells::Texts(vec!["a".into(), "a".into(), "b".into()]);
        assert_eq!(texts.row(0, 3).difference(&texts.row(1, 3)), 0.0);
        assert_eq!(texts.row(0, 3).difference(&texts.row(2, 3)), 1.0);
        assert!(texts.rows_vary(3, 0.0));
    }

    #[test]
    fn wide_rows_repeat_and_vanish() {
        let cells = Cells::seeded(("x", TensorElementType::Float32), (6, 4), Kind::Wide, 100);
        let row = |row| cells.row(row, 6);
        assert_eq!(row(1).difference(&row(2)), 0.0);
        assert!(row(0).difference(&row(1)) > 0.0);
        let Cells::Floats(floats) = &cells else { unreachable!() };
        assert_eq!(floats[16..20], [0.0; 4]);
    }
}
