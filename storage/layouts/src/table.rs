//! A laid-out table: look-ups and scans, their costs, and its shards. The positions of a shard's rows are read once and
//! cached within a bound.

use crate::layout::{Coding, Framing, Layout};
use crate::manifest::{Manifest, key};
use crate::rows::{self, Cost, MAX_READ_BYTES, corrupt};
use crate::{arrow, parquet, sample};
use bytes::Bytes;
use futures::future::try_join_all;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tierlab_formats::shards::index::{self, MAX_INDEX_BYTES, ShardIndex};
use tierlab_formats::table::TableHeader;
use tierlab_storage::{ErrorKind, Object, ObjectPath, ReadCost, StorageError, Tier};

/// Maximum shards or files read concurrently.
const CONCURRENT_READS: usize = 16;
/// Maximum bytes of samples per read of a scan.
const SCAN_BYTES: u64 = 8 << 20;

/// Rows in the rows format.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// Rows of the requested entities, in request order: each part holds whole rows that were read together.
    parts: Vec<Bytes>,
    /// Bytes of a row.
    stride: usize,
    /// Cost of all rows together.
    pub cost: Cost,
}

impl Rows {
    fn decoded(parts: Vec<Bytes>, stride: u32, read: ReadCost, began: Instant) -> Self {
        Self {
            parts,
            stride: stride as usize,
            cost: Cost::since(read, began),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum::<usize>() / self.stride.max(1)
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows in request order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().flat_map(|part| part.chunks_exact(self.stride.max(1)))
    }

    /// Rows in request order; those that were read together share their memory.
    pub fn shared(&self) -> impl Iterator<Item = Bytes> {
        let stride = self.stride.max(1);
        let parts = self.parts.iter();
        parts.flat_map(move |part| part.chunks_exact(stride).map(|row| part.slice_ref(row)))
    }
}

/// A table in a layout. Reads return rows of the version in its manifest, or fail.
pub struct Table {
    tier: Arc<dyn Tier>,
    folder: ObjectPath,
    manifest: Manifest,
    /// Header that the table would have in the rows format.
    pub(crate) header: TableHeader,
    shards: Mutex<Held>,
}

impl Table {
    /// Opens the table of a folder.
    ///
    /// # Errors
    /// Fails if there is no usable manifest, or with the tier's error.
    pub async fn open(tier: Arc<dyn Tier>, folder: ObjectPath) -> Result<Self, StorageError> {
        let manifest = Manifest::load(&*tier, &folder).await?;
        Self::of(tier, folder, manifest)
    }

    /// Creates the table of a manifest from this folder.
    pub(crate) fn of(tier: Arc<dyn Tier>, folder: ObjectPath, manifest: Manifest) -> Result<Self, StorageError> {
        let header = manifest.header().map_err(|e| corrupt(&folder, e))?;
        let shards = Mutex::default();
        Ok(Self {
            tier,
            folder,
            manifest,
            header,
            shards,
        })
    }

    /// Manifest of the table's folder.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Drops cached shards of these entities, here and in wrappers of the tier: the next look-up reads from the tier
    /// itself.
    pub(crate) async fn forget(&self, ids: &[i64]) {
        let mut paths = BTreeSet::new();
        for &id in ids {
            let Some(number) = self.manifest.shard_of(id) else {
                continue;
            };
            self.shards.lock().remove(number);
            let shard = self.manifest.shard(&self.folder, number);
            match self.manifest.layout {
                Layout::Files => paths.extend(shard.and_then(|folder| row_path(&folder, id))),
                layout => {
                    let index = shard.iter().filter(|_| layout.has_index()).map(index_path);
                    paths.extend(index.flatten());
                    paths.extend(shard);
                }
            }
        }
        for path in paths {
            if let Ok(object) = self.tier.stat(&path).await {
                rows::forget(&*self.tier, &object).await;
            }
        }
    }

