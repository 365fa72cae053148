//! Three servers as a cluster: the conformance suite, rows on all nodes, and a node that is gone.

use super::{Store, conforms, free_port, open, try_open};
use std::time::{Duration, Instant};
use tierlab_storage::ErrorKind;
use tierlab_storage::content::content;

/// A node of its own.
fn start_node() -> Store {
    let bus = free_port().to_string();
    Store::start(&[
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        "2000",
    ])
}

/// Makes two nodes known to each other.
fn meet(node: &Store, other: &Store) {
    let bus: Vec<(String, String)> = other.query(&["CONFIG", "GET", "cluster-port"]);
    node.query::<()>(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), &bus[0].1]);
}

/// Three nodes, each with a third of the slots.
fn cluster() -> [Store; 3] {
    let nodes = [0, 1, 2].map(|_| start_node());
    for (node, slots) in nodes.iter().zip([["0", "5460"], ["5461", "10922"], ["10923", "16383"]]) {
        node.query::<()>(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]);
    }
    for other in &nodes[1..] {
        meet(&nodes[0], other);
    }
    let began = Instant::now();
    while !nodes
        .iter()
        .all(|node| node.query::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
    {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the nodes do not find each other"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_conforms_on_all_its_nodes() {
    let nodes = cluster();
    let tier = open(&nodes[1].url(), "cluster = true").await;
    conforms(tier.clone(), "suite").await;
    let object = crate::put(&tier, "spread", 3, 40 << 20).await;
    for node in &nodes {
        assert!(node.query::<u64>(&["DBSIZE"]) > 5);
    }
    let read = tier.read(&object, 0..40 << 20).await.unwrap();
    // At least one request to each node, and each of one MiB at most.
    assert!((40..100).contains(&read.cost.requests), "{:?}", read.cost);
    for object in tier.list(None).await.unwrap() {
        tier.delete(&object.path).await.unwrap();
    }
    assert_eq!(nodes.iter().map(|node| node.query::<u64>(&["DBSIZE"])).sum::<u64>(), 0);

    // A node of a cluster is not the whole store, and a single store is not a cluster.
    let error = try_open(&nodes[0].url(), "").await.err().unwrap();
    assert!(
        error.kind() == ErrorKind::Invalid && error.detail().contains("cluster = true"),
        "{error}"
    );
    let alone = Store::start(&[]);
    let error = try_open(&alone.url(), "cluster = true").await.err().unwrap();
    assert!(
        error.kind() == ErrorKind::Invalid && error.detail().contains("not a cluster"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moved_is_found_again() {
    let nodes = cluster();
    let tier = open(&nodes[0].url(), "cluster = true").await;
    let other = open(&nodes[2].url(), "cluster = true").await;
    // Slots without keys go to the first node, and the tiers do not know.
    let id: String = nodes[0].query(&["CLUSTER", "MYID"]);
    let have_all = |node: &Store| node.query::<String>(&["CLUSTER", "NODES"]).contains(" 0-5760\n");
    let began = Instant::now();
    while !nodes.iter().all(have_all) {
        assert!(began.elapsed() < Duration::from_secs(30), "the nodes do not agree");
        for node in [&nodes[1], &nodes[2], &nodes[0]] {
            for slot in 5461..5761 {
                node.query::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
            }
        }
        // Goes before what the nodes had told each other.
        nodes[0].query::<String>(&["CLUSTER", "BUMPEPOCH"]);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let mut retries = 0;
    for i in 0..100 {
        let object = crate::put(&tier, &format!("moved/{i}"), i, 3 << 20).await;
        let read = other.read(&object, 0..object.size).await.unwrap();
        assert_eq!(read.bytes, content(i, 0..object.size));
        retries += read.cost.retries;
    }
    assert!((1..10).contains(&retries), "{retries}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_slot_that_is_moving_are_read_from_both_nodes() {
    let nodes = cluster();
    let tier = open(&nodes[0].url(), "cluster = true\nconnections = 1\nretries = 0").await;
    let object = crate::put(&tier, "a", 5, 20 << 20).await;
    let keys: Vec<String> = nodes[0].query(&["KEYS", "tierlab:*"]);
    let slot = nodes[0].query::<u64>(&["CLUSTER", "KEYSLOT", &keys[0]]).to_string();
    let ids = [0, 1].map(|i| nodes[i].query::<String>(&["CLUSTER", "MYID"]));
    nodes[1].query::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]);
    nodes[0].query::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]);
    let port = nodes[1].port.to_string();
    for key in nodes[0].query::<Vec<String>>(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]) {
        nodes[0].query::<String>(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
    }
    let connections = || {
        let stats: String = nodes[0].query(&["INFO", "stats"]);
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = connections();
    for _ in 0..3 {
        let read = tier.read(&object, 0..object.size).await.unwrap();
        assert_eq!(read.bytes, content(5, 0..object.size));
        assert_eq!(read.cost.retries, 0);
    }
    assert_eq!(connections(), before + 1, "that of the question alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_taken_out_is_not_believed() {
    let nodes = cluster();
    let spare = start_node();
    meet(&nodes[0], &spare);
    let id: String = spare.query(&["CLUSTER", "MYID"]);
    let knows = |node: &Store| node.query::<String>(&["CLUSTER", "NODES"]).contains(&id);
    let began = Instant::now();
    while spare.query::<Vec<redis::Value>>(&["CLUSTER", "SLOTS"]).len() < 3 || !nodes.iter().all(knows) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the spare node is told nothing"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let tier = open(&spare.url(), "cluster = true\nconnections = 1").await;
    let object = crate::put(&tier, "a", 6, 20 << 20).await;
    spare.query::<()>(&["CLUSTER", "RESET", "HARD"]);
    for node in &nodes {
        node.query::<()>(&["CLUSTER", "FORGET", &id]);
        node.query::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    let read = tier.read(&object, 0..object.size).await.unwrap();
    assert_eq!(read.bytes, content(6, 0..object.size));
    let error = try_open(&spare.url(), "cluster = true").await.err().unwrap();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.detail().contains("incomplete reply"),
        "{error}"
    );
}
