use super::*;
use crate::conformance::Suite;
use crate::content::content;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const STRIPE: u64 = 8192;

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text).unwrap()
}

fn folders(count: usize) -> (TempDir, Vec<PathBuf>) {
    let exe = std::env::current_exe().unwrap();
    let above = tempfile::tempdir_in(exe.parent().unwrap()).unwrap();
    let roots: Vec<_> = (0..count).map(|i| above.path().join(format!("disk{i}"))).collect();
    for root in &roots {
        std::fs::create_dir(root).unwrap();
    }
    (above, roots)
}

async fn open(roots: &[PathBuf], stripe_bytes: u64) -> Result<StripedTier, StorageError> {
    let mut tiers = Vec::new();
    for root in roots {
        tiers.push(NvmeTier::open(root, 16, true).await?);
    }
    StripedTier::new(tiers, stripe_bytes)
}

fn parts_in(root: &Path) -> usize {
    std::fs::read_dir(root.join(disk::FOLDER)).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn striped_conforms() {
    for count in [1, 3] {
        let (_above, roots) = folders(count);
        let scratch = tempfile::tempdir().unwrap();
        let suite = Suite {
            tier: Arc::new(open(&roots, STRIPE).await.unwrap()),
            folder: path("suite/deep"),
            scratch: scratch.path().to_owned(),
            notices_changes: true,
        };
        suite.run().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_root_holds_its_share_and_only_that() {
    let (_above, roots) = folders(3);
    let tier = open(&roots, STRIPE).await.unwrap();
    let size = 100_000;
    let body = content(3, 0..size);
    let local = roots[0].parent().unwrap().join("body");
    std::fs::write(&local, &body).unwrap();
    for body in [Body::Bytes(body.clone().into()), Body::File(local)] {
        let object = tier.put(&path("a/x"), body).await.unwrap();
        assert_eq!(object.size, size);
        let held: u64 = roots
            .iter()
            .flat_map(|root| std::fs::read_dir(root.join(disk::FOLDER)).unwrap())
            .map(|part| part.unwrap().metadata().unwrap().len())
            .sum();
        assert_eq!(held, size, "the parts of the version before are gone");
        let ranges = [
            0..size,
            1..2,
            STRIPE - 1..STRIPE + 1,
            50_000..50_000,
            size - 1..size,
            3 * STRIPE..5 * STRIPE,
        ];
        let read = tier.read_many(&object, &ranges).await.unwrap();
        for (part, range) in read.parts.iter().zip(ranges) {
            assert!(*part == content(3, range.clone()), "{range:?}");
        }
    }
    let found = tier.list(None).await.unwrap();
    assert_eq!(found.len(), 1, "parts are no objects: {found:?}");
    let part = path(&format!("{}/x", disk::FOLDER));
    assert_eq!(tier.stat(&part).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(tier.put(&part, Bytes::new().into()).await.is_err());
    assert!(tier.remove_folder(&path("a")).await.is_err(), "it is not empty");
    tier.delete(&path("a/x")).await.unwrap();
    assert_eq!(roots.iter().map(|root| parts_in(root)).sum::<usize>(), 0);
    tier.remove_folder(&path("a")).await.unwrap();
    assert!(!roots[0].join("a").exists());
}

/// A tier opened again finds its objects; with the roots exchanged or a root missing it refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layout_survives_and_other_roots_are_refused() {
    let (_above, roots) = folders(3);
    let body = content(4, 0..70_000);
    let first = open(&roots, STRIPE).await.unwrap();
    first.put(&path("x"), Bytes::from(body.clone()).into()).await.unwrap();
    drop(first);
    // Another length of stripes is for new objects only.
    let again = open(&roots, 2 * STRIPE).await.unwrap();
    let object = again.stat(&path("x")).await.unwrap();
    assert_eq!(again.read(&object, 0..70_000).await.unwrap().bytes, body);
    for other in [
        vec![roots[0].clone(), roots[2].clone(), roots[1].clone()],
        roots[..2].to_vec(),
    ] {
        let error = open(&other, STRIPE).await.unwrap().stat(&path("x")).await.unwrap_err();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Corrupt, "x"), "{error}");
    }
    let twice = vec![roots[0].clone(), roots[0].clone()];
    assert_eq!(open(&twice, STRIPE).await.unwrap_err().object(), "roots");
    assert_eq!(open(&roots, 1000).await.unwrap_err().object(), "stripe_bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_of_impossible_stripes_is_refused() {
    let (_above, roots) = folders(2);
    let tier = open(&roots, STRIPE).await.unwrap();
    std::fs::create_dir_all(roots[0].join(disk::FOLDER)).unwrap();
    std::fs::write(roots[0].join(disk::FOLDER).join("s.0"), "").unwrap();
    for stripe_bytes in [0, (1 << 30) + 1, 1_u64 << 63, u64::MAX] {
        let manifest =
            format!("{{\"tierlab_stripes\":1,\"size\":9,\"stripe_bytes\":{stripe_bytes},\"parts\":2,\"set\":\"s\"}}");
        std::fs::write(roots[0].join("x"), manifest).unwrap();
        let error = tier.stat(&path("x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{stripe_bytes}: {error}");
        assert!(error.detail().contains("unsupported format"), "{stripe_bytes}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_touched_is_noticed() {
    let (_above, roots) = folders(2);
    let tier = open(&roots, STRIPE).await.unwrap();
    let body = content(5, 0..50_000);
    let part = |root: &Path| {
        let mut parts = std::fs::read_dir(root.join(disk::FOLDER)).unwrap();
        parts.next().unwrap().unwrap().path()
    };
    type Harm = fn(&Path);
    let harms: [(Harm, ErrorKind); 3] = [
        (
            |part| std::fs::write(part, content(6, 0..(50_000 - 50_000 / 2))).unwrap(),
            ErrorKind::Corrupt,
        ),
        (
            |part| {
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(part)
                    .unwrap()
                    .set_len(100)
                    .unwrap();
            },
            ErrorKind::Corrupt,
        ),
        (|part| std::fs::remove_file(part).unwrap(), ErrorKind::Corrupt),
    ];
    for (harm, now) in harms {
        let object = tier.put(&path("x"), Bytes::from(body.clone()).into()).await.unwrap();
        assert_eq!(tier.read(&object, 0..50_000).await.unwrap().bytes, body);
        harm(&part(&roots[1]));
        for range in [0..50_000, STRIPE..STRIPE + 10] {
            let error = tier.read(&object, range).await.unwrap_err();
            assert!([now, ErrorKind::Changed].contains(&error.kind()), "{error}");
            assert_eq!(error.object(), "x");
        }
        assert_eq!(tier.stat(&path("x")).await.unwrap_err().kind(), now);
    }
    // Written again, it is complete.
    let object = tier.put(&path("x"), Bytes::from(body.clone()).into()).await.unwrap();
    assert_eq!(tier.read(&object, 0..50_000).await.unwrap().bytes, body);
}

/// Makes the parts of all sets look a day old.
fn age_parts(roots: &[PathBuf]) {
    let day_old = std::time::SystemTime::now() - std::time::Duration::from_secs(25 * 3600);
    for part in roots
        .iter()
        .flat_map(|root| std::fs::read_dir(root.join(disk::FOLDER)).unwrap())
    {
        let part = std::fs::File::options().write(true).open(part.unwrap().path()).unwrap();
        part.set_modified(day_old).unwrap();
    }
}

/// A put that stops before its manifest is in place leaves parts that no manifest names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_crashed_put_left_is_removed_once_it_is_old() {
    let (_above, roots) = folders(2);
    let tier = open(&roots, STRIPE).await.unwrap();
    let body = content(7, 0..30_000);
    tier.put(&path("x"), Bytes::from(body.clone()).into()).await.unwrap();
    drop(tier);
    let leave = |name: &str, i: usize| {
        std::fs::write(roots[i].join(disk::FOLDER).join(format!("{name}.{i}")), "").unwrap();
    };
    leave("0123456789abcdef0123456789abcdef", 0);
    leave("0123456789abcdef0123456789abcdef", 1);
    // The live parts may be as old as they like.
    age_parts(&roots);
    leave("fedcba9876543210fedcba9876543210", 0);
    let tier = open(&roots, STRIPE).await.unwrap();
    let left: Vec<_> = roots.iter().map(|root| parts_in(root)).collect();
    assert_eq!(left, [2, 1], "the live set, and the young one");
    let object = tier.stat(&path("x")).await.unwrap();
    assert_eq!(tier.read(&object, 0..30_000).await.unwrap().bytes, body);
}

/// A disk that is not mounted when its object is removed: the parts are removed once it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_on_an_absent_disk_are_removed_later() {
    let (above, roots) = folders(2);
    let tier = open(&roots, STRIPE).await.unwrap();
    tier.put(&path("x"), Bytes::from(content(9, 0..30_000)).into())
        .await
        .unwrap();
    let (parts, away) = (roots[1].join(disk::FOLDER), above.path().join("away"));
    std::fs::rename(&parts, &away).unwrap();
    tier.delete(&path("x")).await.unwrap();
    drop(tier);
    std::fs::rename(&away, &parts).unwrap();
    age_parts(&roots);
    open(&roots, STRIPE).await.unwrap();
    assert_eq!(roots.iter().map(|root| parts_in(root)).sum::<usize>(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_roots_remove_no_parts() {
    let (_above, roots) = folders(4);
    let (used, empty) = roots.split_at(3);
    let tier = open(used, STRIPE).await.unwrap();
    let body = content(8, 0..70_000);
    tier.put(&path("a/x"), Bytes::from(body.clone()).into()).await.unwrap();
    drop(tier);
    age_parts(used);
    for wrong in [
        [1_usize, 0, 2].as_slice(),
        &[0, 1],
        &[1, 2],
        &[2],
        &[0, 1, 2, 3],
        &[3, 1, 2],
    ] {
        let wrong: Vec<_> = wrong.iter().map(|i| roots[*i].clone()).collect();
        let tier = open(&wrong, STRIPE).await.unwrap();
        tier.stat(&path("a/x")).await.unwrap_err();
        drop(tier);
        assert!(used.iter().all(|root| parts_in(root) == 1), "{wrong:?}");
    }
    // Written to meanwhile: its parts 0 are its own.
    let wrong = [empty[0].clone(), used[1].clone()];
    let tier = open(&wrong, STRIPE).await.unwrap();
    tier.put(&path("a/x"), Bytes::from(body.clone()).into()).await.unwrap();
    drop(tier);
    age_parts(&wrong);
    open(&wrong, STRIPE).await.unwrap();
    // Keys of a later version are allowed.
    let manifest = used[0].join("a/x");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replacen('{', "{\"more\":1,", 1)).unwrap();
    open(used, STRIPE).await.unwrap();
    std::fs::write(&manifest, text).unwrap();
    let tier = open(used, STRIPE).await.unwrap();
    let object = tier.stat(&path("a/x")).await.unwrap();
    assert_eq!(tier.read(&object, 0..70_000).await.unwrap().bytes, body);
}

/// Folders that only the superuser reads: that of the file system hides no objects, and any other might hide a manifest.
#[test]
fn unreadable_folders_stop_neither_a_listing_nor_a_start() {
    let (_above, roots) = folders(1);
    for folder in ["lost+found", "a", disk::FOLDER] {
        std::fs::create_dir(roots[0].join(folder)).unwrap();
    }
    std::fs::write(roots[0].join("a/x"), "x").unwrap();
    let set = roots[0].join(disk::FOLDER).join("0123456789abcdef0123456789abcdef.0");
    std::fs::write(&set, "").unwrap();
    age_parts(&roots);
    std::fs::set_permissions(roots[0].join("lost+found"), Permissions::from_mode(0o0)).unwrap();
    std::fs::set_permissions(roots[0].join(disk::FOLDER), Permissions::from_mode(0o777)).unwrap();
    let root = [Arc::new(Root::open(&roots[0]).unwrap())];
    let as_user = |work: fn(&[Arc<Root>]) -> Result<usize, StorageError>| {
        let root = root.clone();
        let user = std::thread::spawn(move || {
            // SAFETY: a plain call; it takes the superuser's access to files from this thread alone.
            unsafe { libc::setfsuid(65_534) };
            work(&root)
        });
        user.join().unwrap()
    };
    let list = |roots: &[Arc<Root>]| super::super::store::list(&roots[0], None).map(|found| found.len());
    let sweep = |roots: &[Arc<Root>]| disk::sweep(roots).map(|()| 0);
    assert_eq!(as_user(list).unwrap(), 2, "the object and the part");
    as_user(sweep).unwrap();
    assert!(!set.exists());
    std::fs::write(&set, "").unwrap();
    age_parts(&roots);
    std::fs::set_permissions(roots[0].join("a"), Permissions::from_mode(0o0)).unwrap();
    assert_eq!(as_user(sweep).unwrap_err().kind(), ErrorKind::Denied);
    assert!(set.exists());
}