    /// Reads the rows of one or more entities, in request order.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the table does not have an entity; [`ErrorKind::Corrupt`] with object and offset for
    /// damage; or the tier's error.
    pub async fn look_up(&self, ids: &[i64]) -> Result<Rows, StorageError> {
        // By shard; with a file for each entity, also by entity.
        let mut groups: BTreeMap<(u64, usize), Vec<usize>> = BTreeMap::new();
        for (i, &id) in ids.iter().enumerate() {
            let shard = self.manifest.shard_of(id).ok_or_else(|| self.missing(id))?;
            let file = if self.manifest.layout == Layout::Files { i } else { 0 };
            groups.entry((shard, file)).or_default().push(i);
        }
        let jobs: Vec<_> = groups.into_iter().collect();
        let is_in_order = jobs.iter().flat_map(|(_, members)| members).is_sorted();
        let mut out = Rows {
            stride: self.header.stride as usize,
            ..Rows::default()
        };
        if !is_in_order {
            out.parts.resize(ids.len(), Bytes::new());
        }
        for jobs in jobs.chunks(CONCURRENT_READS) {
            let reads = jobs.iter().map(|((shard, _), members)| self.job(*shard, members, ids));
            let mut together = Cost::default();
            for ((_, members), done) in jobs.iter().zip(try_join_all(reads).await?) {
                together.merge(&done.cost);
                if is_in_order {
                    out.parts.extend(done.parts);
                    continue;
                }
                for (&i, row) in members.iter().zip(done.shared()) {
                    out.parts[i] = row;
                }
            }
            out.cost.then(&together);
        }
        Ok(out)
    }

    /// Returns one entity per shard; looking them up loads the row positions of all shards. With a file for each entity
    /// there are no positions, and one entity is returned.
    pub fn first_ids(&self) -> impl Iterator<Item = i64> {
        let ids = self.header.ids();
        let step = match self.manifest.layout {
            Layout::Files => usize::MAX,
            _ => usize::try_from(self.manifest.rows_per_shard).unwrap_or(usize::MAX),
        };
        ids.step_by(step)
    }

    /// All rows in order of id, in batches.
    pub const fn scan(&self) -> Scan<'_> {
        let at = self.manifest.first_id;
        Scan { table: self, at }
    }

    fn missing(&self, id: i64) -> StorageError {
        let ids = self.header.ids();
        let detail = format!("unknown entity {id}: table has {} to {}", ids.start, ids.end - 1);
        ErrorKind::NotFound.error(&self.folder, detail)
    }

    async fn job(&self, shard: u64, members: &[usize], ids: &[i64]) -> Result<Rows, StorageError> {
        match self.manifest.layout {
            Layout::Files => self.file(shard, ids[members[0]]).await,
            _ => self.of_shard(shard, members.iter().map(|&i| ids[i]).collect()).await,
        }
    }

    async fn of_shard(&self, number: u64, ids: Vec<i64>) -> Result<Rows, StorageError> {
        let (shard, cost) = self.shard(number).await?;
        let mut rows = match &shard.positions {
            Positions::Stride => self.strides(&shard.object, number, &ids).await?,
            Positions::Index(framing, index) => self.samples(&shard.object, (*framing, index), &ids).await?,
            Positions::Pages(_) | Positions::Batches(_) => self.columnar(&shard, number, &ids).await?,
        };
        rows.cost.then(&cost);
        Ok(rows)
    }

    /// Index of an entity's row in its shard.
    const fn number_in(&self, shard: u64, id: i64) -> u64 {
        id.wrapping_sub(self.manifest.first_id).cast_unsigned() - shard * self.manifest.rows_per_shard
    }

