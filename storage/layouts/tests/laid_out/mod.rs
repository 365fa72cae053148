//! Tables of a layout, as files of the rows format.

use super::{FIRST, Place, ROWS, keyed_table, path, table};
use async_trait::async_trait;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use tierlab_formats::table::{KeyKind, TableHeader};
use tierlab_layouts::{Layout, RowsTier};
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, ReadMany, StorageError, Tier, TierInfo};

const FILE: &str = "t.rows";

/// All but the layout of shards of rows, whose folder would have the file's name.
const FOLDERS: [Layout; 10] = [
    Layout::Files,
    Layout::Tar,
    Layout::Tfrecord,
    Layout::Parquet,
    Layout::ParquetSnappy,
    Layout::ParquetLz4,
    Layout::ParquetZstd,
    Layout::Arrow,
    Layout::ArrowLz4,
    Layout::ArrowZstd,
];

/// The file as it is shown: rows as they are, blocks without checksums.
fn shown(place: &Place) -> Vec<u8> {
    let first = if place.header.schema.key.is_some() { 0 } else { FIRST };
    let header = TableHeader::without_blocks(place.header.schema.clone(), ROWS, first).unwrap();
    let header = header.with_index(place.header.index_bytes).unwrap();
    let mut file = header.encode();
    file.extend_from_slice(&place.file[place.header.header_len() as usize..]);
    file
}

async fn laid_out(place: &Place, layout: Layout) -> RowsTier {
    place.laid_out(layout).await;
    // The folder that the helper lays it out in is named by the layout alone.
    let from = place.folder.path().join(layout.as_str());
    let to = place.folder.path().join(format!("t.{layout}"));
    let _ = std::fs::remove_dir_all(&to);
    std::fs::rename(from, to).unwrap();
    RowsTier::new(Arc::clone(&place.tier), layout)
}

#[tokio::test]
async fn any_range_of_any_layout_is_that_of_the_file() {
    ranges_are_those_of_the_file(Place::new().await).await;
}

#[tokio::test]
async fn so_it_is_where_entities_have_keys_and_an_index_lies_behind_the_rows() {
    for kind in [KeyKind::String, KeyKind::Int64, KeyKind::Uuid] {
        ranges_are_those_of_the_file(Place::of(keyed_table(kind)).await).await;
    }
}

async fn ranges_are_those_of_the_file(place: Place) {
    let whole = shown(&place);
    let (size, stride) = (whole.len() as u64, u64::from(place.header.stride));
    let end = size - place.header.index_bytes;
    let first = end - ROWS * stride;
    for layout in FOLDERS {
        let tier = laid_out(&place, layout).await;
        let file = tier.stat(&path(FILE)).await.unwrap();
        assert_eq!(file.size, size, "{layout}");
        let mut ranges: Vec<Range<u64>> = vec![
            0..size,
            0..1,
            0..first,
            first - 1..first + 1,
            first..first + stride,
            first + 5 * stride..first + 6 * stride,
            first + stride + 1..first + 9 * stride - 1,
            size - 1..size,
            end..size,
            end - 3 * stride - 5..size,
            end - stride..end,
            size..size,
            7..7,
        ];
        let mut state = 7_u64;
        for _ in 0..200 {
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 20) % size
            };
            let (a, b) = (draw(), draw() % (40 * stride));
            ranges.push(a..(a + b).min(size));
        }
        let read = tier.read_many(&file, &ranges).await.unwrap();
        for (range, part) in ranges.iter().zip(&read.parts) {
            let wanted = &whole[range.start as usize..range.end as usize];
            assert!(part == wanted, "{layout}, {range:?}");
        }
        assert!(read.cost.requests > 0, "{layout}");
        let behind = tier.read(&file, size..size + 1).await.unwrap_err();
        assert_eq!(behind.kind(), ErrorKind::OutOfRange, "{layout}");
    }
}

