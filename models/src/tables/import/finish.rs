//! Second half of an import: writes the buckets to the table's file, one after another, on every core, in bounded
//! memory. In: the folders of all parts. Out: a complete table, or none. Knows nothing of the inputs' formats.

use super::layout::payload_bytes;
use super::plan::{PartProgress, Plan};
use super::request::DuplicateRule;
use super::spill::{Record, bucket_file, records};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::staged::StagedFile;
use crate::stop::Stop;
use crate::tables::workers::worker_count;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::{fs, mem, thread};
use tierlab_formats::table::{BucketIndex, IndexWriter, KeyHash, TableHeader};

/// Maximum threads, each of which lays out a bucket.
const MAX_WORKERS: usize = 4;
/// Ratio of the memory limit to the bytes of all buckets in memory, which are held as read, as written, and as sorted records.
const BUCKET_MEMORY_FACTOR: u64 = 4;

/// Inputs of finishing.
pub(super) struct FinishPhase<'a> {
    pub(super) plan: &'a Plan,
    /// All parts, with their folders.
    pub(super) parts: &'a [(PathBuf, PartProgress)],
    pub(super) memory_bytes: u64,
    pub(super) target: &'a Path,
}

/// Laid out rows of one bucket, without checksums, because their numbers are not known yet.
struct BucketRows {
    index: BucketIndex,
    bytes: Vec<u8>,
    dropped: u64,
    read_bytes: u64,
}

