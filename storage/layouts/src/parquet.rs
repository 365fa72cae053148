//! Rows as a Parquet file, and reads of single rows: footer and page index first, then only the pages that hold them.
//!
//! Pages hold few rows, and no column has a dictionary, because a look-up would have to read all of it. So the files are
//! somewhat larger than files written for scans. Each row's checksum has its own column: pages have no checksums.

use crate::columns::{self, Columns, add_sealed};
use crate::decoding::{self, Decodes};
use crate::layout::Codec;
use crate::page;
use crate::rows::{self, Cost, corrupt};
use anyhow::{Result, anyhow};
use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder, RowGroupMetaData};
use parquet::file::properties::WriterProperties;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tierlab_formats::table::TableHeader;
use tierlab_storage::{Object, StorageError, Tier};

/// Rows per page: a look-up decodes a whole page for one row.
const PAGE_ROWS: usize = 64;
/// Rows of a row group.
const GROUP_ROWS: usize = 16_384;
/// Bytes read at once from a file's end; they usually include the footer and the page index.
const TAIL_BYTES: u64 = 64 << 10;
/// Maximum size of a footer with its page index, in bytes.
const MAX_METADATA_BYTES: u64 = 256 << 20;

/// Contents of a footer.
pub(crate) struct ParquetFooter {
    metadata: ArrowReaderMetadata,
    /// Ascending offsets of pages, each with the width of its repetition levels; 0 if it has none or is compressed.
    pages: Vec<(u64, u8)>,
    /// If true, pages are decoded on threads that can be abandoned, because the work of the reader is not known in
    /// advance.
    is_compressed: bool,
    decodes: Decodes,
}

impl ParquetFooter {
    /// Returns its size in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.metadata.metadata().memory_size() + size_of_val(self.pages.as_slice())
    }
}

/// Returns the file of these rows.
pub(crate) fn write(header: &TableHeader, rows: &[(i64, Bytes)], codec: Codec) -> Result<Vec<u8>> {
    let columns = Columns::of(header)?;
    let properties = WriterProperties::builder()
        .set_compression(codec.into())
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        // The limit is checked after each of these.
        .set_write_batch_size(PAGE_ROWS)
        .build();
    let mut out = Vec::new();
    let schema = Arc::clone(&columns.schema);
    let mut writer = ArrowWriter::try_new(&mut out, schema, Some(properties))?;
    for rows in rows.chunks(GROUP_ROWS) {
        writer.write(&columns.batch(rows)?)?;
    }
    writer.close()?;
    Ok(out)
}

/// Reads the positions of a file's rows: the footer, then the locations of its pages.
pub(crate) async fn footer(tier: &dyn Tier, object: &Object) -> Result<(ParquetFooter, Cost), StorageError> {
    let bad = |e: ParquetError| corrupt(&object.path, e);
    let mut reading = Reading {
        tier,
        object,
        decodes: Decodes::default(),
        cost: Cost::default(),
    };
    let decoder = ParquetMetaDataPushDecoder::try_new(object.size).map_err(bad)?;
    let decoder = decoder.with_page_index_policy(PageIndexPolicy::Skip);
    let tail = object.size.saturating_sub(TAIL_BYTES)..object.size;
    let last = tier.read(object, tail.clone()).await?;
    reading.cost.read.merge(&last.cost);
    let metadata = reading
        .run(decoder, Vec::from_iter([tail.clone()]), vec![last.bytes.clone()])
        .await?;
    let indexes = index_ranges(&metadata).map_err(bad)?;
    let is_in_tail = |index: &Range<u64>| index.start >= tail.start && index.end <= tail.end;
    let parts = if indexes.iter().all(is_in_tail) {
        let part = |index: &Range<u64>| {
            last.bytes
                .slice((index.start - tail.start) as usize..(index.end - tail.start) as usize)
        };
        indexes.iter().map(part).collect()
    } else {
        reading.ranges(&indexes).await?
    };
    for (index, bytes) in indexes.iter().zip(&parts) {
        let damaged = |detail| corrupt(&object.path, format!("page index, offset {}: {detail}", index.start));
        page::check_locations(bytes).map_err(damaged)?;
    }
    let decoder = ParquetMetaDataPushDecoder::try_new_with_metadata(object.size, metadata).map_err(bad)?;
    let decoder = decoder
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(PageIndexPolicy::Required);
    let metadata = reading.run(decoder, indexes, parts).await?;
    let (decodes, mut cost) = (reading.decodes, reading.cost);
    let began = Instant::now();
    let footer = catch_panics(|| {
        let pages = pages_of(&metadata)?;
        let mut columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
        let is_compressed = columns.any(|column| column.compression() != Compression::UNCOMPRESSED);
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())?;
        Ok(ParquetFooter {
            metadata,
            pages,
            is_compressed,
            decodes,
        })
    });
    cost.decode += began.elapsed();
    Ok((footer.map_err(bad)?, cost))
}

