//! Feature tables that lie in other layouts than files of rows.

use crate::harness::{Data, PATIENCE, Server, entity_ids, on_tier, refused};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_layouts::{Layout, Options};
use tierlab_models::generators::ModelKind;
use tierlab_models::lay_out::lay_out;
use tierlab_models::stop::Stop;
use tierlab_models::tables::{self, TableKind};
use tierlab_protocol::timing::Stage;
use tierlab_storage::{Tier, TierConfig};

const ROWS: u64 = 1000;

/// Rows of a table in more than one shard.
const OPTIONS: Options = Options {
    layout: Layout::Rows,
    shard_bytes: 128 << 10,
};

async fn tier(data: &Data) -> Arc<dyn Tier> {
    let toml = format!("kind = \"nvme\"\nroot = \"{}\"\n", data.0.path().display());
    let config = TierConfig::parse("test", &toml).unwrap();
    tierlab_storage::open(&config).await.unwrap()
}

/// Lays out the tables in `features/` and returns the folder of the shards.
pub(crate) async fn laid_out(data: &Data, layout: Layout) -> PathBuf {
    laid_out_with(data, Options { layout, ..OPTIONS }).await
}

async fn laid_out_with(data: &Data, options: Options) -> PathBuf {
    let features = data.path("features");
    let done = lay_out((&features, &[]), &*tier(data).await, options, &Stop::never()).await;
    let done = done.unwrap();
    data.path(done[0].folder.as_str()).join(&done[0].manifest.version)
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_layout_gives_the_same_answers() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS);
    let ids = [7, 999, 0, 7, 500, 501];
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let wanted = server.infer("ctr", entity_ids(&ids)).await.floats();
    drop(server);
    let layouts = Layout::all().filter(|layout| *layout != Layout::Rows);
    for layout in layouts.clone() {
        laid_out(&data, layout).await;
    }
    // Nobody reads it any more.
    std::fs::remove_file(data.path("features/ctr.rows")).unwrap();
    for layout in layouts {
        let set = format!("features.layout={layout}");
        for cache in ["cache.capacity_bytes=0", "cache.capacity_bytes=1048576"] {
            let server = Server::start(&on_tier(&data, "nvme"), &[&set, cache]);
            for _ in 0..2 {
                let reply = server.infer("ctr", entity_ids(&ids)).await;
                assert_eq!(reply.floats(), wanted, "{layout}, {cache}");
            }
            let timings = server.infer("ctr", entity_ids(&[123])).await.timings();
            assert!(
                timings.tier_requests >= 1 && !timings.get(Stage::Tier).is_zero(),
                "{layout}, {cache}"
            );
            let unknown = server.infer("ctr", entity_ids(&[1000])).await;
            assert_eq!(unknown.status, 404, "{layout}");
            let joined = server.get("/v2/models/ctr").await.json()["joined"].clone();
            assert_eq!(joined["rows"], ROWS, "{layout}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_laid_out_again_is_taken_over_and_no_reply_mixes_both() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS);
    let ids: Vec<i64> = (0..32).map(|at| at * 31).collect();
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let old = server.infer("ctr", entity_ids(&ids)).await.floats();
    drop(server);
    for layout in [Layout::ParquetZstd, Layout::Tar] {
        tables::generate(TableKind::Ctr, ROWS, 2, &data.path("features"), &Stop::never()).unwrap();
        laid_out(&data, layout).await;
        let set = format!("features.layout={layout}");
        let server = Server::start(&on_tier(&data, "nvme"), &[&set, "features.revalidate_s=1"]);
        assert_eq!(server.infer("ctr", entity_ids(&ids)).await.floats(), old, "{layout}");
        tables::generate(TableKind::Ctr, ROWS, 3, &data.path("features"), &Stop::never()).unwrap();
        laid_out(&data, layout).await;
        let began = Instant::now();
        let new = loop {
            let floats = server.infer("ctr", entity_ids(&ids)).await.floats();
            if floats != old {
                break floats;
            }
            assert!(began.elapsed() < PATIENCE, "{layout}: still the old rows");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        for _ in 0..20 {
            assert_eq!(server.infer("ctr", entity_ids(&ids)).await.floats(), new, "{layout}");
        }
        assert!(
            old.iter().zip(&new).all(|(old, new)| old != new),
            "{layout}: some rows are the old ones"
        );
    }
}

/// A reader of Parquet that skips rows of the damaged page never ends.
#[tokio::test]
async fn a_damaged_page_keeps_neither_a_thread_nor_the_process() {
    let data = Data::generate(&[ModelKind::Ctr], 800);
    tables::generate(TableKind::Ctr, 800, 1, &data.path("features"), &Stop::never()).unwrap();
    let options = Options {
        layout: Layout::Parquet,
        shard_bytes: 1 << 20,
    };
    let shard = laid_out_with(&data, options).await.join("000000.parquet");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[21_014..21_022].copy_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0]);
    std::fs::write(&shard, bytes).unwrap();
    let set = ["features.layout=parquet", "cache.capacity_bytes=0"];
    let mut server = Server::start(&on_tier(&data, "nvme"), &set);
    for _ in 0..3 {
        let refused = server.infer("ctr", entity_ids(&[137, 582, 782, 64, 261, 120])).await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.error().contains("damaged"), "{}", refused.text());
    }
    assert_eq!(server.infer("ctr", entity_ids(&[1, 799])).await.status, 200);
    assert_eq!(server.metric("tierlab_stuck_decodes").await, 0.0);
    server.terminate();
    assert_eq!(server.wait().await.code(), Some(0), "{}", server.log());
}

#[tokio::test]
async fn a_damaged_shard_is_told_and_its_neighbours_are_served() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS);
    for layout in [Layout::Tar, Layout::ParquetLz4, Layout::Arrow] {
        let shards = laid_out(&data, layout).await;
        let set = format!("features.layout={layout}");
        let server = Server::start(&on_tier(&data, "nvme"), &[&set, "cache.capacity_bytes=0"]);
        let before = server.infer("ctr", entity_ids(&[1, 999])).await.floats();
        let first = files_below(&shards).remove(0);
        let original = std::fs::read(&first).unwrap();
        let mut damaged = original.clone();
        for at in (600..damaged.len() / 2).step_by(61) {
            damaged[at] ^= 4;
        }
        std::fs::write(&first, damaged).unwrap();
        let refused = server.infer("ctr", entity_ids(&[1])).await;
        assert_eq!(refused.status, 503, "{layout}: {}", refused.text());
        assert_eq!(server.infer("ctr", entity_ids(&[999])).await.status, 200, "{layout}");
        std::fs::write(&first, original).unwrap();
        assert_eq!(
            server.infer("ctr", entity_ids(&[1, 999])).await.floats(),
            before,
            "{layout}"
        );
    }
}

#[tokio::test]
async fn what_is_not_laid_out_or_not_known_is_refused_with_what_to_do() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS);
    let start = |layout: &str| {
        let mut arguments = on_tier(&data, "nvme");
        arguments.extend(["--set".to_owned(), "models=[\"ctr\"]".to_owned()]);
        arguments.extend(["--set".to_owned(), format!("features.layout={layout}")]);
        let ended = refused(&arguments);
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let (_, stderr) = start("parquet");
    assert!(stderr.contains("tierlab-models lay-out --layout parquet"), "{stderr}");
    let (code, stderr) = start("orc");
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("features.layout") && stderr.contains("parquet-zstd"),
        "{stderr}"
    );
}
