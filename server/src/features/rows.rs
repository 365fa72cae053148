//! Rows of a request, on the host or in device memory.
//!
//! In: a tier's answer. Out: the damaged rows, and the tensors that the others fill. Rows on a device are verified by
//! copying them back, so that the verified bytes are those that the session will read.

use super::ids::EntityIds;
use super::table::OpenTable;
use super::tier::RowDestination;
use crate::request::{DeviceRows, Elements, Part};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use tierlab_formats::table::{Column, TableError};
use tierlab_storage::device::{self, DeviceError, Landed};
use tierlab_storage::{ErrorKind, Object, ReadCost, StorageError, Tier};

/// Result of a join: input index and tensor.
pub(super) type Joined = Vec<(usize, Part)>;

/// Row that fails its checksum.
#[derive(Debug)]
pub(super) struct DamagedRow {
    /// Index among the rows of the request.
    pub(super) at: usize,
    pub(super) error: TableError,
}

/// Index of an input of the graph, and the column that fills it.
#[derive(Debug)]
pub(super) struct FilledInput {
    pub(super) input: usize,
    pub(super) column: Column,
}

/// Rows, one per requested range.
#[derive(Debug)]
pub(super) enum Rows {
    Host(Vec<Bytes>),
    Device(Arc<Landed>),
}

impl Rows {
    /// Reads rows to their destination.
    pub(super) async fn read(
        tier: &dyn Tier,
        destination: RowDestination,
        object: &Object,
        ranges: &[Range<u64>],
    ) -> Result<(Self, ReadCost), StorageError> {
        if destination == RowDestination::Host {
            let read = tier.read_many(object, ranges).await?;
            return Ok((Self::Host(read.parts), read.cost));
        }
        let device = tier.device().ok_or_else(|| {
            let what = "the tier does not support reads into device memory";
            ErrorKind::Unsupported.error(object.path.as_str(), what)
        })?;
        let landed = device.read_to_device(object, ranges).await?;
        let cost = landed.cost;
        Ok((Self::Device(Arc::new(landed)), cost))
    }

    /// Rows that fail their checksum, by index.
    ///
    /// # Errors
    /// Fails if a copy back from the device fails.
    pub(super) fn damaged(&self, table: &OpenTable, ids: &[i64]) -> Result<Vec<DamagedRow>, DeviceError> {
        let copied;
        let rows = match self {
            Self::Host(rows) => rows,
            Self::Device(landed) => {
                copied = landed.to_host()?;
                &copied
            }
        };
        let rows = ids.iter().zip(rows).enumerate();
        let damaged = rows.filter_map(|(at, (id, row))| {
            let error = table.header.check_row(*id, row).err()?;
            Some(DamagedRow { at, error })
        });
        Ok(damaged.collect())
    }

    /// Index of the first row with another key than requested; the rows must be verified.
    ///
    /// # Errors
    /// Fails if a copy back from the device fails.
    pub(super) fn stranger(&self, table: &OpenTable, ids: &EntityIds) -> Result<Option<usize>, DeviceError> {
        Ok(match self {
            _ if table.index.is_none() => None,
            Self::Host(rows) => table.stranger(ids, rows),
            Self::Device(landed) => table.stranger(ids, &landed.to_host()?),
        })
    }

    /// Indices of the rows to read again if some are damaged. On the host only these; on a device all rows, so that
    /// they are contiguous in memory again.
    pub(super) fn to_read_again(&self, damaged: &[DamagedRow], count: usize) -> Vec<usize> {
        match self {
            Self::Host(_) => damaged.iter().map(|row| row.at).collect(),
            Self::Device(_) => (0..count).collect(),
        }
    }

    /// Replaces rows with those read again.
    pub(super) fn replace(&mut self, places: &[usize], again: Self) {
        match (self, again) {
            (Self::Host(rows), Self::Host(again)) => {
                for (&at, row) in places.iter().zip(again) {
                    rows[at] = row;
                }
            }
            (rows, again) => *rows = again,
        }
    }

    /// Lays out verified rows as one tensor per column.
    pub(super) fn lay_out(self, inputs: &[FilledInput]) -> Joined {
        let count = match &self {
            Self::Host(rows) => rows.len(),
            Self::Device(landed) => landed.parts.len(),
        };
        let lay_out = |FilledInput { input, column }: &FilledInput| {
            let mut shape = Vec::with_capacity(column.shape.len() + 1);
            shape.push(i64::try_from(count).unwrap_or(i64::MAX));
            shape.extend_from_slice(&column.shape);
            let data = self.elements(column);
            (*input, Part { shape, data })
        };
        inputs.iter().map(lay_out).collect()
    }

    fn elements(&self, column: &Column) -> Elements {
        let offset = column.offset as usize;
        let len = column.byte_len().unwrap_or(0);
        match self {
            Self::Host(rows) => {
                let mut data = Vec::with_capacity(len * rows.len());
                for row in rows {
                    data.extend_from_slice(&row[offset..offset + len]);
                }
                data.into()
            }
            Self::Device(landed) => {
                let column = device::Column { offset, len };
                Elements::Device(DeviceRows::new(Arc::clone(landed), column))
            }
        }
    }
}