/// Footer being read.
struct Reading<'a> {
    tier: &'a dyn Tier,
    object: &'a Object,
    decodes: Decodes,
    cost: Cost,
}

impl Reading<'_> {
    /// Reads ranges, which must not be larger together than any footer.
    async fn ranges(&mut self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StorageError> {
        let bytes = ranges.iter().map(|range| range.end.saturating_sub(range.start));
        if bytes.fold(0, u64::saturating_add) > MAX_METADATA_BYTES {
            let detail = "the footer is larger than the limit: damaged, or not Parquet";
            return Err(corrupt(&self.object.path, detail));
        }
        let (parts, cost) = rows::read(self.tier, self.object, ranges).await?;
        self.cost.read.then(&cost);
        Ok(parts)
    }

    /// Decodes, beginning with the given ranges, until none is missing.
    async fn run(
        &mut self,
        mut decoder: ParquetMetaDataPushDecoder,
        mut ranges: Vec<Range<u64>>,
        mut parts: Vec<Bytes>,
    ) -> Result<ParquetMetaData, StorageError> {
        loop {
            let began = Instant::now();
            let step = move || {
                let step = catch_panics(|| {
                    decoder.push_ranges(ranges, parts)?;
                    decoder.try_decode()
                });
                (decoder, step)
            };
            let (back, step) = self.decodes.run(&self.object.path, step).await?;
            self.cost.decode += began.elapsed();
            match step.map_err(|e| corrupt(&self.object.path, e))? {
                DecodeResult::NeedsData(wanted) => ranges = wanted,
                DecodeResult::Finished => return Err(corrupt(&self.object.path, "missing footer")),
                DecodeResult::Data(metadata) => return Ok(metadata),
            }
            parts = self.ranges(&ranges).await?;
            decoder = back;
        }
    }
}

/// Byte range of the page locations of all columns.
fn index_ranges(metadata: &ParquetMetaData) -> Result<Vec<Range<u64>>, ParquetError> {
    let missing = || ParquetError::General("missing page index: not laid out by this program".to_owned());
    let columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let ranges = columns.map(|column| column.offset_index_range().ok_or_else(missing));
    ranges.collect()
}

/// Offsets of the pages of all columns, ascending, each with the bits of its repetition levels. The library panics on columns that begin before their file.
///
/// # Errors
/// Pages that are not in order of their rows and offsets.
fn pages_of(metadata: &ParquetMetaData) -> Result<Vec<(u64, u8)>, ParquetError> {
    let bad = |detail: &str| ParquetError::General(format!("its page index is damaged: {detail}"));
    let mut pages = Vec::new();
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let index = metadata.page_index_for_row_group(number);
        for (at, column) in group.columns().iter().enumerate() {
            // A dictionary precedes the pages in the index.
            let (start, _) = column.byte_range();
            let level_bits = match column.compression() {
                Compression::UNCOMPRESSED => 16 - column.column_descr().max_rep_level().leading_zeros(),
                _ => 0,
            } as u8;
            pages.push((start, level_bits));
            let locations = index.offset_index(at).ok_or_else(|| bad("missing column"))?;
            let mut after = (None, start);
            for page in locations.page_locations() {
                let offset = u64::try_from(page.offset).ok().filter(|&offset| offset >= after.1);
                let end = offset.zip(u64::try_from(page.compressed_page_size).ok());
                let (offset, bytes) = end.ok_or_else(|| bad("pages overlap"))?;
                let row = page.first_row_index;
                let follows = after.0.map_or(row == 0, |before| row > before);
                if !follows || row > group.num_rows() {
                    return Err(bad("rows of pages are not in order"));
                }
                after = (Some(row), offset.saturating_add(bytes));
                pages.push((offset, level_bits));
            }
        }
    }
    pages.sort_unstable();
    pages.dedup();
    Ok(pages)
}

