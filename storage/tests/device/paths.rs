//! Every way to device memory: the right bytes, the way named, everything given back; and the conformance suite.

use crate::conformance::Suite;
use crate::harness::{Harness, content, object, on_host, read};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::ops::Range;
use std::sync::Arc;
use tierlab_gds::routes::{FileRange, Landing, Reader, RouteOptions, SourceFile};
use tierlab_protocol::via::{Via, ViaSet};
use tierlab_storage::device::nvml::Nvml;
use tierlab_storage::device::{Column, DeviceErrorKind, DevicePath, DevicePool, Gpu, Search, Stream, gather};
use tierlab_storage::{ObjectPath, Tier};

const SIZE: usize = 1_000_003;

fn expected_parts(bytes: &[u8], ranges: &[Range<u64>]) -> Vec<Vec<u8>> {
    ranges
        .iter()
        .map(|range| bytes[range.start as usize..range.end as usize].to_vec())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_path_brings_the_bytes_and_names_itself() {
    for &path in DevicePath::ALL {
        let harness = Harness::new();
        let bytes = content(SIZE);
        let tier = harness.tier(path).await;
        let object = object(&tier, harness.root.path(), "x", &bytes).await;
        let size = SIZE as u64;
        let ranges = [
            0..size,
            5..6,
            4096..8192,
            70_000..70_000,
            size - 1..size,
            100_000..500_001,
        ];
        let landed = read(&tier, &object, &ranges).await.unwrap();
        assert!(on_host(&landed) == expected_parts(&bytes, &ranges), "{path:?}");
        let direct = if landed.cost.via == ViaSet::of(Via::Bounce) && path == DevicePath::BounceDirect {
            eprintln!("{}: this file system refuses O_DIRECT", harness.root.path().display());
            Via::Bounce
        } else {
            Via::BounceDirect
        };
        let via = match path {
            DevicePath::Gds => Via::Gds,
            DevicePath::Compat => Via::CufilePosix,
            DevicePath::Bounce => Via::Bounce,
            DevicePath::BounceDirect => direct,
            DevicePath::Pageable => Via::Pageable,
        };
        assert_eq!(landed.cost.via, ViaSet::of(via), "{path:?}");
        assert!(landed.cost.wire_bytes >= size && landed.cost.requests > 0);
        // The host gets the same.
        let host = tier.read_many(&object, &ranges).await.unwrap();
        assert!(
            host.parts
                .iter()
                .zip(expected_parts(&bytes, &ranges))
                .all(|(a, b)| a[..] == b[..])
        );
        let copied = harness.count("async_copies");
        match path {
            DevicePath::Bounce | DevicePath::BounceDirect => assert!(copied as usize > 2 * SIZE / (64 << 10)),
            _ => assert_eq!(copied, 0),
        }
        if matches!(path, DevicePath::Gds | DevicePath::Compat) {
            assert_eq!(
                harness.count("unaligned_reads"),
                0,
                "{path:?} reads and places what is aligned"
            );
            assert_eq!(harness.count("forced_compat"), i64::from(path == DevicePath::Compat));
        }
        drop((landed, tier));
        harness.assert_balanced();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_path_conforms() {
    for &path in DevicePath::ALL {
        let harness = Harness::new();
        let scratch = tempfile::tempdir().unwrap();
        let suite = Suite {
            tier: harness.tier(path).await,
            folder: ObjectPath::new("suite").unwrap(),
            scratch: scratch.path().to_owned(),
            notices_changes: true,
        };
        suite.run().await.unwrap();
        drop(suite);
        harness.assert_balanced();
    }
}

#[test]
fn any_ranges_of_any_path_come_right() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let harness = Harness::new();
    let bytes = content(300_000);
    // A process has cuFile in a single mode.
    let paths = DevicePath::ALL
        .iter()
        .copied()
        .filter(|&path| path != DevicePath::Compat);
    let tiers: Vec<_> = paths
        .map(|path| {
            runtime.block_on(async {
                let tier = harness.tier(path).await;
                let object = object(&tier, harness.root.path(), path.as_str(), &bytes).await;
                (path, tier, object)
            })
        })
        .collect();
    let strategy = prop::collection::vec((0u64..300_000, 0u64..100_000), 0..12);
    let mut runner = TestRunner::new(Config::with_cases(24));
    let outcome = runner.run(&(strategy, 0i64..9000), |(ranges, short)| {
        let ranges: Vec<_> = ranges
            .into_iter()
            .map(|(start, len)| start..(start + len).min(300_000))
            .collect();
        harness.set("short", short);
        for (path, tier, object) in &tiers {
            let landed = runtime.block_on(read(tier, object, &ranges)).unwrap();
            prop_assert!(on_host(&landed) == expected_parts(&bytes, &ranges), "{:?}", path);
        }
        Ok(())
    });
    outcome.unwrap();
    drop(tiers);
    harness.assert_balanced();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_share_the_device() {
    for path in [DevicePath::Gds, DevicePath::BounceDirect, DevicePath::Bounce] {
        let harness = Harness::new();
        let bytes = Arc::new(content(SIZE));
        let tier = harness.tier(path).await;
        let object = object(&tier, harness.root.path(), "x", &bytes).await;
        let reads: Vec<_> = (0..40u64)
            .map(|i| {
                let (tier, object, bytes) = (tier.clone(), object.clone(), bytes.clone());
                tokio::spawn(async move {
                    let range = i * 20_000..i * 20_000 + 30_000;
                    let landed = read(&tier, &object, std::slice::from_ref(&range)).await.unwrap();
                    assert!(on_host(&landed) == expected_parts(&bytes, &[range]));
                    landed.cost.via
                })
            })
            .collect();
        for read in reads {
            let via = read.await.unwrap();
            assert!(
                path != DevicePath::Gds || via == ViaSet::of(Via::Gds),
                "every byte is accounted for: {via}"
            );
        }
        drop(tier);
        harness.assert_balanced();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_gather_into_a_tensor_on_the_device() {
    let harness = Harness::new();
    let bytes = content(512 * 200);
    let tier = harness.tier(DevicePath::Gds).await;
    let object = object(&tier, harness.root.path(), "rows", &bytes).await;
    let ids = [3u64, 4, 5, 6, 150, 2, 2, 199];
    let ranges: Vec<_> = ids.iter().map(|id| id * 512..id * 512 + 512).collect();
    let landed = read(&tier, &object, &ranges).await.unwrap();
    let gpu = landed.bytes.gpu().clone();
    let stream = Stream::new(&gpu).unwrap();
    let pool = DevicePool::new(&gpu, 1 << 20, true);
    let mut tensor = pool.take(ids.len() * 100).unwrap();
    let column = Column { offset: 64, len: 100 };
    gather(&landed.bytes, &landed.parts, column, &mut tensor, 0, &stream).unwrap();
    stream.wait().unwrap();
    let mut host = vec![0; ids.len() * 100];
    tensor.to_host(0, &mut host).unwrap();
    let want: Vec<u8> = ids
        .iter()
        .flat_map(|id| bytes[*id as usize * 512 + 64..][..100].to_vec())
        .collect();
    assert!(host == want);
    let too_wide = Column {
        offset: 500,
        len: 1 << 20,
    };
    let refused = gather(&landed.bytes, &landed.parts, too_wide, &mut tensor, 0, &stream).unwrap_err();
    assert_eq!(refused.kind, DeviceErrorKind::OutOfRange);
    let refused = gather(&landed.bytes, &landed.parts, column, &mut tensor, 1, &stream).unwrap_err();
    assert_eq!(refused.kind, DeviceErrorKind::OutOfRange, "one byte too far");
    drop((stream, tensor, pool, landed, tier, gpu));
    harness.assert_balanced();
}

#[tokio::test]
async fn device_memory_is_bounded_and_comes_back() {
    let harness = Harness::new();
    let gpu = Gpu::open(Search::in_folders(&[harness.standin().folder()]), 0, DevicePath::Bounce).unwrap();
    let pool = DevicePool::new(&gpu, 256 << 10, true);
    let first = pool.take(100_000).unwrap();
    let at = first.address();
    let second = pool.take(1).unwrap();
    assert_eq!(
        pool.take(65_537).unwrap_err().kind,
        DeviceErrorKind::Unavailable,
        "no room beside the two"
    );
    drop(first);
    assert_eq!(pool.take(70_000).unwrap().address(), at, "the freed block of that size");
    drop(second);
    let whole = pool.take(256 << 10).unwrap();
    assert_eq!(
        harness.count("allocations"),
        1,
        "free blocks make room for a larger one"
    );
    let mut whole = whole;
    whole.fill(0, &[7; 10]).unwrap();
    assert!(whole.fill(256 << 10, &[1]).is_err());
    drop((pool, gpu));
    assert_eq!(harness.count("contexts"), 1, "memory in use keeps the device");
    drop(whole);
    harness.assert_balanced();
}

#[test]
fn the_gpu_is_seen_from_outside() {
    let harness = Harness::new();
    let search = || Search::in_folders(&[harness.standin().folder()]);
    let nvml = Nvml::open(search()).unwrap();
    let identities = nvml.identities();
    assert_eq!(identities.len(), 1);
    assert!(identities[0].name.contains("stand-in") && identities[0].uuid.starts_with("GPU-"));
    let gpu = nvml.sample()[0];
    assert_eq!((gpu.busy_share, gpu.power_watts), (Some(0.4), Some(250.0)));
    assert_eq!(gpu.memory_bytes, Some((3 << 30, 80 << 30)));
    assert_eq!((gpu.sm_clock_hz, gpu.memory_clock_hz), (Some(1980e6), Some(2619e6)));
    assert_eq!((gpu.pcie_received, gpu.pcie_sent), (Some(7e6), Some(3e6)));
    assert!(gpu.energy_joules.is_some());
    harness.set("no_energy", 1);
    assert_eq!(nvml.sample()[0].energy_joules, None, "what a GPU has not is left out");
    drop(nvml);
    assert_eq!(harness.count("nvml"), 0);
    harness.set("devices", 0);
    let refused = Nvml::open(search()).unwrap_err().to_string();
    assert!(refused.contains("Driver Not Loaded"));
}

/// A file of the folder, open for plain reads.
#[derive(Debug)]
struct Plain(std::fs::File);

impl SourceFile for Plain {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    fn direct_align(&self) -> Option<u32> {
        None
    }
}

#[test]
fn a_stretch_without_room_is_refused_before_anything_is_read() {
    let harness = Harness::new();
    let name = harness.root.path().join("x");
    std::fs::write(&name, content(256 << 10)).unwrap();
    let file: Arc<dyn SourceFile> = Arc::new(Plain(std::fs::File::open(&name).unwrap()));
    for &path in DevicePath::ALL {
        let search = Search::in_folders(&[harness.standin().folder()]);
        let gpu = Gpu::open(search, 0, path).unwrap();
        let options = RouteOptions {
            path,
            chunk_bytes: 64 << 10,
            pinned_buffers: 2,
            threads: 1,
        };
        let mut reader = Reader::open(&gpu, &options).unwrap();
        let pool = DevicePool::new(&gpu, 1 << 20, true);
        let range = |len| FileRange {
            offset: 0,
            len,
            wanted: len,
            into: 0,
        };
        let mut long = Landing::new(pool.take(128 << 10).unwrap());
        let beyond = long.add(file.clone(), range((128 << 10) + 1)).unwrap_err();
        assert_eq!(
            beyond.kind,
            DeviceErrorKind::OutOfRange,
            "{path:?}: the memory ends before"
        );
        long.add(file.clone(), range(128 << 10)).unwrap();
        let mut short = Landing::new(pool.take(64 << 10).unwrap());
        short.add(file.clone(), range(64 << 10)).unwrap();
        reader.run([&mut long, &mut short].into_iter());
        let refused = long.totals().unwrap_err();
        assert_eq!(refused.kind, DeviceErrorKind::OutOfRange, "{path:?}: {refused}");
        assert_eq!(
            (long.bytes_read(), short.totals().unwrap().bytes),
            (0, 64 << 10),
            "{path:?}"
        );
        let mut host = vec![0; 64 << 10];
        short.into_bytes().to_host(0, &mut host).unwrap();
        assert!(host == content(64 << 10), "{path:?}");
    }
    harness.assert_balanced();
}
