//! Tables laid out on a real folder through the tier `nvme`: the rows read back, the errors for damage, and reads of
//! the same files by Python programs.

mod laid_out;

use async_trait::async_trait;
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tempfile::TempDir;
use tierlab_formats::shards::index::MAX_INDEX_BYTES;
use tierlab_formats::table::{BucketIndex, Column, IndexWriter, KeyHash, KeyKind, TableHeader, TableSchema};
use tierlab_layouts::{Layout, Options, Table, lay_out};
use tierlab_protocol::tensor::DataType;
use tierlab_storage::{ErrorKind, Object, ObjectPath, ReadMany, StorageError, Tier, TierConfig, TierInfo, open};

const ROWS: u64 = 2500;
const FIRST: i64 = 100;

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text).unwrap()
}

/// Rows with every bit pattern of floats among them, by a step of a multiplicative generator.
fn table(seed: u64) -> (TableHeader, Vec<u8>) {
    table_with(seed, 1)
}

/// Table whose boolean bytes are masked with `most_of_booleans`.
fn table_with(seed: u64, most_of_booleans: u8) -> (TableHeader, Vec<u8>) {
    let columns: [(&str, DataType, &[i64]); 4] = [
        ("dense", DataType::Fp32, &[7]),
        ("ids", DataType::Int64, &[3]),
        ("half", DataType::Fp16, &[5]),
        ("flag", DataType::Bool, &[1]),
    ];
    let mut state = seed | 1;
    table_of(&columns, seed, |column, value| {
        for byte in value {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
            if column.dtype == DataType::Bool {
                *byte &= most_of_booleans;
            }
        }
    })
}

/// Each value is written by `fill` over zeros.
fn table_of(
    columns: &[(&str, DataType, &[i64])],
    seed: u64,
    mut fill: impl FnMut(&Column, &mut [u8]),
) -> (TableHeader, Vec<u8>) {
    let schema = TableSchema::lay_out("t", columns).unwrap();
    let mut header = TableHeader::new(schema, ROWS, FIRST, seed).unwrap();
    let stride = header.stride as usize;
    let mut rows = vec![0_u8; stride * ROWS as usize];
    for (id, row) in (FIRST..).zip(rows.chunks_exact_mut(stride)) {
        for column in &header.schema.columns {
            fill(column, column.of_row_mut(row).unwrap());
        }
        header.seal_row(id, row);
    }
    let block = stride * header.rows_per_block as usize;
    header.block_crcs = rows.chunks(block).map(crc32c::crc32c).collect();
    let mut file = header.encode();
    file.extend_from_slice(&rows);
    (header, file)
}

/// The same columns under keys of a kind.
fn keyed_table(kind: KeyKind) -> (TableHeader, Vec<u8>) {
    let key_of = |number: u64| match kind {
        KeyKind::String => format!("user-{:x}", number * number)
            .repeat(1 + number as usize % 3)
            .into_bytes(),
        KeyKind::Int64 => (number.cast_signed() * 7919 - 10_000_000).to_le_bytes().to_vec(),
        KeyKind::Uuid => (u128::from(number) * 0x9e37_79b9_7f4a_7c15_f39c).to_le_bytes().to_vec(),
    };
    let keys: Vec<Vec<u8>> = (1..=ROWS).map(key_of).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|key| KeyHash::of(key)).collect();
    let bucket = BucketIndex::build(&hashes).unwrap();
    let mut in_order = vec![&[][..]; keys.len()];
    for (key, &hash) in keys.iter().zip(&hashes) {
        in_order[bucket.row(hash).unwrap() as usize] = key;
    }
    let mut writer = IndexWriter::default();
    writer.push(&bucket);
    let index = writer.finish().unwrap();

    let (plain, rows) = table(3);
    let rows = &rows[plain.header_len() as usize..];
    let columns: Vec<_> = plain
        .schema
        .columns
        .iter()
        .map(|of| (of.name.as_str(), of.dtype, &of.shape[..]))
        .collect();
    let schema = TableSchema::lay_out_keyed("t", &columns, ("user", kind), 64).unwrap();
    let key_column = schema.key.clone().unwrap();
    let mut header = TableHeader::new(schema, ROWS, 0, 3)
        .unwrap()
        .with_index(index.len() as u64)
        .unwrap();
    let stride = header.stride as usize;
    let mut bytes = vec![0_u8; stride * ROWS as usize];
    let plain_rows = rows.chunks_exact(plain.stride as usize);
    for ((number, row), (from, key)) in (0..).zip(bytes.chunks_exact_mut(stride)).zip(plain_rows.zip(in_order)) {
        for column in &header.schema.columns {
            column
                .of_row_mut(row)
                .unwrap()
                .copy_from_slice(column.of_row(from).unwrap());
        }
        assert!(key_column.put(row, key));
        header.seal_row(number, row);
    }
    let block = stride * header.rows_per_block as usize;
    header.block_crcs = bytes.chunks(block).map(crc32c::crc32c).collect();
    let file = [header.encode(), bytes, index].concat();
    (header, file)
}

