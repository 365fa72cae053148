//! Triton's classification extension: the greatest elements of each row of an output, as texts `VALUE:INDEX[:LABEL]`.
//!
//! In: an output, and the requested number of classes. Out: a `BYTES` tensor with that many texts per row, or as many
//! as a row has elements. Equal elements are ordered by index, NaN is last. Source: Triton's
//! `extension_classification.md`.

use crate::models::serving::Model;
use crate::models::serving::accept::SelectedOutput;
use crate::request::offload_large;
use half::{bf16, f16};
use std::cmp::Ordering;
use std::fmt;
use tierlab_protocol::infer::{Data, InferReply, MemoryBudget, Tensor};
use tierlab_protocol::tensor::{DataType, element_count};

/// Cost per output byte of ranking, relative to a copy.
const RANKING_WORK: usize = 8;

/// Element with its index in its row.
type Class = (Score, usize);

/// Element of an output.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Score {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

/// Formats numbers like C++'s `std::to_string`, as Triton does.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unsigned(number) => write!(f, "{number}"),
            Self::Signed(number) => write!(f, "{number}"),
            Self::Float(number) if number.is_nan() => f.write_str("nan"),
            Self::Float(number) => write!(f, "{number:.6}"),
        }
    }
}

impl Model {
    /// Replaces outputs with classes if the request asks for them. `None` if `budget` refused.
    pub(crate) fn classify(
        &self,
        mut reply: InferReply,
        selected: &[SelectedOutput],
        budget: &dyn MemoryBudget,
    ) -> Option<InferReply> {
        for (output, selected) in reply.outputs.iter_mut().zip(selected) {
            if selected.classes == 0 {
                continue;
            }
            let count = usize::try_from(selected.classes).unwrap_or(usize::MAX);
            let labels = self.labels.get(&output.name).map_or(&[][..], Vec::as_slice);
            *output = offload_large(output.data.len().saturating_mul(RANKING_WORK), || {
                classes_of(output, self.signature.batched, count, labels, budget)
            })?;
        }
        Some(reply)
    }
}

/// The `count` greatest elements of each row; an unbatched output is one row.
fn classes_of(
    output: &Tensor,
    batched: bool,
    count: usize,
    labels: &[Box<str>],
    budget: &dyn MemoryBudget,
) -> Option<Tensor> {
    let (batch, row) = output.shape.split_at_checked(usize::from(batched))?;
    let (rows, elements) = (element_count(batch)?, element_count(row)?);
    let row_bytes = elements * output.dtype.size()?;
    let count = count.min(elements);
    let gathered = if output.data.is_whole() { 0 } else { output.data.len() };
    if !budget.take(elements.saturating_mul(size_of::<Class>()).saturating_add(gathered)) {
        return None;
    }
    let bytes = output.data.whole();
    let (mut data, mut counted) = (Vec::new(), 0);
    for row in 0..rows {
        let mut classes = row_classes(output.dtype, bytes.get(row * row_bytes..(row + 1) * row_bytes)?);
        if count < elements {
            classes.select_nth_unstable_by(count, descending);
            classes.truncate(count);
        }
        classes.sort_unstable_by(descending);
        for (score, index) in classes {
            let label = labels.get(index).filter(|label| !label.is_empty());
            let text = match label {
                Some(label) => format!("{score}:{index}:{label}"),
                None => format!("{score}:{index}"),
            };
            data.extend(u32::try_from(text.len()).ok()?.to_le_bytes());
            data.extend(text.as_bytes());
            let grown = data.capacity() - counted;
            if grown > 0 && !budget.take(grown) {
                return None;
            }
            counted += grown;
        }
    }
    Some(Tensor {
        name: output.name.clone(),
        dtype: DataType::Bytes,
        shape: [batch, &[i64::try_from(count).ok()?]].concat(),
        data: Data::from(data),
    })
}

/// Order of the classes of a row.
fn descending(one: &Class, other: &Class) -> Ordering {
    let is_nan = |class: &Class| matches!(class.0, Score::Float(number) if number.is_nan());
    let by_score = other.0.partial_cmp(&one.0);
    let by_score = by_score.unwrap_or_else(|| is_nan(one).cmp(&is_nan(other)));
    by_score.then(one.1.cmp(&other.1))
}

