//! The feature join: entity ids to the rows of a table on the feature tier, and rows to input tensors.
//!
//! In: ids. Out: one contiguous tensor per joined column, and the time spent where. Every row is proven by its own
//! checksum before a byte of it is used; one that fails is forgotten by what lies around the tier and read once more. All
//! rows of a request are one read of the tier. Knows nothing of HTTP or sessions.

use crate::batch::Part;
use crate::refusal::{Reason, Refusal};
use crate::repository::LoadError;
use crate::stopwatch::Stopwatch;
use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};
use tierlab_protocol::metadata::JoinedMetadata;
use tierlab_protocol::model::FEATURES_PREFIX;
use tierlab_protocol::table::{self, Column, TableHeader};
use tierlab_protocol::tensor::TensorSpec;
use tierlab_protocol::timing::{Stage, TierSplit};
use tierlab_storage::wrappers::DamagedRows;
use tierlab_storage::{ErrorKind, Object, ObjectPath, ReadCost, StorageError, Tier};

/// Rows of this many bytes together are checked and laid out off the async threads.
const HEAVY_BYTES: usize = 1 << 20;

/// The tiers that tables are read from.
#[derive(Clone)]
pub(crate) struct FeatureTier {
    /// For headers: without the cache, so that they do not push rows out of it.
    pub(crate) uncached: Arc<dyn Tier>,
    /// For rows.
    pub(crate) rows: Arc<dyn Tier>,
    /// The kind, for messages and metrics.
    pub(crate) kind: &'static str,
    /// Rows that came damaged.
    pub(crate) damaged: DamagedRows,
}

/// A table as it was when it was opened.
#[derive(Debug)]
struct OpenTable {
    object: Object,
    header: TableHeader,
    /// [`TableHeader::header_len`], which costs a serialisation of the schema.
    first_row: u64,
}

impl OpenTable {
    fn row_range(&self, id: i64) -> Option<Range<u64>> {
        if !self.header.ids().contains(&id) {
            return None;
        }
        let stride = u64::from(self.header.stride);
        let start = self.first_row + id.abs_diff(self.header.first_id) * stride;
        Some(start..start + stride)
    }
}

/// A feature table and the inputs that it fills.
pub(crate) struct Join {
    tier: FeatureTier,
    path: ObjectPath,
    table: RwLock<Arc<OpenTable>>,
    /// Input of the graph, by index, and the column that fills it.
    columns: Vec<(usize, Column)>,
    inputs: Vec<String>,
    /// One task opens a replaced table again; the others wait for it.
    reopening: tokio::sync::Mutex<()>,
}

/// What a join gives: the index of an input, and its tensor.
pub(crate) type Joined = Vec<(usize, Part)>;

impl Join {
    /// Opens a table and matches its columns with the inputs that they fill: pairs of an input's index and a column's name.
    ///
    /// # Errors
    /// A table that is missing or damaged, by object and offset; a column that does not fit its input, by name.
    pub(crate) async fn open(
        tier: FeatureTier,
        table: &str,
        inputs: &[TensorSpec],
        wanted: &[(usize, String)],
    ) -> Result<Self, LoadError> {
        let path = ObjectPath::new(&format!("{FEATURES_PREFIX}/{table}.{}", table::EXTENSION))?;
        let open = open_table(&*tier.uncached, &path).await?;
        let mut columns = Vec::new();
        for (input, name) in wanted {
            let spec = &inputs[*input];
            let column = open.header.schema.column(name).ok_or_else(|| {
                let have: Vec<&str> = open
                    .header
                    .schema
                    .columns
                    .iter()
                    .map(|column| column.name.as_str())
                    .collect();
                LoadError::at(
                    &path,
                    format!(
                        "no column `{name}` for input `{}`; it has {}",
                        spec.name,
                        have.join(", ")
                    ),
                )
            })?;
            check_fit(spec, column).map_err(|what| LoadError::at(&path, what))?;
            columns.push((*input, column.clone()));
        }
        let inputs = columns.iter().map(|(input, _)| inputs[*input].name.clone()).collect();
        let table = RwLock::new(Arc::new(open));
        Ok(Self {
            tier,
            path,
            table,
            columns,
            inputs,
            reopening: tokio::sync::Mutex::default(),
        })
    }