struct Place {
    folder: TempDir,
    tier: Arc<dyn Tier>,
    header: TableHeader,
    file: Vec<u8>,
}

impl Place {
    async fn new() -> Self {
        Self::of(table(1)).await
    }

    async fn of((header, file): (TableHeader, Vec<u8>)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toml = format!("kind = \"nvme\"\nroot = \"{}\"\n", folder.path().display());
        let tier = open(&TierConfig::parse("test", &toml).unwrap()).await.unwrap();
        std::fs::write(folder.path().join("t.rows"), &file).unwrap();
        Self {
            folder,
            tier,
            header,
            file,
        }
    }

    async fn laid_out(&self, layout: Layout) -> Table {
        let options = Options {
            layout,
            shard_bytes: 1 << 20,
        };
        let to = path(layout.as_str());
        lay_out((&*self.tier, &path("t.rows")), (&*self.tier, &to), options, &mut |_| ())
            .await
            .unwrap();
        Table::open(Arc::clone(&self.tier), to).await.unwrap()
    }

    fn row(&self, id: i64) -> &[u8] {
        let range = self.header.row_range(id).unwrap();
        &self.file[range.start as usize..range.end as usize]
    }

    /// The first shard.
    fn shard(&self, table: &Table) -> PathBuf {
        let manifest = table.manifest();
        let layout = manifest.layout.as_str();
        self.folder
            .path()
            .join(layout)
            .join(&manifest.version)
            .join(format!("000000.{}", layout.split('-').next().unwrap_or_default()))
    }
}

