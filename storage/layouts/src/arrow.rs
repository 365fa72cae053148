//! Rows as an Arrow IPC file, and reads of single rows: the footer first, then only the batches that hold them.
//!
//! Batches hold few rows, because a look-up reads whole ones. The footer has the checksum of each, which is verified
//! before the batch is parsed.

use crate::columns::{self, Columns, add_sealed};
use crate::decoding;
use crate::layout::Codec;
use crate::rows::{self, Cost, corrupt};
use anyhow::{Context as _, Result, anyhow, bail};
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{Block, CompressionType, MetadataVersion, root_as_footer};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tierlab_formats::arrow::{check_message, without_prefix};
use tierlab_formats::table::TableHeader;
use tierlab_storage::{Object, StorageError, Tier};

/// Rows per batch: a look-up reads and decodes a whole batch for one row.
const BATCH_ROWS: usize = 64;
/// Bytes read at once from a file's end; they usually include the footer.
const TAIL_BYTES: u64 = 64 << 10;
/// Maximum size of a footer, in bytes.
const MAX_FOOTER_BYTES: u64 = 64 << 20;
/// Maximum rows of a file: their batches and checksums take half of the largest footer.
pub(crate) const MAX_ROWS: u64 = MAX_FOOTER_BYTES;
/// Last bytes of a file, after the length of its footer.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Bytes of the magic and the length.
const TRAILER_BYTES: u64 = 10;
/// The footer's key for the checksums of the batches: CRC-32C, eight hexadecimal digits each.
const CRCS: &str = "batch_crc32c";

/// Contents of a footer.
pub(crate) struct ArrowFooter {
    schema: SchemaRef,
    version: MetadataVersion,
    batches: Vec<Batch>,
}

#[derive(Debug, Clone)]
struct Batch {
    block: Block,
    range: Range<u64>,
    crc: u32,
}

impl ArrowFooter {
    /// Returns its size in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self.batches.as_slice())
    }
}

/// Returns the file of these rows.
pub(crate) fn write(header: &TableHeader, rows: &[(i64, Bytes)], codec: Codec) -> Result<Vec<u8>> {
    let columns = Columns::of(header)?;
    let compression = match codec {
        Codec::None => None,
        Codec::Lz4 => Some(CompressionType::LZ4_FRAME),
        Codec::Zstd => Some(CompressionType::ZSTD),
        Codec::Snappy => bail!("Arrow IPC supports LZ4 and Zstandard, not Snappy"),
    };
    let options = IpcWriteOptions::default().try_with_compression(compression)?;
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &columns.schema, options)?;
    let mut crcs = String::new();
    for rows in rows.chunks(BATCH_ROWS) {
        let start = writer.get_ref().len();
        writer.write(&columns.batch(rows)?)?;
        crcs.push_str(&format!("{:08x}", crc32c::crc32c(&writer.get_ref()[start..])));
    }
    writer.write_metadata(CRCS, crcs);
    Ok(writer.into_inner()?)
}

/// Reads the positions of a file's rows.
pub(crate) async fn footer(
    (tier, object): (&dyn Tier, &Object),
    header: &TableHeader,
) -> Result<(ArrowFooter, Cost), StorageError> {
    let bad = |detail: &str| corrupt(&object.path, format!("not an Arrow IPC file of this table: {detail}"));
    let tail = object.size.saturating_sub(TAIL_BYTES);
    let mut read = tier.read(object, tail..object.size).await?;
    let trailer = read.bytes.last_chunk::<{ TRAILER_BYTES as usize }>();
    let trailer = trailer.zip(object.size.checked_sub(TRAILER_BYTES));
    let ([a, b, c, d, magic @ ..], end) = trailer.ok_or_else(|| bad("too short"))?;
    if magic != MAGIC {
        return Err(bad("it does not end with ARROW1: truncated, or another format"));
    }
    let len = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    let start = end.checked_sub(len).filter(|_| len <= MAX_FOOTER_BYTES);
    let start = start.ok_or_else(|| bad(&format!("invalid footer length: {len}")))?;
    let bytes = if start >= tail {
        read.bytes.slice((start - tail) as usize..(end - tail) as usize)
    } else {
        let more = tier.read(object, start..end).await?;
        read.cost.then(&more.cost);
        more.bytes
    };
    let began = Instant::now();
    let footer = columns::catch_panics(|| decode_footer(&bytes, header, object.size), anyhow::Error::msg);
    let footer = footer.map_err(|detail| bad(&format!("footer, offset {start}: {detail}")))?;
    Ok((footer, Cost::since(read.cost, began)))
}

