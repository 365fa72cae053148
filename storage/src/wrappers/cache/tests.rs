use super::{ENTRY_BYTES, *};
use crate::content::content;
use crate::tiers::memory::MemoryTier;
use crate::wrappers::StorageMetrics;
use bytes::Bytes;
use futures::future::join_all;
use prometheus::Registry;
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use tokio::sync::Semaphore;

/// Memory tier behind a gate: each read is recorded, then waits for a permit, then fails if set to fail.
struct Gated {
    inner: MemoryTier,
    gate: Semaphore,
    failures: AtomicU32,
    reads: Mutex<Vec<Vec<Range<u64>>>>,
}

impl Gated {
    fn reads(&self) -> Vec<Vec<Range<u64>>> {
        self.reads.lock().unwrap().clone()
    }
}

#[async_trait]
impl Tier for Gated {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }
    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.inner.stat(path).await
    }
    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.reads.lock().unwrap().push(ranges.to_vec());
        self.gate.acquire().await.unwrap().forget();
        if self.failures.load(Ordering::SeqCst) > 0 {
            self.failures.fetch_sub(1, Ordering::SeqCst);
            return Err(ErrorKind::Unavailable.error(&object.path, "told to fail"));
        }
        self.inner.read_many(object, ranges).await
    }
    fn inner(&self) -> Option<&dyn Tier> {
        Some(&self.inner)
    }
}

struct Bench {
    gated: Arc<Gated>,
    cache: Arc<Cache>,
    metrics: CacheMetrics,
    object: Object,
}

const SIZE: u64 = 1_000_001;
/// Range of a row that these tests read twice; it is inside block 2.
const ROW: Range<u64> = 8200..8300;

async fn bench(permits: usize, capacity_bytes: u64) -> Bench {
    let config = CacheConfig {
        capacity_bytes,
        ..CacheConfig::default()
    };
    bench_of(permits, &config).await
}

async fn bench_of(permits: usize, config: &CacheConfig) -> Bench {
    let gated = Arc::new(Gated {
        inner: MemoryTier::default(),
        gate: Semaphore::new(permits),
        failures: AtomicU32::new(0),
        reads: Mutex::default(),
    });
    let metrics = StorageMetrics::register(&Registry::new()).unwrap().cache("memory");
    let cache = Arc::new(Cache::new(gated.clone(), config, metrics.clone()).unwrap());
    let body = Bytes::from(content(1, 0..SIZE));
    let object = cache.put(&ObjectPath::new("x").unwrap(), body.into()).await.unwrap();
    Bench {
        gated,
        cache,
        metrics,
        object,
    }
}