#[tokio::test]
async fn every_layout_gives_the_rows_bit_by_bit() {
    let place = Place::new().await;
    for layout in Layout::all() {
        let table = place.laid_out(layout).await;
        let ids = [FIRST + 2499, FIRST, FIRST + 1234, FIRST + 1235, FIRST];
        let across_shards = [FIRST + 999, FIRST + 1000, FIRST + 1000, FIRST + 1001, FIRST + 2000];
        for ids in [ids, across_shards] {
            let found = table.look_up(&ids).await.unwrap();
            assert_eq!(found.len(), ids.len(), "{layout}");
            for (id, row) in ids.iter().zip(found.iter()) {
                assert_eq!(row, place.row(*id), "{layout} {id}");
            }
        }
        let mut scan = table.scan();
        let mut id = FIRST;
        while let Some(batch) = scan.next().await.unwrap() {
            for row in batch.iter() {
                assert_eq!(row, place.row(id), "{layout} {id}");
                id += 1;
            }
        }
        assert_eq!(id, FIRST + ROWS as i64, "{layout}");
        let missing = table.look_up(&[FIRST - 1]).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn no_shard_holds_more_rows_than_its_index_or_footer_may_name() {
    let place = Place::of(table_of(&[("flag", DataType::Bool, &[1])], 1, |_, _| ())).await;
    // An entry of an index has 18 bytes and the twelve digits of its key; a footer has a block of 24 bytes and a checksum
    // of 8 for each 64 rows, and readers refuse one of more than 64 MiB.
    for (layout, entry_bytes, rows_per_entry, max_bytes) in [
        (Layout::Tfrecord, 30, 1, MAX_INDEX_BYTES),
        (Layout::Arrow, 32, 64, 63 << 20),
    ] {
        let options = Options {
            layout,
            shard_bytes: 1 << 30,
        };
        let (tier, to) = (&*place.tier, path("large"));
        let laid_out = lay_out((tier, &path("t.rows")), (tier, &to), options, &mut |_| ()).await;
        let rows = laid_out.unwrap().rows_per_shard;
        assert!(rows / rows_per_entry * entry_bytes <= max_bytes, "{layout}: {rows}");
    }
}

#[tokio::test]
async fn a_look_up_in_a_shard_is_one_read_once_its_index_is_there() {
    let place = Place::new().await;
    for layout in [Layout::Rows, Layout::Tar, Layout::Tfrecord] {
        let table = place.laid_out(layout).await;
        table.look_up(&[FIRST]).await.unwrap();
        let cost = table.look_up(&[FIRST + 1]).await.unwrap().cost;
        assert_eq!(cost.read.requests, 1, "{layout}");
    }
}

const LOOK_UP: Duration = Duration::from_millis(20);

/// Tier whose every read says that it took a second. A look-up takes [`LOOK_UP`].
struct Slow {
    inner: Arc<dyn Tier>,
    reads: AtomicU32,
}

#[async_trait]
impl Tier for Slow {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        tokio::time::sleep(LOOK_UP).await;
        self.inner.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.reads.fetch_add(1, Relaxed);
        let mut read = self.inner.read_many(object, ranges).await?;
        (read.cost.queue, read.cost.device) = (Duration::ZERO, Duration::from_secs(1));
        Ok(read)
    }
}

/// Sixteen shards or files are read at a time; the bytes of one shard follow its positions.
#[tokio::test]
async fn times_of_reads_that_follow_each_other_add_up() {
    let place = Place::new().await;
    for layout in [Layout::Files, Layout::Tar, Layout::ParquetZstd, Layout::Arrow] {
        place.laid_out(layout).await;
        let slow = Arc::new(Slow {
            inner: Arc::clone(&place.tier),
            reads: AtomicU32::new(0),
        });
        let tier: Arc<dyn Tier> = slow.clone();
        let table = Table::open(tier, path(layout.as_str())).await.unwrap();
        slow.reads.store(0, Relaxed);
        let ids: Vec<i64> = (FIRST..FIRST + 40).collect();
        let cost = table.look_up(&ids).await.unwrap().cost;
        let second = Duration::from_secs(1);
        let is_sum = match layout {
            // A look-up precedes each read.
            Layout::Files => cost.read.device >= 3 * (second + LOOK_UP),
            _ => cost.read.device == slow.reads.load(Relaxed) * second,
        };
        assert!(is_sum && cost.read.device > second, "{layout}: {cost:?}");
    }
}

#[tokio::test]
async fn a_look_up_in_parquet_reads_the_pages_of_its_row_alone() {
    let place = Place::new().await;
    let table = place.laid_out(Layout::Parquet).await;
    table.look_up(&[FIRST]).await.unwrap();
    let whole = std::fs::metadata(place.shard(&table)).unwrap().len();
    let cost = table.look_up(&[FIRST + 1700]).await.unwrap().cost.read;
    assert!(
        cost.wire_bytes > 0 && cost.wire_bytes < whole / 10,
        "{} of {whole}",
        cost.wire_bytes
    );
    let neighbours: Vec<i64> = (FIRST + 1700..FIRST + 1710).collect();
    let more = table.look_up(&neighbours).await.unwrap().cost.read;
    assert!(
        more.wire_bytes <= 2 * cost.wire_bytes,
        "{} {}",
        more.wire_bytes,
        cost.wire_bytes
    );
}

#[tokio::test]
async fn every_codec_is_read_by_parquets_own_reader_too() {
    let place = Place::new().await;
    for layout in [
        Layout::Parquet,
        Layout::ParquetSnappy,
        Layout::ParquetLz4,
        Layout::ParquetZstd,
    ] {
        let table = place.laid_out(layout).await;
        let file = std::fs::File::open(place.shard(&table)).unwrap();
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let names: Vec<String> = reader
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        assert_eq!(
            names,
            ["entity_id", "dense", "ids", "half", "flag", "row_crc32c"],
            "{layout}"
        );
        let rows: usize = reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows as u64, ROWS, "{layout}");
    }
}

#[tokio::test]
async fn a_look_up_in_arrow_reads_the_batches_of_its_rows_alone() {
    let place = Place::new().await;
    let table = place.laid_out(Layout::Arrow).await;
    table.look_up(&[FIRST]).await.unwrap();
    let whole = std::fs::metadata(place.shard(&table)).unwrap().len();
    let cost = table.look_up(&[FIRST + 1700]).await.unwrap().cost.read;
    assert_eq!(cost.requests, 1);
    assert!(cost.wire_bytes < whole / 10, "{} of {whole}", cost.wire_bytes);
}