    /// Reads rows of a fixed size, consecutive ones together.
    async fn strides(&self, object: &Object, number: u64, ids: &[i64]) -> Result<Rows, StorageError> {
        let stride = u64::from(self.header.stride);
        let most = (MAX_READ_BYTES / stride).max(1) as usize;
        let runs: Vec<&[i64]> = runs_of(ids).flat_map(|run| run.chunks(most)).collect();
        let range = |run: &&[i64]| {
            let start = self.number_in(number, run[0]) * stride;
            start..start + stride * run.len() as u64
        };
        let ranges: Vec<_> = runs.iter().map(range).collect();
        let (parts, read) = rows::read(&*self.tier, object, &ranges).await?;
        let began = Instant::now();
        for ((run, range), part) in runs.iter().zip(&ranges).zip(&parts) {
            let offsets = (range.start..).step_by(stride as usize);
            for ((&id, row), offset) in run.iter().zip(part.chunks(stride as usize)).zip(offsets) {
                let checked = self.header.check_row(id, row);
                checked.map_err(|e| corrupt(&object.path, format!("row, offset {offset}: {e}")))?;
            }
        }
        Ok(Rows::decoded(parts, self.header.stride, read, began))
    }

    /// Reads rows from pages or batches, each only once.
    async fn columnar(&self, shard: &Shard, number: u64, ids: &[i64]) -> Result<Rows, StorageError> {
        let mut unique = ids.to_vec();
        unique.sort_unstable();
        unique.dedup();
        let numbers: Vec<usize> = unique.iter().map(|&id| self.number_in(number, id) as usize).collect();
        let (from, header) = ((&*self.tier, &shard.object), &self.header);
        let (bytes, cost) = match &shard.positions {
            Positions::Batches(footer) => arrow::read(from, (footer, header), &numbers, &unique).await?,
            Positions::Pages(footer) => parquet::read(from, (footer, header), &numbers, &unique).await?,
            Positions::Stride | Positions::Index(..) => Default::default(),
        };
        let (bytes, stride) = (Bytes::from(bytes), self.header.stride as usize);
        let row = |at: usize| bytes.slice(at * stride..(at + 1) * stride);
        let places = ids.iter().filter_map(|id| unique.binary_search(id).ok());
        let parts = match unique == ids {
            true => vec![bytes],
            false => places.map(row).collect(),
        };
        Ok(Rows { parts, stride, cost })
    }

    async fn file(&self, folder: u64, id: i64) -> Result<Rows, StorageError> {
        let folder = self.manifest.shard(&self.folder, folder)?;
        let path = row_path(&folder, id)?;
        let read = self.tier.read_whole(&path, self.header.stride.into()).await?;
        let began = Instant::now();
        let checked = self.header.check_row(id, &read.bytes);
        checked.map_err(|e| corrupt(&path, format!("row, offset 0: {e}; lay the table out again")))?;
        Ok(Rows::decoded(vec![read.bytes], self.header.stride, read.cost, began))
    }

    /// Reads samples of a shard with one call of the tier, which joins ranges where that is cheaper.
    async fn samples(
        &self,
        object: &Object,
        (framing, index): (Framing, &ShardIndex),
        ids: &[i64],
    ) -> Result<Rows, StorageError> {
        let path = &object.path;
        let mut samples = Vec::with_capacity(ids.len());
        let mut next = 0;
        for &id in ids {
            let key = key(id);
            let found = index.position(&key, next);
            let at = found.ok_or_else(|| corrupt(path, format!("index lacks sample of entity {id}")))?;
            samples.push((key, &index.samples()[at]));
            next = at + 1;
        }
        let ranges: Vec<_> = samples.iter().map(|(_, sample)| sample.range.clone()).collect();
        let (parts, read) = rows::read(&*self.tier, object, &ranges).await?;
        let began = Instant::now();
        let rows = ids
            .iter()
            .zip(&samples)
            .zip(&parts)
            .map(|((&id, (key, sample)), bytes)| {
                let offset = sample.range.start;
                if crc32c::crc32c(bytes) != sample.crc {
                    let detail = format!("sample of entity {id}, offset {offset}: checksum differs from the index");
                    return Err(corrupt(path, detail));
                }
                let row = sample::row(framing, &self.header, (id, key), bytes, offset);
                row.map(Bytes::from).map_err(|e| corrupt(path, e))
            });
        let rows = rows.collect::<Result<_, _>>()?;
        Ok(Rows::decoded(rows, self.header.stride, read, began))
    }

