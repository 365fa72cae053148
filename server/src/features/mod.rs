//! The feature join: entity ids to the rows of a table on the feature tier, and rows to input tensors.
//!
//! In: ids. Out: one tensor per joined column, on the host or on the sessions' device, and the time by stage. Each
//! row's own checksum is verified before the row is used, unless configured otherwise ([`RowDestination`]). A row that
//! fails is dropped from every cache around the tier and read once more. All rows of a request are a single read of the
//! tier, of one version; if the version changes, the whole read is retried. Knows nothing of HTTP or sessions.

pub(crate) mod ids;
pub(crate) mod live;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod tier;

use crate::error::LoadError;
use crate::request::{DeviceRows, Elements, LARGE_BYTES, Part, Reason, Refusal, Stopwatch, offload_if};
use bytes::Bytes;
use ids::{EntityIds, IdKind};
use live::{LiveTable, LiveTables};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use table::OpenTable;
use tier::{FeatureTier, RowDestination};
use tierlab_formats::model::{FEATURES_PREFIX, JoinedColumn};
use tierlab_formats::table::{self as format, Column, KeyIndex, TableError};
use tierlab_protocol::metadata::{JoinedMetadata, KeyMetadata};
use tierlab_protocol::tensor::{DataType, TensorSpec};
use tierlab_protocol::timing::Stage;
use tierlab_storage::device::{self, DeviceError, Landed};
use tierlab_storage::{ErrorKind, Object, ObjectPath, ReadCost, StorageError, Tier};

/// Maximum reads of a request's rows: one, plus one for each version that appears meanwhile.
const READS: u32 = 8;

/// Memory per id besides its row: the number, its range, and its place among the rows.
const LISTED_BYTES: usize = size_of::<i64>() + size_of::<Range<u64>>() + size_of::<Bytes>();

/// Feature table and the inputs that it fills.
pub(crate) struct Join {
    pub(crate) tier: FeatureTier,
    path: ObjectPath,
    table: Arc<LiveTable>,
    /// Kept so that versions are looked up while this exists.
    _tables: Arc<LiveTables>,
    filled: Vec<FilledInput>,
    inputs: Vec<String>,
    /// Kind of entity id, the same for every accepted version.
    pub(crate) id_kind: IdKind,
    /// Number of requests so far.
    requests: AtomicU64,
}

impl Join {
    /// Opens a table and matches its columns with the inputs that they fill.
    ///
    /// # Errors
    /// Fails if the table is missing or damaged (by object and offset), or if a column does not match its input (by
    /// name).
    pub(crate) async fn open(
        tier: FeatureTier,
        tables: Arc<LiveTables>,
        table: &str,
        inputs: &[TensorSpec],
        wanted: &[JoinedColumn],
    ) -> Result<Self, LoadError> {
        let path = ObjectPath::new(&format!("{FEATURES_PREFIX}/{table}.{}", format::EXTENSION))?;
        // A table is not among the model's files: the same ones may load once it is there.
        let open = tier.open_table(&path, false).await.map_err(LoadError::transient)?;
        let mut filled = Vec::new();
        for JoinedColumn { input, column: name } in wanted {
            let column = open.column_for(&inputs[*input], name);
            let column = column.map_err(|message| LoadError::at(&path, message))?;
            if tier.destination != RowDestination::Host && column.dtype == DataType::Bool {
                let message = format!(
                    "column `{name}` is BOOL, whose bytes must be checked on the host: set `features.rows` to \"host\""
                );
                return Err(LoadError::at(&path, message));
            }
            filled.push(FilledInput { input: *input, column });
        }
        let inputs = filled.iter().map(|filled| inputs[filled.input].name.clone()).collect();
        let columns: Vec<Column> = filled.iter().map(|filled| filled.column.clone()).collect();
        let id_kind = open.id_kind();
        let table = tables.share(&tier, open, &columns);
        Ok(Self {
            id_kind,
            tier,
            path,
            table,
            _tables: tables,
            filled,
            inputs,
            requests: AtomicU64::new(0),
        })
    }

    /// True if the table fills input `input`.
    pub(crate) fn fills(&self, input: usize) -> bool {
        self.filled.iter().any(|filled| filled.input == input)
    }

    /// Bytes needed for the rows of `ids` ids: as read, as laid out, and their lists of positions.
    pub(crate) fn bytes(&self, ids: usize) -> usize {
        let stride = self.table.current().header.stride as usize;
        ids.saturating_mul(stride.saturating_mul(2).saturating_add(LISTED_BYTES))
    }

    /// Metadata of the join, for the model's metadata.
    pub(crate) fn metadata(&self) -> JoinedMetadata {
        let open = self.table.current();
        let key = open.header.schema.key.as_ref().map(|key| KeyMetadata {
            column: key.name.clone(),
            kind: key.kind.as_str().to_owned(),
            datatype: self.id_kind.dtype(),
            max_bytes: u32::try_from(key.longest()).unwrap_or(u32::MAX),
            index_bytes: open.index.as_ref().map_or(0, KeyIndex::memory_bytes) as u64,
        });
        JoinedMetadata {
            table: open.header.schema.name.clone(),
            first_id: open.header.first_id,
            rows: open.header.rows,
            row_bytes: open.header.stride,
            inputs: self.inputs.clone(),
            key,
        }
    }

