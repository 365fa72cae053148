//! The conformance suite through a stage.

use super::*;
use crate::conformance::{Reach, Suite};
use crate::tiers::memory::MemoryTier;
use crate::wrappers::{Cache, CacheConfig, Emulated};

/// Inverts every byte of every data file.
fn invert(root: &Path) {
    for file in files(root, "data") {
        // A block that was evicted meanwhile can no longer be damaged.
        let Ok(bytes) = fs::read(&file) else { continue };
        let inverted: Vec<u8> = bytes.into_iter().map(|byte| !byte).collect();
        fs::write(file, inverted).unwrap();
    }
}

async fn conforms(tier: Arc<dyn Tier>) {
    conforms_with(tier, &Reach::default()).await;
}

async fn conforms_with(tier: Arc<dyn Tier>, reach: &Reach) {
    let scratch = tempfile::tempdir().unwrap();
    let suite = Suite {
        tier,
        folder: ObjectPath::new("suite").unwrap(),
        scratch: scratch.path().to_owned(),
        notices_changes: false,
    };
    suite.run_with(reach).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_staged_tier_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let tier = Staged::open(
        Arc::new(MemoryTier::default()),
        &config(folder.path(), 64 << 20),
        uncounted(),
    )
    .await;
    let root = folder.path().to_owned();
    conforms_with(
        Arc::new(tier.unwrap()),
        &Reach::default().with_damage(move || invert(&root)),
    )
    .await;
    // So small that blocks leave all the time.
    let tier = Staged::open(
        Arc::new(MemoryTier::default()),
        &config(folder.path(), 3 * BLOCK),
        uncounted(),
    )
    .await;
    conforms(Arc::new(tier.unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_staged_local_folder_conforms() {
    let (folder, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inner = NvmeTier::open(root.path(), 16, true).await.unwrap();
    let tier = Staged::open(Arc::new(inner), &config(folder.path(), 8 << 20), uncounted()).await;
    conforms(Arc::new(tier.unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_composition_conforms() {
    let text = "latency = { distribution = \"lognormal\", median_us = 30, p99_us = 200 }\nretries = 9\n\
        errors = [{ kind = \"unavailable\", rate = 0.01 }]";
    let folder = tempfile::tempdir().unwrap();
    let emulated = Emulated::new(
        Arc::new(MemoryTier::default()),
        &toml::from_str(text).unwrap(),
        StorageMetrics::unscraped().unwrap().emulated("memory"),
    )
    .unwrap();
    let staged = Staged::open(Arc::new(emulated), &config(folder.path(), 4 << 20), uncounted()).await;
    let staged: Arc<dyn Tier> = Arc::new(staged.unwrap());
    assert!(staged.info().notes.contains(&"emulated: custom".to_owned()));
    conforms(staged.clone()).await;
    let metrics = StorageMetrics::unscraped().unwrap();
    let cache = CacheConfig {
        capacity_bytes: 200_000,
        ..CacheConfig::default()
    };
    let cache = Cache::new(staged, &cache, metrics.cache("memory")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let suite = Suite {
        tier: Arc::new(cache),
        folder: ObjectPath::new("cached").unwrap(),
        scratch: scratch.path().to_owned(),
        notices_changes: false,
    };
    suite.run().await.unwrap();
}