    /// Shard with the positions of its rows, from memory or from the tier.
    async fn shard(&self, number: u64) -> Result<(Arc<Shard>, Cost), StorageError> {
        let held = self.shards.lock().find(number);
        if let Some(shard) = held {
            return Ok((shard, Cost::default()));
        }
        let path = self.manifest.shard(&self.folder, number)?;
        let object = self.tier.stat(&path).await?;
        let (positions, mut cost) = match self.manifest.layout.coding() {
            Coding::Samples(framing) => {
                let (index, cost) = self.index(number, &object).await?;
                (Positions::Index(framing, index), cost)
            }
            Coding::Parquet(_) => {
                let (footer, cost) = parquet::footer(&*self.tier, &object).await?;
                (Positions::Pages(footer), cost)
            }
            Coding::Arrow(_) => {
                let (footer, cost) = arrow::footer((&*self.tier, &object), &self.header).await?;
                (Positions::Batches(footer), cost)
            }
            Coding::Rows | Coding::Files => (Positions::Stride, Cost::default()),
        };
        // Look-up of the shard.
        cost.read.requests += 1;
        let shard = Arc::new(Shard { object, positions });
        self.shards.lock().hold(number, &shard);
        Ok((shard, cost))
    }

    /// Reads the index beside a shard.
    async fn index(&self, number: u64, object: &Object) -> Result<(ShardIndex, Cost), StorageError> {
        let path = &object.path;
        let index_file = index_path(path)?;
        let side = self.tier.stat(&index_file).await?;
        if side.size > MAX_INDEX_BYTES {
            let detail = format!("index of {} bytes exceeds {MAX_INDEX_BYTES}", side.size);
            return Err(corrupt(&index_file, detail));
        }
        let mut read = self.tier.read(&side, 0..side.size).await?;
        read.cost.requests += 1;
        let began = Instant::now();
        let index = ShardIndex::decode(&read.bytes).map_err(|e| corrupt(&index_file, e))?;
        let crcs = &self.manifest.index_crcs;
        let wanted = usize::try_from(number).ok().and_then(|number| crcs.get(number));
        if Some(&crc32c::crc32c(&read.bytes)) != wanted {
            let detail = "index does not match the manifest; lay the table out again";
            return Err(corrupt(&index_file, detail));
        }
        if index.shard_bytes() != object.size {
            let (size, meant) = (object.size, index.shard_bytes());
            let detail = format!(
                "{size} bytes instead of the {meant} in its index: truncated or replaced; lay the table out again"
            );
            return Err(corrupt(path, detail));
        }
        Ok((index, Cost::since(read.cost, began)))
    }
}

/// Consecutive ids.
fn runs_of(ids: &[i64]) -> impl Iterator<Item = &[i64]> {
    ids.chunk_by(|&id, &next| id.checked_add(1) == Some(next))
}

/// Path of an entity's row, in the folder of its shard.
fn row_path(folder: &ObjectPath, id: i64) -> Result<ObjectPath, StorageError> {
    folder.join(&format!("{}.row", key(id)))
}

/// Path of the index beside a shard.
fn index_path(shard: &ObjectPath) -> Result<ObjectPath, StorageError> {
    ObjectPath::new(&format!("{shard}.{}", index::EXTENSION))
}

/// A scan of a whole table, in order of id.
pub struct Scan<'a> {
    table: &'a Table,
    at: i64,
}

impl Scan<'_> {
    /// Reads the next rows: at most about 8 MiB of one shard; `None` after the last.
    ///
    /// # Errors
    /// Same as [`Table::look_up`].
    pub async fn next(&mut self) -> Result<Option<Rows>, StorageError> {
        let Some(shard) = self.table.manifest.shard_of(self.at) else {
            return Ok(None);
        };
        let max = (SCAN_BYTES / u64::from(self.table.header.stride)).max(1);
        let end = self.at.saturating_add_unsigned(max).min(self.table.header.ids().end);
        let same = |id: &i64| self.table.manifest.shard_of(*id) == Some(shard);
        let ids: Vec<i64> = (self.at..end).take_while(same).collect();
        self.at += ids.len() as i64;
        self.table.look_up(&ids).await.map(Some)
    }
}