#[tokio::test]
async fn a_table_that_was_laid_out_again_is_a_new_version_and_the_old_one_stays_readable() {
    let place = Place::new().await;
    for layout in FOLDERS {
        std::fs::write(place.folder.path().join(FILE), &place.file).unwrap();
        let tier = laid_out(&place, layout).await;
        let old = tier.stat(&path(FILE)).await.unwrap();
        assert_eq!(tier.stat(&path(FILE)).await.unwrap(), old, "{layout}");
        let (_, other) = table(2);
        std::fs::write(place.folder.path().join(FILE), &other).unwrap();
        let options = tierlab_layouts::Options {
            layout,
            shard_bytes: 1 << 20,
        };
        let to = path(&format!("t.{layout}"));
        tierlab_layouts::lay_out((&*place.tier, &path(FILE)), (&*place.tier, &to), options, &mut |_| ())
            .await
            .unwrap();
        let new = tier.stat(&path(FILE)).await.unwrap();
        assert_ne!(new.version, old.version, "{layout}");
        let range = old.size - 100..old.size;
        let of_old = tier.read(&old, range.clone()).await.unwrap().bytes;
        assert_eq!(of_old, place.file[place.file.len() - 100..], "{layout}");
        let of_new = tier.read(&new, range.clone()).await.unwrap().bytes;
        assert_eq!(of_new, other[other.len() - 100..], "{layout}");
        // A reader that has not seen the old manifest cannot read by it.
        let later = RowsTier::new(Arc::clone(&place.tier), layout);
        assert_eq!(
            later.read(&old, range).await.unwrap_err().kind(),
            ErrorKind::Changed,
            "{layout}"
        );
    }
}

#[tokio::test]
async fn what_earlier_versions_left_is_removed_and_nothing_else() {
    let place = Place::new().await;
    for layout in [Layout::Files, Layout::Tar, Layout::Parquet] {
        std::fs::write(place.folder.path().join(FILE), &place.file).unwrap();
        let tier = laid_out(&place, layout).await;
        let to = path(&format!("t.{layout}"));
        let beside = place.folder.path().join(format!("t.{layout}-other"));
        std::fs::write(&beside, "mine").unwrap();
        std::fs::write(place.folder.path().join(FILE), table(2).1).unwrap();
        let options = tierlab_layouts::Options {
            layout,
            shard_bytes: 1 << 20,
        };
        let (from, to_tier) = ((&*place.tier, &path(FILE)), &*place.tier);
        let manifest = tierlab_layouts::lay_out(from, (to_tier, &to), options, &mut |_| ())
            .await
            .unwrap();
        let file = tier.stat(&path(FILE)).await.unwrap();
        let before = tier.read(&file, 0..file.size).await.unwrap().bytes;
        let (objects, bytes) = tierlab_layouts::prune(to_tier, &to, &manifest).await.unwrap();
        assert!(objects > 0 && bytes > 0, "{layout}");
        assert_eq!(tier.read(&file, 0..file.size).await.unwrap().bytes, before, "{layout}");
        let fresh = RowsTier::new(Arc::clone(&place.tier), layout);
        let again = fresh.stat(&path(FILE)).await.unwrap();
        assert_eq!(
            fresh.read(&again, 0..again.size).await.unwrap().bytes,
            before,
            "{layout}"
        );
        assert_eq!(
            tierlab_layouts::prune(to_tier, &to, &manifest).await.unwrap(),
            (0, 0),
            "{layout}"
        );
        assert_eq!(std::fs::read(&beside).unwrap(), b"mine", "{layout}");
    }
}

