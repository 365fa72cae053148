//! Values from a file, record by record: the slices of an array along its first dimension, the rows of a column, the
//! lines of a text. In: typed elements. Out: each record's shape and bytes, in another type if only precision is lost.

use crate::element::{self, Number};
use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use std::ops::Range;
use tierlab_protocol::infer::bytes_elements;
use tierlab_protocol::tensor::DataType;

/// Values of one input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct Records {
    /// Name of the source.
    pub source: String,
    /// Element type.
    pub dtype: DataType,
    shapes: Shapes,
    data: Bytes,
    /// End of each record in `data`.
    ends: Vec<usize>,
    /// True for lines of text, which are read as numbers for numeric inputs.
    is_text: bool,
}

/// Shapes of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shapes {
    /// Equal shapes; a scalar has no dimensions.
    Same(Vec<u64>),
    /// Vectors of these lengths.
    Lengths(Vec<u64>),
}

impl Records {
    /// Creates consecutive records.
    ///
    /// # Errors
    /// Data of another length than the shapes require, or no record.
    pub fn new(source: String, dtype: DataType, shapes: Shapes, count: usize, data: impl Into<Bytes>) -> Result<Self> {
        let data = data.into();
        ensure!(count > 0, "no records");
        let mut ends = Vec::with_capacity(count);
        let mut at = 0_usize;
        for record in 0..count {
            let end = || {
                let elements = match &shapes {
                    Shapes::Same(dims) => dims.iter().try_fold(1_u64, |all, &dim| all.checked_mul(dim)),
                    Shapes::Lengths(lengths) => lengths.get(record).copied(),
                };
                let elements = usize::try_from(elements?).ok()?;
                let len = match dtype.size() {
                    Some(size) => elements.checked_mul(size),
                    None => strings_len(data.get(at..)?, elements),
                };
                at.checked_add(len?).filter(|&end| end <= data.len())
            };
            at = end().with_context(|| format!("length of record {record} does not match its shape"))?;
            ends.push(at);
        }
        ensure!(at == data.len(), "{} bytes after the last record", data.len() - at);
        Ok(Self {
            source,
            dtype,
            shapes,
            data,
            ends,
            is_text: false,
        })
    }

    /// Creates records from lines of text.
    ///
    /// # Errors
    /// No line, or one longer than the protocol allows.
    pub fn lines<'a>(source: String, lines: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut data = Vec::new();
        let mut count = 0;
        for line in lines {
            if !element::push_bytes(line.as_bytes(), &mut data) {
                bail!("line {} is too long", count + 1);
            }
            count += 1;
        }
        let records = Self::new(source, DataType::Bytes, Shapes::Same(Vec::new()), count, data)?;
        Ok(Self {
            is_text: true,
            ..records
        })
    }

    /// Number of records; at least one.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the shape and bytes of a record; indices wrap around.
    pub fn get(&self, index: usize) -> (Vec<u64>, &[u8]) {
        let index = index % self.count();
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let shape = match &self.shapes {
            Shapes::Same(dims) => dims.clone(),
            Shapes::Lengths(lengths) => vec![lengths[index]],
        };
        (shape, &self.data[begin..self.ends[index]])
    }

    /// Returns the bytes of consecutive records; indices wrap around.
    pub(super) fn bytes(&self, records: Range<usize>) -> Vec<u8> {
        records.flat_map(|record| self.get(record).1).copied().collect()
    }

    /// Returns the shape of all records as one tensor; `None` if they have several shapes.
    pub(super) fn shape(&self) -> Option<Vec<u64>> {
        let Shapes::Same(dims) = &self.shapes else { return None };
        Some([&[self.count() as u64][..], dims].concat())
    }

    /// Converts the records to another type.
    ///
    /// # Errors
    /// The first record that the type cannot hold.
    pub fn cast(&self, to: DataType) -> Result<Self> {
        if self.dtype == to {
            return Ok(self.clone());
        }
        if self.is_text {
            return self.parsed(to);
        }
        let Some(size) = self.dtype.size().filter(|_| to != DataType::Bytes) else {
            bail!("{} holds {}, the model expects {to}", self.source, self.dtype);
        };
        let mut data = Vec::new();
        let mut ends = Vec::with_capacity(self.count());
        let mut begin = 0;
        for (record, &end) in self.ends.iter().enumerate() {
            for bytes in self.data[begin..end].chunks_exact(size) {
                let number = element::read(self.dtype, bytes);
                if !number.is_some_and(|number| element::push(to, number, &mut data)) {
                    let shown = number.map_or_else(String::new, |number| format!(" {number}"));
                    bail!(
                        "{}: record {record}: value{shown} is not a valid {to}, which the model expects",
                        self.source
                    );
                }
            }
            begin = end;
            ends.push(data.len());
        }
        Ok(Self {
            dtype: to,
            data: data.into(),
            ends,
            ..self.clone()
        })
    }

    /// Parses lines as numbers: one, or several separated by spaces, commas or semicolons.
    fn parsed(&self, to: DataType) -> Result<Self> {
        let mut data = Vec::new();
        let mut ends = Vec::with_capacity(self.count());
        let mut lengths = Vec::with_capacity(self.count());
        for (line, text) in bytes_elements(&self.data).enumerate() {
            let text = text.ok().and_then(|text| std::str::from_utf8(text).ok());
            let mut length = 0;
            let words = text.unwrap_or_default().split([' ', '\t', ',', ';']);
            for word in words.filter(|word| !word.is_empty()) {
                if !number(word).is_some_and(|number| element::push(to, number, &mut data)) {
                    let word: String = word.chars().take(40).collect();
                    let (file, line) = (&self.source, line + 1);
                    bail!("{file}: line {line}: `{word}` is not a valid {to}");
                }
                length += 1;
            }
            lengths.push(length);
            ends.push(data.len());
        }
        let shapes = if lengths.iter().all(|&length| length == 1) {
            Shapes::Same(Vec::new())
        } else {
            Shapes::Lengths(lengths)
        };
        Ok(Self {
            source: self.source.clone(),
            dtype: to,
            shapes,
            data: data.into(),
            ends,
            is_text: false,
        })
    }
}