fn one(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

/// Waits until something holds, in bounded time.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    panic!("it did not come to pass");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_misses_make_one_read() {
    let Bench {
        gated,
        cache,
        metrics,
        object,
    } = bench(0, 1 << 20).await;
    let readers: Vec<_> = (0..20u64)
        .map(|i| {
            let (cache, object) = (cache.clone(), object.clone());
            tokio::spawn(async move {
                let range = ROW.start + i..ROW.end;
                let read = cache.read(&object, range.clone()).await.unwrap();
                assert_eq!(read.bytes, content(1, range));
                assert_eq!((read.cost.cache_hits, read.cost.cache_misses), (0, 1));
                read.cost
            })
        })
        .collect();
    until(|| metrics.joined.get() == 19).await;
    gated.gate.add_permits(1);
    let costs: Vec<_> = join_all(readers).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(gated.reads(), [one(8192..12_288)]);
    // One caller made the request; all callers know the source of the bytes.
    assert_eq!(costs.iter().map(|cost| cost.requests).sum::<u32>(), 1);
    assert!(costs.iter().all(|cost| cost.via.contains(Via::Memory)));
    assert_eq!((metrics.misses.get(), metrics.hits.get()), (20, 0));
    let hit = cache.read(&object, ROW).await.unwrap();
    assert_eq!(
        (hit.cost.cache_hits, hit.cost.requests, hit.cost.device),
        (1, 0, Duration::ZERO)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_outlives_the_call_that_began_it() {
    let Bench {
        gated,
        cache,
        metrics,
        object,
    } = bench(0, 1 << 20).await;
    let mut nobody = Context::from_waker(Waker::noop());
    {
        let mut leader = pin!(cache.read(&object, ROW));
        assert!(leader.as_mut().poll(&mut nobody).is_pending());
    }
    let follower = tokio::spawn({
        let (cache, object) = (cache.clone(), object.clone());
        async move { cache.read(&object, ROW).await.unwrap().bytes }
    });
    until(|| metrics.joined.get() == 1).await;
    gated.gate.add_permits(1);
    assert_eq!(follower.await.unwrap(), content(1, ROW));
    assert_eq!(gated.reads().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_reaches_everyone_and_is_not_kept() {
    let Bench {
        gated,
        cache,
        metrics,
        object,
    } = bench(0, 1 << 20).await;
    gated.failures.store(1, Ordering::SeqCst);
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let (cache, object) = (cache.clone(), object.clone());
            tokio::spawn(async move { cache.read(&object, ROW).await })
        })
        .collect();
    until(|| metrics.joined.get() == 4).await;
    gated.gate.add_permits(1);
    for read in join_all(readers).await {
        let error = read.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.object(), error.detail()),
            (ErrorKind::Unavailable, "x", "told to fail")
        );
    }
    gated.gate.add_permits(1);
    assert_eq!(cache.read(&object, ROW).await.unwrap().bytes, content(1, ROW));
    assert_eq!(gated.reads().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_misses_of_a_call_are_one_read_of_joined_blocks() {
    let Bench {
        gated, cache, object, ..
    } = bench(100, 1 << 20).await;
    cache.read(&object, ROW).await.unwrap();
    let ranges = [
        SIZE - 1..SIZE,
        0..10,
        4095..4097,
        12_288..20_000,
        8192..8193,
        50_000..50_001,
        7..7,
    ];
    let many = cache.read_many(&object, &ranges).await.unwrap();
    for (part, range) in many.parts.iter().zip(&ranges) {
        assert_eq!(*part, content(1, range.clone()));
    }
    // Block 2 was cached already; 0 and 1, and 3 and 4, are adjacent; the last block is short.
    let want = vec![0..8192, 12_288..20_480, 49_152..53_248, 999_424..SIZE];
    assert_eq!(gated.reads(), [one(8192..12_288), want]);
    assert_eq!(
        (many.cost.cache_hits, many.cost.cache_misses, many.cost.requests),
        (1, 6, 4)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_ranges_are_read_around_the_cache() {
    let Bench {
        gated,
        cache,
        metrics,
        object,
    } = bench(100, 4 << 20).await;
    // The window holds all of it: no block is on its way from the window to the rest while it is looked up.
    let limit = BYPASS_BLOCKS * 4096;
    cache.read(&object, 0..limit).await.unwrap();
    assert_eq!(metrics.misses.get(), BYPASS_BLOCKS);
    cache.read(&object, 0..limit).await.unwrap();
    assert_eq!(gated.reads().len(), 1);
    let ranges = [1..limit + 1, ROW];
    for _ in 0..2 {
        let many = cache.read_many(&object, &ranges).await.unwrap();
        assert!(many.parts[0] == content(1, ranges[0].clone()) && many.parts[1] == content(1, ROW));
        assert!(cache.read(&object, 0..SIZE).await.unwrap().bytes == content(1, 0..SIZE));
    }
    let bypassing = [one(1..limit + 1), one(0..SIZE), one(1..limit + 1), one(0..SIZE)];
    assert_eq!(gated.reads()[1..], bypassing);
    assert_eq!(metrics.misses.get(), BYPASS_BLOCKS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_slices_of_their_block() {
    let Bench { cache, object, .. } = bench(100, 1 << 20).await;
    let first = cache.read(&object, ROW).await.unwrap().bytes;
    let second = cache.read(&object, ROW.start + 10..ROW.end).await.unwrap().bytes;
    assert_eq!(first[10..].as_ptr(), second.as_ptr());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cache_stays_within_its_capacity() {
    let capacity = 20 * 4096;
    let Bench {
        gated,
        cache,
        metrics,
        object,
    } = bench(100_000, capacity).await;
    for round in 0..10u64 {
        for block in 0..SIZE / 4096 {
            let at = block * 4096 + round;
            let read = cache.read(&object, at..at + 1).await.unwrap();
            assert_eq!(read.bytes, content(1, at..at + 1));
        }
    }
    until(|| metrics.bytes.get() <= capacity.cast_signed()).await;
    assert!(metrics.bytes.get() > 0);
    assert!(gated.reads().len() > 244);
    drop(cache);
    until(|| metrics.bytes.get() == 0 && metrics.capacity_bytes.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_of_one_block_counts_what_leaves_it() {
    let Bench {
        cache, metrics, object, ..
    } = bench(1000, 4096 + ENTRY_BYTES).await;
    for at in [0, 4096, 8192] {
        cache.read(&object, at..at + 1).await.unwrap();
    }
    until(|| metrics.evictions.get() == 2).await;
}

#[tokio::test]
async fn senseless_sizes_are_refused() {
    for (capacity_bytes, block_bytes, key) in [
        (1 << 20, 0, "cache.block_bytes"),
        (1 << 20, 256, "cache.block_bytes"),
        (1 << 20, 5000, "cache.block_bytes"),
        (1 << 30, 2 << 20, "cache.block_bytes"),
        (4096 + ENTRY_BYTES - 1, 4096, "cache.capacity_bytes"),
    ] {
        let metrics = StorageMetrics::register(&Registry::new()).unwrap().cache("memory");
        let config = CacheConfig {
            capacity_bytes,
            block_bytes,
            ..CacheConfig::default()
        };
        let error = Cache::new(Arc::new(MemoryTier::default()), &config, metrics)
            .err()
            .unwrap();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, key));
    }
}

#[tokio::test]
async fn a_senseless_ttl_is_refused() {
    for ttl_ms in [0, u64::MAX] {
        let metrics = StorageMetrics::register(&Registry::new()).unwrap().cache("memory");
        let config = CacheConfig {
            ttl_ms: Some(ttl_ms),
            ..CacheConfig::default()
        };
        let error = Cache::new(Arc::new(MemoryTier::default()), &config, metrics)
            .err()
            .unwrap();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, "cache.ttl_ms"));
    }
}

#[test]
fn keys_left_out_are_as_they_always_were() {
    let config: CacheConfig = toml::from_str("capacity_bytes = 5000\nblock_bytes = 512").unwrap();
    assert_eq!((config.policy, config.ttl_ms, config.granularity), Default::default());
    let text = "policy = \"lru\"\nttl_ms = 9\ngranularity = \"range\"";
    let config: CacheConfig = toml::from_str(text).unwrap();
    assert_eq!(
        (config.policy, config.ttl_ms, config.granularity),
        (Policy::Lru, Some(9), Granularity::Range)
    );
    assert_eq!(
        toml::from_str::<CacheConfig>(&toml::to_string(&config).unwrap()).unwrap(),
        config
    );
    assert!(toml::from_str::<CacheConfig>("policy = \"fifo\"").is_err());
    assert!(toml::from_str::<CacheConfig>("ttl = 9").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_are_kept_as_they_were_asked_for() {
    let config = CacheConfig {
        granularity: Granularity::Range,
        ..CacheConfig::default()
    };
    let Bench {
        gated, cache, object, ..
    } = bench_of(100, &config).await;
    cache.read(&object, ROW).await.unwrap();
    // Overlapping, repeated and adjacent ranges, a cached range, and an empty range.
    let ranges = [
        ROW.end..ROW.end + 100,
        ROW,
        ROW.end + 100..ROW.end + 200,
        0..50,
        0..100,
        20..30,
        20..30,
        7..7,
    ];
    let many = cache.read_many(&object, &ranges).await.unwrap();
    for (part, range) in many.parts.iter().zip(&ranges) {
        assert_eq!(*part, content(1, range.clone()));
    }
    let want = vec![0..50, 0..100, 20..30, ROW.end..ROW.end + 200];
    assert_eq!(gated.reads(), [one(ROW), want]);
    assert_eq!((many.cost.cache_hits, many.cost.cache_misses), (1, 5));
    // A part of a cached range is another range.
    cache.read(&object, ROW.start..ROW.end - 1).await.unwrap();
    assert_eq!(gated.reads().len(), 3);
    let again = cache.read_many(&object, &ranges).await.unwrap();
    assert_eq!((again.cost.cache_hits, gated.reads().len()), (6, 3));
    assert_eq!(again.parts, many.parts);
    // Ranges that are too long bypass the cache.
    let limit = BYPASS_BLOCKS * config.block_bytes;
    for _ in 0..2 {
        assert!(cache.read(&object, 1..limit + 2).await.unwrap().bytes == content(1, 1..limit + 2));
    }
    assert_eq!(gated.reads().len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_old_is_read_again() {
    let config = CacheConfig {
        ttl_ms: Some(20),
        ..CacheConfig::default()
    };
    let Bench {
        gated,
        cache,
        metrics,
        object,
    } = bench_of(1000, &config).await;
    cache.read(&object, ROW).await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(21)).await;
        assert_eq!(cache.read(&object, ROW).await.unwrap().bytes, content(1, ROW));
    }
    assert_eq!(gated.reads().len(), 21);
    assert!(metrics.evictions.get() > 0, "age counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_decides_what_leaves() {
    // Room for 16 blocks. Ten are popular; then a scan of 100 others passes through. The library counts requests once its
    // cache is half full and knows of it, so the first ones are waited for.
    let mut read_again = Vec::new();
    for policy in [Policy::TinyLfu, Policy::Lru] {
        let config = CacheConfig {
            capacity_bytes: 16 * (4096 + ENTRY_BYTES),
            policy,
            ..CacheConfig::default()
        };
        let Bench {
            gated,
            cache,
            metrics,
            object,
        } = bench_of(10_000, &config).await;
        let block = |i: u64| i * 4096..i * 4096 + 10;
        for _ in 0..20 {
            for i in 0..10 {
                cache.read(&object, block(i)).await.unwrap();
            }
            until(|| metrics.bytes.get().cast_unsigned() == 10 * (4096 + ENTRY_BYTES)).await;
        }
        for i in 100..200 {
            cache.read(&object, block(i)).await.unwrap();
        }
        let before = gated.reads().len();
        for i in 0..10 {
            assert_eq!(cache.read(&object, block(i)).await.unwrap().bytes, content(1, block(i)));
        }
        read_again.push(gated.reads().len() - before);
    }
    assert_eq!(read_again, [0, 10]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_reads_each_block_once_under_each_policy() {
    for policy in [Policy::TinyLfu, Policy::Lru] {
        let config = CacheConfig {
            capacity_bytes: 16 * (4096 + ENTRY_BYTES),
            policy,
            ..CacheConfig::default()
        };
        let Bench {
            gated, cache, object, ..
        } = bench_of(10_000, &config).await;
        for _ in 0..2 {
            for row in 0..SIZE / 512 {
                let range = row * 512..row * 512 + 512;
                assert_eq!(
                    cache.read(&object, range.clone()).await.unwrap().bytes,
                    content(1, range)
                );
            }
        }
        // The second time some blocks are held still, and no policy holds more than 16.
        let (reads, blocks) = (gated.reads().len() as u64, SIZE.div_ceil(4096));
        assert!((2 * blocks - 16..=2 * blocks).contains(&reads), "{policy:?}: {reads}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_left_the_window_is_no_younger_for_it() {
    let config = CacheConfig {
        capacity_bytes: 16 * (4096 + ENTRY_BYTES),
        ttl_ms: Some(400),
        ..CacheConfig::default()
    };
    let Bench {
        gated, cache, object, ..
    } = bench_of(1000, &config).await;
    cache.read(&object, ROW).await.unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    // Other blocks take its place in the window.
    for block in 10..14 {
        cache.read(&object, block * 4096..block * 4096 + 9).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(cache.read(&object, ROW).await.unwrap().cost.cache_misses, 1);
    assert_eq!(gated.reads().len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_not_remembered() {
    let Bench { cache, object, .. } = bench(100, 1 << 20).await;
    let path = ObjectPath::new("later").unwrap();
    let absent = Object {
        path: path.clone(),
        ..object
    };
    for _ in 0..2 {
        assert_eq!(cache.stat(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(cache.read(&absent, 0..5).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
    let put = cache.put(&path, Bytes::from_static(b"12345").into()).await.unwrap();
    assert_eq!(cache.stat(&path).await.unwrap(), put);
    assert_eq!(cache.read(&put, 0..5).await.unwrap().bytes, "12345");
    // A read of the version that never existed fails, and does not get the bytes of the later version.
    let stale = cache.read(&absent, 0..5).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Changed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_of_keeping_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let metrics = StorageMetrics::register(&Registry::new()).unwrap();
    let keep = |granularity, policy, ttl_ms, capacity_bytes| CacheConfig {
        capacity_bytes,
        block_bytes: 512,
        policy,
        ttl_ms,
        granularity,
    };
    let ways = [
        keep(Granularity::Range, Policy::TinyLfu, None, 1 << 20),
        keep(Granularity::Range, Policy::Lru, Some(5), 50_000),
        keep(Granularity::Block, Policy::Lru, Some(1), 50_000),
    ];
    for (i, config) in ways.into_iter().enumerate() {
        let cache = Cache::new(Arc::new(MemoryTier::default()), &config, metrics.cache("memory"));
        let suite = crate::conformance::Suite {
            tier: Arc::new(cache.unwrap()),
            folder: ObjectPath::new(&format!("way{i}")).unwrap(),
            scratch: scratch.path().to_owned(),
            notices_changes: false,
        };
        suite.run().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forgotten_is_read_of_the_tier_again() {
    for granularity in [Granularity::Block, Granularity::Range] {
        let config = CacheConfig {
            capacity_bytes: 1 << 20,
            granularity,
            ..CacheConfig::default()
        };
        let Bench {
            gated, cache, object, ..
        } = bench_of(100, &config).await;
        let other = 20_000..20_100;
        for _ in 0..2 {
            cache.read(&object, ROW).await.unwrap();
            cache.read(&object, other.clone()).await.unwrap();
        }
        assert_eq!(gated.reads().len(), 2, "{granularity:?}");
        cache.forget(&object, &one(ROW)).await;
        let read = cache.read(&object, ROW).await.unwrap();
        assert_eq!((read.bytes, read.cost.cache_misses), (content(1, ROW).into(), 1));
        assert_eq!(cache.read(&object, other).await.unwrap().cost.cache_hits, 1);
        assert_eq!(gated.reads().len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_joins_a_fetch_that_was_forgotten() {
    let Bench {
        gated, cache, object, ..
    } = bench(0, 1 << 20).await;
    let read = || {
        let (cache, object) = (cache.clone(), object.clone());
        tokio::spawn(async move { cache.read(&object, ROW).await.unwrap().bytes })
    };
    let first = read();
    until(|| gated.reads().len() == 1).await;
    cache.forget(&object, &one(ROW)).await;
    let second = read();
    until(|| gated.reads().len() == 2).await;
    // The end of the first fetch leaves the second fetch joinable.
    gated.gate.add_permits(1);
    let third = read();
    gated.gate.add_permits(9);
    for read in [first, second, third] {
        assert_eq!(read.await.unwrap(), content(1, ROW));
    }
    assert!(gated.reads().len() <= 3);
}