impl FinishPhase<'_> {
    /// Writes the table; returns its header and the number of rows left out because of a duplicate key.
    ///
    /// # Errors
    /// A duplicate key if duplicates are refused, with both places; damaged buckets; a full disk; a stop.
    pub(super) fn run(&self, stop: &Stop) -> Result<(TableHeader, u64), ModelsError> {
        let bad = |what: &dyn std::fmt::Display| ModelsError::bad(&self.target.display(), what);
        let parts = || self.parts.iter().map(|(_, part)| part);
        let longest = parts().map(|part| part.longest_key).max().unwrap_or(0).max(1);
        let name = &self.plan.columns.name;
        let schema = self.plan.layout.schema(name, longest).map_err(|e| bad(&e))?;
        let max_rows: u64 = parts().map(|part| part.rows).sum();
        if max_rows == 0 {
            let with_bad = self.parts.iter().find(|(_, part)| part.bad > 0);
            let reasons =
                with_bad.map(|(folder, _)| format!("every row is bad: see {}", folder.join("bad.jsonl").display()));
            return Err(bad(&reasons.unwrap_or_else(|| "the inputs have no rows".to_owned())));
        }
        let mut header = TableHeader::new(schema, max_rows, 0, 0).map_err(|e| bad(&e))?;
        header.reserved_bytes = header.header_len();
        let staged = StagedFile::create(self.target)?;
        let total = parts().flat_map(|part| &part.lengths).sum();
        let mut progress = Progress::bytes(&format!("writing {}", self.target.display()), total);
        let mut writer = RowWriter {
            staged: &staged,
            header: &header,
            row: 0,
            block: 0,
            block_rows: 0,
            block_crcs: Vec::with_capacity(header.block_crcs.len()),
        };
        let mut index = IndexWriter::default();
        let mut dropped = 0;
        self.for_each_bucket(&header, stop, &mut |mut bucket: BucketRows| {
            index.push(&bucket.index);
            writer.write(&mut bucket.bytes)?;
            dropped += bucket.dropped;
            progress.advance(bucket.read_bytes);
            Ok(())
        })?;
        let (rows, block_crcs) = writer.finish();
        let index = index.finish().map_err(|e| bad(&e))?;
        header.rows = rows;
        header.block_crcs = block_crcs;
        staged.write_at(&index, header.rows_end())?;
        header.index_bytes = index.len() as u64;
        let reserved = std::mem::take(&mut header.reserved_bytes);
        if header.header_len() < reserved {
            header.reserved_bytes = reserved;
        }
        staged.write_at(&header.encode(), 0)?;
        progress.show_on_terminal(&format!("syncing {} to the device", self.target.display()));
        stop.check()?;
        staged.commit()?;
        Ok((header, dropped))
    }

    /// Lays out all buckets in groups, a thread for each bucket, and passes them on in order. A group is laid out while the one before
    /// is passed on, unless the two do not fit in memory together.
    fn for_each_bucket(
        &self,
        header: &TableHeader,
        stop: &Stop,
        on_bucket: &mut dyn FnMut(BucketRows) -> Result<(), ModelsError>,
    ) -> Result<(), ModelsError> {
        let limit = self.memory_bytes / BUCKET_MEMORY_FACTOR;
        let buckets = 0..1_usize << self.plan.bucket_bits;
        let lengths: Vec<u64> = buckets.map(|bucket| self.length(bucket)).collect();
        let groups = groups(&lengths, worker_count().min(MAX_WORKERS), limit / 2);
        thread::scope(|scope| {
            let spawn = |bucket| scope.spawn(move || stop.check().and_then(|()| self.lay_out(header, bucket, limit)));
            let (mut running, mut running_bytes) = (Vec::new(), 0_u64);
            let mut emit = |running: Vec<ScopedJoinHandle<'_, Result<BucketRows, ModelsError>>>| {
                let joined = running.into_iter().map(ScopedJoinHandle::join);
                let mut rows = joined.map(|rows| rows.unwrap_or_else(|e| resume_unwind(e)));
                rows.try_for_each(|rows| on_bucket(rows?))
            };
            // The empty group at the end passes on the last one.
            for group in groups.into_iter().chain([Range::default()]) {
                let bytes: u64 = lengths[group.clone()].iter().sum();
                if running_bytes + bytes > limit {
                    emit(mem::take(&mut running))?;
                }
                let next = group.map(spawn).collect();
                emit(mem::replace(&mut running, next))?;
                running_bytes = bytes;
            }
            Ok(())
        })
    }

    /// Bytes of a bucket in all parts.
    fn length(&self, bucket: usize) -> u64 {
        self.parts.iter().map(|(_, part)| part.lengths[bucket]).sum()
    }

    fn lay_out(&self, header: &TableHeader, bucket: usize, limit: u64) -> Result<BucketRows, ModelsError> {
        let length = self.length(bucket);
        if length > limit {
            let needed = (length * BUCKET_MEMORY_FACTOR).div_ceil(1 << 20);
            let what = format!(
                "bucket {bucket} has {length} bytes, {limit} fit in memory: run it again with --memory-mib {needed}, which reads \
                 nothing again; a key that stands in very many rows makes a bucket so large as well"
            );
            return Err(ModelsError::bad(&self.target.display(), &what));
        }
        let mut bytes = Vec::with_capacity(length as usize);
        for (folder, part) in self.parts {
            if part.lengths[bucket] == 0 {
                continue;
            }
            let path = bucket_file(folder, bucket);
            let found = fs::read(&path).map_err(ModelsError::io("read", &path))?;
            let Some(recorded) = found.get(..part.lengths[bucket] as usize) else {
                let what = "it is shorter than it was: use --restart";
                return Err(ModelsError::bad(&path.display(), &what));
            };
            bytes.extend_from_slice(recorded);
        }
        let bad = |what: &dyn std::fmt::Display| ModelsError::bad(&format!("bucket {bucket} of the import"), what);
        let payload_bytes = payload_bytes(&header.schema);
        let records =
            records(&bytes, payload_bytes).map(|record| record.map(|record| (KeyHash::of(record.key), record)));
        let mut rows: Vec<_> = records.collect::<anyhow::Result<_>>().map_err(|e| bad(&e))?;
        rows.sort_unstable_by_key(|(hash, record)| (*hash, record.origin));
        let before = rows.len();
        self.drop_duplicates(&mut rows)?;
        let hashes: Vec<KeyHash> = rows.iter().map(|(hash, _)| *hash).collect();
        let index = BucketIndex::build(&hashes).map_err(|e| bad(&e))?;
        let stride = header.stride as usize;
        let key = header.schema.key.as_ref();
        let mut row_bytes = vec![0; stride * rows.len()];
        for (hash, record) in &rows {
            let offset = index.row(*hash).ok_or_else(|| bad(&"a key has no row"))? as usize * stride;
            let row = &mut row_bytes[offset..offset + stride];
            row[..payload_bytes].copy_from_slice(record.payload);
            if !key.is_some_and(|key| key.put(row, record.key)) {
                return Err(bad(&"a key is longer than the journal says: use --restart"));
            }
        }
        Ok(BucketRows {
            index,
            bytes: row_bytes,
            dropped: (before - rows.len()) as u64,
            read_bytes: length,
        })
    }

    /// Keeps one row of each key, given rows sorted by hash and place.
    fn drop_duplicates(&self, rows: &mut Vec<(KeyHash, Record<'_>)>) -> Result<(), ModelsError> {
        let rule = self.plan.columns.duplicates;
        let mut conflict = None;
        rows.dedup_by(|later, first| {
            if later.0 != first.0 {
                return false;
            }
            if later.1.key != first.1.key || rule == DuplicateRule::Refuse {
                conflict.get_or_insert((first.1, later.1));
            }
            if rule == DuplicateRule::Last {
                *first = *later;
            }
            true
        });
        let Some((first, later)) = conflict else { return Ok(()) };
        let origin = |record: Record<'_>| {
            let input = self.plan.inputs.get(record.origin.input());
            let name = input.map_or("?", |input| input.name.as_str());
            format!("row {} of {name}", record.origin.row())
        };
        let [key, other] = [first, later].map(|record| self.plan.layout.kind.for_message(record.key));
        let (before, after) = (origin(first), origin(later));
        let what = match first.key == later.key {
            true => {
                format!("duplicate key {key}, in {before} and in {after}: choose one with --duplicates first or last")
            }
            false => format!("keys {key} and {other} have the same hash: rename one"),
        };
        Err(ModelsError::bad(&self.target.display(), &what))
    }
}

