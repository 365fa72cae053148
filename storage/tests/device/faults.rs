//! Faults: missing libraries, failing calls, abandoned reads, and reads that did not take the direct path.

use crate::harness::{Harness, content, object, on_host, read_one};
use std::time::Duration;
use tierlab_protocol::via::{Via, ViaSet};
use tierlab_storage::device::{DevicePath, shortfall};
use tierlab_storage::tiers::gds::{GdsConfig, GdsTier};
use tierlab_storage::{ErrorKind, Tier};

/// Codes of cuFile and their error kinds.
const READ_CODES: [(i64, ErrorKind); 8] = [
    (5001, ErrorKind::Unavailable),
    (5008, ErrorKind::Unsupported),
    (5011, ErrorKind::Unavailable),
    (5018, ErrorKind::Unsupported),
    (5022, ErrorKind::Invalid),
    (5025, ErrorKind::Denied),
    (5036, ErrorKind::Unavailable),
    (5044, ErrorKind::Unavailable),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_code_is_an_error_of_ours_and_the_next_read_works() {
    let harness = Harness::new();
    let bytes = content(200_000);
    let tier = harness.tier(DevicePath::Gds).await;
    let object = object(&tier, harness.root.path(), "x", &bytes).await;
    for (code, kind) in READ_CODES {
        harness.set("read_code", code);
        let error = read_one(&tier, &object, 0..200_000).await.unwrap_err();
        assert_eq!((error.kind(), error.object()), (kind, "x"), "{error}");
        assert!(
            error.detail().contains("cuFileRead") && error.detail().contains(&code.to_string()),
            "{error}"
        );
        harness.set("read_code", 0);
        assert_eq!(on_host(&read_one(&tier, &object, 0..9).await.unwrap())[0], bytes[..9]);
    }
    for (errno, kind) in [(libc::EIO, ErrorKind::Unavailable), (libc::EACCES, ErrorKind::Denied)] {
        harness.set("read_errno", i64::from(errno));
        assert_eq!(read_one(&tier, &object, 0..9).await.unwrap_err().kind(), kind);
        harness.set("read_errno", 0);
    }
    harness.set("register_code", 5018);
    let error = read_one(&tier, &other(&harness, &tier).await, 0..1).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unsupported && error.detail().contains("cuFileHandleRegister"),
        "{error}"
    );
    harness.set("register_code", 0);
    drop(tier);
    harness.assert_balanced();
}

