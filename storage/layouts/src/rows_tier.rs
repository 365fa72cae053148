//! Tables of a layout presented in the rows format. In: a tier, and a layout. Out: a tier on which the file `NAME.rows`
//! has the rows of the folder `NAME.LAYOUT` beside it; all other objects are unchanged.
//!
//! Readers of row ranges can thus read any layout: the header comes from the manifest, and a range of rows is a
//! look-up. The version of such a file is the version of its manifest.

use crate::layout::Layout;
use crate::manifest::{self, Manifest};
use crate::rows;
use crate::table::Table;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tierlab_formats::table::{EXTENSION, TableHeader};
use tierlab_storage::limits::check_ranges;
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};

/// Maximum open tables: tables in use, and versions that requests still read.
const MAX_OPEN: usize = 64;

/// Tier over tables of a layout.
pub struct RowsTier {
    inner: Arc<dyn Tier>,
    layout: Layout,
    /// Tables looked up last, newest first.
    open: Mutex<VecDeque<Arc<Open>>>,
}

/// A table, and the file that represents it.
struct Open {
    file: Object,
    manifest: Object,
    header: Bytes,
    /// Path of the index of keys.
    index: ObjectPath,
    table: Table,
}

impl RowsTier {
    /// Wraps a tier. The layout `rows` has no folders here: their name would be that of the file `NAME.rows`.
    pub fn new(inner: Arc<dyn Tier>, layout: Layout) -> Self {
        Self {
            inner,
            layout,
            open: Mutex::default(),
        }
    }

    /// Folder of a table; `None` if the path is not that of a table.
    fn folder(&self, file: &ObjectPath) -> Result<Option<ObjectPath>, StorageError> {
        let Some(name) = table_name(file) else { return Ok(None) };
        folder_of(name, self.layout).map(Some)
    }

    /// Current version of a table.
    async fn look_up(&self, file: &ObjectPath, folder: ObjectPath) -> Result<Arc<Open>, StorageError> {
        let path = folder.join(manifest::NAME)?;
        let object = self.inner.stat(&path).await.map_err(|e| self.missing_table(file, e))?;
        if let Some(open) = self.find(|open| open.manifest == object) {
            return Ok(open);
        }
        let manifest = Manifest::read(&*self.inner, &object).await?;
        if manifest.layout != self.layout {
            let detail = format!("layout is {}, not {}", manifest.layout, self.layout);
            return Err(ErrorKind::Corrupt.error(path, detail));
        }
        let version = format!("{} {}", manifest.version, object.version);
        let index = manifest.key_index(&folder)?;
        let table = Table::of(Arc::clone(&self.inner), folder, manifest)?;
        let open = Arc::new(Open {
            file: Object {
                path: file.clone(),
                size: table.header.file_len(),
                version,
            },
            manifest: object,
            header: Bytes::from(table.header.encode()),
            index,
            table,
        });
        let mut held = self.open.lock();
        held.push_front(Arc::clone(&open));
        held.truncate(MAX_OPEN);
        Ok(open)
    }

    fn find(&self, wanted: impl Fn(&Open) -> bool) -> Option<Arc<Open>> {
        let mut held = self.open.lock();
        let at = held.iter().position(|open| wanted(open))?;
        let open = held.remove(at)?;
        held.push_front(Arc::clone(&open));
        Some(open)
    }

    /// Table in the version of a file that was looked up.
    async fn of(&self, file: &Object, folder: ObjectPath) -> Result<Arc<Open>, StorageError> {
        if let Some(open) = self.find(|open| open.file == *file) {
            return Ok(open);
        }
        let open = self.look_up(&file.path, folder).await?;
        if open.file == *file {
            return Ok(open);
        }
        let detail = "table was laid out again after the look-up";
        Err(ErrorKind::Changed.error(&file.path, detail))
    }

    fn missing_table(&self, file: &ObjectPath, error: StorageError) -> StorageError {
        if error.kind() != ErrorKind::NotFound {
            return error;
        }
        let layout = self.layout;
        let detail =
            format!("missing manifest of layout {layout} ({error}); run `tierlab-models lay-out --layout {layout}`");
        ErrorKind::NotFound.error(file, detail)
    }

    fn refuse(&self, file: &ObjectPath) -> StorageError {
        let layout = self.layout;
        let detail = format!("tables have the layout {layout} here and cannot be written as files");
        ErrorKind::Unsupported.error(file, detail)
    }
}

/// Folder of a table in a layout: `features/users` is in `features/users.parquet`.
///
/// # Errors
/// Fails if the name is not valid for an object.
pub fn folder_of(table: &str, layout: Layout) -> Result<ObjectPath, StorageError> {
    ObjectPath::new(&format!("{table}.{layout}"))
}

/// Path of a table's file without its extension.
fn table_name(file: &ObjectPath) -> Option<&str> {
    file.as_str().strip_suffix(EXTENSION)?.strip_suffix('.')
}

impl Open {
    async fn read_many(&self, tier: &dyn Tier, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let spans: Vec<Range<i64>> = ranges.iter().map(|range| self.rows_of(range)).collect();
        let mut ids: Vec<i64> = spans.iter().cloned().flatten().collect();
        ids.sort_unstable();
        ids.dedup();
        let (rows, mut cost) = self.look_up(&ids).await?;
        let row = |id: i64| ids.binary_search(&id).ok().map(|at| &rows[at]);
        let parts = ranges.iter().zip(spans).map(|(range, span)| self.cut(range, span, row));
        let mut parts: Vec<Bytes> = parts.collect();
        cost.then(&self.add_index(tier, ranges, &mut parts).await?);
        Ok(ReadMany { parts, cost })
    }

