//! Files of rows as batches: Parquet, Arrow IPC (files and streams), CSV, shards of samples. In: a local file and the
//! wanted columns. Out: its schema, its sections, and batches with row numbers. Knows nothing of keys or tables.

use super::batch::{Batch, positions};
use super::csv_file::CsvFile;
use super::lakes::columns::{FileColumns, View};
use super::request::CsvOptions;
use super::shards::{ShardFile, ShardFormat};
use anyhow::{Result, anyhow, bail, ensure};
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType as Arrow, FieldRef, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;
use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::{Arc, Once};
use tierlab_formats::arrow;
use tierlab_formats::onnx::Placeholder;
use tierlab_formats::shards::tar::BLOCK;
use tierlab_formats::shards::tfrecord;
use tierlab_formats::table::MAX_STRIDE;

/// Maximum rows of a batch of Parquet.
const BATCH_ROWS: usize = 8192;
/// Approximate bytes of such a batch: rows with images or long vectors come a few at a time.
const BATCH_BYTES: usize = 8 << 20;
/// Position of the magic bytes in a tar header, since POSIX.1-1988.
const USTAR: Range<usize> = 257..262;
/// Minimum rows of a unit of work, if a file can be split.
const MIN_UNIT_ROWS: u64 = 200_000;

/// Section of a file that is read at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Row groups of Parquet; other files have one section.
    pub(super) groups: (usize, usize),
    /// Number of its first row in the file.
    pub(super) first_row: u64,
    /// Rows, if the file records them.
    pub(super) rows: Option<u64>,
    /// Bytes in the file.
    pub(super) bytes: u64,
}

/// Opened file, by its format.
pub(super) enum OpenedFile {
    Parquet(ArrowReaderMetadata),
    IpcFile(SchemaRef),
    IpcStream(SchemaRef),
    Csv(CsvFile),
    Shard(ShardFile),
    /// File of another kind, whose columns its table defines.
    Viewed(Box<OpenedFile>, View),
}

/// Opens a file. If a schema is given, CSV and shards are read by it.
///
/// # Errors
/// A file of an unknown kind, or a damaged one.
pub(super) fn open(
    path: &Path,
    csv: &CsvOptions,
    fixed_schema: Option<&Schema>,
    columns: Option<&FileColumns>,
) -> Result<OpenedFile> {
    let opened = open_by_content(path, csv, fixed_schema)?;
    match columns {
        // An empty part has no columns at all.
        Some(columns) if !opened.has_no_columns() => {
            let view = columns.resolve(&opened.schema(), &opened.field_ids())?;
            Ok(OpenedFile::Viewed(Box::new(opened), view))
        }
        _ => Ok(opened),
    }
}

