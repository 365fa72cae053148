//! The cache as requests see it.

use crate::harness::{Data, Reply, Server, entity_ids, on_tier, refused};
use tierlab_models::generators::ModelKind;
use tierlab_protocol::timing::Stage;
use tierlab_protocol::via::Via;

const TIER_REQUESTS: &str = "tierlab_tier_requests_total{role=\"feature\",tier=\"nvme\"}";

#[tokio::test]
async fn hits_and_misses_show_in_the_reply() {
    let data = Data::generate(&[ModelKind::Ctr], 1000);
    let server = Server::start(&on_tier(&data, "nvme"), &["cache.block_bytes=512"]);
    let cold = server.infer("ctr", entity_ids(&[7])).await;
    let warm = server.infer("ctr", entity_ids(&[7])).await;
    let half = server.infer("ctr", entity_ids(&[7, 500])).await;
    assert_eq!(cold.floats(), warm.floats());
    let (cold, warm, half) = (cold.timings(), warm.timings(), half.timings());
    assert_eq!((cold.cache_hits, cold.cache_misses), (0, 1));
    assert!(cold.tier_requests >= 1 && !cold.get(Stage::Tier).is_zero());
    assert!(!cold.via.contains(Via::Memory) && !cold.via.is_empty());
    assert_eq!((warm.cache_hits, warm.cache_misses, warm.tier_requests), (1, 0, 0));
    assert!(warm.get(Stage::Tier).is_zero() && !warm.get(Stage::Cache).is_zero());
    assert!(warm.via.contains(Via::Memory));
    assert_eq!((half.cache_hits, half.cache_misses), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_wanted_by_many_at_once_is_read_once() {
    let data = Data::generate(&[ModelKind::Ctr], 1000);
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let before = server.metric(TIER_REQUESTS).await;
    let replies = futures::future::join_all((0..24).map(|_| server.infer("ctr", entity_ids(&[640])))).await;
    assert!(replies.iter().all(|reply| reply.floats() == replies[0].floats()));
    assert_eq!(server.metric(TIER_REQUESTS).await - before, 1.0);
}

#[tokio::test]
async fn without_a_cache_every_row_comes_from_the_tier() {
    let data = Data::generate(&[ModelKind::Ctr], 1000);
    let server = Server::start(&on_tier(&data, "nvme"), &["cache.capacity_bytes=0"]);
    for _ in 0..3 {
        let timings = server.infer("ctr", entity_ids(&[7])).await.timings();
        assert_eq!((timings.cache_hits, timings.cache_misses), (0, 0));
        assert!(timings.tier_requests >= 1 && timings.get(Stage::Cache).is_zero());
    }
    let idle = server
        .metric("tierlab_session_seconds_total{model=\"ctr\",session=\"0\",state=\"no_requests\"}")
        .await;
    let storage = server
        .metric("tierlab_session_seconds_total{model=\"ctr\",session=\"0\",state=\"storage_wait\"}")
        .await;
    assert!(idle > 0.0 && storage > 0.0, "{idle} {storage}");
}

#[tokio::test]
async fn a_tiers_own_cache_goes_before_the_servers_and_a_flag_before_both() {
    let data = Data::generate(&[ModelKind::Ctr], 1000);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tiers")).unwrap();
    let config = folder.path().join("server.toml");
    std::fs::write(&config, "[cache]\ncapacity_bytes = 2097152\nblock_bytes = 512").unwrap();
    let tier = "kind = \"nvme\"\nroot = \"none\"\n[cache]\ncapacity_bytes = 1048576";
    std::fs::write(folder.path().join("tiers/nvme.toml"), tier).unwrap();
    let mut arguments = on_tier(&data, "nvme");
    arguments.extend(["--config".to_owned(), config.display().to_string()]);
    let capacity = "tierlab_cache_capacity_bytes{tier=\"nvme\"}";
    for (set, bytes) in [
        (vec![], 1_048_576.0),
        (vec!["cache.capacity_bytes=3145728"], 3_145_728.0),
        (vec!["cache.capacity_bytes=0"], 0.0),
    ] {
        let server = Server::start(&arguments, &set);
        assert_eq!(server.metric(capacity).await, bytes, "{set:?}");
        for id in [7, 7, 500] {
            server.infer("ctr", entity_ids(&[id])).await.inferred();
        }
        let (hits, misses) = if bytes > 0.0 { (1.0, 2.0) } else { (0.0, 0.0) };
        assert_eq!(
            server.metric("tierlab_cache_hits_total{tier=\"nvme\"}").await,
            hits,
            "{set:?}"
        );
        assert_eq!(server.metric("tierlab_cache_misses_total{tier=\"nvme\"}").await, misses);
    }
}

/// Arguments that serve `data` from nvme through a stage in `folder`, without a cache.
fn staged(data: &Data, folder: &std::path::Path) -> Vec<String> {
    let mut arguments = on_tier(data, "nvme");
    let root = format!("tiers.nvme.staged.root={}", folder.display());
    for set in [
        root.as_str(),
        "tiers.nvme.staged.block_bytes=65536",
        "cache.capacity_bytes=0",
    ] {
        arguments.extend(["--set".to_owned(), set.to_owned()]);
    }
    arguments
}

fn staged_series(name: &str) -> String {
    format!("tierlab_staged_{name}{{tier=\"nvme\"}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_while_staging_starts_again_with_every_byte_right() {
    const ROWS: i64 = 20_000;
    let data = Data::generate(&[ModelKind::Ctr], ROWS as u64);
    let folder = tempfile::tempdir().unwrap();
    let batch = |n: i64| entity_ids(&(0..32).map(|i| (n * 617 + i * 625) % ROWS).collect::<Vec<_>>());
    let mut expected = Vec::new();
    let plain = Server::start(&on_tier(&data, "nvme"), &[]);
    for n in 0..40 {
        expected.push(plain.infer("ctr", batch(n)).await.floats());
    }
    drop(plain);
    let matches = |got: &[f32], expected: &[f32]| {
        // Requests that met in one run are computed in another order.
        got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5)
    };
    let (mut used_again, mut written) = (0.0, 0.0);
    for round in 0..5_u64 {
        let server = Server::start(&staged(&data, folder.path()), &[]);
        let requests = (0..40).map(|n| server.infer_request("ctr", batch(n)).send());
        // Killed at some moment while blocks are being read, written and recorded; the last round is left to end.
        let moment = std::time::Duration::from_millis(if round < 4 { 3 + 17 * round } else { 60_000 });
        let answered = tokio::time::timeout(moment, futures::future::join_all(requests)).await;
        if round < 4 {
            // Dropping it is SIGKILL.
            drop(server);
            continue;
        }
        for (reply, expected) in answered.unwrap().into_iter().zip(&expected) {
            let reply = Reply::of(reply.unwrap()).await;
            assert!(matches(&reply.floats(), expected), "{}", reply.text());
        }
        (used_again, written) = (
            server.metric(&staged_series("hits_total")).await,
            server.metric(&staged_series("written_blocks_total")).await,
        );
        for (series, is) in [("torn_blocks_total", 0.0), ("failures_total", 0.0)] {
            assert_eq!(server.metric(&staged_series(series)).await, is, "{series}");
        }
        // No wrong byte was even mended.
        for outcome in ["mended", "refused"] {
            let series = format!("tierlab_damaged_rows_total{{outcome=\"{outcome}\",tier=\"nvme\"}}");
            assert_eq!(server.metric(&series).await, 0.0, "{series}");
        }
    }
    assert!(
        used_again > 0.0,
        "nothing was used again; {written} blocks were written"
    );
}

#[tokio::test]
async fn a_stage_that_cannot_be_opened_is_an_error_at_the_start() {
    let data = Data::generate(&[ModelKind::Ctr], 10);
    let folder = tempfile::tempdir().unwrap();
    let occupied = folder.path().join("file");
    std::fs::write(&occupied, "no folder").unwrap();
    let output = refused(&staged(&data, &occupied));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    for named in [occupied.to_str().unwrap(), "staged.root"] {
        assert!(message.contains(named), "{named}: {message}");
    }
}

#[tokio::test]
async fn faults_of_an_emulated_service_are_counted() {
    let data = Data::generate(&[ModelKind::Ctr], 100);
    let faulty = "tiers.nvme.emulated.errors=[{ kind = \"unavailable\", rate = 0.2 }]";
    let set = [faulty, "tiers.nvme.emulated.retries=10", "cache.capacity_bytes=0"];
    let server = Server::start(&on_tier(&data, "nvme"), &set);
    for id in 0..40 {
        server.infer("ctr", entity_ids(&[id])).await.inferred();
    }
    let faults = server
        .metric("tierlab_emulated_faults_total{kind=\"unavailable\",tier=\"nvme\"}")
        .await;
    let retries = server
        .metric("tierlab_tier_retries_total{role=\"feature\",tier=\"nvme\"}")
        .await;
    assert!(retries > 0.0 && faults >= retries, "{faults} faults, {retries} retries");
}
