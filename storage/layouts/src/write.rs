//! Writes the rows format in another layout, a shard at a time.

use crate::layout::{Coding, Framing, Layout};
use crate::manifest::{self, Manifest, key};
use crate::rows::{Source, corrupt};
use crate::{arrow, parquet, sample};
use bytes::Bytes;
use futures::future::try_join_all;
use tierlab_formats::shards::index::{self, Sample, ShardIndex};
use tierlab_formats::shards::tar;
use tierlab_formats::table::KeyHash;
use tierlab_storage::{Body, ErrorKind, ObjectPath, StorageError, Tier};

/// Bytes of rows that are read at once.
const READ_BYTES: u64 = 4 << 20;
/// Files that are written at the same time.
const CONCURRENT_PUTS: usize = 32;
/// Maximum files per folder, with a file for each entity.
const FILES_PER_FOLDER: u64 = 1000;
/// Maximum samples per shard: readers refuse a larger index, in which a sample takes 18 bytes and a key of at most 20.
const MAX_SAMPLES: u64 = index::MAX_INDEX_BYTES / 40;

/// Options for laying out a table.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Layout to write.
    pub layout: Layout,
    /// Approximate size of shards, in bytes. One shard is held in memory.
    pub shard_bytes: u64,
}

/// Writes the table at `from` into `folder`. Memory holds a shard and 4 MiB of rows, and the index of a table with
/// keys. Each row is read back out of its sample before it is written, so that a row that cannot be stored exactly is
/// refused. The manifest is written last: until then the folder holds its previous table. Shards of a replaced version
/// stay for current readers. `on_bytes` receives the number of row bytes written.
///
/// # Errors
/// Fails if the table is damaged, or does not fit the layout, or with the tiers' errors.
pub async fn lay_out(
    (from_tier, from): (&dyn Tier, &ObjectPath),
    (to_tier, folder): (&dyn Tier, &ObjectPath),
    options: Options,
    on_bytes: &mut (dyn FnMut(u64) + Send),
) -> Result<Manifest, StorageError> {
    let source = Source::open(from_tier, from).await?;
    let header = &source.header;
    let mut manifest = Manifest {
        layout: options.layout,
        version: version(&source, options),
        schema: header.schema.clone(),
        rows: header.rows,
        first_id: header.first_id,
        rows_per_shard: rows_per_shard(&source, options).await?,
        bytes: 0,
        key_index_bytes: header.index_bytes,
        index_crcs: Vec::new(),
    };
    for number in 0..header.rows.div_ceil(manifest.rows_per_shard) {
        match options.layout.coding() {
            Coding::Files => manifest.bytes += files(&source, (to_tier, folder), &manifest, number).await?,
            Coding::Samples(framing) => {
                let (bytes, crc) = shard(&source, (to_tier, folder), (&manifest, framing), number).await?;
                manifest.bytes += bytes;
                manifest.index_crcs.push(crc);
            }
            coding => {
                let rows = rows_of(&source, &manifest, number).await?;
                let bytes = match coding {
                    Coding::Parquet(codec) => parquet::write(header, &rows, codec),
                    Coding::Arrow(codec) => arrow::write(header, &rows, codec),
                    _ => Ok(rows.iter().flat_map(|(_, row)| row.iter().copied()).collect()),
                };
                let unfit = |e: anyhow::Error| ErrorKind::Unsupported.error(from, e.to_string());
                let path = manifest.shard(folder, number)?;
                let bytes = bytes.map_err(unfit)?;
                manifest.bytes += bytes.len() as u64;
                to_tier.put(&path, Body::Bytes(bytes.into())).await?;
            }
        }
        let before = number * manifest.rows_per_shard;
        let rows = manifest.rows_per_shard.min(header.rows - before);
        on_bytes(rows * u64::from(header.stride));
    }
    if header.schema.key.is_some() {
        let path = manifest.key_index(folder)?;
        to_tier.put(&path, Body::Bytes(source.index().await?)).await?;
        manifest.bytes += header.index_bytes;
    }
    manifest.store(to_tier, folder).await?;
    Ok(manifest)
}

/// Returns a name for the rows: the header holds the checksums of all blocks.
fn version(source: &Source<'_>, options: Options) -> String {
    let mut identity = source.header.encode();
    identity.extend_from_slice(options.layout.as_str().as_bytes());
    identity.extend_from_slice(&options.shard_bytes.to_le_bytes());
    format!("{:016x}", KeyHash::of(&identity).low())
}

/// Number of rows that fill a shard, estimated from the first row's sample.
async fn rows_per_shard(source: &Source<'_>, options: Options) -> Result<u64, StorageError> {
    let stride = u64::from(source.header.stride);
    let framing = match options.layout.coding() {
        Coding::Files => return Ok(FILES_PER_FOLDER),
        Coding::Samples(framing) => framing,
        Coding::Arrow(_) => return Ok((options.shard_bytes / stride).clamp(1, arrow::MAX_ROWS)),
        Coding::Rows | Coding::Parquet(_) => return Ok((options.shard_bytes / stride).max(1)),
    };
    let first = source.header.ids().start;
    let mut bytes = Vec::new();
    for (id, row) in source.rows(first..first + 1).await? {
        sample::push(framing, &source.header, id, &row, &mut bytes).map_err(|e| unfit(&e))?;
    }
    Ok((options.shard_bytes / (bytes.len() as u64).max(1)).clamp(1, MAX_SAMPLES))
}