/// Parses a number, `true` or `false`.
pub fn number(text: &str) -> Option<Number> {
    if let Ok(whole) = text.parse() {
        return Some(Number::Int(whole));
    }
    match text {
        "true" => Some(Number::Int(1)),
        "false" => Some(Number::Int(0)),
        _ => text.parse().ok().map(Number::Float),
    }
}

/// Returns the length in bytes of the first `count` strings in `data`.
fn strings_len(data: &[u8], count: usize) -> Option<usize> {
    let mut len = 0_usize;
    for _ in 0..count {
        let head = data.get(len..)?.first_chunk::<4>()?;
        len = len.checked_add(4)?.checked_add(u32::from_le_bytes(*head) as usize)?;
        if len > data.len() {
            return None;
        }
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_text_or_numbers() {
        let lines = Records::lines("l.txt".into(), ["1 2", "3, 4;5", ""].into_iter()).unwrap();
        assert_eq!(lines.count(), 3);
        assert_eq!(lines.get(3).1, b"\x03\0\0\x001 2", "counted over and over");
        let numbers = lines.cast(DataType::Int16).unwrap();
        assert_eq!(numbers.get(1), (vec![3], &[3, 0, 4, 0, 5, 0][..]));
        assert_eq!(numbers.get(2), (vec![0], &[][..]));
        let ones = Records::lines("l.txt".into(), ["1", "0.5"].into_iter()).unwrap();
        assert_eq!(ones.cast(DataType::Fp64).unwrap().get(0).0, Vec::<u64>::new());
        let refused = ones.cast(DataType::Int8).unwrap_err().to_string();
        assert!(
            refused.contains("l.txt: line 2: `0.5` is not a valid INT8"),
            "{refused}"
        );
        assert!(Records::lines("l.txt".into(), std::iter::empty()).is_err());
    }

    #[test]
    fn types_change_where_they_can() {
        let data: Vec<u8> = [1.0_f32, 300.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let floats = Records::new("x.npy".into(), DataType::Fp32, Shapes::Same(vec![1]), 2, data).unwrap();
        assert_eq!(
            floats.cast(DataType::Int32).unwrap().get(1),
            (vec![1], &[44, 1, 0, 0][..])
        );
        assert_eq!(floats.cast(DataType::Fp16).unwrap().get(0).1, [0, 0x3c]);
        let refused = floats.cast(DataType::Uint8).unwrap_err().to_string();
        assert!(
            refused.contains("record 1: value 300 is not a valid UINT8"),
            "{refused}"
        );
        assert!(floats.cast(DataType::Bytes).is_err());
        assert_eq!(floats.shape().unwrap(), [2, 1]);
    }

    proptest! {
        #[test]
        fn records_share_out_all_bytes_or_are_refused(
            lengths in prop::collection::vec(0_u64..5, 1..8),
            extra in 0_usize..3,
            type_index in 0_usize..14,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let dtype = DataType::ALL[type_index];
            if let Some(size) = dtype.size() {
                let whole = lengths.iter().sum::<u64>() as usize * size;
                let data = vec![1; whole + extra];
                let records = Records::new("r".into(), dtype, Shapes::Lengths(lengths.clone()), lengths.len(), data);
                prop_assert_eq!(records.is_ok(), extra == 0);
                if let Ok(records) = records {
                    let all: usize = (0..records.count()).map(|index| records.get(index).1.len()).sum();
                    prop_assert_eq!(all, whole);
                }
            }
            let _ = Records::new("r".into(), dtype, Shapes::Lengths(lengths.clone()), lengths.len(), bytes);
        }
    }
}
