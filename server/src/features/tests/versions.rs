//! Tables that are replaced: by renaming, under a cache, and in place, all the time, on real tiers. One reply has rows of
//! one version, and the newest one reaches everybody.

use crate::features::*;
use async_trait::async_trait;
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_origins::flight::FlightOrigin;
use tierlab_origins::nfs::NfsOrigin;
use tierlab_origins::s3::S3Origin;
use tierlab_storage::tier::{ReadMany, TierInfo};
use tierlab_storage::wrappers::{CacheConfig, Role, StorageMetrics, compose};
use tierlab_storage::{Object, Tier, TierConfig};
use tokio::net::TcpListener;

/// Everything that is waited for here is there within this time, or the test fails.
const PATIENCE: Duration = Duration::from_secs(60);
const ROWS: u64 = 2000;
const STRIDE_FLOATS: i64 = 120;

/// A table whose rows all say its version.
fn table(version: u32) -> Vec<u8> {
    let columns: &[(&str, DataType, &[i64])] = &[("b", DataType::Fp32, &[STRIDE_FLOATS])];
    let mut header = TableHeader::new(TableSchema::lay_out("t", columns).unwrap(), ROWS, 0, 0).unwrap();
    let mut bytes = Vec::new();
    for id in header.ids() {
        let mut row = vec![0; header.stride as usize];
        for at in row[..STRIDE_FLOATS as usize * 4].chunks_exact_mut(4) {
            at.copy_from_slice(&(version as f32).to_le_bytes());
        }
        header.seal_row(id, &mut row);
        bytes.extend_from_slice(&row);
    }
    let block = header.stride as usize * header.rows_per_block as usize;
    header.block_crcs = bytes.chunks(block).map(crc32c::crc32c).collect();
    [header.encode(), bytes].concat()
}

fn path() -> ObjectPath {
    ObjectPath::new("features/t.rows").unwrap()
}

fn cached(tier: &Arc<dyn Tier>, period: Option<Duration>) -> (FeatureTier, Arc<LiveTables>) {
    let metrics = StorageMetrics::unscraped().unwrap();
    let tier = FeatureTier {
        uncached: compose(Arc::clone(tier), Role::Feature, &CacheConfig::off(), &metrics).unwrap(),
        rows: compose(Arc::clone(tier), Role::Feature, &CacheConfig::default(), &metrics).unwrap(),
        kind: "memory",
        destination: RowDestination::Host,
        damaged: metrics.damaged_rows("memory"),
    };
    (tier, LiveTables::new(period))
}

async fn join((tier, tables): &(FeatureTier, Arc<LiveTables>)) -> Join {
    let input = TensorSpec {
        name: "x".into(),
        dtype: DataType::Fp32,
        shape: vec![-1, STRIDE_FLOATS],
    };
    Join::open(
        tier.clone(),
        Arc::clone(tables),
        "t",
        &[input],
        &[JoinedColumn {
            input: 0,
            column: "b".into(),
        }],
    )
    .await
    .unwrap()
}

/// The versions of the rows of a reply, each once.
async fn versions(join: &Join, ids: &[i64]) -> Result<Vec<u32>, Refusal> {
    let joined = join
        .rows(&EntityIds::Int64(ids.to_vec()), &mut Stopwatch::start())
        .await?;
    let data = joined[0].1.data.host().unwrap().whole();
    let mut versions: Vec<u32> = data
        .chunks_exact(4)
        .map(|float| f32::from_le_bytes(float.try_into().unwrap()) as u32)
        .collect();
    versions.sort_unstable();
    versions.dedup();
    Ok(versions)
}

