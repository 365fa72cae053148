//! Inputs of a request as tensors: raw little-endian bytes on the host, or rows that a tier has read into device
//! memory.
//!
//! In: bytes, or rows. Out: parts of them without a copy; for rows, the copy inside the device that makes a tensor of a
//! column. Independent of sessions.

use std::ops::Range;
use std::sync::Arc;
use tierlab_protocol::infer::{Data, bytes_elements};
use tierlab_protocol::tensor::DataType;
use tierlab_storage::device::{Column, DeviceBytes, DeviceError, Gpu, Landed, Stream, gather};

/// Input of a request: its shape and its elements.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) shape: Vec<i64>,
    pub(crate) data: Elements,
}

/// Elements of an input.
#[derive(Debug, Clone)]
pub(crate) enum Elements {
    Host(Data),
    Device(DeviceRows),
}

impl<D: Into<Data>> From<D> for Elements {
    fn from(data: D) -> Self {
        Self::Host(data.into())
    }
}

impl Elements {
    /// Size of the elements in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Host(data) => data.len(),
            Self::Device(rows) => rows.len(),
        }
    }

    /// Bytes, if they are on the host.
    pub(crate) fn host(&self) -> Option<&Data> {
        match self {
            Self::Host(data) => Some(data),
            Self::Device(_) => None,
        }
    }

    /// Rows `from..to` of `total`, sharing memory.
    pub(crate) fn rows(&self, dtype: DataType, total: usize, from: usize, to: usize) -> Self {
        match self {
            Self::Host(data) => Self::Host(rows_of(data, dtype, total, from, to)),
            Self::Device(rows) => Self::Device(rows.slice(from..to)),
        }
    }
}

/// Column of some rows in device memory. The memory returns to its pool with the last holder.
#[derive(Debug, Clone)]
pub(crate) struct DeviceRows {
    landed: Arc<Landed>,
    /// Rows of the ranges that were read.
    rows: Range<usize>,
    column: Column,
}

impl DeviceRows {
    /// Column of all landed rows, one row per range.
    pub(crate) fn new(landed: Arc<Landed>, column: Column) -> Self {
        let rows = 0..landed.parts.len();
        Self { landed, rows, column }
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        self.landed.bytes.gpu()
    }

    /// Size of the column in all rows, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() * self.column.len
    }

    fn slice(&self, of: Range<usize>) -> Self {
        let first = self.rows.start;
        Self {
            landed: Arc::clone(&self.landed),
            rows: first + of.start..first + of.end,
            column: self.column,
        }
    }

    /// Starts to copy the column to `at` in a tensor on the same device, one row after the other.
    ///
    /// # Errors
    /// Fails if the tensor is too short, or with the driver's error.
    pub(crate) fn gather(&self, tensor: &mut DeviceBytes, at: usize, stream: &Stream) -> Result<(), DeviceError> {
        let rows = &self.landed.parts[self.rows.clone()];
        gather(&self.landed.bytes, rows, self.column, tensor, at, stream)
    }
}

/// Data of rows `from..to` of an output of `total` rows; `BYTES` elements are counted through.
pub(crate) fn rows_of(data: &Data, dtype: DataType, total: usize, from: usize, to: usize) -> Data {
    if from == 0 && to == total {
        return data.clone();
    }
    if dtype.size().is_some() {
        let row = data.len() / total;
        return data.slice(row * from..row * to);
    }
    let whole = data.whole();
    let elements = bytes_elements(&whole).flatten();
    let lengths: Vec<usize> = elements.map(|element| element.len() + 4).collect();
    let row = lengths.len() / total;
    let start: usize = lengths[..row * from].iter().sum();
    let len: usize = lengths[row * from..row * to].iter().sum();
    data.slice(start..start + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_by_element() {
        let floats = Data::from(vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(rows_of(&floats, DataType::Uint16, 3, 1, 3), floats.slice(4..12));
        let mut texts = Vec::new();
        for text in ["", "ab", "c", "defg"] {
            texts.extend_from_slice(&(text.len() as u32).to_le_bytes());
            texts.extend_from_slice(text.as_bytes());
        }
        let texts = Data::from(texts);
        assert_eq!(rows_of(&texts, DataType::Bytes, 2, 0, 1), texts.slice(0..10));
        assert_eq!(rows_of(&texts, DataType::Bytes, 2, 1, 2), texts.slice(10..texts.len()));
        assert_eq!(rows_of(&texts, DataType::Bytes, 2, 0, 2), texts);
    }
}