#[tokio::test]
async fn every_codec_is_read_by_arrows_own_reader_too() {
    let place = Place::new().await;
    for layout in [Layout::Arrow, Layout::ArrowLz4, Layout::ArrowZstd] {
        let table = place.laid_out(layout).await;
        let file = std::fs::File::open(place.shard(&table)).unwrap();
        let reader = arrow_ipc::reader::FileReader::try_new(file, None).unwrap();
        let names: Vec<String> = reader
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        assert_eq!(
            names,
            ["entity_id", "dense", "ids", "half", "flag", "row_crc32c"],
            "{layout}"
        );
        let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows as u64, ROWS, "{layout}");
    }
}

#[tokio::test]
async fn rows_that_columns_cannot_keep_are_refused() {
    let place = Place::new().await;
    let (_, other_rows) = table_with(1, 0xff);
    let (_, with_checksums) = table_of(&[("row_crc32c", DataType::Uint32, &[])], 1, |_, _| ());
    let (_, with_slash) = table_of(&[("a/b", DataType::Uint32, &[])], 1, |_, _| ());
    for (rows, layout, word) in [
        (other_rows, Layout::Parquet, "store a row exactly"),
        (with_checksums, Layout::Parquet, "column `row_crc32c`"),
        // Its file would be one of another sample to readers of WebDataset.
        (with_slash, Layout::Tar, "rename the column `a/b`"),
    ] {
        std::fs::write(place.folder.path().join("t.rows"), rows).unwrap();
        let options = Options {
            layout,
            shard_bytes: 1 << 20,
        };
        let to = path("refused");
        let refused = lay_out(
            (&*place.tier, &path("t.rows")),
            (&*place.tier, &to),
            options,
            &mut |_| (),
        )
        .await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
}

#[tokio::test]
async fn any_damaged_byte_of_a_columnar_file_is_an_error_or_the_right_row() {
    let place = Place::new().await;
    for layout in [Layout::Parquet, Layout::Arrow, Layout::ArrowZstd] {
        damage_bytes(&place, layout).await;
    }
}

async fn damage_bytes(place: &Place, layout: Layout) {
    let table = place.laid_out(layout).await;
    let shard = place.shard(&table);
    let whole = std::fs::read(&shard).unwrap();
    let mut refused = 0;
    // End of the file, where the footer is, byte by byte.
    for at in (0..whole.len())
        .step_by(whole.len() / 200)
        .chain(whole.len() - 300..whole.len())
    {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&shard, &damaged).unwrap();
        let table = Table::open(Arc::clone(&place.tier), path(layout.as_str()))
            .await
            .unwrap();
        let ids: Vec<i64> = (FIRST..FIRST + ROWS as i64).collect();
        match table.look_up(&ids).await {
            Ok(found) => {
                assert_eq!(found.len(), ids.len());
                for (id, row) in ids.iter().zip(found.iter()) {
                    assert_eq!(row, place.row(*id), "{layout}, byte {at}, entity {id}");
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{layout}: {refused} of 500");
}

/// A table of one wide column, so that the size of a page takes three bytes of its header.
fn wide_table() -> (TableHeader, Vec<u8>) {
    table_of(&[("vector", DataType::Fp32, &[200])], 1, |_, _| ())
}

/// Each has correct checksums: only its claims are wrong.
#[tokio::test]
async fn what_claims_to_unpack_to_more_than_its_rows_is_refused_before_memory_is_set_aside() {
    let place = Place::of(wide_table()).await;
    for layout in [Layout::ParquetSnappy, Layout::ArrowLz4, Layout::ArrowZstd] {
        let table = place.laid_out(layout).await;
        let shard = place.shard(&table);
        let mut bytes = std::fs::read(&shard).unwrap();
        if layout == Layout::ParquetSnappy {
            // A page begins with three fields of 32 bits, of which the second is its size unpacked: three bytes, of a page this wide.
            let wide = |head: &[u8]| {
                let [0x15, 0, 0x15, low, middle, high, 0x15] = *head else {
                    return false;
                };
                low & middle & 0x80 != 0 && high < 0x80
            };
            let at = bytes.windows(7).position(wide).unwrap() + 3;
            bytes[at..at + 3].copy_from_slice(&[0xfe, 0xff, 0x7f]);
        } else {
            let claim = (64 * 200 * 4_i64).to_le_bytes();
            let at = bytes.windows(8).position(|window| window == claim).unwrap();
            let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(&bytes), None).unwrap();
            let before = reader.custom_metadata()["batch_crc32c"].clone();
            drop(reader);
            bytes[at..at + 8].copy_from_slice(&(1_i64 << 44).to_le_bytes());
            let footer = u32::from_le_bytes(*bytes[bytes.len() - 10..].first_chunk().unwrap()) as usize;
            let start = bytes.len() - 10 - footer;
            let block = *arrow_ipc::root_as_footer(&bytes[start..bytes.len() - 10])
                .unwrap()
                .recordBatches()
                .unwrap()
                .get(0);
            let range = block.offset() as usize
                ..block.offset() as usize + block.metaDataLength() as usize + block.bodyLength() as usize;
            let crc = format!("{:08x}", crc32c::crc32c(&bytes[range]));
            let at = bytes
                .windows(before.len())
                .position(|window| window == before.as_bytes());
            let at = at.unwrap();
            bytes[at..at + 8].copy_from_slice(crc.as_bytes());
        }
        std::fs::write(&shard, &bytes).unwrap();
        let table = Table::open(Arc::clone(&place.tier), path(layout.as_str()))
            .await
            .unwrap();
        let error = table.look_up(&[FIRST]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let error = error.to_string();
        assert!(
            error.contains("offset") && (error.contains("at most") || error.contains("grow")),
            "{layout}: {error}"
        );
    }
}

/// Levels that end before their page does: the library never finishes such a page when it skips rows.
#[tokio::test]
async fn a_page_with_too_few_levels_is_an_error_and_its_reader_is_given_up() {
    let place = Place::of(wide_table()).await;
    for layout in [Layout::Parquet, Layout::ParquetSnappy] {
        let table = place.laid_out(layout).await;
        let shard = place.shard(&table);
        let mut bytes = std::fs::read(&shard).unwrap();
        // The levels of the first row: a packed group of eight, of which the first begins the row, and a run of 192.
        let runs = [3, 0xfe, 0x80, 3, 1];
        let at = bytes
            .windows(5)
            .position(|window| window == runs)
            .expect("the first page's levels");
        bytes[at..at + 5].fill(0);
        std::fs::write(&shard, &bytes).unwrap();
        let table = Table::open(Arc::clone(&place.tier), path(layout.as_str()))
            .await
            .unwrap();
        let look_up = table.look_up(&[FIRST + 60]);
        let ended = tokio::time::timeout(Duration::from_secs(120), look_up).await;
        let error = ended.expect("the look-up does not end").unwrap_err();
        let kind = match layout {
            Layout::Parquet => ErrorKind::Corrupt,
            _ => ErrorKind::Timeout,
        };
        assert_eq!(error.kind(), kind, "{layout}: {error}");
        assert!(error.to_string().contains("damaged"), "{layout}: {error}");
        let other = table.look_up(&[FIRST + 2000]).await.unwrap();
        assert_eq!(other.iter().next().unwrap(), place.row(FIRST + 2000));
    }
}

/// The library that reads footers sets memory aside for as many pages as an index claims.
#[tokio::test]
async fn an_index_of_more_pages_than_it_has_bytes_is_an_error() {
    let place = Place::new().await;
    let table = place.laid_out(Layout::Parquet).await;
    let shard = place.shard(&table);
    let mut bytes = std::fs::read(&shard).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(bytes.clone()));
    let index = metadata.unwrap().row_group(0).column(0).offset_index_range().unwrap();
    let index = &mut bytes[index.start as usize..index.end as usize];
    assert_eq!(index[..2], [0x19, 0xfc]);
    index[2..7].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 7]);
    std::fs::write(&shard, &bytes).unwrap();
    let table = Table::open(Arc::clone(&place.tier), path("parquet")).await.unwrap();
    let error = table.look_up(&[FIRST]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("page index, offset"), "{error}");
}

/// The library that reads footers panics on it.
#[tokio::test]
async fn a_column_that_begins_before_its_file_is_an_error() {
    let place = Place::new().await;
    let table = place.laid_out(Layout::Parquet).await;
    let shard = place.shard(&table);
    let mut bytes = std::fs::read(&shard).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(bytes.clone()));
    let mut builder = metadata.unwrap().into_builder();
    let mut groups = builder.take_row_groups();
    let mut group = groups.remove(0).into_builder();
    let mut columns = group.take_columns();
    let first = columns
        .remove(0)
        .into_builder()
        .set_data_page_offset(-4)
        .build()
        .unwrap();
    columns.insert(0, first);
    groups.insert(0, group.set_column_metadata(columns).build().unwrap());
    let lying = builder.set_row_groups(groups).build();
    ParquetMetaDataWriter::new(&mut bytes, &lying).finish().unwrap();
    std::fs::write(&shard, bytes).unwrap();
    let table = Table::open(Arc::clone(&place.tier), path("parquet")).await.unwrap();
    let error = table.look_up(&[FIRST]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[tokio::test]
async fn damage_and_cuts_are_told_with_object_and_offset() {
    let place = Place::new().await;
    for layout in [Layout::Tar, Layout::Tfrecord] {
        let table = place.laid_out(layout).await;
        let shard = place.shard(&table);
        let whole = std::fs::read(&shard).unwrap();
        let mut damaged = whole.clone();
        damaged[600] ^= 1;
        std::fs::write(&shard, &damaged).unwrap();
        let ids: Vec<i64> = (FIRST..FIRST + 10).collect();
        let error = table.look_up(&ids).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("offset"), "{error}");
        std::fs::write(&shard, &whole[..whole.len() - 1]).unwrap();
        let table = Table::open(Arc::clone(&place.tier), path(layout.as_str()))
            .await
            .unwrap();
        let error = table.look_up(&[FIRST]).await.unwrap_err();
        assert!(error.to_string().contains("truncated"), "{error}");
    }
}

#[tokio::test]
async fn a_table_replaced_in_place_is_never_mixed_with_the_new_one() {
    let place = Place::new().await;
    for layout in Layout::all() {
        std::fs::write(place.folder.path().join("t.rows"), &place.file).unwrap();
        let old = place.laid_out(layout).await;
        let (_, other) = table(2);
        std::fs::write(place.folder.path().join("t.rows"), &other).unwrap();
        let new = place.laid_out(layout).await;
        let found = old.look_up(&[FIRST, FIRST + 2000]).await.unwrap();
        assert_eq!(found.iter().nth(1).unwrap(), place.row(FIRST + 2000), "{layout}");
        let found = new.look_up(&[FIRST]).await.unwrap();
        assert_ne!(found.iter().next().unwrap(), place.row(FIRST), "{layout}");
    }
}

/// A reader in Python: the standard library's tarfile, `WebDataset`'s rule of names, and `TFRecord` frames with a CRC-32C of its own.
#[tokio::test]
async fn python_reads_what_is_written() {
    let place = Place::new().await;
    for layout in [Layout::Tar, Layout::Tfrecord] {
        let table = place.laid_out(layout).await;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_shards.py");
        let done = Command::new("python3")
            .arg(script)
            .args([layout.as_str(), &FIRST.to_string()])
            .args([place.shard(&table), place.folder.path().join("t.rows")])
            .output()
            .expect("python3 is missing (Debian: apt-get install python3)");
        let out = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{out}{}", String::from_utf8_lossy(&done.stderr));
        let rows = table.manifest().rows_per_shard.min(ROWS);
        assert_eq!(out.trim(), format!("{rows} samples"));
    }
}

/// Archives of Python's tarfile, in each of its formats, with names that need each one's extension.
#[test]
fn what_python_writes_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/write_tars.py");
    let done = Command::new("python3")
        .arg(script)
        .arg(folder.path())
        .output()
        .expect("python3 is missing (Debian: apt-get install python3)");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for format in ["ustar", "gnu", "pax"] {
        let bytes = std::fs::read(folder.path().join(format)).unwrap();
        let members = tierlab_formats::shards::tar::members(&bytes, 0).unwrap();
        let long = if format == "ustar" { 90 } else { 300 };
        let wanted = [
            "d/1.cls".to_owned(),
            format!("d/{}/2345678901.cls", "n".repeat(long)),
            "d/3.cls".to_owned(),
        ];
        let found: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(found, wanted, "{format}");
        for member in &members {
            let body = &bytes[member.body.start as usize..member.body.end as usize];
            assert_eq!(body, member.name.repeat(9).as_bytes(), "{format}");
        }
    }
}
