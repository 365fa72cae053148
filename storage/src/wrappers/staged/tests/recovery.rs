//! Restarts, killed processes and damaged files.

use super::*;
use crate::tiers::memory::MemoryTier;
use bytes::Bytes;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_folder_is_used_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("x", 1, 300_000), ("y", 2, 200_000)]);
    let tier = open(&origin, folder.path()).await;
    expect(&tier, &origin.get("x"), 1, 0..300_000).await;
    expect(&tier, &origin.get("y"), 2, 0..1).await;
    tier.flush().await;
    drop(tier);
    origin.reads();
    // Possible leftovers of a crash: half a journal, a data file without journal, a torn record. And a foreign file.
    fs::write(folder.path().join("00000000000000aa.new"), b"half").unwrap();
    fs::write(folder.path().join("00000000000000ab.data"), b"orphan").unwrap();
    fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
    let journals = files(folder.path(), "journal");
    let mut torn = fs::read(&journals[0]).unwrap();
    torn.extend_from_slice(&[9, 0, 0, 0, 1, 2]);
    fs::write(&journals[0], torn).unwrap();
    let tier = open(&origin, folder.path()).await;
    expect(&tier, &origin.get("x"), 1, 0..300_000).await;
    expect(&tier, &origin.get("y"), 2, 100..200).await;
    assert!(origin.reads().is_empty());
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left.len(), 6, "{left:?}");
    // Another size of blocks cannot use it.
    drop(tier);
    let other = StagedConfig {
        block_bytes: 2 * BLOCK,
        ..config(folder.path(), 64 << 20)
    };
    let tier = Staged::open(origin.clone(), &other, uncounted()).await.unwrap();
    assert_eq!(tier.counts().bytes, 0);
    expect(&tier, &origin.get("x"), 1, 0..300_000).await;
    assert_eq!(origin.reads().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_a_tier_in_memory_do_not_outlive_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = ObjectPath::new("x").unwrap();
    for seed in 1..4 {
        let memory: Arc<dyn Tier> = Arc::new(MemoryTier::default());
        let tier = Staged::open(memory, &config(folder.path(), 64 << 20), uncounted())
            .await
            .unwrap();
        let body = Bytes::from(content(seed, 0..100_000));
        // The same version mark each time.
        let object = tier.put(&path, body.into()).await.unwrap();
        assert_eq!(object.version, "w1");
        for _ in 0..2 {
            expect(&tier, &object, seed, 0..100_000).await;
            tier.flush().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_and_flipped_pages_are_read_from_the_tier_again() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("x", 1, 10 * BLOCK - 100)]);
    let object = origin.get("x");
    let tier = open(&origin, folder.path()).await;
    expect(&tier, &object, 1, 0..object.size).await;
    tier.flush().await;
    drop(tier);
    origin.reads();
    // One bit of block 2; the second half of block 5; the last byte of the object.
    let data = &files(folder.path(), "data")[0];
    let mut bytes = fs::read(data).unwrap();
    bytes[2 * BLOCK as usize + 12_345] ^= 4;
    bytes[5 * BLOCK as usize + 40_000..6 * BLOCK as usize].fill(0);
    bytes[object.size as usize - 1] ^= 0x80;
    fs::write(data, bytes).unwrap();
    let tier = open(&origin, folder.path()).await;
    // Pages of the same blocks that are whole are used.
    expect(&tier, &object, 1, 2 * BLOCK..2 * BLOCK + 4096).await;
    assert!(origin.reads().is_empty(), "{:?}", tier.counts());
    expect(&tier, &object, 1, 0..object.size).await;
    let block = |i: u64| i * BLOCK..((i + 1) * BLOCK).min(object.size);
    assert_eq!(origin.reads(), [vec![block(2), block(5), block(9)]]);
    assert_eq!(tier.counts().broken, 3);
    tier.flush().await;
    expect(&tier, &object, 1, 0..object.size).await;
    assert!(origin.reads().is_empty());
    // A data file that was cut short while it is in use.
    let data = fs::OpenOptions::new().write(true).open(data).unwrap();
    data.set_len(3 * BLOCK).unwrap();
    for _ in 0..3 {
        expect(&tier, &object, 1, 0..object.size).await;
        tier.flush().await;
    }
    drop(tier);
    let tier = open(&origin, folder.path()).await;
    expect(&tier, &object, 1, 0..object.size).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_turns_out_damaged_is_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("x", 1, 5 * BLOCK)]);
    let metrics = uncounted();
    let tier = Staged::open(origin.clone(), &config(folder.path(), 64 << 20), metrics.clone())
        .await
        .unwrap();
    let object = origin.get("x");
    let row = 2 * BLOCK + 5..2 * BLOCK + 9;
    expect(&tier, &object, 1, 0..object.size).await;
    tier.flush().await;
    // Damaged bytes of the tier are staged with checksums that fit; only a caller that knows the content sees the
    // damage.
    origin.objects.lock().unwrap().get_mut(&object.path).unwrap().0 = 2;
    expect(&tier, &object, 1, row.clone()).await;
    tier.forget(&object, std::slice::from_ref(&row)).await;
    expect(&tier, &object, 2, row.clone()).await;
    // The object may not be staged yet, which does not bring it back either.
    origin.objects.lock().unwrap().get_mut(&object.path).unwrap().0 = 3;
    tier.forget(&object, std::slice::from_ref(&row)).await;
    expect(&tier, &object, 3, row.clone()).await;
    tier.flush().await;
    origin.reads();
    expect(&tier, &object, 3, row).await;
    expect(&tier, &object, 1, 0..2 * BLOCK).await;
    assert!(origin.reads().is_empty());
    let counts = tier.counts();
    let of = |counter: &prometheus::IntCounter| counter.get();
    assert_eq!((of(&metrics.hits), of(&metrics.misses)), (counts.hits, counts.misses));
    assert_eq!((counts.hits, counts.misses), (1 + 1 + 2, 5 + 1 + 1));
    assert_eq!((of(&metrics.torn), of(&metrics.written)), (2, 7));
    assert_eq!(metrics.bytes.get(), counts.bytes.cast_signed());
    assert_eq!(metrics.capacity_bytes.get(), 64 << 20);
    drop(tier);
    assert_eq!((metrics.bytes.get(), metrics.capacity_bytes.get()), (0, 0));
}