/// Maximum bytes of indexes and footers cached per table; the least recently used are evicted first.
const MAX_HELD_BYTES: usize = 512 << 20;
/// Overhead of a sample's key, in bytes.
const KEY_BYTES: usize = 16;

/// Shard as looked up.
pub(crate) struct Shard {
    pub(crate) object: Object,
    pub(crate) positions: Positions,
}

/// Source of the positions of a shard's rows.
pub(crate) enum Positions {
    /// Computed from the row's index.
    Stride,
    Index(Framing, ShardIndex),
    /// Footer of a Parquet file, with its page index.
    Pages(parquet::ParquetFooter),
    /// Footer of an Arrow IPC file.
    Batches(arrow::ArrowFooter),
}

impl Positions {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Stride => 0,
            Self::Index(_, index) => {
                let samples = index.samples();
                size_of_val(samples) + samples.len() * KEY_BYTES
            }
            Self::Pages(footer) => footer.memory_bytes(),
            Self::Batches(footer) => footer.memory_bytes(),
        }
    }
}

/// Cached shards by number.
#[derive(Default)]
pub(crate) struct Held {
    shards: HashMap<u64, (Arc<Shard>, u64)>,
    bytes: usize,
    /// Number of uses so far.
    now: u64,
}

impl Held {
    pub(crate) fn find(&mut self, number: u64) -> Option<Arc<Shard>> {
        self.now += 1;
        let (shard, used) = self.shards.get_mut(&number)?;
        *used = self.now;
        Some(Arc::clone(shard))
    }

    pub(crate) fn hold(&mut self, number: u64, shard: &Arc<Shard>) {
        self.now += 1;
        self.bytes += cost(shard);
        if let Some((before, _)) = self.shards.insert(number, (Arc::clone(shard), self.now)) {
            self.bytes -= cost(&before);
        }
        while self.bytes > MAX_HELD_BYTES && self.shards.len() > 1 {
            let oldest = self.shards.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(number, _)| *number) else {
                break;
            };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Shard>> {
        let (shard, _) = self.shards.remove(&number)?;
        self.bytes -= cost(&shard);
        Some(shard)
    }
}

fn cost(shard: &Shard) -> usize {
    size_of::<Shard>() + shard.object.path.as_str().len() + shard.object.version.len() + shard.positions.memory_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_formats::shards::index::Sample;
    use tierlab_storage::ObjectPath;

    fn shard(samples: usize) -> Arc<Shard> {
        let sample = |at: usize| Sample {
            key: at.to_string(),
            range: at as u64..at as u64 + 1,
            crc: 0,
        };
        let index = ShardIndex::new(1 << 40, (0..samples).map(sample).collect()).unwrap();
        Arc::new(Shard {
            object: Object {
                path: ObjectPath::new("x").unwrap(),
                size: 1,
                version: String::new(),
            },
            positions: Positions::Index(Framing::Tar, index),
        })
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_memory_stays_bounded() {
        let large = shard(1_000_000);
        let each = cost(&large);
        let room = MAX_HELD_BYTES / each;
        let mut held = Held::default();
        for number in 0..room as u64 {
            held.hold(number, &large);
        }
        assert!(held.find(0).is_some());
        held.hold(room as u64, &large);
        assert!(held.find(1).is_none() && held.find(0).is_some());
        assert!(held.bytes <= MAX_HELD_BYTES && held.shards.len() == room);
        held.hold(0, &shard(1));
        assert!(held.bytes < MAX_HELD_BYTES - each / 2);
        assert_eq!(
            [0, 1, 2].map(|number| held.remove(number).is_some()),
            [true, false, true]
        );
    }
}