/// Opens the file by its first bytes and its name.
fn open_by_content(path: &Path, csv: &CsvOptions, fixed_schema: Option<&Schema>) -> Result<OpenedFile> {
    let mut file = File::open(path).map_err(|e| anyhow!("cannot open it: {e}"))?;
    let mut head = Vec::new();
    let read = file.by_ref().take(BLOCK as u64).read_to_end(&mut head);
    read.and_then(|_| file.rewind())
        .map_err(|e| anyhow!("cannot read it: {e}"))?;
    if let Some(placeholder) = Placeholder::of(&head) {
        bail!("it is {placeholder}");
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (_, ending) = name.rsplit_once('.').unwrap_or_default();
    let ending = &*ending.to_ascii_lowercase();
    match &head[..] {
        [b'P', b'A', b'R', b'1', ..] => parquet_metadata(&file).map(OpenedFile::Parquet).map_err(read_error),
        [b'P', b'A', b'R', b'E', ..] => bail!("encrypted Parquet is not supported"),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => FileReader::try_new(open_checked(file)?, None)
            .map(|reader| OpenedFile::IpcFile(reader.schema()))
            .map_err(read_error),
        [0xff, 0xff, 0xff, 0xff, ..] => StreamReader::try_new(open_checked(file)?, None)
            .map(|reader| OpenedFile::IpcStream(reader.schema()))
            .map_err(read_error),
        [0x1f, 0x8b, ..] => bail!("it is gzip: unpack it first"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => bail!("it is Zstandard: unpack it first"),
        _ if ["csv", "tsv", "txt"].contains(&ending) => CsvFile::open(path, csv, fixed_schema).map(OpenedFile::Csv),
        [] if !ending.starts_with("tfrec") => bail!("the file is empty"),
        _ if ending == "tar" || head.get(USTAR).is_some_and(|magic| magic == b"ustar") => {
            ShardFile::open(path, ShardFormat::Tar, csv, fixed_schema).map(OpenedFile::Shard)
        }
        _ if ending.starts_with("tfrec") || tfrecord::length(&head, 0).is_ok() => {
            ShardFile::open(path, ShardFormat::Records, csv, fixed_schema).map(OpenedFile::Shard)
        }
        _ if ending.is_empty() && (csv.delimiter.is_some() || !csv.names.is_empty()) => {
            CsvFile::open(path, csv, fixed_schema).map(OpenedFile::Csv)
        }
        _ => bail!("unknown format: give Parquet, Arrow IPC, tar, TFRecord, or text named .csv, .tsv or .txt"),
    }
}

fn read_error(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("it cannot be read: {e}")
}

/// Opens an Arrow IPC file after checking all of its messages.
fn open_checked(file: File) -> Result<BufReader<File>> {
    let mut file = BufReader::new(file);
    arrow::check(&mut file, arrow::MAX_BATCH_BYTES)?;
    file.rewind().map_err(|e| anyhow!("cannot read it: {e}"))?;
    Ok(file)
}

/// Reads the footer of a Parquet file. Times of 96 bits are read as microseconds, as their writers count. As
/// nanoseconds, the years 1 and 9999, which stand for `never`, would wrap around.
fn parquet_metadata(file: &File) -> Result<ArrowReaderMetadata, ParquetError> {
    let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::new())?;
    let columns = metadata.metadata().file_metadata().schema_descr().columns();
    let int96 = columns.iter().filter(|col| col.physical_type() == PhysicalType::INT96);
    let names = int96.filter_map(|column| column.path().parts().first().cloned());
    let int96: Vec<String> = names.collect();
    if int96.is_empty() {
        return Ok(metadata);
    }
    let fields = metadata.schema().fields().iter();
    let fields = fields.map(|field| match int96.contains(field.name()) {
        true => in_micros(field),
        false => Arc::clone(field),
    });
    let schema = Schema::new_with_metadata(fields.collect::<Vec<_>>(), metadata.schema().metadata().clone());
    ArrowReaderMetadata::load(file, ArrowReaderOptions::new().with_schema(Arc::new(schema)))
}

/// Returns a field of times, or of lists of times, in microseconds.
fn in_micros(field: &FieldRef) -> FieldRef {
    let arrow = match field.data_type() {
        Arrow::Timestamp(_, zone) => Arrow::Timestamp(TimeUnit::Microsecond, zone.clone()),
        Arrow::List(item) => Arrow::List(in_micros(item)),
        Arrow::LargeList(item) => Arrow::LargeList(in_micros(item)),
        Arrow::FixedSizeList(item, count) => Arrow::FixedSizeList(in_micros(item), *count),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(arrow))
}

impl OpenedFile {
    /// True if the file has a row, as far as the first records show.
    pub(super) fn has_rows(&self) -> bool {
        match self {
            Self::Parquet(metadata) => metadata.metadata().file_metadata().num_rows() > 0,
            Self::Csv(file) => file.has_rows,
            Self::Viewed(opened, _) => opened.has_rows(),
            Self::Shard(_) => !self.has_no_columns(),
            Self::IpcFile(_) | Self::IpcStream(_) => true,
        }
    }

    /// True if it is a text without even a header line, or TFRecord without a record: an empty part.
    pub(super) fn has_no_columns(&self) -> bool {
        matches!(self, Self::Csv(_) | Self::Shard(_)) && self.schema().fields().is_empty()
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(match self {
            Self::Parquet(metadata) => metadata.schema(),
            Self::IpcFile(schema) | Self::IpcStream(schema) => schema,
            Self::Csv(file) => &file.schema,
            Self::Shard(file) => &file.schema,
            Self::Viewed(_, view) => &view.schema,
        })
    }

    /// Returns the ids of the columns in the schema of a Parquet file.
    fn field_ids(&self) -> Vec<Option<i32>> {
        let Self::Parquet(metadata) = self else {
            return Vec::new();
        };
        let fields = metadata.metadata().file_metadata().schema().get_fields().iter();
        let infos = fields.map(|field| field.get_basic_info());
        infos.map(|info| info.has_id().then(|| info.id())).collect()
    }

    /// Returns the sections that can be read independently.
    pub(super) fn sections(&self, file_bytes: u64) -> Vec<Section> {
        if let Self::Viewed(opened, _) = self {
            return opened.sections(file_bytes);
        }
        let Self::Parquet(parquet) = self else {
            return vec![Section {
                bytes: file_bytes,
                ..Section::default()
            }];
        };
        let mut sections: Vec<Section> = Vec::new();
        let mut first_row = 0;
        for (at, group) in parquet.metadata().row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            let bytes = u64::try_from(group.compressed_size()).unwrap_or(0);
            match sections.last_mut() {
                Some(last) if last.rows.is_some_and(|rows| rows < MIN_UNIT_ROWS) => {
                    last.groups.1 = at + 1;
                    last.rows = last.rows.map(|before| before + rows);
                    last.bytes += bytes;
                }
                _ => sections.push(Section {
                    groups: (at, at + 1),
                    first_row,
                    rows: Some(rows),
                    bytes,
                }),
            }
            first_row += rows;
        }
        sections
    }

    /// Reads a section: passes its batches, with the wanted columns, to `on_batch`. A row has about `row_bytes` bytes.
    ///
    /// # Errors
    /// Damage, or an error of `on_batch`.
    pub(super) fn read<E: From<anyhow::Error>>(
        &self,
        path: &Path,
        (section, row_bytes): (Section, usize),
        columns: &[&str],
        on_batch: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let wanted = |schema: &Schema| positions(schema, columns);
        let file = || File::open(path).map_err(|e| anyhow!("cannot open it: {e}"));
        match self {
            Self::Csv(csv) => csv.read(path, columns, on_batch),
            Self::Shard(shard) => shard.read(path, columns, on_batch),
            Self::Viewed(opened, view) => {
                let mut viewed = |batch: Batch| {
                    let first = batch.numbers.first().map_or(1, |number| number + 1);
                    let rows = view.batch(&batch.rows, columns);
                    let rows = rows.map_err(|what| anyhow!("rows from {first} on: {what}"))?;
                    on_batch(Batch { rows, ..batch })
                };
                opened.read(path, (section, row_bytes), &view.file_columns(columns), &mut viewed)
            }
            Self::Parquet(metadata) => {
                let lists = list_bytes(metadata, section.groups, columns)?;
                let row_bytes = row_bytes.max(lists);
                let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file()?, metadata.clone());
                let mask = ProjectionMask::roots(builder.parquet_schema(), wanted(metadata.schema()));
                let reader = builder
                    .with_row_groups((section.groups.0..section.groups.1).collect())
                    .with_projection(mask)
                    .with_batch_size((BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS))
                    .build()
                    .map_err(read_error)?;
                let per_row = section.bytes as f64 / section.rows.unwrap_or(1).max(1) as f64;
                let bytes = |rows: usize| (per_row * rows as f64) as u64;
                let found = emit_numbered(reader, section.first_row, bytes, on_batch)?;
                match section.rows {
                    Some(rows) if rows != found => {
                        let row = section.first_row + 1;
                        Err(anyhow!("row {row}: {found} rows came, its footer says {rows}: it is damaged").into())
                    }
                    _ => Ok(()),
                }
            }
            Self::IpcFile(schema) => {
                let reader = FileReader::try_new(BufReader::new(file()?), Some(wanted(schema)));
                let reader = reader.map_err(read_error)?;
                let per_batch = section.bytes / (reader.num_batches() as u64).max(1);
                emit_numbered(reader, 0, |_| per_batch, on_batch).map(drop)
            }
            Self::IpcStream(schema) => {
                let reader = StreamReader::try_new(BufReader::new(file()?), Some(wanted(schema)));
                let reader = reader.map_err(read_error)?;
                emit_numbered(reader, 0, |_| 0, on_batch).map(drop)
            }
        }
    }
}

