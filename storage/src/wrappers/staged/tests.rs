use super::*;
use crate::ReadCost;
use crate::content::content;
use crate::wrappers::StorageMetrics;
use futures::future::join_all;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use std::{fs, slice};
use tierlab_protocol::via::Via;
use tokio::sync::Semaphore;

mod conformance;
mod recovery;
mod sharing;

const BLOCK: u64 = 64 << 10;

/// Counts of a stage whose metrics are its own.
#[derive(Debug)]
struct StagedCounts {
    hits: u64,
    misses: u64,
    neighbours: u64,
    staged: u64,
    evicted: u64,
    broken: u64,
    failures: u64,
    last_failure: String,
    bytes: u64,
}

impl Staged {
    fn counts(&self) -> StagedCounts {
        let stats = &self.stage.stats;
        let of = &stats.metrics;
        let (failures, last_failure) = stats.failures.lock().clone();
        StagedCounts {
            hits: of.hits.get(),
            misses: of.misses.get(),
            neighbours: of.neighbours.get(),
            staged: of.written.get(),
            evicted: of.evicted.get(),
            broken: of.torn.get(),
            failures,
            last_failure,
            bytes: self.stage.ledger.lock().bytes,
        }
    }
}

/// A tier elsewhere: contents are named by a seed, reads are written down and may be held up. Its versions mean the
/// same in every process.
struct Origin {
    objects: Mutex<BTreeMap<ObjectPath, (u64, Object)>>,
    reads: Mutex<Vec<Vec<Range<u64>>>>,
    gate: Semaphore,
}

impl Origin {
    fn new(objects: &[(&str, u64, u64)]) -> Arc<Self> {
        let origin = Self {
            objects: Mutex::default(),
            reads: Mutex::default(),
            gate: Semaphore::new(1 << 20),
        };
        for (path, seed, size) in objects {
            origin.set(path, *seed, *size);
        }
        Arc::new(origin)
    }

    fn set(&self, path: &str, seed: u64, size: u64) -> Object {
        let object = Object {
            path: ObjectPath::new(path).unwrap(),
            size,
            version: format!("seed-{seed}"),
        };
        let mut objects = self.objects.lock().unwrap();
        objects.insert(object.path.clone(), (seed, object.clone()));
        object
    }

    fn get(&self, path: &str) -> Object {
        self.objects.lock().unwrap()[&ObjectPath::new(path).unwrap()].1.clone()
    }

    /// The reads since the last time.
    fn reads(&self) -> Vec<Vec<Range<u64>>> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }
}

#[async_trait]
impl Tier for Origin {
    fn info(&self) -> TierInfo {
        TierInfo {
            kind: "nfs",
            location: "origin".to_owned(),
            wrappers: Vec::new(),
            notes: Vec::new(),
        }
    }
    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        Ok(self.get(path.as_str()))
    }
    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.reads.lock().unwrap().push(ranges.to_vec());
        self.gate.acquire().await.unwrap().forget();
        let (seed, now) = self.objects.lock().unwrap()[&object.path].clone();
        if now != *object {
            return Err(ErrorKind::Changed.error(&object.path, "changed"));
        }
        let mut cost = ReadCost {
            requests: ranges.len() as u32,
            ..ReadCost::default()
        };
        cost.via.insert(Via::Nfs);
        cost.wire_bytes = ranges.iter().map(|range| range.end - range.start).sum();
        let parts = ranges.iter().map(|range| content(seed, range.clone()).into());
        Ok(ReadMany {
            parts: parts.collect(),
            cost,
        })
    }
    async fn list(&self, _: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        Ok(self
            .objects
            .lock()
            .unwrap()
            .values()
            .map(|(_, object)| object.clone())
            .collect())
    }
}

fn config(root: &Path, capacity_bytes: u64) -> StagedConfig {
    StagedConfig {
        root: root.to_owned(),
        shared: false,
        capacity_bytes,
        block_bytes: BLOCK,
        queue_depth: 16,
        direct: true,
    }
}

fn uncounted() -> StagedMetrics {
    StorageMetrics::unscraped().unwrap().staged("memory")
}

async fn open(origin: &Arc<Origin>, root: &Path) -> Staged {
    Staged::open(origin.clone(), &config(root, 64 << 20), uncounted())
        .await
        .unwrap()
}

/// Reads and compares.
async fn expect(tier: &dyn Tier, object: &Object, seed: u64, range: Range<u64>) -> ReadCost {
    let read = tier.read(object, range.clone()).await.unwrap();
    assert!(read.bytes == content(seed, range.clone()), "{} {range:?}", object.path);
    read.cost
}