/// Elements of a row. Text has none.
fn row_classes(dtype: DataType, row: &[u8]) -> Vec<Class> {
    fn read<const SIZE: usize>(row: &[u8], score: fn([u8; SIZE]) -> Score) -> Vec<Class> {
        let (elements, _) = row.as_chunks();
        elements.iter().map(|element| score(*element)).zip(0..).collect()
    }
    match dtype {
        DataType::Bool | DataType::Uint8 => read(row, |[byte]| Score::Unsigned(byte.into())),
        DataType::Uint16 => read(row, |bytes| Score::Unsigned(u16::from_le_bytes(bytes).into())),
        DataType::Uint32 => read(row, |bytes| Score::Unsigned(u32::from_le_bytes(bytes).into())),
        DataType::Uint64 => read(row, |bytes| Score::Unsigned(u64::from_le_bytes(bytes))),
        DataType::Int8 => read(row, |bytes| Score::Signed(i8::from_le_bytes(bytes).into())),
        DataType::Int16 => read(row, |bytes| Score::Signed(i16::from_le_bytes(bytes).into())),
        DataType::Int32 => read(row, |bytes| Score::Signed(i32::from_le_bytes(bytes).into())),
        DataType::Int64 => read(row, |bytes| Score::Signed(i64::from_le_bytes(bytes))),
        DataType::Fp16 => read(row, |bytes| Score::Float(f16::from_le_bytes(bytes).into())),
        DataType::Bf16 => read(row, |bytes| Score::Float(bf16::from_le_bytes(bytes).into())),
        DataType::Fp32 => read(row, |bytes| Score::Float(f32::from_le_bytes(bytes).into())),
        DataType::Fp64 => read(row, |bytes| Score::Float(f64::from_le_bytes(bytes))),
        DataType::Bytes => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tierlab_protocol::infer::{Unlimited, bytes_elements};

    fn output(dtype: DataType, shape: &[i64], data: Vec<u8>) -> Tensor {
        Tensor {
            name: "y".into(),
            dtype,
            shape: shape.to_vec(),
            data: data.into(),
        }
    }

    fn floats(shape: &[i64], values: &[f32]) -> Tensor {
        output(
            DataType::Fp32,
            shape,
            values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        )
    }

    fn texts(tensor: &Tensor) -> Vec<String> {
        let data = tensor.data.whole();
        let text = |element: Result<&[u8], _>| String::from_utf8(element.unwrap().to_vec()).unwrap();
        bytes_elements(&data).map(text).collect()
    }

    fn ranked(output: &Tensor, batched: bool, count: usize) -> (Vec<i64>, Vec<String>) {
        let classes = classes_of(output, batched, count, &[], &Unlimited).unwrap();
        (classes.shape.clone(), texts(&classes))
    }

    #[test]
    fn each_row_of_a_batch_has_its_greatest_and_a_tensor_without_a_batch_is_one_row() {
        let values = floats(&[2, 3], &[0.25, -1.0, 2.0, 1e10, 0.0, 0.0078125]);
        assert_eq!(
            ranked(&values, true, 2),
            (
                vec![2, 2],
                ["2.000000:2", "0.250000:0", "10000000000.000000:0", "0.007812:2"]
                    .map(str::to_owned)
                    .to_vec()
            )
        );
        let (shape, one) = ranked(&values, false, 2);
        assert_eq!(
            (shape, one),
            (
                vec![2],
                vec!["10000000000.000000:3".to_owned(), "2.000000:2".to_owned()]
            )
        );
        let (shape, all) = ranked(&floats(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]), true, usize::MAX);
        assert_eq!((shape, all.len(), all[0].as_str()), (vec![1, 4], 4, "4.000000:3"));
        assert_eq!(ranked(&floats(&[0, 3], &[]), true, 1), (vec![0, 1], vec![]));
        assert_eq!(ranked(&floats(&[2, 0], &[]), true, 1), (vec![2, 0], vec![]));
    }

    #[test]
    fn ties_go_by_index_and_nan_goes_last() {
        let unusual = [
            f32::NAN,
            1.0,
            f32::NEG_INFINITY,
            1.0,
            -0.0,
            0.0,
            f32::INFINITY,
            f32::NAN,
        ];
        let expected = [
            "inf:6",
            "1.000000:1",
            "1.000000:3",
            "-0.000000:4",
            "0.000000:5",
            "-inf:2",
            "nan:0",
            "nan:7",
        ];
        for count in 0..=unusual.len() {
            assert_eq!(
                ranked(&floats(&[8], &unusual), false, count).1,
                expected[..count],
                "{count}"
            );
        }
    }

    #[test]
    fn every_type_of_number_is_ranked_and_written() {
        let pair = |dtype, one: &[u8], other: &[u8]| ranked(&output(dtype, &[2], [one, other].concat()), false, 2).1;
        for (dtype, one, other, texts) in [
            (DataType::Bool, &[0][..], &[1][..], ["1:1", "0:0"]),
            (DataType::Uint8, &[200], &[7], ["200:0", "7:1"]),
            (DataType::Int8, &[200], &[7], ["7:1", "-56:0"]),
            (DataType::Uint16, &[0, 1], &[255, 0], ["256:0", "255:1"]),
            (DataType::Int16, &[0, 128], &[0, 0], ["0:1", "-32768:0"]),
            (DataType::Uint32, &[0; 4], &[255; 4], ["4294967295:1", "0:0"]),
            (DataType::Int32, &[255; 4], &[254, 255, 255, 255], ["-1:0", "-2:1"]),
            // Neither of the two is a double.
            (
                DataType::Uint64,
                &u64::MAX.to_le_bytes(),
                &(u64::MAX - 1).to_le_bytes(),
                ["18446744073709551615:0", "18446744073709551614:1"],
            ),
            (
                DataType::Int64,
                &i64::MIN.to_le_bytes(),
                &(i64::MIN + 1).to_le_bytes(),
                ["-9223372036854775807:1", "-9223372036854775808:0"],
            ),
            (
                DataType::Fp16,
                &f16::from_f32(-0.5).to_le_bytes(),
                &f16::from_f32(1.5).to_le_bytes(),
                ["1.500000:1", "-0.500000:0"],
            ),
            (
                DataType::Bf16,
                &bf16::from_f32(3.0).to_le_bytes(),
                &bf16::from_f32(1.5).to_le_bytes(),
                ["3.000000:0", "1.500000:1"],
            ),
            (
                DataType::Fp64,
                &0.1_f64.to_le_bytes(),
                &1e-9_f64.to_le_bytes(),
                ["0.100000:0", "0.000000:1"],
            ),
        ] {
            assert_eq!(pair(dtype, one, other), texts, "{dtype}");
        }
    }

    #[test]
    fn labels_stand_behind_the_index_where_there_are_any() {
        let labels = ["cat", "", "a:dog"].map(Box::from);
        let classes = classes_of(&floats(&[4], &[0.5, 0.4, 0.3, 0.2]), false, 4, &labels, &Unlimited).unwrap();
        assert_eq!(
            texts(&classes),
            ["0.500000:0:cat", "0.400000:1", "0.300000:2:a:dog", "0.200000:3"]
        );
    }

    /// A budget of so many bytes.
    struct Least(Cell<usize>);

    impl MemoryBudget for Least {
        fn take(&self, bytes: usize) -> bool {
            let left = self.0.get().checked_sub(bytes);
            self.0.set(left.unwrap_or(0));
            left.is_some()
        }
    }

    #[test]
    fn memory_is_counted_for_the_ranking_and_the_texts() {
        let values = floats(&[1, 1000], &[1.0; 1000]);
        let within = |bytes: usize| classes_of(&values, true, 1000, &[], &Least(Cell::new(bytes))).is_some();
        assert!(!within(1000 * size_of::<Class>() - 1), "the ranking");
        assert!(!within(1000 * size_of::<Class>() + 12_000), "the texts");
        assert!(within(1000 * size_of::<Class>() + 40_000));
    }
}
