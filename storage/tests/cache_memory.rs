//! Memory that a cache takes of a process, measured as resident bytes while a table 20 times the cache's size is read
//! by Zipf's law. Each cache configuration is measured in its own process, because freed memory stays resident.

use async_trait::async_trait;
use prometheus::Registry;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use std::sync::Arc;
use tierlab_protocol::via::{Via, ViaSet};
use tierlab_storage::wrappers::{Cache, CacheConfig, StorageMetrics};
use tierlab_storage::{Body, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};

const CAPACITY: u64 = 16 << 20;
const TABLE: u64 = 20 * CAPACITY;
/// Names the way of keeping to the child: unit of a read in bytes, and the TOML.
const WAY: &str = "TIERLAB_TEST_CACHE";

/// A table that takes no memory: each read makes its bytes.
struct Made;

#[async_trait]
impl Tier for Made {
    fn info(&self) -> TierInfo {
        TierInfo {
            kind: "memory",
            location: "made".to_owned(),
            wrappers: Vec::new(),
            notes: Vec::new(),
        }
    }
    async fn stat(&self, _: &ObjectPath) -> Result<Object, StorageError> {
        Ok(table())
    }
    async fn read_many(&self, _: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let made = |range: &Range<u64>| vec![range.start as u8; (range.end - range.start) as usize].into();
        Ok(ReadMany {
            parts: ranges.iter().map(made).collect(),
            cost: ReadCost {
                via: ViaSet::of(Via::Memory),
                requests: 1,
                ..ReadCost::default()
            },
        })
    }
    async fn list(&self, _: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        Ok(vec![table()])
    }
    async fn put(&self, _: &ObjectPath, _: Body) -> Result<Object, StorageError> {
        Ok(table())
    }
    async fn delete(&self, _: &ObjectPath) -> Result<(), StorageError> {
        Ok(())
    }
}

fn table() -> Object {
    Object {
        path: ObjectPath::new("table").unwrap(),
        size: TABLE,
        version: "1".to_owned(),
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Reads by Zipf's law with exponent 1, until the cache has been replaced several times over. The most bytes resident.
async fn scan(unit: u64, config: &CacheConfig) -> u64 {
    let metrics = StorageMetrics::register(&Registry::new()).unwrap().cache("made");
    let cache = Cache::new(Arc::new(Made), config, metrics).unwrap();
    let (table, units) = (table(), TABLE / unit);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut missed, mut peak) = (0, 0);
    let enough = 2 * config.capacity_bytes / unit;
    while missed < enough {
        let share: f64 = rng.random();
        let rank = (share * ((units + 1) as f64).ln()).exp() as u64 - 1;
        // Popular rows are scattered over the table.
        let at = rank.min(units - 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) % units * unit;
        let read = cache.read(&table, at..at + unit).await.unwrap();
        assert_eq!((read.bytes.len() as u64, read.bytes[0]), (unit, at as u8));
        missed += u64::from(read.cost.cache_misses);
        if missed % 1024 == 0 {
            peak = peak.max(resident_bytes());
        }
    }
    peak
}

#[test]
#[ignore = "a process of its own, started by the test below"]
fn child() {
    let way = std::env::var(WAY).unwrap();
    let (unit, toml) = way.split_once(';').unwrap();
    let config: CacheConfig = toml::from_str(toml).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let unit = unit.parse().unwrap();
    let used = runtime.block_on(async {
        // Everything that is allocated once is there before.
        let small = CacheConfig {
            capacity_bytes: 256 << 10,
            ..config
        };
        scan(unit, &small).await;
        let before = resident_bytes();
        scan(unit, &config).await - before
    });
    println!("USED {used}");
}

#[test]
fn memory_stays_within_a_tenth_of_the_bound() {
    let mut report = String::new();
    let mut within = true;
    for (unit, keys) in [
        (4096, ""),
        (4096, "policy = \"lru\"\nttl_ms = 3600000"),
        (512, "granularity = \"range\""),
    ] {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child", "--nocapture"])
            .env(WAY, format!("{unit};capacity_bytes = {CAPACITY}\n{keys}"))
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&child.stdout);
        let used = stdout
            .lines()
            .find_map(|line| line.split_once("USED ")?.1.parse::<u64>().ok());
        let used = used.unwrap_or_else(|| panic!("{stdout}\n{}", String::from_utf8_lossy(&child.stderr)));
        let share = used as f64 / CAPACITY as f64;
        report += &format!("units of {unit} {keys:?}: {used} bytes resident, {share:.3} of the bound\n");
        within &= (0.5..1.1).contains(&share);
    }
    println!("{report}");
    assert!(within, "{report}");
}