fn files(root: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|e| e == kind))
        .collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_once_comes_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("x", 1, 1_000_001)]);
    let (tier, object) = (open(&origin, folder.path()).await, origin.get("x"));
    let ranges = [5..9, 3 * BLOCK - 1..3 * BLOCK + 1, 1_000_000..1_000_001, 7..7];
    let first = tier.read_many(&object, &ranges).await.unwrap();
    assert_eq!(first.cost.via.to_string(), "nfs");
    // One call, adjacent blocks joined, the last block short.
    let last = 1_000_001 / BLOCK * BLOCK;
    assert_eq!(origin.reads(), [vec![0..BLOCK, 2 * BLOCK..4 * BLOCK, last..1_000_001]]);
    tier.flush().await;
    let second = tier.read_many(&object, &ranges).await.unwrap();
    assert_eq!(second.parts, first.parts);
    for (part, range) in second.parts.iter().zip(&ranges) {
        assert_eq!(*part, content(1, range.clone()));
    }
    assert!(origin.reads().is_empty());
    let via = second.cost.via;
    assert!(!via.contains(Via::Nfs) && !via.is_empty(), "{via}");
    // A row costs its pages, not its block.
    assert!(second.cost.wire_bytes <= 5 * 4096, "{:?}", second.cost);
    // For half-staged ranges the tier is asked for the rest alone.
    let both = expect(&tier, &object, 1, 0..1_000_001).await;
    assert!(both.via.contains(Via::Nfs));
    assert_eq!(origin.reads(), [vec![BLOCK..2 * BLOCK, 4 * BLOCK..last]]);
    tier.flush().await;
    expect(&tier, &object, 1, 0..1_000_001).await;
    assert!(origin.reads().is_empty());
    let counts = tier.counts();
    assert_eq!((counts.staged, counts.broken, counts.failures), (16, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_never_mix_and_old_ones_go() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("x", 1, 300_000)]);
    let tier = open(&origin, folder.path()).await;
    let old = origin.get("x");
    expect(&tier, &old, 1, 0..100_000).await;
    tier.flush().await;
    let new = origin.set("x", 2, 300_000);
    // Of the old version, staged blocks can be read; other blocks report the change.
    expect(&tier, &old, 1, 0..100_000).await;
    let error = tier.read(&old, 50_000..300_000).await.unwrap_err();
    assert_eq!((error.kind(), error.object()), (ErrorKind::Changed, "x"));
    expect(&tier, &new, 2, 0..300_000).await;
    tier.flush().await;
    expect(&tier, &new, 2, 0..300_000).await;
    assert_eq!(files(folder.path(), "data").len(), 1);
    assert!(tier.read(&old, 0..10).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stage_stays_within_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let objects = [("a", 1, 30 * BLOCK), ("b", 2, 20 * BLOCK + 5), ("c", 3, 7)];
    let origin = Origin::new(&objects);
    let capacity = 12 * BLOCK;
    let tier = Staged::open(origin.clone(), &config(folder.path(), capacity), uncounted())
        .await
        .unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for round in 0..300 {
        let (name, seed, size) = objects[rng.random_range(0..3)];
        let start = rng.random_range(0..size);
        let end = (start + rng.random_range(1..3 * BLOCK)).min(size);
        expect(&tier, &origin.get(name), seed, start..end).await;
        if round % 10 == 0 {
            tier.flush().await;
            assert!(tier.counts().bytes <= capacity, "{:?}", tier.counts());
            let disk = |path: &PathBuf| fs::metadata(path).unwrap().blocks() * 512;
            let on_disk: u64 = files(folder.path(), "data").iter().map(disk).sum();
            assert!(on_disk <= capacity, "{on_disk}");
        }
    }
    let counts = tier.counts();
    assert!(
        counts.evicted > 50 && counts.broken == 0 && counts.failures == 0,
        "{counts:?}"
    );
    // Used blocks stay, unused blocks are evicted.
    let (a, b) = (origin.get("a"), origin.get("b"));
    for i in 0..20 {
        expect(&tier, &a, 1, 0..10).await;
        expect(&tier, &b, 2, i * BLOCK..i * BLOCK + 1).await;
        tier.flush().await;
    }
    origin.reads();
    expect(&tier, &a, 1, 0..10).await;
    expect(&tier, &b, 2, 19 * BLOCK..19 * BLOCK + 1).await;
    assert!(origin.reads().is_empty());
    expect(&tier, &b, 2, 0..1).await;
    assert_eq!(origin.reads().len(), 1);
    // A lower bound holds from the next start on.
    tier.flush().await;
    drop(tier);
    let tier = Staged::open(origin.clone(), &config(folder.path(), 3 * BLOCK), uncounted())
        .await
        .unwrap();
    tier.flush().await;
    assert!(tier.counts().bytes <= 3 * BLOCK);
    expect(&tier, &a, 1, 0..a.size).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_costs_only_the_staging() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("x", 1, 10 * BLOCK), ("y", 2, BLOCK)]);
    let (stage_folder, found) = Folder::open(folder.path(), BLOCK).unwrap();
    let fault = stage_folder.fault.clone();
    let config = config(folder.path(), 64 << 20);
    let tier = Staged::with_folder(origin.clone(), &config, uncounted(), (stage_folder, found), None).await;
    let tier = tier.unwrap();
    let (x, y) = (origin.get("x"), origin.get("y"));
    expect(&tier, &x, 1, 0..5 * BLOCK).await;
    tier.flush().await;
    fault.store(libc::ENOSPC, Ordering::SeqCst);
    for _ in 0..3 {
        expect(&tier, &x, 1, 0..x.size).await;
        expect(&tier, &y, 2, 0..BLOCK).await;
        tier.flush().await;
    }
    let counts = tier.counts();
    assert!(counts.failures > 0 && counts.broken == 0, "{counts:?}");
    assert!(counts.last_failure.contains("No space left"));
    assert!(tier.info().notes.iter().any(|note| note.contains("No space left")));
    // Once there is room, staging goes on by itself.
    fault.store(0, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(250)).await;
    for _ in 0..2 {
        expect(&tier, &x, 1, 0..x.size).await;
        expect(&tier, &y, 2, 0..BLOCK).await;
        tier.flush().await;
    }
    origin.reads();
    expect(&tier, &x, 1, 0..x.size).await;
    expect(&tier, &y, 2, 0..BLOCK).await;
    assert!(origin.reads().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_taken_away_costs_only_the_staging() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("stage");
    let origin = Origin::new(&[("x", 1, 5 * BLOCK), ("y", 2, BLOCK)]);
    let tier = open(&origin, &root).await;
    let (x, y) = (origin.get("x"), origin.get("y"));
    expect(&tier, &x, 1, 0..2 * BLOCK).await;
    tier.flush().await;
    fs::remove_dir_all(&root).unwrap();
    for _ in 0..3 {
        expect(&tier, &x, 1, 0..x.size).await;
        expect(&tier, &y, 2, 0..BLOCK).await;
        tier.flush().await;
    }
    assert!(tier.counts().failures > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_misses_make_one_read_that_outlives_its_leader() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("x", 1, 5 * BLOCK)]);
    origin.gate.forget_permits(1 << 20);
    let tier = Arc::new(open(&origin, folder.path()).await);
    let object = origin.get("x");
    let leader = tokio::time::timeout(Duration::from_millis(20), tier.read(&object, 0..10)).await;
    assert!(leader.is_err());
    let readers: Vec<_> = (0..100u64)
        .map(|i| {
            let (tier, object) = (tier.clone(), object.clone());
            tokio::spawn(async move { expect(&*tier, &object, 1, i..i + 100).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    origin.gate.add_permits(1);
    let costs = join_all(readers).await.into_iter().map(Result::unwrap);
    // The leader is gone, so no read reports its request; all waiting callers know the source of the bytes.
    assert!(
        costs
            .into_iter()
            .all(|cost| cost.via.contains(Via::Nfs) || cost.requests > 0)
    );
    assert_eq!(origin.reads().len(), 1);
    tier.flush().await;
    assert_eq!(tier.counts().staged, 1);
    // The caller that counts reads of the tier learns of the request once.
    assert_eq!(tier.take_unreported().map(|cost| cost.requests), Some(1));
    assert_eq!(tier.take_unreported(), None);
    // Blocks that the folder has were not requested from the tier.
    let read = tier.read(&object, 0..10).await.unwrap();
    assert_eq!((read.cost.requests, read.cost.wire_bytes), (0, 0));
}

#[tokio::test]
async fn senseless_configs_and_shared_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[]);
    for (capacity_bytes, block_bytes, key) in [
        (1 << 30, 4096, "staged.block_bytes"),
        (1 << 30, 100_000, "staged.block_bytes"),
        (1 << 30, 128 << 20, "staged.block_bytes"),
        (BLOCK, BLOCK, "staged.capacity_bytes"),
    ] {
        let config = StagedConfig {
            block_bytes,
            ..config(folder.path(), capacity_bytes)
        };
        let error = Staged::open(origin.clone(), &config, uncounted()).await.err().unwrap();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, key));
    }
    let held = open(&origin, folder.path()).await;
    let second = Staged::open(origin.clone(), &config(folder.path(), 1 << 30), uncounted()).await;
    let error = second.err().unwrap();
    assert!(error.detail().contains("staged.root"), "{error}");
    drop(held);
    open(&origin, folder.path()).await;
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = Staged::open(origin, &config(&file, 1 << 30), uncounted())
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("staged.root"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_late_to_a_fetch_that_is_over_finds_its_blocks_in_the_folder() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("a", 7, 4 * BLOCK)]);
    let staged = open(&origin, root.path()).await;
    let object = origin.get("a");
    expect(&staged, &object, 7, 0..2 * BLOCK).await;
    staged.flush().await;
    assert_eq!(origin.reads(), [slice::from_ref(&(0..2 * BLOCK))]);
    // Like a call that looked for the blocks before the fetch of the first two had ended.
    let data = staged.stage.fetch(&object, &[0, 1, 2]).await.unwrap();
    assert_eq!(origin.reads(), [slice::from_ref(&(2 * BLOCK..3 * BLOCK))]);
    assert_eq!(data.cost.requests, 1);
    let mut parts = data.parts;
    parts.sort_unstable_by_key(|(range, _)| range.start);
    let bytes: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    assert!(bytes == content(7, 0..3 * BLOCK));
    // And all of it is staged.
    staged.flush().await;
    expect(&staged, &object, 7, 0..3 * BLOCK).await;
    assert!(origin.reads().is_empty());
}
