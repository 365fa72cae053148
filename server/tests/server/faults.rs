//! Overload, deadlines, clients that go away, damaged objects, tiers that fail.

use crate::harness::{Data, PATIENCE, Server, entity_ids, images, json_request, mlp_input, on_tier, refused};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_origins::s3::S3Origin;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_full_server_refuses_at_once_and_takes_requests_again() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Vision], 1);
    let server = Server::start(&on_tier(&data, "memory"), &["admission.max_in_flight=1"]);
    let began = Instant::now();
    let refusal = 'refused: loop {
        assert!(
            began.elapsed() < PATIENCE,
            "nothing was refused while another request was in flight"
        );
        let long = tokio::spawn(server.infer_request("vision", images()).send());
        while !long.is_finished() {
            let reply = server.infer("mlp", mlp_input(1)).await;
            if reply.status != 200 {
                // The long one may itself have met the short one.
                let _ = long.await.unwrap().unwrap();
                break 'refused reply;
            }
        }
    };
    assert_eq!(refusal.status, 503, "{}", refusal.text());
    assert!(refusal.error().contains("in flight"), "{}", refusal.text());
    assert_eq!(refusal.header("retry-after"), Some("1"));
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    assert!(server.metric("tierlab_refusals_total{reason=\"full\"}").await >= 1.0);
    assert_eq!(server.metric("tierlab_in_flight_requests").await, 0.0);
}

#[tokio::test]
async fn a_deadline_that_has_passed_gets_504() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr], 10);
    let server = Server::start(&on_tier(&data, "nvme"), &["cache.capacity_bytes=0"]);
    for (model, inputs) in [("mlp", mlp_input(1)), ("ctr", entity_ids(&[3]))] {
        let reply = server
            .post(
                &format!("/v2/models/{model}/infer"),
                json_request(inputs, Some(1), None),
            )
            .await;
        assert_eq!(reply.status, 504, "{}", reply.text());
        assert!(!reply.timings().total().is_zero());
    }
    let patient = json_request(mlp_input(1), Some(60_000_000), None);
    assert_eq!(server.post("/v2/models/mlp/infer", patient).await.status, 200);
    assert_eq!(server.metric("tierlab_refusals_total{reason=\"deadline\"}").await, 2.0);
}

#[tokio::test]
async fn a_client_that_goes_away_is_counted_and_costs_no_run() {
    let data = Data::generate(&[ModelKind::Vision], 1);
    // A run is a third of a second of one core: where many others want it too, two of them pass the default deadline.
    let server = Server::start(&on_tier(&data, "memory"), &["admission.timeout_ms=60000"]);
    let cancelled = "tierlab_refusals_total{reason=\"cancelled\"}";
    let in_flight = "tierlab_in_flight_requests";
    let runs = async || {
        let stats = server.get("/v2/models/vision/stats").await.json();
        stats["model_stats"][0]["execution_count"].as_u64().unwrap()
    };
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "no request was cancelled while another ran");
        let before = (server.metric(cancelled).await, runs().await);
        let first = tokio::spawn(server.infer_request("vision", images()).send());
        server.metric_reaches(in_flight, 1.0).await;
        let second = tokio::spawn(server.infer_request("vision", images()).send());
        while !first.is_finished() && server.metric(in_flight).await < 2.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        second.abort();
        while !first.is_finished() && server.metric(cancelled).await == before.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Asked in this order: the first one still ran when the second one's end was counted.
        let in_time = server.metric(cancelled).await > before.0 && runs().await == before.1;
        assert_eq!(first.await.unwrap().unwrap().status(), 200);
        if in_time {
            assert_eq!(server.infer("vision", images()).await.status, 200);
            assert_eq!(runs().await, before.1 + 2);
            break;
        }
        // The second one was answered, or its run is still under way.
        while server.metric(in_flight).await > 0.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(server.metric(in_flight).await, 0.0);
}

#[tokio::test]
async fn damaged_models_are_refused_by_object_and_the_others_are_served() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr], 10);
    data.damage("models/ctr/1/model.onnx", 1000);
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let index = server.post("/v2/repository/index", "").await.json();
    assert_eq!(index[0]["state"], "UNAVAILABLE");
    assert!(
        index[0]["reason"].as_str().unwrap().contains("models/ctr/1/model.onnx"),
        "{index}"
    );
    let reply = server.infer("ctr", entity_ids(&[1])).await;
    assert_eq!(reply.status, 503);
    assert!(
        reply.error().contains("models/ctr/1/model.onnx") && reply.error().contains("sha256"),
        "{}",
        reply.text()
    );
    assert_eq!(server.get("/v2/models/ctr/ready").await.status, 503);
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    drop(server);
    let mut arguments = on_tier(&data, "nvme");
    arguments.extend(["--set".into(), "models=[\"ctr\"]".into()]);
    let output = refused(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("models/ctr/1/model.onnx"));
}