    /// Reads the rows of `entities`, all of one version, and lays them out. Records the time of the stages cache, tier
    /// and join.
    ///
    /// # Errors
    /// Fails for an id that the table does not hold, for a row that stays damaged, if the tier fails, or if the table
    /// is replaced faster than it can be read.
    pub(crate) async fn rows(&self, entities: &EntityIds, watch: &mut Stopwatch) -> Result<Joined, Refusal> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut open = self.table.current();
        let mut reads = 0;
        let rows = loop {
            reads += 1;
            if reads > READS {
                let (kind, path) = (self.tier.kind, &self.path);
                let message = format!("tier `{kind}`: {path}: replaced {READS} times while its rows were read");
                return Err(Refusal::new(Reason::Tier, message));
            }
            let numbers = open.row_numbers(entities);
            let ids = numbers.map_err(|unknown| self.unknown_entity(&open, entities, unknown))?;
            let Some(mut rows) = self.read(&open, &ids, watch).await? else {
                open = self.table.reopen(&open).await?;
                watch.mark(Stage::Tier);
                continue;
            };
            // If entities have keys, a row may be another entity's until its own key is checked.
            if self.tier.destination.verifies(request) || open.index.is_some() {
                let damaged = self.damaged(&open, &ids, &rows, self.is_heavy(&open, ids.len()))?;
                if !damaged.is_empty()
                    && let Err(refusal) = self.reread_damaged(&open, &ids, &damaged, &mut rows, watch).await
                {
                    // A row that does not match its header may be of another version.
                    open = self.table.reread_header(&open).await.ok_or(refusal)?;
                    watch.mark(Stage::Tier);
                    continue;
                }
            }
            if self.table.is_current(&open) {
                let foreign = rows.foreign_row(&open, entities).map_err(|e| self.copy_failed(e))?;
                if let Some(unknown) = foreign {
                    return Err(self.unknown_entity(&open, entities, unknown));
                }
                break rows;
            }
            // Another read or check has found a newer version; the old one must not be used any more.
            open = self.table.current();
        };
        let joined = offload_if(self.is_heavy(&open, entities.len()), || rows.lay_out(&self.filled));
        watch.mark(Stage::Join);
        Ok(joined)
    }

    fn is_heavy(&self, open: &OpenTable, ids: usize) -> bool {
        ids.saturating_mul(open.header.stride as usize) >= LARGE_BYTES
    }

    /// Reads rows; `None` if the table has another version now.
    async fn read(&self, open: &OpenTable, ids: &[i64], watch: &mut Stopwatch) -> Result<Option<Rows>, Refusal> {
        let ranges = self.ranges(open, ids)?;
        watch.mark(Stage::Join);
        match Rows::read(&*self.tier.rows, self.tier.destination, &open.object, &ranges).await {
            Ok((rows, cost)) => {
                record_cost(watch, &cost);
                Ok(Some(rows))
            }
            Err(error) if error.kind() == ErrorKind::Changed => {
                watch.mark(Stage::Tier);
                Ok(None)
            }
            Err(error) => Err(self.failed(&error, watch)),
        }
    }

    fn failed(&self, error: &StorageError, watch: &mut Stopwatch) -> Refusal {
        watch.mark(Stage::Tier);
        Refusal::tier(self.tier.kind, error)
    }

    fn damaged(&self, open: &OpenTable, ids: &[i64], rows: &Rows, heavy: bool) -> Result<Vec<DamagedRow>, Refusal> {
        // A copy from the device blocks.
        let waits = heavy || matches!(rows, Rows::Device(_));
        offload_if(waits, || rows.damaged(open, ids)).map_err(|e| self.copy_failed(e))
    }

    fn copy_failed(&self, error: DeviceError) -> Refusal {
        let error = StorageError::of_device(self.path.as_str(), error);
        Refusal::tier(self.tier.kind, &error)
    }

    /// Refusal of an entity that the table does not have.
    fn unknown_entity(&self, open: &OpenTable, entities: &EntityIds, at: usize) -> Refusal {
        let entity = open.format_entity(entities, at);
        let ids = open.header.ids();
        let available = match &open.header.schema.key {
            _ if ids.is_empty() => "the table has no rows".to_owned(),
            Some(key) => format!("not among its {} {} keys", open.header.rows, key.kind.as_str()),
            None => format!("ids range from {} to {}", ids.start, ids.end - 1),
        };
        let message = format!("unknown entity {entity} in {}: {available}", self.path);
        Refusal::new(Reason::UnknownEntity, message)
    }

    /// Reads damaged rows once more, from the tier itself: the damage may be in a copy or in the transfer.
    async fn reread_damaged(
        &self,
        open: &OpenTable,
        ids: &[i64],
        damaged: &[DamagedRow],
        rows: &mut Rows,
        watch: &mut Stopwatch,
    ) -> Result<(), Refusal> {
        let damaged_ids: Vec<i64> = damaged.iter().map(|row| ids[row.at]).collect();
        let damaged_ranges = self.ranges(open, &damaged_ids)?;
        watch.mark(Stage::Join);
        self.tier.rows.forget(&open.object, &damaged_ranges).await;
        let indices = rows.rows_to_reread(damaged, ids.len());
        let ids: Vec<i64> = indices.iter().map(|&at| ids[at]).collect();
        let ranges = self.ranges(open, &ids)?;
        let read = Rows::read(&*self.tier.rows, self.tier.destination, &open.object, &ranges).await;
        let (reread, cost) = read.map_err(|error| self.failed(&error, watch))?;
        record_cost(watch, &cost);
        let still = self.damaged(open, &ids, &reread, false)?;
        let counts = &self.tier.damaged;
        counts.refused.inc_by(still.len() as u64);
        counts.mended.inc_by(damaged.len().saturating_sub(still.len()) as u64);
        let Some(DamagedRow { error, .. }) = still.first() else {
            tracing::warn!(object = %self.path, rows = damaged.len(), "damaged rows were correct when read again");
            rows.replace(&indices, reread);
            return Ok(());
        };
        let refusal = Refusal::new(Reason::Corrupt, format!("{}: {error}", self.path));
        tracing::error!(error = %refusal, "rejected a damaged row");
        // Caches drop it, so that it is correct once the object is.
        self.tier.rows.forget(&open.object, &damaged_ranges).await;
        Err(refusal)
    }

    /// Byte ranges of rows, by the numbers that [`OpenTable::row_numbers`] returns.
    fn ranges(&self, open: &OpenTable, ids: &[i64]) -> Result<Vec<Range<u64>>, Refusal> {
        let range = |&id: &i64| {
            let none = || Refusal::new(Reason::UnknownEntity, format!("unknown row {id} in {}", self.path));
            open.row_range(id).ok_or_else(none)
        };
        ids.iter().map(range).collect()
    }
}