/// Cuts buckets into consecutive groups of at most `count` buckets and `limit` bytes, or of one larger bucket.
fn groups(lengths: &[u64], count: usize, limit: u64) -> Vec<Range<usize>> {
    let (mut groups, mut bytes): (Vec<Range<usize>>, u64) = (Vec::new(), 0);
    for (bucket, &length) in lengths.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if group.len() < count && bytes + length <= limit => group.end += 1,
            _ => {
                groups.push(bucket..bucket + 1);
                bytes = 0;
            }
        }
        bytes += length;
    }
    groups
}

/// Writer of rows in their order, with checksums of rows and blocks.
struct RowWriter<'a> {
    staged: &'a StagedFile,
    header: &'a TableHeader,
    row: u64,
    block: u32,
    block_rows: u32,
    block_crcs: Vec<u32>,
}

impl RowWriter<'_> {
    fn write(&mut self, rows: &mut [u8]) -> Result<(), ModelsError> {
        let stride = u64::from(self.header.stride);
        let offset = self.header.header_len() + self.row * stride;
        for row in rows.chunks_exact_mut(stride as usize) {
            self.header.seal_row(self.row.cast_signed(), row);
            self.block = crc32c::crc32c_append(self.block, row);
            self.row += 1;
            self.block_rows += 1;
            if self.block_rows == self.header.rows_per_block {
                self.end_block();
            }
        }
        self.staged.write_at(rows, offset)
    }

    fn end_block(&mut self) {
        self.block_crcs.push(std::mem::take(&mut self.block));
        self.block_rows = 0;
    }

    /// Returns the number of rows, and the checksums of their blocks.
    fn finish(mut self) -> (u64, Vec<u32>) {
        if self.block_rows > 0 {
            self.end_block();
        }
        (self.row, self.block_crcs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_bucket_is_a_group_of_its_own() {
        assert_eq!(groups(&[1, 1, 1, 1, 9, 1, 3, 2], 3, 4), [0..3, 3..4, 4..5, 5..7, 7..8]);
        assert!(groups(&[], 3, 4).is_empty());
    }
}
