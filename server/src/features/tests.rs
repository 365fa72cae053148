use super::*;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_protocol::tensor::DataType;
use tierlab_storage::tier::{ReadMany, TierInfo};
use tierlab_storage::wrappers::{CacheConfig, Role, StorageMetrics, compose};
use tierlab_storage::{Object, Tier, TierConfig};

mod versions;

/// A table of `rows` rows from id 10: column `a` is the id as INT64, column `b` twice the id as FP32 [2].
fn table(rows: u64) -> Vec<u8> {
    let columns: &[(&str, DataType, &[i64])] = &[("a", DataType::Int64, &[1]), ("b", DataType::Fp32, &[2])];
    let header = TableHeader::new(TableSchema::lay_out("t", columns).unwrap(), rows, 10, 0).unwrap();
    let mut bytes = header.encode();
    for id in header.ids() {
        let mut row = vec![0; header.stride as usize];
        row[..8].copy_from_slice(&id.to_le_bytes());
        for at in [8, 12] {
            row[at..at + 4].copy_from_slice(&(id as f32 * 2.0).to_le_bytes());
        }
        header.seal_row(id, &mut row);
        bytes.extend_from_slice(&row);
    }
    bytes
}

async fn tier_with(table: Vec<u8>) -> FeatureTier {
    let tier = tierlab_storage::open(&TierConfig::Memory { root: None }).await.unwrap();
    let tier = feature_tier(tier);
    put(&tier, table).await;
    tier
}

fn feature_tier(tier: Arc<dyn Tier>) -> FeatureTier {
    FeatureTier {
        uncached: Arc::clone(&tier),
        rows: tier,
        kind: "memory",
        destination: RowDestination::Host,
        damaged: StorageMetrics::unscraped().unwrap().damaged_rows("memory"),
    }
}

async fn put(tier: &FeatureTier, table: Vec<u8>) {
    let path = ObjectPath::new("features/t.rows").unwrap();
    tier.uncached.put(&path, Bytes::from(table).into()).await.unwrap();
}

fn inputs() -> Vec<TensorSpec> {
    let spec = |name: &str, dtype, shape: &[i64]| TensorSpec {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
    };
    vec![
        spec("x", DataType::Fp32, &[-1, 2]),
        spec("inline", DataType::Int8, &[-1]),
        spec("id", DataType::Int64, &[-1, 1]),
    ]
}

/// Columns by the index of the input and the name.
fn wanted(columns: &[(usize, &str)]) -> Vec<JoinedColumn> {
    let columns = columns.iter();
    let wanted = |&(input, name): &(usize, &str)| JoinedColumn {
        input,
        column: name.to_owned(),
    };
    columns.map(wanted).collect()
}

async fn join(tier: FeatureTier) -> Result<Join, LoadError> {
    Join::open(
        tier,
        LiveTables::new(None),
        "t",
        &inputs(),
        &wanted(&[(0, "b"), (2, "a")]),
    )
    .await
}

#[tokio::test]
async fn rows_become_tensors_in_the_order_of_the_ids() {
    let join = join(tier_with(table(100)).await).await.unwrap();
    let mut watch = Stopwatch::start();
    let joined = join
        .rows(&EntityIds::Int64(vec![12, 109, 10, 12]), &mut watch)
        .await
        .unwrap();
    assert_eq!(joined.len(), 2);
    let (input, part) = &joined[0];
    assert_eq!((*input, &part.shape[..]), (0, &[4, 2][..]));
    let floats: Vec<f32> = part
        .data
        .host()
        .unwrap()
        .whole()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    assert_eq!(floats, [24.0, 24.0, 218.0, 218.0, 20.0, 20.0, 24.0, 24.0]);
    let (input, part) = &joined[1];
    assert_eq!((*input, part.data.len()), (2, 32));
    assert!(!watch.timings.via.is_empty());
    let metadata = join.metadata();
    assert_eq!((metadata.first_id, metadata.rows, metadata.row_bytes), (10, 100, 32));
    assert_eq!(metadata.inputs, ["x", "id"]);
    assert!(join.fills(2) && !join.fills(1));
}