fn decode_footer(bytes: &[u8], header: &TableHeader, size: u64) -> Result<ArrowFooter> {
    let footer = root_as_footer(bytes).map_err(|e| anyhow!("{e}"))?;
    let schema = footer.schema().context("missing schema")?;
    let schema = try_fb_to_schema(schema)?;
    let wanted = Columns::of(header)?.schema;
    if schema.fields() != wanted.fields() {
        bail!("its columns are not those of the manifest: lay the table out again");
    }
    let crcs = footer.custom_metadata().into_iter().flatten();
    let crcs = crcs
        .filter(|pair| pair.key() == Some(CRCS))
        .find_map(|pair| pair.value());
    let crcs = crcs.with_context(|| format!("missing `{CRCS}`: not laid out by this program"))?;
    let (crcs, _) = crcs.as_bytes().as_chunks::<8>();
    let blocks = footer.recordBatches().context("missing batches")?;
    if crcs.len() != blocks.len() {
        bail!("{} batches with {} checksums", blocks.len(), crcs.len());
    }
    let batch = |(block, crc): (&Block, &[u8; 8])| {
        let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
        let start = u64::try_from(block.offset()).ok()?;
        let metadata = u64::try_from(block.metaDataLength()).ok()?;
        let body = u64::try_from(block.bodyLength()).ok()?;
        let end = start.checked_add(metadata)?.checked_add(body)?;
        (end <= size).then_some(Batch {
            block: *block,
            range: start..end,
            crc,
        })
    };
    let batches: Option<Vec<Batch>> = blocks.iter().zip(crcs).map(batch).collect();
    Ok(ArrowFooter {
        schema: Arc::new(schema),
        version: footer.version(),
        batches: batches.context("a batch outside of the file, or an invalid checksum")?,
    })
}

/// Reads rows by their numbers in the file, ascending and without duplicates. `ids` are their ids. Returns the rows in
/// order, sealed.
pub(crate) async fn read(
    (tier, object): (&dyn Tier, &Object),
    (footer, header): (&ArrowFooter, &TableHeader),
    numbers: &[usize],
    ids: &[i64],
) -> Result<(Vec<u8>, Cost), StorageError> {
    let mut wanted: BTreeMap<usize, Vec<(usize, i64)>> = BTreeMap::new();
    for (&number, &id) in numbers.iter().zip(ids) {
        let rows = wanted.entry(number / BATCH_ROWS).or_default();
        rows.push((number % BATCH_ROWS, id));
    }
    let batches: Option<Vec<&Batch>> = wanted.keys().map(|&at| footer.batches.get(at)).collect();
    let batches = batches.ok_or_else(|| {
        let count = footer.batches.len();
        let detail = format!("{count} batches, fewer than in the manifest: lay the table out again");
        corrupt(&object.path, detail)
    })?;
    let ranges: Vec<Range<u64>> = batches.iter().map(|batch| batch.range.clone()).collect();
    let (parts, read) = rows::read(tier, object, &ranges).await?;
    let began = Instant::now();
    let size = parts.iter().map(Bytes::len).sum();
    let wanted = batches.into_iter().zip(parts).zip(wanted.values());
    let mut rows = Vec::with_capacity(ids.len() * header.stride as usize);
    decoding::decode(size, || add_rows(object, (footer, header), wanted, &mut rows))?;
    Ok((rows, Cost::since(read, began)))
}

/// Appends the wanted rows of batches to `out`.
fn add_rows<'a>(
    object: &Object,
    (footer, header): (&ArrowFooter, &TableHeader),
    wanted: impl Iterator<Item = ((&'a Batch, Bytes), &'a Vec<(usize, i64)>)>,
    out: &mut Vec<u8>,
) -> Result<(), StorageError> {
    for ((batch, bytes), rows) in wanted {
        let bad = |e: anyhow::Error| corrupt(&object.path, format!("batch, offset {}: {e}", batch.range.start));
        if crc32c::crc32c(&bytes) != batch.crc {
            return Err(bad(anyhow!("wrong checksum: the batch is damaged")));
        }
        let decoded = columns::catch_panics(|| decode((footer, header), batch, bytes), anyhow::Error::msg);
        let decoded = decoded.map_err(bad)?;
        for run in rows.chunk_by(|a, b| a.0 + 1 == b.0) {
            let (start, ids) = (run[0].0, run.iter().map(|row| row.1).collect::<Vec<i64>>());
            if start + ids.len() > decoded.num_rows() {
                return Err(bad(anyhow!("{} rows, fewer than in the manifest", decoded.num_rows())));
            }
            add_sealed(header, &decoded.slice(start, ids.len()), &ids, out).map_err(bad)?;
        }
    }
    Ok(())
}

fn decode((footer, header): (&ArrowFooter, &TableHeader), batch: &Batch, bytes: Bytes) -> Result<RecordBatch> {
    let at = usize::try_from(batch.block.metaDataLength()).unwrap_or(usize::MAX);
    let (metadata, body) = bytes.split_at_checked(at).context("it is shorter than its metadata")?;
    check_message(without_prefix(metadata)?, body, columns::max_bytes(header, BATCH_ROWS))?;
    let decoder = FileDecoder::new(Arc::clone(&footer.schema), footer.version);
    let decoded = decoder.read_record_batch(&batch.block, &Buffer::from(bytes));
    decoded?.context("missing batch")
}