#[tokio::test]
async fn damaged_tables_are_refused_by_object_and_offset() {
    let data = Data::generate(&[ModelKind::Ctr], 10);
    data.damage("features/ctr.rows", -512);
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let row_offset = (4096 + 9 * 512).to_string();
    let reply = server.infer("ctr", entity_ids(&[1, 9])).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    for named in ["features/ctr.rows", "entity 9", &row_offset] {
        assert!(reply.error().contains(named), "{} should name {named}", reply.error());
    }
    assert_eq!(server.infer("ctr", entity_ids(&[1, 8])).await.status, 200);
    drop(server);
    let table = data.path("features/ctr.rows");
    let whole = std::fs::read(&table).unwrap();
    std::fs::write(&table, &whole[..whole.len() - 100]).unwrap();
    let truncated = refused(&on_tier(&data, "nvme"));
    std::fs::write(&table, [b"TLROWS99", &whole[8..]].concat()).unwrap();
    let other = refused(&on_tier(&data, "nvme"));
    for (output, named) in [(truncated, "truncated"), (other, "offset 0")] {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(
            message.contains("features/ctr.rows") && message.contains(named),
            "{message}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_mended_is_served_again_without_a_new_version() {
    let data = Data::generate(&[ModelKind::Ctr], 100);
    let bucket = tempfile::tempdir().unwrap();
    copy(data.0.path(), &bucket.path().join("tierlab"));
    let (port, _stop, _task) = origin(bucket.path(), 0).await;
    let endpoint = format!("tiers.s3.endpoint=http://127.0.0.1:{port}");
    let server = Server::start(&["--tier".into(), "s3".into()], &[&endpoint]);
    let good = server.infer("ctr", entity_ids(&[5, 9])).await;
    // In place and under the same ETag, as a flipped bit on a disk would be.
    let table = bucket.path().join("tierlab/features/ctr.rows");
    let flip = |row: u64| {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&table).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        let at = 4096 + row * 512 + 7;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        file.set_modified(modified).unwrap();
    };
    flip(60);
    for refused in 1..=2 {
        let reply = server.infer("ctr", entity_ids(&[60])).await;
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert!(reply.error().contains("entity 60"), "{}", reply.text());
        let series = "tierlab_damaged_rows_total{outcome=\"refused\",tier=\"s3\"}";
        assert_eq!(server.metric(series).await, f64::from(refused));
    }
    flip(60);
    assert_eq!(server.infer("ctr", entity_ids(&[60])).await.status, 200);
    assert_eq!(server.infer("ctr", entity_ids(&[5, 9])).await.floats(), good.floats());
}

/// Serves a folder as S3 until the sender is dropped or used.
async fn origin(root: &std::path::Path, port: u16) -> (u16, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let origin = S3Origin::open(root).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let serving = origin.serve(listener, async {
            let _ = stopped.await;
        });
        serving.await.unwrap();
    });
    (port, stop, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tier_that_fails_is_named_and_the_server_recovers_by_itself() {
    let data = Data::generate(&[ModelKind::Ctr], 100);
    let bucket = tempfile::tempdir().unwrap();
    let folder = bucket.path();
    copy(data.0.path(), &folder.join("tierlab"));
    let (port, stop, task) = origin(folder, 0).await;
    let endpoint = format!("tiers.s3.endpoint=http://127.0.0.1:{port}");
    let set = [
        endpoint.as_str(),
        "tiers.s3.retries=1",
        "tiers.s3.timeout_ms=300",
        "cache.capacity_bytes=0",
    ];
    let server = Server::start(&["--tier".into(), "s3".into()], &set);
    let good = server.infer("ctr", entity_ids(&[5])).await;
    assert_eq!(good.status, 200, "{}", good.text());
    let _ = stop.send(());
    task.await.unwrap();
    let reply = server.infer("ctr", entity_ids(&[5])).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(
        reply.error().contains("tier `s3`") && reply.error().contains("features/ctr.rows"),
        "{}",
        reply.text()
    );
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(server.get("/v2/health/live").await.status, 200);
    let (_, _stop, _task) = origin(folder, port).await;
    let began = Instant::now();
    loop {
        let reply = server.infer("ctr", entity_ids(&[5])).await;
        if reply.status == 200 {
            assert_eq!(reply.floats(), good.floats());
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", reply.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tier_that_stalls_is_given_up_with_the_request_and_named() {
    let data = Data::generate(&[ModelKind::Ctr], 100);
    let bucket = tempfile::tempdir().unwrap();
    copy(data.0.path(), &bucket.path().join("tierlab"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("tiers.s3.endpoint=http://{}", listener.local_addr().unwrap());
    let origin = S3Origin::open(bucket.path()).unwrap();
    let faults = origin.faults().clone();
    tokio::spawn(origin.serve(listener, std::future::pending()));
    // A cache fetches rows for all waiting requests, so only the request ends at its deadline.
    for (cache, given_up) in [
        ("cache.capacity_bytes=0", "did not answer in time"),
        ("cache.block_bytes=4096", "waited for"),
    ] {
        let set = [
            endpoint.as_str(),
            cache,
            "tiers.s3.timeout_ms=60000",
            "tiers.s3.attempt_ms=30000",
        ];
        faults.set("".parse().unwrap());
        let server = Server::start(&["--tier".into(), "s3".into()], &set);
        faults.set("stall-rate=1".parse().unwrap());
        let request = json_request(entity_ids(&[5]), Some(200_000), None);
        let reply = server.post("/v2/models/ctr/infer", request).await;
        assert_eq!(reply.status, 504, "{}", reply.text());
        for named in ["tier `s3`", given_up] {
            assert!(reply.error().contains(named), "{named}: {}", reply.text());
        }
        faults.set("".parse().unwrap());
        let began = Instant::now();
        // A fetch that was begun for the cache is waited for; its attempt is given up after 30 s and not with the request.
        let patient = json_request(entity_ids(&[99]), Some(60_000_000), None);
        assert_eq!(server.post("/v2/models/ctr/infer", patient).await.status, 200);
        assert!(began.elapsed() < PATIENCE);
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
