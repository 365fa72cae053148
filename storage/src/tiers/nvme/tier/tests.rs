use super::super::{Driver, lease};
use super::*;
use crate::conformance::Suite;
use crate::content::content;
use std::future::Future;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::pin::pin;
use std::task::{Context, Waker};
use tempfile::TempDir;

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text).unwrap()
}

/// Folder beside the test's binary: on a disk, while a temporary folder may be in memory.
fn on_disk() -> TempDir {
    let exe = std::env::current_exe().unwrap();
    tempfile::tempdir_in(exe.parent().unwrap()).unwrap()
}

/// A tier whose engine is driven so.
async fn open_driven(root: &Path, queue_depth: u32, driver: Driver) -> NvmeTier {
    let options = LocalOptions {
        driver,
        ..LocalOptions::new(root, queue_depth, true)
    };
    NvmeTier::open_with(options).await.unwrap()
}

async fn conforms(root: &Path, direct: bool, depth: u32) {
    let tier = NvmeTier::open(root, depth, direct).await.unwrap();
    suite_passes(tier).await;
}

async fn suite_passes(tier: NvmeTier) {
    let scratch = tempfile::tempdir().unwrap();
    let suite = Suite {
        tier: Arc::new(tier),
        folder: path("suite/deep"),
        scratch: scratch.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_conforms() {
    conforms(on_disk().path(), true, 32).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_thread_of_its_own_conforms() {
    let root = on_disk();
    suite_passes(open_driven(root.path(), 32, Driver::Thread).await).await;
}

/// A single thread does everything: the thread that waits must itself notice completions.
#[tokio::test]
async fn on_one_thread_conforms() {
    conforms(on_disk().path(), true, 32).await;
}

/// Small chunks and no registered memory: every path that the defaults do not take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_tunings_conform_and_senseless_ones_are_refused() {
    let root = on_disk();
    let usual = LocalOptions::new(root.path(), 3, true);
    let bare = LocalOptions {
        chunk_bytes: 64 << 10,
        registered_buffers_bytes: 0,
        ..usual.clone()
    };
    suite_passes(NvmeTier::open_with(bare).await.unwrap()).await;
    for chunk_bytes in [0, 4096, (64 << 10) + 1, u32::MAX] {
        let options = LocalOptions {
            chunk_bytes,
            ..usual.clone()
        };
        let error = NvmeTier::open_with(options).await.unwrap_err();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, "chunk_bytes"));
    }
    let options = LocalOptions {
        registered_buffers_bytes: u64::MAX,
        ..usual
    };
    let error = NvmeTier::open_with(options).await.unwrap_err();
    assert_eq!(error.object(), "registered_buffers_bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_read_in_flight_conforms() {
    conforms(on_disk().path(), true, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buffered_conforms() {
    conforms(on_disk().path(), false, 32).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_taken_is_told() {
    let root = on_disk();
    for direct in [true, false] {
        let tier = NvmeTier::open(root.path(), 8, direct).await.unwrap();
        let object = tier
            .put(&path("x"), Bytes::from(content(1, 0..10_000)).into())
            .await
            .unwrap();
        let read = tier.read(&object, 4000..4200).await.unwrap();
        let said = tier.info().notes.iter().any(|note| note.starts_with("buffered"));
        assert_eq!(
            read.cost.via,
            ViaSet::of(if said { Via::PageCache } else { Via::Direct })
        );
        assert!(direct || said);
        // Over-read to whole blocks, whatever their size, when direct; exactly the range when buffered.
        assert!(if said {
            read.cost.wire_bytes == 200
        } else {
            read.cost.wire_bytes > 200
        });
        assert_eq!(read.cost.requests, 1);
    }
}

/// A ring that fails every read goes unnoticed, as long as the page cache has the bytes and they are few.
#[tokio::test]
async fn what_the_page_cache_holds_is_read_without_the_ring() {
    let root = on_disk();
    let tier = NvmeTier::open(root.path(), 8, false).await.unwrap();
    let body = content(9, 0..600_000);
    let object = tier.put(&path("x"), Bytes::from(body.clone()).into()).await.unwrap();
    let file = std::fs::File::open(root.path().join("x")).unwrap();
    if !tier.pool.take(4096).unwrap().fill_cached(file.as_fd(), 0) {
        println!("this file system has no reads that do not wait");
        return;
    }
    tier.engine.inject(vec![-libc::EIO; 3]);
    let read = tier.read(&object, 5000..9000).await.unwrap();
    assert!(read.bytes == body[5000..9000]);
    assert_eq!((read.cost.requests, read.cost.wire_bytes), (1, 4000));
    let error = tier.read(&object, 0..600_000).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    tier.engine.inject(Vec::new());
    // A file that was replaced is noticed as by the ring.
    tier.put(&path("x"), Bytes::from(body).into()).await.unwrap();
    assert_eq!(tier.read(&object, 0..10).await.unwrap_err().kind(), ErrorKind::Changed);
}

/// Small reads from the page cache look at the path only now and then: a swapped link is noticed a little later, every
/// other change at once.
#[tokio::test]
async fn changes_of_cached_files_are_noticed() {
    let root = on_disk();
    let at = |name: &str| root.path().join(name);
    let tier = NvmeTier::open(root.path(), 8, false).await.unwrap();
    for (name, seed) in [("old", 1), ("new", 2)] {
        std::fs::write(at(name), content(seed, 0..20_000)).unwrap();
    }
    std::os::unix::fs::symlink("old", at("link")).unwrap();
    let linked = tier.stat(&path("link")).await.unwrap();
    let read = async |object: &Object| tier.read(object, 100..200).await.map(|read| read.bytes);
    assert_eq!(read(&linked).await.unwrap(), content(1, 100..200));
    std::os::unix::fs::symlink("new", at("next")).unwrap();
    std::fs::rename(at("next"), at("link")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(read(&linked).await.unwrap_err().kind(), ErrorKind::Changed);

    let old = tier.stat(&path("old")).await.unwrap();
    assert_eq!(read(&old).await.unwrap(), content(1, 100..200));
    std::fs::rename(at("new"), at("old")).unwrap();
    assert_eq!(read(&old).await.unwrap_err().kind(), ErrorKind::Changed);
    let replaced = tier.stat(&path("old")).await.unwrap();
    assert_eq!(read(&replaced).await.unwrap(), content(2, 100..200));
    std::fs::remove_file(at("old")).unwrap();
    assert_eq!(read(&replaced).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Reads often enough for a lease of the file, and waits until it is held, or not in file systems without leases.
async fn read_often(tier: &NvmeTier, object: &Object) -> bool {
    let file = tier.open_file(object).await.unwrap();
    let gives_up = Instant::now() + std::time::Duration::from_secs(60);
    while lease::is_local(file.fd.as_fd()) && !lease::is_held(file.fd.as_fd()) {
        assert!(Instant::now() < gives_up, "no lease");
        for _ in 0..100 {
            tier.read(object, 0..100).await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(6)).await;
    }
    lease::is_local(file.fd.as_fd())
}

/// Readers see bytes of the looked-up version until they see that it changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_to_a_file_that_is_read_all_the_time_is_noticed_at_once() {
    let root = on_disk();
    let tier = Arc::new(NvmeTier::open(root.path(), 8, false).await.unwrap());
    let at = root.path().join("x");
    let overwrite = |file: &std::fs::File| file.write_all_at(&[2; 8192], 0).unwrap();
    let truncate = |file: &std::fs::File| file.set_len(6000).unwrap();
    for round in 0..20 {
        std::fs::write(&at, [1; 8192]).unwrap();
        let object = tier.stat(&path("x")).await.unwrap();
        read_often(&tier, &object).await;
        let reader = || {
            let (tier, object) = (tier.clone(), object.clone());
            tokio::spawn(async move {
                loop {
                    match tier.read(&object, 5000..8000).await {
                        Ok(read) => assert_eq!(*read.bytes, [1; 3000]),
                        Err(error) => return error.kind(),
                    }
                }
            })
        };
        let readers = [reader(), reader()];
        tokio::time::sleep(std::time::Duration::from_millis(round)).await;
        let writer = tokio::task::block_in_place(|| std::fs::OpenOptions::new().write(true).open(&at).unwrap());
        if round % 2 == 0 {
            overwrite(&writer);
        } else {
            truncate(&writer);
        }
        for reader in readers {
            assert_eq!(reader.await.unwrap(), ErrorKind::Changed);
        }
    }
}

/// A writer that never waits would fail each time if leases were taken again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_does_not_wait_opens_a_file_that_is_read_all_the_time() {
    let root = on_disk();
    let tier = NvmeTier::open(root.path(), 8, false).await.unwrap();
    let at = root.path().join("x");
    std::fs::write(&at, [1; 8192]).unwrap();
    let object = tier.stat(&path("x")).await.unwrap();
    let mut writer = std::fs::OpenOptions::new();
    writer.write(true).custom_flags(libc::O_NONBLOCK);
    let may_fail = read_often(&tier, &object).await;
    assert_eq!(writer.open(&at).is_err(), may_fail);
    let opened = async {
        while writer.open(&at).is_err() {
            for _ in 0..100 {
                tier.read(&object, 0..100).await.unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_millis(6)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), opened)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_leased_file_that_is_replaced_or_removed_is_noticed() {
    let root = on_disk();
    let at = |name: &str| root.path().join(name);
    let tier = NvmeTier::open(root.path(), 8, false).await.unwrap();
    std::fs::write(at("x"), [1; 8192]).unwrap();
    let object = tier.stat(&path("x")).await.unwrap();
    read_often(&tier, &object).await;
    std::fs::write(at("next"), [2; 8192]).unwrap();
    std::fs::rename(at("next"), at("x")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let error = tier.read(&object, 0..100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);

    let object = tier.stat(&path("x")).await.unwrap();
    read_often(&tier, &object).await;
    std::fs::remove_file(at("x")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let error = tier.read(&object, 0..100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_file_that_is_no_longer_read_has_no_lease() {
    let root = on_disk();
    let tier = NvmeTier::open(root.path(), 8, false).await.unwrap();
    std::fs::write(root.path().join("x"), [1; 8192]).unwrap();
    let object = tier.stat(&path("x")).await.unwrap();
    if !read_often(&tier, &object).await {
        println!("this file system has no leases that hold off every writer");
        return;
    }
    let file = tier.open_file(&object).await.unwrap();
    let gives_up = Instant::now() + std::time::Duration::from_secs(60);
    while lease::is_held(file.fd.as_fd()) {
        assert!(Instant::now() < gives_up, "the lease is kept");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(*tier.read(&object, 0..10).await.unwrap().bytes, [1; 10]);
    std::fs::write(root.path().join("x"), [2; 8192]).unwrap();
    assert_eq!(tier.read(&object, 0..10).await.unwrap_err().kind(), ErrorKind::Changed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_file_systems_are_read_buffered() {
    // Without tmpfs there is no fallback to test.
    let Ok(root) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let tier = NvmeTier::open(root.path(), 8, true).await.unwrap();
    assert!(
        tier.info().notes.iter().any(|note| note.contains("tmpfs")),
        "{:?}",
        tier.info()
    );
    let object = tier
        .put(&path("x"), Bytes::from(content(1, 0..10_000)).into())
        .await
        .unwrap();
    let read = tier.read(&object, 0..10_000).await.unwrap();
    assert_eq!(
        (read.cost.via, read.bytes),
        (ViaSet::of(Via::PageCache), content(1, 0..10_000).into())
    );
}

/// Buffers are poisoned when they return to the pool and checked when they leave it. So a read that still wrote to a
/// buffer after its future was dropped is caught there, or by the contents of the reads in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_dropped_reads_harm_nothing() {
    for driver in [Driver::Runtime, Driver::Thread] {
        let root = on_disk();
        drop_thousands(open_driven(root.path(), 16, driver).await).await;
    }
}

async fn drop_thousands(tier: NvmeTier) {
    let size = 3_000_000;
    let object = tier
        .put(&path("x"), Bytes::from(content(5, 0..size)).into())
        .await
        .unwrap();
    let mut nobody = Context::from_waker(Waker::noop());
    tier.read(&object, 0..1).await.unwrap();
    let mut dropped = 0;
    let mut round = 0u64;
    while dropped < 4000 {
        round += 1;
        assert!(
            round < 100_000,
            "only {dropped} reads of {round} were still under way after one poll"
        );
        let start = (round * 7919) % (size - 300_000);
        let ranges = [
            start..start + 100,
            start + 50_000..start + 50_000 + (round % 3) * 100_000,
        ];
        let mut read = pin!(tier.read_many(&object, &ranges));
        // The first poll submits it: the file is open and the backlog has room. Rarely it is answered at once.
        let answered = read.as_mut().poll(&mut nobody);
        dropped += u64::from(answered.is_pending());
        if round.is_multiple_of(16) && answered.is_pending() {
            let many = read.await.unwrap();
            for (part, range) in many.parts.iter().zip(&ranges) {
                assert!(*part == content(5, range.clone()), "round {round}");
            }
        }
    }
    assert!(tier.read(&object, 0..size).await.unwrap().bytes == content(5, 0..size));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_changed_by_others_are_noticed() {
    let root = on_disk();
    let tier = NvmeTier::open(root.path(), 8, true).await.unwrap();
    let file = root.path().join("x");
    let old = tier
        .put(&path("x"), Bytes::from(content(1, 0..50_000)).into())
        .await
        .unwrap();
    assert!(tier.read(&old, 0..50_000).await.unwrap().bytes == content(1, 0..50_000));

    // Truncated in place: the open file stays the same.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(20_000)
        .unwrap();
    for range in [0..10, 0..50_000, 30_000..40_000] {
        let error = tier.read(&old, range).await.unwrap_err();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Changed, "x"), "{error}");
    }
    // Replaced by renaming.
    let short = tier.stat(&path("x")).await.unwrap();
    assert_eq!(tier.read(&short, 0..20_000).await.unwrap().bytes, content(1, 0..20_000));
    std::fs::write(root.path().join("y"), content(2, 0..20_000)).unwrap();
    std::fs::rename(root.path().join("y"), &file).unwrap();
    assert_eq!(tier.read(&short, 0..10).await.unwrap_err().kind(), ErrorKind::Changed);
    let new = tier.stat(&path("x")).await.unwrap();
    assert_eq!(tier.read(&new, 5..15).await.unwrap().bytes, content(2, 5..15));
    // Removed.
    std::fs::remove_file(&file).unwrap();
    assert_eq!(tier.read(&new, 0..10).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outside_the_root_is_read_written_or_listed() {
    let outside = on_disk();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let root = on_disk();
    std::os::unix::fs::symlink(outside.path(), root.path().join("out")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), root.path().join("file")).unwrap();
    let tier = NvmeTier::open(root.path(), 8, true).await.unwrap();
    for name in ["out/secret", "file"] {
        let made_up = Object {
            path: path(name),
            size: 6,
            version: String::new(),
        };
        assert_eq!(
            tier.stat(&path(name)).await.unwrap_err().kind(),
            ErrorKind::Denied,
            "{name}"
        );
        assert_eq!(
            tier.read(&made_up, 0..6).await.unwrap_err().kind(),
            ErrorKind::Denied,
            "{name}"
        );
        assert_eq!(
            tier.delete(&path(name)).await.unwrap_err().kind(),
            ErrorKind::Denied,
            "{name}"
        );
    }
    let put = tier.put(&path("out/new"), Bytes::from_static(b"x").into()).await;
    assert_eq!(put.unwrap_err().kind(), ErrorKind::Denied);
    assert!(!outside.path().join("new").exists());
    assert_eq!(tier.list(None).await.unwrap(), []);
    assert!(tier.list(Some(&path("out"))).await.is_err());
    // A put replaces the link itself, never its target.
    tier.put(&path("file"), Bytes::from_static(b"mine").into())
        .await
        .unwrap();
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"secret");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_tier_ends_its_thread() {
    let root = on_disk();
    let options = LocalOptions {
        kind: "ended",
        notes: vec!["a note".to_owned()],
        ..LocalOptions::on_thread(root.path(), 4, true)
    };
    let threads = || {
        let names = std::fs::read_dir("/proc/self/task").unwrap();
        let names = names.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name.trim() == "tierlab-ended").count()
    };
    let tier = NvmeTier::open_with(options).await.unwrap();
    assert_eq!(
        (tier.info().kind, tier.info().notes[0].as_str(), threads()),
        ("ended", "a note", 1)
    );
    let object = tier
        .put(&path("x"), Bytes::from(content(1, 0..1_000_000)).into())
        .await
        .unwrap();
    tier.read(&object, 0..1).await.unwrap();
    {
        let mut nobody = Context::from_waker(Waker::noop());
        let _ = pin!(tier.read(&object, 0..1_000_000)).poll(&mut nobody);
    }
    drop(tier);
    assert_eq!(threads(), 0);
}

/// Once nothing is in flight, the reading thread uses no time at all: it sleeps in the kernel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_tier_uses_no_cpu() {
    let root = on_disk();
    let tier = open_driven(root.path(), 8, Driver::Thread).await;
    let object = tier
        .put(&path("x"), Bytes::from(content(1, 0..100_000)).into())
        .await
        .unwrap();
    tier.read(&object, 0..100_000).await.unwrap();
    let tasks = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path());
    let mut of_tier = tasks.filter(|task| std::fs::read_to_string(task.join("comm")).unwrap().trim() == "tierlab-nvme");
    let schedstat = of_tier.next().unwrap().join("schedstat");
    let cpu_ns = || {
        std::fs::read_to_string(&schedstat)
            .unwrap()
            .split_once(' ')
            .unwrap()
            .0
            .to_owned()
    };
    // Given time to settle after the read; a thread that spins or wakes by itself never does.
    for _ in 0..30 {
        let before = cpu_ns();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        if cpu_ns() == before {
            return;
        }
    }
    panic!("it goes on using time");
}

#[tokio::test]
async fn a_senseless_depth_is_refused() {
    let root = on_disk();
    for depth in [0, 4097, u32::MAX] {
        let error = NvmeTier::open(root.path(), depth, true).await.unwrap_err();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, "queue_depth"));
    }
}

/// A failing disk is reported with the object's name. Reads that the kernel asks to repeat are repeated. The engine
/// goes on, without a restart, once the disk works again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_disk_is_told_and_got_over() {
    for driver in [Driver::Runtime, Driver::Thread] {
        let root = on_disk();
        let tier = open_driven(root.path(), 8, driver).await;
        let body = content(9, 0..600_000);
        let object = tier.put(&path("a/x"), Bytes::from(body.clone()).into()).await.unwrap();
        for results in [
            vec![-libc::EIO],
            vec![-libc::EIO, -libc::EINTR, -libc::EAGAIN],
            vec![-libc::EIO; 3],
        ] {
            tier.engine.inject(results);
            let error = tier.read(&object, 0..600_000).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.object()),
                (ErrorKind::Unavailable, "a/x"),
                "{error}"
            );
            assert!(error.detail().contains("os error 5"), "{error}");
            tier.engine.inject(Vec::new());
            assert!(tier.read(&object, 0..600_000).await.unwrap().bytes == body);
        }
        // Interrupted, told to try again, cancelled, and cut short in the middle of a block: resumed each time.
        tier.engine
            .inject(vec![5000, -libc::ECANCELED, -libc::EAGAIN, -libc::EINTR]);
        let read = tier.read(&object, 0..8192).await.unwrap();
        assert!(read.bytes == body[..8192]);
        assert_eq!((read.cost.requests, read.cost.retries), (5, 4));
    }
}

/// More files at once than the set of open files, or the ring's table, holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_files_are_read_at_once() {
    for driver in [Driver::Runtime, Driver::Thread] {
        let root = on_disk();
        let tier = open_driven(root.path(), 32, driver).await;
        for i in 0..400 {
            std::fs::write(root.path().join(format!("f{i}")), content(i, 0..5000)).unwrap();
        }
        for _ in 0..2 {
            let reads = (0..400u64).map(|i| {
                let tier = &tier;
                async move {
                    let object = tier.stat(&path(&format!("f{i}"))).await.unwrap();
                    let read = tier.read(&object, 1000..5000).await.unwrap();
                    assert!(read.bytes == content(i, 1000..5000), "file {i}");
                }
            });
            futures::future::join_all(reads).await;
        }
        // The kernel closes files that leave the set too: its table holds no file open.
        let open = || {
            let files = std::fs::read_dir("/proc/self/fd").unwrap();
            let links = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
            links.filter(|link| link.starts_with(root.path())).count()
        };
        assert!(open() <= 130, "{} files are open", open());
    }
}
