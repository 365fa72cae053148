//! NVMe tier on a full disk: a `put` that does not fit returns an error and leaves nothing behind.
//!
//! The disk is a tmpfs of a few pages in its own mount namespace, so the test starts itself again inside it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tierlab_storage::content::content;
use tierlab_storage::tiers::nvme::NvmeTier;
use tierlab_storage::{Body, ErrorKind, ObjectPath, Tier};

/// Names the mounted folder for the test inside.
const DISK: &str = "TIERLAB_FULL_DISK";
const DISK_BYTES: u64 = 1 << 20;
/// Far more than it takes on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_put_that_does_not_fit_leaves_nothing_behind() {
    if let Some(disk) = std::env::var_os(DISK) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(inside(&PathBuf::from(disk)));
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    let mut unshare = Command::new("unshare");
    // Without root, a user namespace gives the right to mount.
    if !Command::new("unshare")
        .args(["--mount", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
    {
        unshare.arg("--map-root-user");
    }
    let script = format!("mount -t tmpfs -o size={DISK_BYTES} tmpfs \"${DISK}\" && exec \"$@\"");
    let status = unshare
        .args(["--mount", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_put_that_does_not_fit_leaves_nothing_behind",
            "--nocapture",
        ])
        .env(DISK, disk.path())
        .stdin(Stdio::null())
        .status()
        .expect("`unshare` can be run: install util-linux");
    assert!(
        status.success(),
        "the test on a small tmpfs failed, or none could be mounted (run as root, or allow unprivileged user \
         namespaces; needs util-linux and mount): see above"
    );
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text).unwrap()
}

/// Bytes of the disk in use by files.
fn used(disk: &Path) -> u64 {
    let files = std::fs::read_dir(disk).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

async fn inside(disk: &Path) {
    let tier = NvmeTier::open(disk, 8, true).await.unwrap();
    let put = async |at: &str, seed, size| tier.put(&path(at), Body::Bytes(content(seed, 0..size).into())).await;
    let remaining = put("kept", 1, DISK_BYTES / 4).await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content(2, 0..2 * DISK_BYTES)).unwrap();
    for _ in 0..3 {
        // A new object, an existing object, and an object from a file.
        let errors = [
            put("large", 2, 2 * DISK_BYTES).await.unwrap_err(),
            put("kept", 2, 2 * DISK_BYTES).await.unwrap_err(),
            tier.put(&path("large"), Body::File(file.path().to_owned()))
                .await
                .unwrap_err(),
        ];
        for (error, object) in errors.iter().zip(["large", "kept", "large"]) {
            assert_eq!(
                (error.kind(), error.object()),
                (ErrorKind::Unavailable, object),
                "{error}"
            );
            assert!(error.detail().contains("os error 28"), "{error}");
        }
        assert_eq!(tier.list(None).await.unwrap(), std::slice::from_ref(&remaining));
        assert_eq!(used(disk), remaining.size, "nothing unfinished stays on the disk");
    }
    let read = tier.read(&remaining, 0..remaining.size).await.unwrap();
    assert!(read.bytes == content(1, 0..remaining.size));
    // Objects that fit can be written once there is room.
    let small = put("small", 3, DISK_BYTES / 2).await.unwrap();
    assert!(tier.read(&small, 0..small.size).await.unwrap().bytes == content(3, 0..small.size));
    put("more", 4, DISK_BYTES / 2).await.unwrap_err();
    tier.delete(&path("small")).await.unwrap();
    // Its blocks are freed when the ring has closed the file, which the kernel does in its own time.
    let deadline = tokio::time::Instant::now() + WAIT_LIMIT;
    while let Err(error) = put("more", 4, DISK_BYTES / 2).await {
        assert!(error.detail().contains("os error 28"), "{error}");
        assert!(tokio::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