#[tokio::test]
async fn unknown_ids_and_damaged_rows_are_named_and_never_served() {
    let mut bytes = table(100);
    let damaged = bytes.len() - 3 * 32;
    bytes[damaged] ^= 1;
    let join = join(tier_with(bytes).await).await.unwrap();
    let mut watch = Stopwatch::start();
    for id in [9, 110, i64::MIN, i64::MAX] {
        let refusal = join
            .rows(&EntityIds::Int64(vec![11, id]), &mut watch)
            .await
            .unwrap_err();
        assert_eq!(refusal.reason, Reason::UnknownEntity);
        assert!(refusal.message.contains(&id.to_string()), "{refusal}");
    }
    let refusal = join
        .rows(&EntityIds::Int64(vec![11, 107]), &mut watch)
        .await
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::Corrupt);
    for part in ["features/t.rows", "107", &damaged.to_string()] {
        assert!(refusal.message.contains(part), "{refusal} should name {part}");
    }
    assert!(join.rows(&EntityIds::Int64(vec![11, 108]), &mut watch).await.is_ok());
}

#[tokio::test]
async fn a_table_without_rows_is_named_so_and_shows_no_range() {
    let join = join(tier_with(table(0)).await).await.unwrap();
    let refused = join.rows(&EntityIds::Int64(vec![10]), &mut Stopwatch::start()).await;
    let refusal = refused.unwrap_err();
    assert_eq!(refusal.reason, Reason::UnknownEntity);
    assert_eq!(
        refusal.message,
        "unknown entity 10 in features/t.rows: the table has no rows"
    );
}

/// A tier of which the next reads of rows come damaged.
struct Flipping {
    inner: Arc<dyn Tier>,
    flips: AtomicU32,
}

#[async_trait]
impl Tier for Flipping {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }
    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.inner.stat(path).await
    }
    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let mut read = self.inner.read_many(object, ranges).await?;
        if self.flips.load(Ordering::SeqCst) > 0 {
            self.flips.fetch_sub(1, Ordering::SeqCst);
            read.parts = read
                .parts
                .iter()
                .map(|part| part.iter().map(|byte| byte ^ 1).collect())
                .collect();
        }
        Ok(read)
    }
    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.inner)
    }
}

#[tokio::test]
async fn a_damaged_row_is_dropped_from_the_cache_and_read_once_more() {
    let flipping = Arc::new(Flipping {
        inner: tier_with(table(100)).await.uncached,
        flips: AtomicU32::new(0),
    });
    let metrics = StorageMetrics::unscraped().unwrap();
    let cache = CacheConfig {
        block_bytes: 512,
        ..CacheConfig::default()
    };
    let tier = compose(flipping.clone(), Role::Feature, &cache, &metrics).unwrap();
    let tier = feature_tier(tier);
    let counts = || (tier.damaged.mended.get(), tier.damaged.refused.get());
    let join = join(tier.clone()).await.unwrap();
    let mut watch = Stopwatch::start();
    // Damaged on its way into the cache, and right when read again: nobody notices but the metrics.
    flipping.flips.store(1, Ordering::SeqCst);
    let joined = join
        .rows(&EntityIds::Int64(vec![12, 12, 109]), &mut watch)
        .await
        .unwrap();
    let data = joined[0].1.data.host().unwrap().whole();
    let seconds = data.chunks_exact(4).step_by(2);
    let seconds: Vec<f32> = seconds.map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(seconds, [24.0, 24.0, 218.0]);
    assert_eq!(counts(), (3, 0));
    assert!(watch.timings.tier_requests >= 2);
    // The cache holds the right rows now.
    let mut watch = Stopwatch::start();
    join.rows(&EntityIds::Int64(vec![12]), &mut watch).await.unwrap();
    assert_eq!((watch.timings.cache_hits, watch.timings.cache_misses), (1, 0));
    // Damaged twice: refused, and not kept.
    flipping.flips.store(2, Ordering::SeqCst);
    let refusal = join.rows(&EntityIds::Int64(vec![60]), &mut watch).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::Corrupt);
    assert!(refusal.message.contains("features/t.rows"), "{refusal}");
    assert_eq!(counts(), (3, 1));
    assert!(join.rows(&EntityIds::Int64(vec![60]), &mut watch).await.is_ok());
    assert_eq!(counts(), (3, 1));
}