/// Returns the bytes of a row's lists, averaged over the row group with the longest lists. Compressed zeros take no
/// space in the file.
///
/// # Errors
/// Lists longer than a row can be.
fn list_bytes(metadata: &ArrowReaderMetadata, groups: (usize, usize), columns: &[&str]) -> Result<usize> {
    let mut max_bytes = 0;
    for group in &metadata.metadata().row_groups()[groups.0..groups.1] {
        let rows = usize::try_from(group.num_rows()).unwrap_or(0).max(1);
        let mut bytes = 0_usize;
        for column in group.columns() {
            let name = column.column_path().parts().first().map_or("", String::as_str);
            if column.column_descr().max_rep_level() == 0 || !columns.contains(&name) {
                continue;
            }
            let size = match column.column_type() {
                PhysicalType::BOOLEAN => 1,
                PhysicalType::INT32 | PhysicalType::FLOAT => 4,
                _ => 8,
            };
            let values = usize::try_from(column.num_values()).unwrap_or(0) / rows;
            ensure!(
                values.saturating_mul(size) <= MAX_STRIDE as usize,
                "column `{name}`: lists of {values} values, a row of a table has {MAX_STRIDE} bytes at most: leave the column out"
            );
            bytes += values * size;
        }
        max_bytes = max_bytes.max(bytes);
    }
    Ok(max_bytes)
}

/// Passes on batches with row numbers, and returns the number of all rows. `bytes` returns the size of rows in the
/// file.
fn emit_numbered<E: From<anyhow::Error>>(
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
    first: u64,
    bytes: impl Fn(usize) -> u64,
    on_batch: &mut dyn FnMut(Batch) -> Result<(), E>,
) -> Result<u64, E> {
    let mut row = first;
    for batch in batches {
        let rows = batch.map_err(read_error)?;
        let count = rows.num_rows();
        on_batch(Batch {
            rows,
            numbers: (row..row + count as u64).collect(),
            bad: Vec::new(),
            bytes: bytes(count),
        })?;
        row += count as u64;
    }
    Ok(row - first)
}

thread_local! {
    /// True while a panic of this thread becomes an error, and is not printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader. Its panic becomes an error, and is printed only if `RUST_BACKTRACE` is set.
///
/// # Errors
/// The reader's own error, or its panic.
pub(super) fn catch_panic<T, E: From<anyhow::Error>>(read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous_hook = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_QUIET.get() || std::env::var_os("RUST_BACKTRACE").is_some() {
                previous_hook(info);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    IS_QUIET.set(was_quiet);
    read.unwrap_or_else(|_| Err(anyhow!("its reader gave up: the file is damaged").into()))
}