#[tokio::test]
async fn an_index_of_keys_that_is_not_the_manifest_s_is_told() {
    let place = Place::of(keyed_table(KeyKind::String)).await;
    let tier = laid_out(&place, Layout::ParquetZstd).await;
    let file = tier.stat(&path(FILE)).await.unwrap();
    let index = file.size - place.header.index_bytes..file.size;
    let folder = place.folder.path().join("t.parquet-zstd");
    let versions: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let beside = versions
        .iter()
        .map(|version| version.join("keys.index"))
        .find(|path| path.exists())
        .unwrap();
    let right = std::fs::read(&beside).unwrap();
    std::fs::write(&beside, &right[..right.len() - 8]).unwrap();
    let error = tier.read(&file, index.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("lay the table out again"), "{error}");
    std::fs::remove_file(&beside).unwrap();
    assert_eq!(
        tier.read(&file, index.clone()).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    std::fs::write(&beside, &right).unwrap();
    assert_eq!(tier.read(&file, index).await.unwrap().bytes, right);
}

#[tokio::test]
async fn damage_is_told_and_gone_once_the_shard_is_right_again() {
    let place = Place::new().await;
    for layout in [Layout::Tar, Layout::Tfrecord, Layout::ParquetZstd, Layout::ArrowLz4] {
        let table = place.laid_out(layout).await;
        let shard = place.shard(&table);
        let shard = shard
            .strip_prefix(place.folder.path().join(layout.as_str()))
            .unwrap()
            .to_owned();
        let tier = laid_out(&place, layout).await;
        let shard = place.folder.path().join(format!("t.{layout}")).join(shard);
        let file = tier.stat(&path(FILE)).await.unwrap();
        let first_rows = file.size - ROWS * u64::from(place.header.stride)..file.size;
        tier.read(&file, first_rows.clone()).await.unwrap();
        let right = std::fs::read(&shard).unwrap();
        let mut damaged = right.clone();
        for at in (300..damaged.len() - 300).step_by(997) {
            damaged[at] ^= 1;
        }
        std::fs::write(&shard, damaged).unwrap();
        let error = tier.read(&file, first_rows.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{layout}: {error}");
        std::fs::write(&shard, right).unwrap();
        tier.read(&file, first_rows).await.unwrap();
    }
}

/// Tier behind a copy of all its bytes, in which each object is damaged until it is forgotten whole.
struct DamagedCopy {
    inner: Arc<dyn Tier>,
    forgotten: Mutex<HashSet<ObjectPath>>,
}

#[async_trait]
impl Tier for DamagedCopy {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.inner.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let mut read = self.inner.read_many(object, ranges).await?;
        if !self.forgotten.lock().unwrap().contains(&object.path) {
            for part in &mut read.parts {
                *part = part.iter().map(|byte| !byte).collect();
            }
        }
        Ok(read)
    }

    async fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        if matches!(ranges, [range] if *range == (0..object.size)) {
            self.forgotten.lock().unwrap().insert(object.path.clone());
        }
    }
}

#[tokio::test]
async fn damaged_copies_are_forgotten_before_anything_was_read_well() {
    let place = Place::new().await;
    let whole = shown(&place);
    for layout in FOLDERS {
        laid_out(&place, layout).await;
        let copy = DamagedCopy {
            inner: Arc::clone(&place.tier),
            forgotten: Mutex::default(),
        };
        let tier = RowsTier::new(Arc::new(copy), layout);
        let file = tier.stat(&path(FILE)).await.unwrap();
        let read = tier.read(&file, 0..file.size).await;
        assert_eq!(
            read.unwrap_or_else(|e| panic!("{layout}: {e}")).bytes,
            whole,
            "{layout}"
        );
    }
}

#[tokio::test]
async fn a_table_that_is_not_laid_out_is_refused_with_the_command() {
    let place = Place::new().await;
    let tier = laid_out(&place, Layout::Parquet).await;
    let missing = tier.stat(&path("users.rows")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("lay-out --layout parquet"), "{missing}");
    let refused = tier.put(&path("t.rows"), Body::Bytes("x".into())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    // Paths that are not tables are unchanged.
    tier.put(&path("models/m/config.toml"), Body::Bytes("x".into()))
        .await
        .unwrap();
    let other = tier.stat(&path("models/m/config.toml")).await.unwrap();
    assert_eq!(tier.read(&other, 0..1).await.unwrap().bytes, "x");
}