    /// The kind of the tier that the rows come from.
    pub(crate) fn tier_kind(&self) -> &'static str {
        self.tier.kind
    }

    /// Whether an input is filled by the table.
    pub(crate) fn fills(&self, input: usize) -> bool {
        self.columns.iter().any(|(index, _)| *index == input)
    }

    /// Bytes that the rows of so many ids take: as read, and as laid out.
    pub(crate) fn bytes(&self, ids: usize) -> usize {
        let stride = self.current().header.stride as usize;
        ids.saturating_mul(stride).saturating_mul(2)
    }

    /// For the model's metadata.
    pub(crate) fn metadata(&self) -> JoinedMetadata {
        let open = self.current();
        JoinedMetadata {
            table: open.header.schema.name.clone(),
            first_id: open.header.first_id,
            rows: open.header.rows,
            row_bytes: open.header.stride,
            inputs: self.inputs.clone(),
        }
    }

    /// Reads the rows of `ids` and lays them out, giving the time to the stages cache, tier and join.
    ///
    /// # Errors
    /// An id that the table does not hold; a row that is damaged and stays so; a tier that fails.
    pub(crate) async fn rows(&self, ids: &[i64], watch: &mut Stopwatch) -> Result<Joined, Refusal> {
        let (open, mut rows) = self.read(ids, watch).await?;
        let heavy = ids.len().saturating_mul(open.header.stride as usize) >= HEAVY_BYTES;
        let damaged = work(heavy, || damaged(&open, ids, &rows));
        if !damaged.is_empty() {
            self.mend(&open, ids, &damaged, &mut rows, watch).await?;
        }
        let joined = work(heavy, || self.lay_out(ids.len(), &rows));
        watch.mark(Stage::Join);
        Ok(joined)
    }

    /// The rows as the tier has them, and the table that they are of.
    async fn read(&self, ids: &[i64], watch: &mut Stopwatch) -> Result<(Arc<OpenTable>, Vec<Bytes>), Refusal> {
        let mut open = self.current();
        let mut reopened = false;
        loop {
            let ranges = self.ranges(&open, ids)?;
            watch.mark(Stage::Join);
            match self.tier.rows.read_many(&open.object, &ranges).await {
                Ok(read) => {
                    account(watch, &read.cost);
                    return Ok((open, read.parts));
                }
                Err(error) if error.kind() == ErrorKind::Changed && !reopened => {
                    watch.mark(Stage::Tier);
                    open = self.reopen(&open).await?;
                    reopened = true;
                }
                Err(error) => {
                    watch.mark(Stage::Tier);
                    return Err(Refusal::tier(self.tier.kind, &error));
                }
            }
        }
    }

    /// Reads damaged rows once more, of the tier itself: what was damaged may have been a copy of them, or their way here.
    async fn mend(
        &self,
        open: &OpenTable,
        ids: &[i64],
        damaged: &[usize],
        rows: &mut [Bytes],
        watch: &mut Stopwatch,
    ) -> Result<(), Refusal> {
        let ids: Vec<i64> = damaged.iter().map(|&at| ids[at]).collect();
        let ranges = self.ranges(open, &ids)?;
        watch.mark(Stage::Join);
        self.tier.rows.forget(&open.object, &ranges).await;
        let read = self.tier.rows.read_many(&open.object, &ranges).await;
        let read = read.map_err(|error| {
            watch.mark(Stage::Tier);
            Refusal::tier(self.tier.kind, &error)
        })?;
        account(watch, &read.cost);
        let mut refusal = None;
        for ((&at, &id), row) in damaged.iter().zip(&ids).zip(read.parts) {
            match open.header.check_row(id, &row) {
                Ok(()) => self.tier.damaged.mended.inc(),
                Err(e) => {
                    self.tier.damaged.refused.inc();
                    refusal.get_or_insert_with(|| Refusal::new(Reason::Corrupt, format!("{}: {e}", self.path)));
                }
            }
            rows[at] = row;
        }
        match refusal {
            None => {
                tracing::warn!(object = %self.path, rows = ids.len(), "damaged rows were right when read again");
                Ok(())
            }
            Some(refusal) => {
                tracing::error!(error = %refusal, "a damaged row is not served");
                // Nobody keeps it, so that it is right once the object is.
                self.tier.rows.forget(&open.object, &ranges).await;
                Err(refusal)
            }
        }
    }

    fn ranges(&self, open: &OpenTable, ids: &[i64]) -> Result<Vec<Range<u64>>, Refusal> {
        ids.iter()
            .map(|&id| {
                open.row_range(id).ok_or_else(|| {
                    let have = open.header.ids();
                    let what = format!(
                        "no entity {id} in {}: ids run from {} to {}",
                        self.path,
                        have.start,
                        have.end - 1
                    );
                    Refusal::new(Reason::UnknownEntity, what)
                })
            })
            .collect()
    }

    /// Rows that are known to be right, as tensors.
    fn lay_out(&self, count: usize, rows: &[Bytes]) -> Joined {
        let shape_rows = i64::try_from(count).unwrap_or(i64::MAX);
        let joined = self.columns.iter().map(|(input, column)| {
            let from = column.offset as usize;
            let len = column.byte_len().unwrap_or(0);
            let mut data = Vec::with_capacity(len * count);
            for row in rows {
                data.extend_from_slice(&row[from..from + len]);
            }
            let mut shape = Vec::with_capacity(column.shape.len() + 1);
            shape.push(shape_rows);
            shape.extend_from_slice(&column.shape);
            (
                *input,
                Part {
                    shape,
                    data: data.into(),
                },
            )
        });
        joined.collect()
    }

    fn current(&self) -> Arc<OpenTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens the table again after the tier said that it has changed. A table of another schema is refused.
    async fn reopen(&self, stale: &Arc<OpenTable>) -> Result<Arc<OpenTable>, Refusal> {
        let _one = self.reopening.lock().await;
        let current = self.current();
        if !Arc::ptr_eq(&current, stale) {
            return Ok(current);
        }
        let fresh = open_table(&*self.tier.uncached, &self.path)
            .await
            .map_err(|e| Refusal::new(Reason::Corrupt, format!("the table was replaced: {e}")))?;
        for (_, column) in &self.columns {
            if fresh.header.schema.column(&column.name) != Some(column) {
                let what = format!(
                    "{}: replaced by a table whose column `{}` is another",
                    self.path, column.name
                );
                return Err(Refusal::new(Reason::Corrupt, what));
            }
        }
        tracing::info!(object = %self.path, rows = fresh.header.rows, "the table was replaced and is read anew");
        let fresh = Arc::new(fresh);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        Ok(fresh)
    }
}

