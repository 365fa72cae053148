//! Features from an Arrow Flight server: typed columns, keys that it has not, a server that goes away and comes back, a
//! table that is replaced.

use crate::harness::{Data, PATIENCE, Server, entity_ids, on_tier};
use std::path::Path;
use std::time::Instant;
use tierlab_models::generators::ModelKind;
use tierlab_models::stop::Stop;
use tierlab_models::tables::{self, TableKind};
use tierlab_origins::flight::FlightOrigin;
use tierlab_protocol::via::{Via, ViaSet};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Serves a folder until the sender is dropped or used.
pub(crate) async fn origin(root: &Path, port: u16) -> (u16, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let origin = FlightOrigin::open(root).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let serving = origin.serve(listener, async {
            let _ = stopped.await;
        });
        serving.await.unwrap();
    });
    (port, stop, task)
}

pub(crate) fn url(port: u16) -> String {
    format!("tiers.flight.url=grpc://127.0.0.1:{port}")
}

/// Arguments of a server that has its models from a folder, and features from Flight.
pub(crate) fn with_features(data: &Data) -> Vec<String> {
    let mut arguments = on_tier(data, "nvme");
    arguments.extend(["--feature-tier".into(), "flight".into()]);
    arguments
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_from_flight_are_those_of_the_folder() {
    let data = Data::generate(&[ModelKind::Ctr], 1000);
    let (port, _stop, _task) = origin(data.0.path(), 0).await;
    let wanted = Server::start(&on_tier(&data, "nvme"), &[])
        .infer("ctr", entity_ids(&[7, 3, 999]))
        .await
        .floats();
    let server = Server::start(&with_features(&data), &[&url(port), "cache.capacity_bytes=0"]);
    let reply = server.infer("ctr", entity_ids(&[7, 3, 999])).await;
    assert_eq!(reply.floats(), wanted);
    let timings = reply.timings();
    assert_eq!((timings.via, timings.tier_requests), (ViaSet::of(Via::Flight), 1));
    let unknown = server.infer("ctr", entity_ids(&[7, 1_000_000])).await;
    assert_eq!(unknown.status, 404, "{}", unknown.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_table_and_a_server_that_comes_back_are_read_again() {
    let data = Data::generate(&[ModelKind::Ctr], 1000);
    let (port, stop, task) = origin(data.0.path(), 0).await;
    let server = Server::start(&with_features(&data), &[&url(port), "cache.capacity_bytes=0"]);
    let before = server.infer("ctr", entity_ids(&[7])).await.floats();
    tables::generate(TableKind::Ctr, 2000, 3, &data.path("features"), &Stop::never()).unwrap();
    // A read of an entity in both tables shows the server the new version.
    let after = server.infer("ctr", entity_ids(&[7])).await.floats();
    assert_ne!(before, after, "a row of the old table");
    assert_eq!(server.infer("ctr", entity_ids(&[7, 1999])).await.floats()[0], after[0]);
    let set = [
        "tiers.flight.retries=1",
        "tiers.flight.timeout_ms=500",
        "cache.capacity_bytes=0",
    ];
    let server = Server::start(&with_features(&data), &[&[url(port).as_str()], &set[..]].concat());
    let good = server.infer("ctr", entity_ids(&[5])).await;
    assert_eq!(good.status, 200, "{}", good.text());
    let _ = stop.send(());
    task.await.unwrap();
    let reply = server.infer("ctr", entity_ids(&[5])).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let error = reply.error();
    assert!(
        error.contains("tier `flight`") && error.contains("features/ctr.rows"),
        "{error}"
    );
    let (_, _stop, _task) = origin(data.0.path(), port).await;
    let began = Instant::now();
    loop {
        let reply = server.infer("ctr", entity_ids(&[5])).await;
        if reply.status == 200 {
            assert_eq!(reply.floats(), good.floats());
            break;
        }
        assert!(began.elapsed() < PATIENCE, "not read again: {}", reply.text());
    }
}