    /// Adds to each part the bytes of its range in the index of keys, which follows the rows.
    async fn add_index(
        &self,
        tier: &dyn Tier,
        ranges: &[Range<u64>],
        parts: &mut [Bytes],
    ) -> Result<ReadCost, StorageError> {
        let start = self.table.header.rows_end();
        let inside = ranges.iter().map(|range| range.start.max(start)..range.end.max(start));
        let wanted: Vec<(usize, Range<u64>)> = inside.enumerate().filter(|(_, range)| !range.is_empty()).collect();
        if wanted.is_empty() {
            return Ok(ReadCost::default());
        }
        let object = tier.stat(&self.index).await?;
        let (found, meant) = (object.size, self.table.manifest().key_index_bytes);
        if found != meant {
            let detail = format!("{found} bytes instead of the {meant} in its manifest; lay the table out again");
            return Err(ErrorKind::Corrupt.error(&self.index, detail));
        }
        let of_object = wanted.iter().map(|(_, range)| range.start - start..range.end - start);
        let of_object: Vec<Range<u64>> = of_object.collect();
        let mut read = tier.read_many(&object, &of_object).await?;
        // Look-up of the index.
        read.cost.requests += 1;
        for ((at, _), bytes) in wanted.into_iter().zip(read.parts) {
            parts[at] = match parts[at].is_empty() {
                true => bytes,
                false => Bytes::from([&parts[at][..], &bytes[..]].concat()),
            };
        }
        Ok(read.cost)
    }

    /// Drops the cached index of keys.
    async fn forget_index(&self, tier: &dyn Tier) {
        if let Ok(object) = tier.stat(&self.index).await {
            rows::forget(tier, &object).await;
        }
    }

    /// Looks up rows. Reads damaged bytes once more from the tier itself, since the damage may be in a wrapper's copy.
    async fn look_up(&self, ids: &[i64]) -> Result<(Vec<Bytes>, ReadCost), StorageError> {
        if ids.is_empty() {
            return Ok((Vec::new(), ReadCost::default()));
        }
        let found = match self.table.look_up(ids).await {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Changed) => {
                self.table.forget(ids).await;
                self.table.look_up(ids).await?
            }
            found => found?,
        };
        let mut cost = found.cost.read;
        cost.copy += found.cost.decode;
        Ok((found.shared().collect(), cost))
    }

    /// Entities whose rows are in a range, completely or partly.
    fn rows_of(&self, range: &Range<u64>) -> Range<i64> {
        let header = &self.table.header;
        let stride = u64::from(header.stride);
        let number = |offset: u64| offset.saturating_sub(self.header.len() as u64);
        let start = (number(range.start) / stride).min(header.rows);
        let end = match range.is_empty() {
            true => start,
            false => number(range.end).div_ceil(stride).min(header.rows),
        };
        let id = |number: u64| header.first_id.saturating_add_unsigned(number);
        id(start)..id(end)
    }

    /// Assembles a range from the header and its rows.
    fn cut<'a>(&self, range: &Range<u64>, span: Range<i64>, row: impl Fn(i64) -> Option<&'a Bytes>) -> Bytes {
        let header: &TableHeader = &self.table.header;
        let first_row = self.header.len() as u64;
        let start_of = |id: i64| first_row + id.abs_diff(header.first_id) * u64::from(header.stride);
        // The most common request, without a copy.
        if let Some(only) = row(span.start)
            && *range == (start_of(span.start)..start_of(span.start) + u64::from(header.stride))
        {
            return only.clone();
        }
        let mut out = Vec::with_capacity((range.end - range.start) as usize);
        let part = |bytes: &Bytes, at: u64| {
            let inside = |offset: u64| (offset.saturating_sub(at) as usize).min(bytes.len());
            bytes.slice(inside(range.start)..inside(range.end))
        };
        out.extend_from_slice(&part(&self.header, 0));
        for id in span {
            if let Some(row) = row(id) {
                out.extend_from_slice(&part(row, start_of(id)));
            }
        }
        Bytes::from(out)
    }
}

#[async_trait]
impl Tier for RowsTier {
    fn info(&self) -> TierInfo {
        let mut info = self.inner.info();
        info.wrappers.insert(0, format!("layout({})", self.layout));
        info
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        match self.folder(path)? {
            None => self.inner.stat(path).await,
            Some(folder) => Ok(self.look_up(path, folder).await?.file.clone()),
        }
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let Some(folder) = self.folder(&object.path)? else {
            return self.inner.read_many(object, ranges).await;
        };
        check_ranges(object, ranges)?;
        self.of(object, folder).await?.read_many(&*self.inner, ranges).await
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.inner)
    }

    async fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        match self.find(|open| open.file == *object) {
            None => self.inner.forget(object, ranges).await,
            Some(open) => {
                let ids: Vec<i64> = ranges.iter().flat_map(|range| open.rows_of(range)).collect();
                open.table.forget(&ids).await;
                if ranges.iter().any(|range| range.end > open.table.header.rows_end()) {
                    open.forget_index(&*self.inner).await;
                }
            }
        }
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        match self.folder(path)? {
            None => self.inner.put(path, body).await,
            Some(_) => Err(self.refuse(path)),
        }
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        match self.folder(path)? {
            None => self.inner.delete(path).await,
            Some(_) => Err(self.refuse(path)),
        }
    }
}