/// The rows that fail their checksum, by their place.
fn damaged(open: &OpenTable, ids: &[i64], rows: &[Bytes]) -> Vec<usize> {
    let rows = ids.iter().zip(rows).enumerate();
    rows.filter(|(_, (id, row))| open.header.check_row(**id, row).is_err())
        .map(|(at, _)| at)
        .collect()
}

/// Does some work, off the async threads' path where it is heavy.
fn work<T>(heavy: bool, work: impl FnOnce() -> T) -> T {
    if heavy {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// Reads and checks a table's header.
async fn open_table(tier: &dyn Tier, path: &ObjectPath) -> Result<OpenTable, LoadError> {
    let bad = |e: table::TableError| LoadError::at(path, e);
    let object = tier.stat(path).await?;
    let read = async |range: Range<u64>| -> Result<Bytes, StorageError> { Ok(tier.read(&object, range).await?.bytes) };
    let mut bytes = read(0..object.size.min(table::ALIGN)).await?;
    let len = table::header_len(&bytes).map_err(bad)?;
    if len > bytes.len() as u64 && len <= object.size {
        bytes = read(0..len).await?;
    }
    let header = TableHeader::decode(&bytes, object.size).map_err(bad)?;
    let first_row = header.header_len();
    Ok(OpenTable {
        object,
        header,
        first_row,
    })
}

fn check_fit(input: &TensorSpec, column: &Column) -> Result<(), String> {
    let dims = input.shape.get(1..).unwrap_or_default();
    let same = dims.len() == column.shape.len() && dims.iter().zip(&column.shape).all(|(&a, &b)| a == b || a == -1);
    if same && input.dtype == column.dtype {
        return Ok(());
    }
    Err(format!(
        "column `{}` is {} {:?} per row, input `{}` wants {} {dims:?}",
        column.name, column.dtype, column.shape, input.name, input.dtype
    ))
}

/// Splits the time of a read between cache and tier, and keeps how the rows were got.
fn account(watch: &mut Stopwatch, cost: &ReadCost) {
    if cost.cache_hits > 0 && cost.cache_misses == 0 {
        watch.mark(Stage::Cache);
    } else {
        watch.mark_split(Stage::Cache, cost.cache, Stage::Tier);
    }
    let timings = watch.timings_mut();
    // A second read comes after the first: their times add.
    let TierSplit { queue, device, copy } = timings.tier_split;
    timings.tier_split = TierSplit {
        queue: queue + cost.queue,
        device: device + cost.device,
        copy: copy + cost.copy,
    };
    timings.via = timings.via.union(cost.via);
    timings.tier_requests += cost.requests;
    timings.cache_hits += cost.cache_hits;
    timings.cache_misses += cost.cache_misses;
}

#[cfg(test)]
mod tests;
