//! Processes that share a root. Each stage here stands for a process: it locks files that it opened itself.

use super::*;

async fn shared(origin: &Arc<Origin>, root: &Path) -> Staged {
    let config = StagedConfig {
        shared: true,
        ..config(root, 64 << 20)
    };
    Staged::open(origin.clone(), &config, uncounted()).await.unwrap()
}

fn whole(object: &Object) -> Range<u64> {
    0..object.size
}

/// Every block that was read of the origin, in order.
fn blocks_read(origin: &Origin) -> Vec<u64> {
    let reads = origin.reads().concat();
    let mut blocks: Vec<u64> = reads
        .iter()
        .flat_map(|range| range.start / BLOCK..range.end.div_ceil(BLOCK))
        .collect();
    blocks.sort_unstable();
    blocks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_one_process_has_another_does_not_fetch() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("model", 1, 10 * BLOCK + 17), ("other", 2, 3 * BLOCK)]);
    let model = origin.get("model");
    let first = shared(&origin, root.path()).await;
    first.read(&model, 2 * BLOCK..5 * BLOCK).await.unwrap();
    first.flush().await;
    assert_eq!(blocks_read(&origin), [2, 3, 4]);

    let second = shared(&origin, root.path()).await;
    let read = second.read(&model, whole(&model)).await.unwrap();
    assert_eq!(read.bytes, content(1, whole(&model)));
    assert_eq!(blocks_read(&origin), [0, 1, 5, 6, 7, 8, 9, 10]);
    assert_eq!((second.counts().misses, second.counts().neighbours), (11, 3));
    second.flush().await;
    // Blocks that the first stage has are not written again.
    assert_eq!(second.counts().staged, 8);

    // And back: the journals are read on.
    let read = first.read(&model, whole(&model)).await.unwrap();
    assert_eq!(read.bytes, content(1, whole(&model)));
    assert_eq!((read.cost.requests, read.cost.wire_bytes), (0, 0));
    assert!(blocks_read(&origin).is_empty());

    // A part whose process has ended remains, for other processes and for the next process that takes it.
    drop(first);
    drop(second);
    let third = shared(&origin, root.path()).await;
    third.read(&model, whole(&model)).await.unwrap();
    assert!(blocks_read(&origin).is_empty());
    assert_eq!((third.counts().hits, third.counts().neighbours), (3, 8));
    assert_eq!(
        std::fs::read_dir(root.path()).unwrap().count(),
        3,
        "two parts and the claims"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_start_together_download_once() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("model", 1, 40 * BLOCK), ("other", 2, 9 * BLOCK)]);
    let mut stages = Vec::new();
    for _ in 0..6 {
        stages.push(shared(&origin, root.path()).await);
    }
    let read = |(number, stage): (usize, &Staged)| {
        let (model, other) = (origin.get("model"), origin.get("other"));
        let stage = stage.stage.clone();
        async move {
            let tier = &stage;
            // Each in an order of its own, with ranges that overlap.
            let mut ranges = vec![
                (model.clone(), 1, 0..25 * BLOCK),
                (model.clone(), 1, 20 * BLOCK..40 * BLOCK),
                (other, 2, 0..9 * BLOCK),
            ];
            ranges.rotate_left(number % 3);
            for (object, seed, range) in ranges {
                let blocks = tier.blocks_of(std::slice::from_ref(&range));
                let data = tier.fetch(&object, &blocks).await.unwrap();
                for (extent, bytes) in &data.parts {
                    assert_eq!(*bytes, content(seed, extent.clone()));
                }
            }
        }
    };
    join_all(stages.iter().enumerate().map(read)).await;
    let read = blocks_read(&origin);
    assert_eq!(read.len(), 49, "each block once: {read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fetch_that_fails_leaves_the_blocks_to_the_next_process() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("model", 1, 4 * BLOCK)]);
    let old = origin.get("model");
    let (first, second) = (shared(&origin, root.path()).await, shared(&origin, root.path()).await);
    let new = origin.set("model", 7, 4 * BLOCK);
    let failed = first.read(&old, whole(&old)).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Changed);
    let read = second.read(&new, whole(&new)).await.unwrap();
    assert_eq!(read.bytes, content(7, whole(&new)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_neighbour_evicts_replaces_or_damages_comes_from_the_tier() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("model", 1, 8 * BLOCK)]);
    let model = origin.get("model");
    let small = StagedConfig {
        shared: true,
        ..config(root.path(), capacity_for(4, BLOCK))
    };
    let first = Staged::open(origin.clone(), &small, uncounted()).await.unwrap();
    let second = shared(&origin, root.path()).await;
    first.read(&model, 0..4 * BLOCK).await.unwrap();
    first.flush().await;
    // The second has seen the journal.
    let read = second.read(&model, 0..BLOCK).await.unwrap();
    assert_eq!(
        (read.bytes, second.counts().neighbours),
        (content(1, 0..BLOCK).into(), 1)
    );
    first.read(&model, 4 * BLOCK..8 * BLOCK).await.unwrap();
    first.flush().await;
    origin.reads();
    let read = second.read(&model, 0..4 * BLOCK).await.unwrap();
    assert_eq!(read.bytes, content(1, 0..4 * BLOCK));
    // The first of them may be in its own part by now.
    let of_the_tier = blocks_read(&origin);
    assert!(
        of_the_tier == [0, 1, 2, 3] || of_the_tier == [1, 2, 3],
        "{of_the_tier:?}"
    );

    // A page of the neighbour's file is flipped.
    let data: Vec<PathBuf> = std::fs::read_dir(root.path().join("part-00"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "data"))
        .collect();
    let mut bytes = std::fs::read(&data[0]).unwrap();
    bytes[5 * BLOCK as usize + 5000] ^= 1;
    std::fs::write(&data[0], bytes).unwrap();
    let read = second.read(&model, 4 * BLOCK..8 * BLOCK).await.unwrap();
    assert_eq!(read.bytes, content(1, 4 * BLOCK..8 * BLOCK));
    assert_eq!(blocks_read(&origin), [5]);

    // A version that the neighbour has replaced is not mistaken for the new version.
    let new = origin.set("model", 9, 8 * BLOCK);
    let read = second.read(&new, whole(&new)).await.unwrap();
    assert_eq!(read.bytes, content(9, whole(&new)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_turned_out_to_be_damaged_is_taken_of_no_neighbour() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("model", 1, 2 * BLOCK)]);
    let model = origin.get("model");
    let (first, second) = (shared(&origin, root.path()).await, shared(&origin, root.path()).await);
    first.read(&model, whole(&model)).await.unwrap();
    first.flush().await;
    second.forget(&model, slice::from_ref(&(0..BLOCK))).await;
    origin.reads();
    second.read(&model, whole(&model)).await.unwrap();
    assert_eq!(blocks_read(&origin), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_alone_and_one_that_shares_keep_apart() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("model", 1, 2 * BLOCK)]);
    let model = origin.get("model");
    let alone = open(&origin, root.path()).await;
    let sharing = shared(&origin, root.path()).await;
    alone.read(&model, whole(&model)).await.unwrap();
    alone.flush().await;
    sharing.read(&model, whole(&model)).await.unwrap();
    assert_eq!(blocks_read(&origin), [0, 0, 1, 1]);
    let again = Staged::open(origin.clone(), &config(root.path(), 64 << 20), uncounted()).await;
    let refused = again.err().unwrap().to_string();
    assert!(refused.contains("staged.shared"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_holds_nobody_up() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::new(&[("model", 1, 8 * BLOCK)]);
    let model = origin.get("model");
    let (stopped, other) = (shared(&origin, root.path()).await, shared(&origin, root.path()).await);
    let claim = |of: &Staged| {
        let (neighbours, header) = (of.stage.neighbours.clone().unwrap(), of.stage.header(&model));
        async move { neighbours.claim(&header, &[1, 3]).await }
    };
    let held = claim(&stopped).await;
    let given_up = tokio::time::timeout(Duration::from_secs(60), claim(&other)).await;
    drop(given_up.unwrap());
    let read = other.read(&model, whole(&model)).await.unwrap();
    assert_eq!(read.bytes, content(1, whole(&model)));
    other.flush().await;
    assert_eq!(other.counts().staged, 8);
    drop(held);
}