fn unfit(error: &tierlab_formats::shards::ShardError) -> StorageError {
    ErrorKind::Unsupported.error("the table", format!("the layout cannot hold it: {error}"))
}

/// The ids of a shard, in pieces that are read at once.
fn pieces(source: &Source<'_>, manifest: &Manifest, number: u64) -> impl Iterator<Item = std::ops::Range<i64>> {
    let first = manifest.first_id + (number * manifest.rows_per_shard).cast_signed();
    let shard_end = first.saturating_add_unsigned(manifest.rows_per_shard);
    let end = shard_end.min(source.header.ids().end);
    let step = (READ_BYTES / u64::from(source.header.stride)).max(1);
    let starts = (first..end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    starts.map(move |start| start..end.min(start.saturating_add_unsigned(step)))
}

async fn rows_of(source: &Source<'_>, manifest: &Manifest, number: u64) -> Result<Vec<(i64, Bytes)>, StorageError> {
    let mut rows = Vec::new();
    for ids in pieces(source, manifest, number) {
        rows.extend(source.rows(ids).await?);
    }
    Ok(rows)
}

async fn files(
    source: &Source<'_>,
    (tier, folder): (&dyn Tier, &ObjectPath),
    manifest: &Manifest,
    number: u64,
) -> Result<u64, StorageError> {
    let folder = manifest.shard(folder, number)?;
    let mut bytes = 0;
    for ids in pieces(source, manifest, number) {
        let rows = source.rows(ids).await?;
        for rows in rows.chunks(CONCURRENT_PUTS) {
            let put = |(id, row): &(i64, Bytes)| {
                let path = folder.join(&format!("{}.row", key(*id)));
                let row = row.clone();
                async move { tier.put(&path?, Body::Bytes(row)).await }
            };
            try_join_all(rows.iter().map(put)).await?;
            bytes += rows.iter().map(|(_, row)| row.len() as u64).sum::<u64>();
        }
    }
    Ok(bytes)
}

/// Writes a shard and its index, and returns the bytes of both with the index's checksum.
async fn shard(
    source: &Source<'_>,
    (tier, folder): (&dyn Tier, &ObjectPath),
    (manifest, framing): (&Manifest, Framing),
    number: u64,
) -> Result<(u64, u32), StorageError> {
    let path = manifest.shard(folder, number)?;
    let (mut bytes, mut samples) = (Vec::new(), Vec::new());
    for ids in pieces(source, manifest, number) {
        for (id, row) in source.rows(ids).await? {
            samples.push(push(source, framing, (id, &row), &mut bytes)?);
        }
    }
    if framing == Framing::Tar {
        tar::finish(&mut bytes);
    }
    let index = ShardIndex::new(bytes.len() as u64, samples)
        .map_err(|e| unfit(&e))?
        .encode();
    let crc = crc32c::crc32c(&index);
    let written = (bytes.len() + index.len()) as u64;
    tier.put(&path, Body::Bytes(bytes.into())).await?;
    let index_file = ObjectPath::new(&format!("{path}.{}", index::EXTENSION))?;
    tier.put(&index_file, Body::Bytes(Bytes::from(index))).await?;
    Ok((written, crc))
}

fn push(
    source: &Source<'_>,
    framing: Framing,
    (id, row): (i64, &[u8]),
    bytes: &mut Vec<u8>,
) -> Result<Sample, StorageError> {
    let start = bytes.len();
    sample::push(framing, &source.header, id, row, bytes).map_err(|e| unfit(&e))?;
    let written = &bytes[start..];
    let back = sample::row(framing, &source.header, (id, &key(id)), written, start as u64).map_err(|e| unfit(&e))?;
    if back != row {
        let detail = "it holds bytes between its columns, which the layout cannot store: write the table again";
        return Err(corrupt(&ObjectPath::new(&format!("entity/{id}"))?, detail));
    }
    Ok(Sample {
        key: key(id),
        range: start as u64..bytes.len() as u64,
        crc: crc32c::crc32c(written),
    })
}

/// Removes a folder's objects of other versions than the manifest's. Returns their number and bytes. Readers with an
/// old manifest fail afterwards.
///
/// # Errors
/// Fails if the tier cannot list or refuses to remove; objects removed before stay removed.
pub async fn prune(tier: &dyn Tier, folder: &ObjectPath, current: &Manifest) -> Result<(u64, u64), StorageError> {
    let (folder_prefix, manifest) = (folder.join(&current.version)?, folder.join(manifest::NAME)?);
    let folder_prefix = format!("{folder_prefix}/");
    let (mut objects, mut bytes) = (0, 0);
    for object in tier.list(Some(folder)).await? {
        if object.path == manifest || object.path.as_str().starts_with(&folder_prefix) {
            continue;
        }
        match tier.delete(&object.path).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {
                objects += 1;
                bytes += object.size;
            }
        }
    }
    Ok((objects, bytes))
}
