//! The cache as requests see it.

use crate::harness::{Data, Server, entity_ids, on_tier};
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
