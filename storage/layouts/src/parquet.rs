//! Rows as a Parquet file, and single rows out of one: footer and page index first, then the pages that hold them and no others.
//!
//! Pages hold few rows, and no column has a dictionary: a look-up would have to read the whole of it. So the files are somewhat larger than
//! those that are written for scans. Each row's own checksum is a column of its own: pages are not checked by themselves.

use crate::columns::{self, Columns, sealed};
use crate::layout::Codec;
use crate::offload;
use crate::page;
use crate::rows::corrupt;
use crate::touching;
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::push_decoder::ParquetPushDecoderBuilder;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};
use parquet::file::properties::WriterProperties;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_formats::table::TableHeader;
use tierlab_storage::{Object, ReadCost, StorageError, Tier};

/// Rows of a page: what a look-up decodes for one.
const PAGE_ROWS: usize = 64;
/// Rows of a row group.
const GROUP_ROWS: usize = 16_384;
/// Bytes of a file's end that are read at once; footer and page index are within them, mostly.
const TAIL_BYTES: u64 = 64 << 10;
/// The largest footer with its page index that is accepted, in bytes.
const MAX_METADATA_BYTES: u64 = 256 << 20;

/// What a footer says.
pub(crate) struct Footer {
    metadata: ArrowReaderMetadata,
    /// Where pages begin, ascending.
    pages: Vec<u64>,
}

impl Footer {
    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.metadata.metadata().memory_size() + size_of_val(self.pages.as_slice())
    }
}

/// The file of these rows.
pub(crate) fn write(header: &TableHeader, rows: &[(i64, Bytes)], codec: Codec) -> Result<Vec<u8>, String> {
    let columns = Columns::of(header)?;
    let properties = WriterProperties::builder()
        .set_compression(codec.into())
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        // The limit is looked at after each of these.
        .set_write_batch_size(PAGE_ROWS)
        .build();
    let error = |e: ParquetError| e.to_string();
    let mut out = Vec::new();
    let schema = Arc::clone(&columns.schema);
    let mut writer = ArrowWriter::try_new(&mut out, schema, Some(properties)).map_err(error)?;
    for rows in rows.chunks(GROUP_ROWS) {
        writer.write(&columns.batch(rows)?).map_err(error)?;
    }
    writer.close().map_err(error)?;
    Ok(out)
}

/// Reads what says where the rows of a file lie.
pub(crate) async fn footer(tier: &dyn Tier, object: &Object) -> Result<(Footer, ReadCost, Duration), StorageError> {
    let bad = |e: ParquetError| corrupt(&object.path, e);
    let mut cost = ReadCost::default();
    let mut decoding = Duration::ZERO;
    let decoder = ParquetMetaDataPushDecoder::try_new(object.size).map_err(bad)?;
    let mut decoder = decoder.with_page_index_policy(PageIndexPolicy::Optional);
    let tail = object.size.saturating_sub(TAIL_BYTES)..object.size;
    let mut wanted = Vec::from_iter([tail]);
    loop {
        if wanted
            .iter()
            .map(|range| range.end.saturating_sub(range.start))
            .sum::<u64>()
            > MAX_METADATA_BYTES
        {
            return Err(corrupt(
                &object.path,
                "its footer is larger than any: damaged, or no Parquet",
            ));
        }
        let read = tier.read_many(object, &wanted).await?;
        cost.merge(&read.cost);
        let began = Instant::now();
        let step = guarded(|| {
            decoder.push_ranges(wanted, read.parts)?;
            decoder.try_decode()
        });
        match step.map_err(bad)? {
            DecodeResult::NeedsData(ranges) => wanted = ranges,
            DecodeResult::Finished => return Err(corrupt(&object.path, "it has no footer")),
            DecodeResult::Data(metadata) => {
                let made = guarded(|| {
                    let pages = pages_of(&metadata)?;
                    let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())?;
                    Ok(Footer { metadata, pages })
                });
                decoding += began.elapsed();
                return Ok((made.map_err(bad)?, cost, decoding));
            }
        }
        decoding += began.elapsed();
    }
}

