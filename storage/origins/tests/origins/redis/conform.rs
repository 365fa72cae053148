//! The conformance suite on one server, and a feature table whose rows are keys.

use super::{Store, conforms, open};
use crate::path;
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_protocol::tensor::DataType;
use tierlab_protocol::via::{Via, ViaSet};
use tierlab_storage::{Body, ErrorKind};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_conforms_and_keeps_nothing() {
    let store = Store::start(&[]);
    let tier = open(&store.url(), "").await;
    assert_eq!(tier.info().location, format!("{}/tierlab", store.url()));
    conforms(tier.clone(), "suite").await;
    // One connection, and requests of a chunk each.
    let small = "prefix = \"small\"\nconnections = 1\nconcurrency = 2\npart_bytes = 1000";
    conforms(open(&store.url(), small).await, "suite").await;
    let small = open(&store.url(), small).await;
    for tier in [tier, small] {
        for object in tier.list(None).await.unwrap() {
            tier.delete(&object.path).await.unwrap();
        }
    }
    assert_eq!(store.query::<u64>(&["DBSIZE"]), 0);
}

/// A table of `rows` rows of 256 bytes.
fn table(rows: u64) -> (TableHeader, Vec<u8>) {
    let schema = TableSchema::lay_out("t", &[("x", DataType::Fp32, &[60])]).unwrap();
    let header = TableHeader::new(schema, rows, 0, 1).unwrap();
    let mut bytes = header.encode();
    for id in 0..rows {
        let mut row = vec![u8::try_from(id % 251).unwrap(); header.stride as usize];
        header.seal_row(id.cast_signed(), &mut row);
        bytes.extend_from_slice(&row);
    }
    (header, bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_a_key_and_many_are_one_request() {
    let store = Store::start(&[]);
    let (header, bytes) = table(5000);
    for (rows_per_key, keys) in [(1, 5000), (7, 715)] {
        let tier = open(&store.url(), &format!("rows_per_key = {rows_per_key}")).await;
        let object = tier
            .put(&path("features/t.rows"), Body::Bytes(bytes.clone().into()))
            .await
            .unwrap();
        // The header's one chunk, and the hash of all objects.
        assert_eq!(store.query::<u64>(&["DBSIZE"]), keys + 2);
        let ranges: Vec<_> = (0..300).map(|i| header.row_range(i * 16 % 5000).unwrap()).collect();
        // Read by a tier with another setting: the layout is the object's own.
        let reader = open(&store.url(), "rows_per_key = 3").await;
        let read = reader.read_many(&object, &ranges).await.unwrap();
        for (id, row) in (0..300).map(|i| i * 16 % 5000).zip(&read.parts) {
            header.check_row(id, row).unwrap();
        }
        assert_eq!((read.cost.requests, read.cost.retries), (1, 0));
        assert_eq!(read.cost.via, ViaSet::of(Via::Redis));
        let row = u64::from(header.stride);
        assert!((300 * row..=300 * row * rows_per_key).contains(&read.cost.wire_bytes));
        let whole = tier.read(&object, 0..object.size).await.unwrap();
        assert_eq!(whole.bytes, bytes);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_dropped_or_damaged_is_corrupt() {
    let store = Store::start(&[]);
    let tier = open(&store.url(), "").await;
    let object = crate::put(&tier, "a", 1, 5000).await;
    let mut keys: Vec<String> = store.query(&["KEYS", "tierlab:*"]);
    let key = keys.pop().unwrap();
    assert!(keys.is_empty(), "{keys:?}");
    store.query::<()>(&["SET", &key, "short"]);
    let error = tier.read(&object, 0..1).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Corrupt && error.detail().contains("5 bytes"),
        "{error}"
    );
    store.query::<()>(&["DEL", &key]);
    let error = tier.read(&object, 0..1).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Corrupt && error.detail().contains("noeviction"),
        "{error}"
    );
    store.query::<()>(&["LPUSH", &key, "a list"]);
    let error = tier.read(&object, 0..1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    store.query::<()>(&["HSET", "{tierlab}:objects", "a", "something else"]);
    assert_eq!(tier.stat(&object.path).await.unwrap_err().kind(), ErrorKind::Corrupt);
}