async fn other(harness: &Harness, tier: &GdsTier) -> tierlab_storage::Object {
    object(tier, harness.root.path(), "y", &[1; 10]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_memory_and_copies_are_errors_that_leave_nothing_behind() {
    for (path, setting, code, named) in [
        (DevicePath::Gds, "alloc_code", 2, "cuMemAlloc"),
        (DevicePath::Bounce, "copy_code", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (DevicePath::BounceDirect, "copy_code", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (DevicePath::Pageable, "copy_code", 700, "cuMemcpyHtoD"),
    ] {
        let harness = Harness::new();
        let tier = harness.tier(path).await;
        let object = object(&tier, harness.root.path(), "x", &content(300_000)).await;
        harness.set(setting, code);
        let error = read_one(&tier, &object, 0..300_000).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.detail().contains(named), "{error}");
        harness.set(setting, 0);
        assert_eq!(
            on_host(&read_one(&tier, &object, 7..9).await.unwrap())[0],
            content(9)[7..]
        );
        drop(tier);
        harness.assert_balanced();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buffer_that_cannot_be_registered_is_read_into_all_the_same() {
    let harness = Harness::new();
    harness.set("buffer_code", 5036);
    let tier = harness.tier(DevicePath::Gds).await;
    let object = object(&tier, harness.root.path(), "x", &content(5000)).await;
    assert_eq!(
        on_host(&read_one(&tier, &object, 0..5000).await.unwrap())[0],
        content(5000)
    );
    drop(tier);
    harness.assert_balanced();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_read_keeps_its_memory_until_it_has_ended() {
    for path in [DevicePath::Gds, DevicePath::BounceDirect] {
        let harness = Harness::new();
        let bytes = content(400_000);
        let tier = harness.tier(path).await;
        let object = object(&tier, harness.root.path(), "x", &bytes).await;
        harness.set("delay_us", 3000);
        for _ in 0..5 {
            // Dropped while it is queued or in flight.
            let _ = tokio::time::timeout(Duration::from_millis(2), read_one(&tier, &object, 0..400_000)).await;
        }
        let landed = read_one(&tier, &object, 0..400_000).await.unwrap();
        assert!(on_host(&landed)[0] == bytes, "nobody else wrote to it");
        // Given up and closed at once.
        let _ = tokio::time::timeout(Duration::from_millis(1), read_one(&tier, &object, 0..400_000)).await;
        drop(tier);
        assert!(on_host(&landed)[0] == bytes, "what was read outlives the tier");
        drop(landed);
        harness.assert_balanced();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_the_drivers_counters_prove_is_called_gds() {
    let harness = Harness::new();
    let tier = harness.tier(DevicePath::Gds).await;
    let object = object(&tier, harness.root.path(), "x", &content(100_000)).await;
    let posix = ViaSet::of(Via::CufilePosix);
    for (setting, value, via) in [
        ("way", 1, ViaSet::of(Via::Gds)),
        ("way", 2, posix),
        ("way", 0, ViaSet::of(Via::Gds)),
        ("stats_code", 5030, posix),
        ("stats_code", 0, ViaSet::of(Via::Gds)),
    ] {
        harness.set(setting, value);
        let landed = read_one(&tier, &object, 0..100_000).await.unwrap();
        assert_eq!(landed.cost.via, via, "{setting} = {value}");
        assert_eq!(shortfall(DevicePath::Gds, via, "x").is_some(), via == posix);
    }
    let notes = tier.info().notes.join("; ");
    assert!(notes.contains("path gds") && notes.contains("lacks"), "{notes}");
    drop(tier);
    harness.assert_balanced();
}

#[tokio::test]
async fn a_start_that_fails_gives_everything_back_and_says_why() {
    let harness = Harness::new();
    for (setting, value, path, named) in [
        ("devices", 0, DevicePath::Pageable, "CUDA_ERROR_NO_DEVICE"),
        ("open_code", 5048, DevicePath::Gds, "cuFileDriverOpen"),
        ("pin_code", 2, DevicePath::Bounce, "ulimit -l"),
    ] {
        harness.set(setting, value);
        let error = GdsTier::open(&harness.config(path)).await.unwrap_err();
        assert!(error.detail().contains(named), "{error}");
        harness.set(setting, i64::from(setting == "devices"));
        harness.assert_balanced();
    }
    let second = GdsConfig {
        device: 1,
        ..harness.config(DevicePath::Bounce)
    };
    let error = GdsTier::open(&second).await.unwrap_err();
    assert!(
        error.detail().contains("CUDA_ERROR_INVALID_DEVICE") && error.detail().contains("/dev/nvidia1"),
        "{error}"
    );
    for (key, config) in [
        (
            "chunk_bytes",
            GdsConfig {
                chunk_bytes: 1000,
                ..second.clone()
            },
        ),
        (
            "pinned_buffers",
            GdsConfig {
                pinned_buffers: 1,
                ..second.clone()
            },
        ),
        (
            "threads",
            GdsConfig {
                threads: 0,
                ..second.clone()
            },
        ),
    ] {
        let error = GdsTier::open(&config).await.unwrap_err();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, key));
    }
    harness.assert_balanced();
}

/// Without NVIDIA's libraries, the error names every file that was tried. Returns early on a machine that has them.
#[tokio::test]
async fn without_libraries_there_is_one_error_that_helps() {
    let root = tempfile::tempdir().unwrap();
    let config = GdsConfig {
        root: root.path().to_owned(),
        device: 0,
        path: DevicePath::Gds,
        chunk_bytes: 4 << 20,
        pinned_buffers: 8,
        threads: 4,
        device_memory_bytes: 2 << 30,
        libraries: vec![root.path().join("nowhere")],
    };
    let Err(error) = GdsTier::open(&config).await else {
        eprintln!("a GPU with cuFile is here: nothing is missing");
        return;
    };
    assert_eq!((error.kind(), error.object()), (ErrorKind::Unsupported, "gds"));
    let folder = root.path().join("nowhere/libcufile.so.0").display().to_string();
    for named in [
        "libcuda",
        "libcufile",
        &folder,
        "/dev/nvidiactl",
        "/dev/nvidia0",
        "LD_LIBRARY_PATH",
        "--tier nvme",
    ] {
        assert!(error.detail().contains(named), "no {named} in {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_cut_short_or_replaced_is_noticed_on_every_path() {
    for &path in DevicePath::ALL {
        let harness = Harness::new();
        let tier = harness.tier(path).await;
        let object = object(&tier, harness.root.path(), "x", &content(300_000)).await;
        read_one(&tier, &object, 0..10).await.unwrap();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(harness.root.path().join("x"))
            .unwrap();
        file.set_len(100_000).unwrap();
        let error = read_one(&tier, &object, 0..300_000).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{path:?}: {error}");
        drop(tier);
        harness.assert_balanced();
    }
}