/// Where the pages of all columns begin, ascending. The library panics on columns that begin before their file.
fn pages_of(metadata: &ParquetMetaData) -> Result<Vec<u64>, ParquetError> {
    let missing = || ParquetError::General("it has no page index: it was not laid out by this program".to_owned());
    let mut pages = Vec::new();
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let index = metadata.page_index_for_row_group(number);
        for (at, column) in group.columns().iter().enumerate() {
            // A dictionary lies before the pages that the index knows.
            pages.push(column.byte_range().0);
            let locations = index.offset_index(at).ok_or_else(missing)?.page_locations().iter();
            pages.extend(locations.filter_map(|page| u64::try_from(page.offset).ok()));
        }
    }
    pages.sort_unstable();
    pages.dedup();
    Ok(pages)
}

/// Looks at the pages that begin in a range, before they are unpacked.
fn check_pages((footer, header): (&Footer, &TableHeader), range: &Range<u64>, bytes: &[u8]) -> Result<(), String> {
    let most = columns::most_bytes(header, PAGE_ROWS);
    let after = &footer.pages[footer.pages.partition_point(|&page| page < range.start)..];
    for page in after.iter().take_while(|&&page| page < range.end) {
        let from_page = usize::try_from(page - range.start).ok().and_then(|at| bytes.get(at..));
        page::check(from_page.unwrap_or_default(), most).map_err(|what| format!("page, offset {page}: {what}"))?;
    }
    Ok(())
}

/// Rows of a file by their numbers in it, ascending and each once, whose ids are `ids`; one after another, sealed.
pub(crate) async fn read(
    (tier, object): (&dyn Tier, &Object),
    (footer, header): (&Footer, &TableHeader),
    numbers: &[usize],
    ids: &[i64],
) -> Result<(Vec<u8>, ReadCost, Duration), StorageError> {
    let bad = |e: ParquetError| corrupt(&object.path, e);
    let rows = usize::try_from(footer.metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
    if numbers.last().is_some_and(|&last| last >= rows) {
        return Err(corrupt(
            &object.path,
            format!("{rows} rows, and the manifest says more: lay the table out again"),
        ));
    }
    let (mut cost, mut decoding) = (ReadCost::default(), Duration::ZERO);
    let mut out = Vec::with_capacity(ids.len() * header.stride as usize);
    let mut began = Instant::now();
    let mut decoder = guarded(|| {
        let selection = RowSelection::from_consecutive_ranges(numbers.iter().map(|&at| at..at + 1), rows);
        ParquetPushDecoderBuilder::new_with_metadata(footer.metadata.clone())
            .with_row_selection(selection)
            .with_batch_size(ids.len())
            .build()
    })
    .map_err(bad)?;
    let (mut done, mut size) = (0, 0);
    loop {
        let step = offload::decode(size, || guarded(|| decoder.try_decode())).map_err(bad)?;
        match step {
            DecodeResult::NeedsData(ranges) => {
                decoding += began.elapsed();
                let (parts, took) = touching::read(tier, object, &ranges).await?;
                cost.merge(&took);
                began = Instant::now();
                size = parts.iter().map(Bytes::len).sum();
                for (range, part) in ranges.iter().zip(&parts) {
                    check_pages((footer, header), range, part).map_err(|what| corrupt(&object.path, what))?;
                }
                guarded(|| decoder.push_ranges(ranges, parts)).map_err(bad)?;
            }
            DecodeResult::Data(batch) => {
                let of = ids.get(done..done + batch.num_rows()).unwrap_or_default();
                let rows = offload::decode(of.len() * header.stride as usize, || sealed(header, &batch, of));
                out.extend(rows.map_err(|what| corrupt(&object.path, what))?);
                done += batch.num_rows();
            }
            DecodeResult::Finished => break,
        }
    }
    decoding += began.elapsed();
    if done != ids.len() {
        return Err(corrupt(
            &object.path,
            format!("{done} rows, {} were asked for", ids.len()),
        ));
    }
    Ok((out, cost, decoding))
}

fn guarded<T>(step: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    columns::guarded(step, ParquetError::General)
}