async fn memory(version: u32) -> Arc<dyn Tier> {
    let tier = tierlab_storage::open(&TierConfig::Memory { root: None }).await.unwrap();
    tier.put(&path(), Bytes::from(table(version)).into()).await.unwrap();
    tier
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_table_reaches_requests_that_the_cache_answers() {
    let tier = memory(1).await;
    let join = join(&cached(&tier, Some(Duration::from_millis(50)))).await;
    let ids = [1, 2, 900];
    for _ in 0..3 {
        assert_eq!(versions(&join, &ids).await.unwrap(), [1]);
    }
    tier.put(&path(), Bytes::from(table(2)).into()).await.unwrap();
    let began = Instant::now();
    while versions(&join, &ids).await.unwrap() != [2] {
        assert!(began.elapsed() < PATIENCE, "old rows from the cache");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..50 {
        assert_eq!(versions(&join, &ids).await.unwrap(), [2]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_model_meets_all_models_read() {
    let tier = memory(1).await;
    let features = cached(&tier, None);
    let (one, other) = (join(&features).await, join(&features).await);
    assert_eq!(versions(&one, &[1, 2]).await.unwrap(), [1]);
    tier.put(&path(), Bytes::from(table(2)).into()).await.unwrap();
    // Not in the cache: the read meets the new version.
    assert_eq!(versions(&other, &[1500]).await.unwrap(), [2]);
    assert_eq!(versions(&one, &[1, 2]).await.unwrap(), [2], "old rows from the cache");
    // A reply is of one version even where the cache has some of its rows.
    tier.put(&path(), Bytes::from(table(3)).into()).await.unwrap();
    assert_eq!(versions(&one, &[1, 2, 700]).await.unwrap(), [3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_for_a_replaced_table_is_the_tiers_time() {
    let tier = memory(1).await;
    let join = join(&cached(&tier, None)).await;
    tier.put(&path(), Bytes::from(table(2)).into()).await.unwrap();
    let mut watch = Stopwatch::start();
    join.rows(&EntityIds::Int64(vec![1500]), &mut watch).await.unwrap();
    // The new header is trusted once it has stood for 20 ms.
    let timings = watch.timings;
    assert!(timings.get(Stage::Tier) >= Duration::from_millis(19), "{timings:?}");
}

/// A tier that can be down; it counts look-ups.
struct Down {
    inner: Arc<dyn Tier>,
    down: AtomicBool,
    stats: AtomicU32,
}

impl Down {
    fn check(&self) -> Result<(), StorageError> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(ErrorKind::Unavailable.error("secret-host:1/t.rows", "it is down")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Tier for Down {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }
    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.stats.fetch_add(1, Ordering::SeqCst);
        self.check()?;
        self.inner.stat(path).await
    }
    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.check()?;
        self.inner.read_many(object, ranges).await
    }
    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.inner)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_tier_is_down_what_is_there_is_served_and_it_is_asked_again() {
    let tier = Arc::new(Down {
        inner: memory(1).await,
        down: AtomicBool::new(false),
        stats: AtomicU32::new(0),
    });
    let shared = Arc::clone(&tier) as Arc<dyn Tier>;
    let features = cached(&shared, Some(Duration::from_millis(20)));
    let (join, other) = (join(&features).await, join(&features).await);
    assert_eq!(versions(&join, &[1, 2]).await.unwrap(), [1]);
    tier.down.store(true, Ordering::SeqCst);
    tier.inner.put(&path(), Bytes::from(table(2)).into()).await.unwrap();
    let stats_before = tier.stats.load(Ordering::SeqCst);
    let began = Instant::now();
    while tier.stats.load(Ordering::SeqCst) < stats_before + 3 {
        assert_eq!(versions(&join, &[1, 2]).await.unwrap(), [1]);
        assert!(began.elapsed() < PATIENCE, "not looked at again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Rows that are not kept cannot be had, and the client reads no address.
    let refusal = versions(&other, &[1999]).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::Tier);
    assert!(refusal.message.contains("features/t.rows"), "{refusal}");
    assert!(!refusal.message.contains("secret-host"), "{refusal}");
    tier.down.store(false, Ordering::SeqCst);
    let began = Instant::now();
    while versions(&join, &[1, 2]).await.unwrap() != [2] {
        assert!(began.elapsed() < PATIENCE, "old rows from the cache");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes a table over itself, again and again, with the next version each time.
struct Rewriter {
    stop: Arc<AtomicBool>,
    last: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Rewriter {
    fn start(file: &Path) -> Self {
        let (stop, last) = (Arc::<AtomicBool>::default(), Arc::new(AtomicU32::new(1)));
        let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
        let thread = std::thread::spawn({
            let (stop, last) = (stop.clone(), last.clone());
            move || {
                while !stop.load(Ordering::SeqCst) {
                    let bytes = table(last.load(Ordering::SeqCst) + 1);
                    // In pieces, so that most reads meet a half written table.
                    for (at, piece) in bytes.chunks(100_000).enumerate() {
                        file.write_all_at(piece, at as u64 * 100_000).unwrap();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    last.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(80));
                }
            }
        });
        Self {
            stop,
            last,
            thread: Some(thread),
        }
    }

    fn finish(&mut self) -> u32 {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.last.load(Ordering::SeqCst)
    }
}

impl Drop for Rewriter {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Readers of rows from all over a table on a tier, while `file` is written over. Every reply has one version, replies
/// come, and in the end the last version.
async fn replies_have_one_version(tier: Arc<dyn Tier>, file: &Path) {
    let features = cached(&tier, Some(Duration::from_millis(100)));
    let join = Arc::new(join(&features).await);
    let mut writer = Rewriter::start(file);
    let began = Instant::now();
    let done = Arc::new(AtomicU32::new(0));
    let readers = (0..2_i64).map(|reader| {
        let (join, done) = (join.clone(), done.clone());
        tokio::spawn(async move {
            let mut refused = 0;
            for round in 0.. {
                if done.load(Ordering::SeqCst) >= 150 || began.elapsed() > PATIENCE {
                    break;
                }
                let ids: Vec<i64> = (0..40).map(|i| (i * 50 + round * 7 + reader) % ROWS as i64).collect();
                match versions(&join, &ids).await {
                    Ok(versions) => {
                        assert_eq!(versions.len(), 1, "versions {versions:?} in one reply");
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(refusal) => {
                        assert!(refusal.message.contains("features/t.rows"), "{refusal}");
                        refused += 1;
                    }
                }
            }
            refused
        })
    });
    let readers: Vec<_> = readers.collect();
    let mut refused = 0;
    for reader in readers {
        refused += reader.await.unwrap();
    }
    assert!(done.load(Ordering::SeqCst) > 0, "no reply, {refused} refusals");
    let last = writer.finish();
    let ids: Vec<i64> = (0..ROWS as i64).step_by(37).collect();
    let began = Instant::now();
    while !matches!(versions(&join, &ids).await.as_deref(), Ok([version]) if *version == last) {
        assert!(began.elapsed() < PATIENCE, "version {last} is not served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn open(document: &str) -> Arc<dyn Tier> {
    tierlab_storage::open(&TierConfig::parse("test", document).unwrap())
        .await
        .unwrap()
}

fn folder(below: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let features = root.path().join(below).join("features");
    std::fs::create_dir_all(&features).unwrap();
    let file = features.join("t.rows");
    std::fs::write(&file, table(1)).unwrap();
    (root, file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_written_over_in_place_on_nvme() {
    let (root, file) = folder("");
    let tier = open(&format!("kind = \"nvme\"\nroot = \"{}\"", root.path().display())).await;
    replies_have_one_version(tier, &file).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_written_over_in_place_over_s3() {
    let (root, file) = folder("tierlab");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let origin = S3Origin::open(root.path()).unwrap();
    tokio::spawn(origin.serve(listener, std::future::pending()));
    let tier = open(&format!(
        "kind = \"s3\"\nbucket = \"tierlab\"\nregion = \"us-east-1\"\nendpoint = \"http://127.0.0.1:{port}\"\n\
         allow_http = true\nanonymous = true"
    ))
    .await;
    replies_have_one_version(tier, &file).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_written_over_in_place_over_nfs() {
    let (root, file) = folder("");
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let origin = NfsOrigin::bind(address, root.path()).await.unwrap();
    let url = origin.url();
    tokio::spawn(origin.serve(std::future::pending()));
    replies_have_one_version(open(&format!("kind = \"nfs\"\nurl = \"{url}\"")).await, &file).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_written_over_in_place_over_flight() {
    let (root, file) = folder("");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let origin = FlightOrigin::open(root.path()).await.unwrap();
    tokio::spawn(origin.serve(listener, std::future::pending()));
    let document = format!("kind = \"flight\"\nurl = \"grpc://127.0.0.1:{port}\"");
    replies_have_one_version(open(&document).await, &file).await;
}