/// Checks the pages that begin in a range, before they are unpacked.
fn check_pages((footer, header): (&ParquetFooter, &TableHeader), range: &Range<u64>, bytes: &[u8]) -> Result<()> {
    let max = columns::max_bytes(header, PAGE_ROWS);
    let after = &footer.pages[footer.pages.partition_point(|page| page.0 < range.start)..];
    for &(page, level_bits) in after.iter().take_while(|page| page.0 < range.end) {
        let from_page = usize::try_from(page - range.start).ok().and_then(|at| bytes.get(at..));
        page::check(from_page.unwrap_or_default(), max, level_bits)
            .map_err(|detail| anyhow!("page, offset {page}: {detail}"))?;
    }
    Ok(())
}

/// Reads rows by their numbers in the file, ascending and without duplicates. `ids` are their ids. Returns the rows in
/// order, sealed.
pub(crate) async fn read(
    (tier, object): (&dyn Tier, &Object),
    (footer, header): (&ParquetFooter, &TableHeader),
    numbers: &[usize],
    ids: &[i64],
) -> Result<(Vec<u8>, Cost), StorageError> {
    let bad = |e: ParquetError| corrupt(&object.path, e);
    let rows = usize::try_from(footer.metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
    if numbers.last().is_some_and(|&last| last >= rows) {
        let detail = format!("{rows} rows, fewer than in the manifest: lay the table out again");
        return Err(corrupt(&object.path, detail));
    }
    let mut cost = Cost::default();
    let mut out = Vec::with_capacity(ids.len() * header.stride as usize);
    let mut began = Instant::now();
    let mut decoder = catch_panics(|| {
        let selection = RowSelection::from_consecutive_ranges(numbers.iter().map(|&at| at..at + 1), rows);
        ParquetPushDecoderBuilder::new_with_metadata(footer.metadata.clone())
            .with_row_selection(selection)
            .with_batch_size(ids.len())
            .build()
    })
    .map_err(bad)?;
    let mut done = 0;
    // Without page bytes, no work can run forever.
    let (mut batches, mut wanted) = catch_panics(|| drain(&mut decoder)).map_err(bad)?;
    loop {
        for batch in batches {
            let of = ids.get(done..done + batch.num_rows()).unwrap_or_default();
            let bytes = of.len() * header.stride as usize;
            let added = decoding::decode(bytes, || add_sealed(header, &batch, of, &mut out));
            added.map_err(|detail| corrupt(&object.path, detail))?;
            done += batch.num_rows();
        }
        let Some(ranges) = wanted else { break };
        cost.decode += began.elapsed();
        let (parts, took) = rows::read(tier, object, &ranges).await?;
        cost.read.then(&took);
        began = Instant::now();
        let size = parts.iter().map(Bytes::len).sum();
        for (range, part) in ranges.iter().zip(&parts) {
            check_pages((footer, header), range, part).map_err(|detail| corrupt(&object.path, detail))?;
        }
        let step = move || {
            let step = catch_panics(|| {
                decoder.push_ranges(ranges, parts)?;
                drain(&mut decoder)
            });
            (decoder, step)
        };
        let (back, step) = if footer.is_compressed {
            footer.decodes.run(&object.path, step).await?
        } else {
            decoding::decode(size, step)
        };
        decoder = back;
        (batches, wanted) = step.map_err(bad)?;
    }
    cost.decode += began.elapsed();
    if done != ids.len() {
        let detail = format!("{done} rows, {} requested", ids.len());
        return Err(corrupt(&object.path, detail));
    }
    Ok((out, cost))
}

/// Batches, and the ranges that are needed next; `None` at the end.
type Drained = (Vec<RecordBatch>, Option<Vec<Range<u64>>>);

/// Decodes the bytes that have arrived. Returns the batches, and the ranges needed next: `None` at the end.
fn drain(decoder: &mut ParquetPushDecoder) -> Result<Drained, ParquetError> {
    let mut batches = Vec::new();
    loop {
        match decoder.try_decode()? {
            DecodeResult::Data(batch) => batches.push(batch),
            DecodeResult::NeedsData(ranges) => return Ok((batches, Some(ranges))),
            DecodeResult::Finished => return Ok((batches, None)),
        }
    }
}

fn catch_panics<T>(step: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    columns::catch_panics(step, ParquetError::General)
}