/// Environment variable with the staging folder and seed of the next test's child process.
const CHILD: &str = "TIERLAB_TEST_STAGE";
const OBJECTS: [(&str, u64, u64); 3] = [("a", 1, 40 * BLOCK), ("b", 2, 11 * BLOCK + 77), ("c", 3, 100)];

#[test]
#[ignore = "a process of its own, started and killed by the test below"]
fn child() {
    let setup = std::env::var(CHILD).unwrap();
    let (seed, root) = setup.split_once(';').unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let origin = Origin::new(&OBJECTS);
        // Smaller than the objects, so that eviction and journals written anew are hit as well.
        let tier = Staged::open(origin.clone(), &config(Path::new(root), 35 * BLOCK), uncounted())
            .await
            .unwrap();
        println!("READY");
        loop {
            let (name, seed, size) = OBJECTS[rng.random_range(0..OBJECTS.len())];
            let start = rng.random_range(0..size);
            let end = (start + rng.random_range(1..6 * BLOCK)).min(size);
            expect(&tier, &origin.get(name), seed, start..end).await;
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_while_staging_leaves_no_wrong_byte() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(&OBJECTS);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let (mut used_again, mut broken, mut round) = (0, 0, 0);
    // At least 8 kills; on a slow machine a child stages little before its own, so more kills until enough is staged.
    while round < 8 || (used_again <= 20 * BLOCK && round < 80) {
        round += 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "wrappers::staged::tests::recovery::child",
                "--nocapture",
            ])
            .env(CHILD, format!("{round};{}", folder.path().display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap().contains("READY")),
            "the child did not start"
        );
        tokio::time::sleep(Duration::from_micros(rng.random_range(100..60_000))).await;
        // SIGKILL. It is alive: it only ends when a read is wrong.
        assert!(child.try_wait().unwrap().is_none(), "the child saw a wrong byte");
        child.kill().unwrap();
        child.wait().unwrap();
        let tier = Staged::open(origin.clone(), &config(folder.path(), 35 * BLOCK), uncounted())
            .await
            .unwrap();
        for (name, seed, size) in OBJECTS {
            let cost = expect(&tier, &origin.get(name), seed, 0..size).await;
            let from_tier: u64 = origin
                .reads()
                .iter()
                .flatten()
                .map(|range| range.end - range.start)
                .sum();
            used_again += size - from_tier;
            assert!(!cost.via.is_empty());
        }
        broken += tier.counts().broken;
    }
    assert!(used_again > 20 * BLOCK, "only {used_again} bytes were used again");
    // A killed process loses nothing that the kernel has: recorded blocks are whole.
    assert_eq!(broken, 0);
}
