//! Buffered rows on disk, by the bucket of their key. In: rows. Out: files of records, each with the key, the columns'
//! bytes, and the row's origin. Records of one bucket are read back at once.
//!
//! ```text
//! 0   8   origin: the input's number << 40 | the row's number in it, u64 LE
//! 8   2   bytes of the key, u16 LE
//! 10  …   the key
//! …   …   the columns' bytes, of a length that all records share
//! ```

use super::convert::Rows;
use crate::error::ModelsError;
use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tierlab_formats::table::KeyHash;

/// Maximum inputs of an import, and rows of each, that fit an origin.
pub(super) const MAX_INPUTS: usize = 1 << 24;
const ROW_BITS: u32 = 40;

/// Origin of a row; sorts in the order of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowOrigin(u64);

impl RowOrigin {
    pub(super) fn new(input: usize, row: u64) -> Self {
        Self((input as u64) << ROW_BITS | row & ((1 << ROW_BITS) - 1))
    }

    pub(super) fn input(self) -> usize {
        (self.0 >> ROW_BITS) as usize
    }

    /// Row number from 1, for messages.
    pub(super) fn row(self) -> u64 {
        (self.0 & ((1 << ROW_BITS) - 1)) + 1
    }
}

/// Record of a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) origin: RowOrigin,
    pub(super) key: &'a [u8],
    pub(super) payload: &'a [u8],
}

/// Returns the file of a bucket.
pub(super) fn bucket_file(folder: &Path, bucket: usize) -> PathBuf {
    folder.join(format!("bucket-{bucket:05}"))
}

/// Parses the records of a bucket's bytes.
///
/// # Errors
/// Bytes that end inside a record, with the offset.
pub(super) fn records(bytes: &[u8], payload_bytes: usize) -> impl Iterator<Item = Result<Record<'_>>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let offset = bytes.len() - rest.len();
        let record = (!rest.is_empty()).then(|| take_record(&mut rest, payload_bytes))?;
        if record.is_none() {
            rest = &[];
        }
        Some(record.with_context(|| format!("it ends inside the record at offset {offset}")))
    })
}

fn take_record<'a>(rest: &mut &'a [u8], payload_bytes: usize) -> Option<Record<'a>> {
    let (origin, after) = rest.split_first_chunk::<8>()?;
    let (len, after) = after.split_first_chunk::<2>()?;
    let (key, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    let (payload, after) = after.split_at_checked(payload_bytes)?;
    *rest = after;
    let origin = RowOrigin(u64::from_le_bytes(*origin));
    Some(Record { origin, key, payload })
}

/// Files of all buckets, shared by several threads.
pub(super) struct Spill {
    folder: PathBuf,
    lengths: Vec<Mutex<u64>>,
}

impl Spill {
    /// Opens files at these lengths, and truncates uncounted bytes after them.
    ///
    /// # Errors
    /// A file that cannot be truncated, or is shorter than recorded.
    pub(super) fn open(folder: &Path, lengths: &[u64]) -> Result<Self, ModelsError> {
        for (bucket, &length) in lengths.iter().enumerate() {
            let path = bucket_file(folder, bucket);
            let found = match fs::metadata(&path) {
                Ok(found) => found.len(),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
                Err(e) => return Err(ModelsError::io("read", &path)(e)),
            };
            if found < length {
                let what = format!("{found} of {length} bytes are left of what was written: start over with --restart");
                return Err(ModelsError::bad(&path.display(), &what));
            }
            if found > length {
                let file = OpenOptions::new().write(true).open(&path);
                file.and_then(|file| file.set_len(length))
                    .map_err(ModelsError::io("cut", &path))?;
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            lengths: lengths.iter().map(|&length| Mutex::new(length)).collect(),
        })
    }

    /// Returns the bytes in each file, after all writers have finished.
    pub(super) fn lengths(&self) -> Vec<u64> {
        self.lengths.iter().map(|length| *length.lock()).collect()
    }

    fn append(&self, bucket: usize, bytes: &[u8]) -> Result<(), ModelsError> {
        let path = bucket_file(&self.folder, bucket);
        let mut length = self.lengths[bucket].lock();
        let file = File::options().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(bytes));
        written.map_err(ModelsError::io("write", &path))?;
        *length += bytes.len() as u64;
        Ok(())
    }
}

/// Unwritten rows of one thread.
pub(super) struct SpillBuffers<'a> {
    spill: &'a Spill,
    bucket_bits: u32,
    /// Maximum bytes of one bucket's buffer before it is written.
    limit: usize,
    buffers: Vec<Vec<u8>>,
    pub(super) rows: u64,
    pub(super) longest_key: usize,
}

impl<'a> SpillBuffers<'a> {
    pub(super) fn new(spill: &'a Spill, bucket_bits: u32, memory_bytes: u64) -> Self {
        let buckets = 1_usize << bucket_bits;
        let limit = (memory_bytes as usize / buckets).clamp(4 << 10, 256 << 10);
        Self {
            spill,
            bucket_bits,
            limit,
            buffers: vec![Vec::new(); buckets],
            rows: 0,
            longest_key: 0,
        }
    }

    /// Adds the good rows of a batch; `number` returns a row's number in its input.
    pub(super) fn add(&mut self, rows: &Rows, input: usize, number: &dyn Fn(usize) -> u64) -> Result<(), ModelsError> {
        for row in 0..rows.len() {
            if rows.bad.contains_key(&row) {
                continue;
            }
            let (key, payload) = (rows.key(row), rows.payload(row));
            let bucket = KeyHash::of(key).bucket(self.bucket_bits);
            let buffer = &mut self.buffers[bucket];
            buffer.extend_from_slice(&RowOrigin::new(input, number(row)).0.to_le_bytes());
            buffer.extend_from_slice(&(key.len() as u16).to_le_bytes());
            buffer.extend_from_slice(key);
            buffer.extend_from_slice(payload);
            self.rows += 1;
            self.longest_key = self.longest_key.max(key.len());
            if buffer.len() >= self.limit {
                self.spill.append(bucket, buffer)?;
                if buffer.capacity() > 2 * self.limit {
                    // A row larger than the limit would leave a large buffer in every bucket.
                    *buffer = Vec::new();
                }
                buffer.clear();
            }
        }
        Ok(())
    }

    /// Writes all buffered rows.
    pub(super) fn flush(&mut self) -> Result<(), ModelsError> {
        for (bucket, buffer) in self.buffers.iter_mut().enumerate() {
            if !buffer.is_empty() {
                self.spill.append(bucket, buffer)?;
                buffer.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_are_records_or_end_in_one(bytes in prop::collection::vec(any::<u8>(), 0..200), payload in 0_usize..20) {
            let mut taken = 0;
            for record in records(&bytes, payload) {
                match record {
                    Ok(record) => taken += 8 + 2 + record.key.len() + record.payload.len(),
                    Err(what) => {
                        let offset = format!("offset {taken}");
                        prop_assert!(what.to_string().contains(&offset));
                        return Ok(());
                    }
                }
            }
            prop_assert_eq!(taken, bytes.len());
        }
    }

    #[test]
    fn places_sort_as_inputs_and_rows_do() {
        let origin = RowOrigin::new(3, 41);
        assert_eq!((origin.input(), origin.row()), (3, 42));
        assert!(RowOrigin::new(2, 1 << 39) < origin && RowOrigin::new(3, 40) < origin);
    }
}