/// Splits the time of a read between cache and tier, and records the cost.
fn record_cost(watch: &mut Stopwatch, cost: &ReadCost) {
    if cost.cache_hits > 0 && cost.cache_misses == 0 {
        watch.mark(Stage::Cache);
    } else {
        watch.mark_split(Stage::Cache, cost.cache, Stage::Tier);
    }
    let timings = &mut watch.timings;
    // A second read follows the first, so their times add.
    timings.tier_split.queue += cost.queue;
    timings.tier_split.device += cost.device;
    timings.tier_split.copy += cost.copy;
    timings.via = timings.via.union(cost.via);
    timings.tier_requests += cost.requests;
    timings.cache_hits += cost.cache_hits;
    timings.cache_misses += cost.cache_misses;
}

/// Result of a join: input index and tensor.
type Joined = Vec<(usize, Part)>;

/// Row that fails its checksum.
#[derive(Debug)]
struct DamagedRow {
    /// Index among the rows of the request.
    at: usize,
    error: TableError,
}

/// Index of an input of the graph, and the column that fills it.
#[derive(Debug)]
struct FilledInput {
    input: usize,
    column: Column,
}

/// Rows, one per requested range.
#[derive(Debug)]
enum Rows {
    Host(Vec<Bytes>),
    Device(Arc<Landed>),
}

impl Rows {
    /// Reads rows to their destination.
    async fn read(
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
            let message = "the tier does not support reads into device memory";
            ErrorKind::Unsupported.error(object.path.as_str(), message)
        })?;
        let landed = device.read_to_device(object, ranges).await?;
        let cost = landed.cost;
        Ok((Self::Device(Arc::new(landed)), cost))
    }

    /// Rows that fail their checksum, by index. Rows on a device are copied back, so that the verified bytes are those
    /// that the session will read.
    ///
    /// # Errors
    /// Fails if a copy back from the device fails.
    fn damaged(&self, table: &OpenTable, ids: &[i64]) -> Result<Vec<DamagedRow>, DeviceError> {
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
    fn foreign_row(&self, table: &OpenTable, ids: &EntityIds) -> Result<Option<usize>, DeviceError> {
        Ok(match self {
            _ if table.index.is_none() => None,
            Self::Host(rows) => table.foreign_row(ids, rows),
            Self::Device(landed) => table.foreign_row(ids, &landed.to_host()?),
        })
    }

    /// Indices of the rows to read again if some are damaged. On the host only these; on a device all rows, so that
    /// they are contiguous in memory again.
    fn rows_to_reread(&self, damaged: &[DamagedRow], count: usize) -> Vec<usize> {
        match self {
            Self::Host(_) => damaged.iter().map(|row| row.at).collect(),
            Self::Device(_) => (0..count).collect(),
        }
    }

    /// Replaces rows with those read again.
    fn replace(&mut self, indices: &[usize], reread: Self) {
        match (self, reread) {
            (Self::Host(rows), Self::Host(reread)) => {
                for (&at, row) in indices.iter().zip(reread) {
                    rows[at] = row;
                }
            }
            (rows, reread) => *rows = reread,
        }
    }

    /// Lays out verified rows as one tensor per column.
    fn lay_out(self, inputs: &[FilledInput]) -> Joined {
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