#[tokio::test]
async fn broken_tables_and_unfit_columns_are_refused_when_opened() {
    let whole = table(100);
    for (bytes, named) in [
        (whole[..whole.len() - 1].to_vec(), "truncated"),
        (whole[..100].to_vec(), "cut off"),
        (vec![1; 5000], "offset 0"),
        (Vec::new(), "ends inside"),
    ] {
        let error = join(tier_with(bytes).await).await.err().unwrap().to_string();
        assert!(error.contains("features/t.rows") && error.contains(named), "{error}");
    }
    let open = async |column: (usize, &str)| {
        Join::open(
            tier_with(table(5)).await,
            LiveTables::new(None),
            "t",
            &inputs(),
            &wanted(&[column]),
        )
        .await
        .err()
        .unwrap()
        .to_string()
    };
    assert!(open((0, "c")).await.contains("missing column `c`"));
    assert!(open((0, "a")).await.contains("input `x` requires FP32 [2]"));
}

#[tokio::test]
async fn a_replaced_table_is_read_anew_and_another_schema_is_refused() {
    let tier = tier_with(table(3)).await;
    let join = join(tier.clone()).await.unwrap();
    let mut watch = Stopwatch::start();
    put(&tier, table(200)).await;
    assert!(join.rows(&EntityIds::Int64(vec![11]), &mut watch).await.is_ok());
    assert!(join.rows(&EntityIds::Int64(vec![150]), &mut watch).await.is_ok());
    let columns: &[(&str, DataType, &[i64])] = &[("a", DataType::Int64, &[1]), ("b", DataType::Fp32, &[3])];
    let header = TableHeader::new(TableSchema::lay_out("t", columns).unwrap(), 0, 10, 0).unwrap();
    put(&tier, header.encode()).await;
    let refusal = join.rows(&EntityIds::Int64(vec![11]), &mut watch).await.unwrap_err();
    assert!(refusal.message.starts_with("tier `memory`: "), "{refusal}");
    assert!(refusal.message.contains("column `b`"), "{refusal}");
}

/// A tier whose row of one id does not come until it is let go; it notes the number of ranges of each read.
struct SlowRow {
    inner: Arc<dyn Tier>,
    slow: Range<u64>,
    permits: tokio::sync::Semaphore,
    reads: Mutex<Vec<usize>>,
}

#[async_trait]
impl Tier for SlowRow {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.inner.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.reads.lock().unwrap().push(ranges.len());
        if ranges.contains(&self.slow) {
            let _ = self.permits.acquire().await;
        }
        self.inner.read_many(object, ranges).await
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.inner)
    }
}

#[tokio::test]
async fn a_request_is_one_read_and_a_slow_row_holds_up_its_own_request_only() {
    let mut tier = tier_with(table(100)).await;
    let first_row = join(tier.clone()).await.unwrap().table.current().first_row;
    let slow = Arc::new(SlowRow {
        inner: Arc::clone(&tier.rows),
        slow: first_row + 5 * 32..first_row + 6 * 32,
        permits: tokio::sync::Semaphore::new(0),
        reads: Mutex::default(),
    });
    tier.rows = Arc::clone(&slow) as Arc<dyn Tier>;
    let join = Arc::new(join(tier).await.unwrap());
    let held = tokio::spawn({
        let join = Arc::clone(&join);
        async move {
            join.rows(&EntityIds::Int64(vec![14, 15, 16]), &mut Stopwatch::start())
                .await
                .map(|joined| joined.len())
        }
    });
    while slow.reads.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    for ids in [&[10, 11, 12, 13][..], &[16, 17], &[99]] {
        join.rows(&EntityIds::Int64(ids.to_vec()), &mut Stopwatch::start())
            .await
            .unwrap();
    }
    assert!(!held.is_finished());
    slow.permits.add_permits(1);
    assert_eq!(held.await.unwrap().unwrap(), 2);
    assert_eq!(*slow.reads.lock().unwrap(), [3, 4, 2, 1]);
}
