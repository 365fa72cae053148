//! The suite, and cases beyond it: several DoGets per read, feature rows in every form.

use super::harness::{Served, connect, header, row, table};
use crate::{path, put};
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::flight_service_client::FlightServiceClient;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use tierlab_formats::table::TableHeader;
use tierlab_protocol::via::{Via, ViaSet};
use tierlab_storage::conformance::{Suite, content};
use tierlab_storage::{ErrorKind, Tier};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tier_conforms() {
    let served = Served::new().await;
    let scratch = tempfile::tempdir().unwrap();
    for (folder, more) in [
        ("whole", ""),
        (
            "cut",
            "part_bytes = 70000\nranges_per_request = 37\nconnections = 2\nconcurrency = 5",
        ),
    ] {
        let suite = Suite {
            tier: served.tier(more).await,
            folder: path(folder),
            scratch: scratch.path().to_owned(),
            notices_changes: true,
        };
        suite.run().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_many_rows_is_one_request() {
    let served = Served::new().await;
    let header = header(2000, 100);
    std::fs::create_dir(served.root.path().join("features")).unwrap();
    std::fs::write(served.root.path().join("features/ctr.rows"), table(&header, 1)).unwrap();
    let ids: Vec<i64> = (0..1000).map(|i| 100 + i * 7 % 2000).collect();
    let ranges: Vec<_> = ids.iter().map(|&id| header.row_range(id).unwrap()).collect();
    let tier = served.tier("").await;
    let object = tier.stat(&path("features/ctr.rows")).await.unwrap();
    let read = tier.read_many(&object, &ranges).await.unwrap();
    assert_eq!((read.cost.requests, read.cost.retries), (1, 0));
    assert_eq!(read.cost.via, ViaSet::of(Via::Flight));
    for (&id, bytes) in ids.iter().zip(&read.parts) {
        assert_eq!(*bytes, row(&header, 1, id));
    }
    let cut = served.tier("ranges_per_request = 300").await;
    let read = cut.read_many(&object, &ranges).await.unwrap();
    assert_eq!(read.cost.requests, 4);
    assert_eq!(read.parts[999], row(&header, 1, ids[999]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typed_columns_are_laid_out_as_the_file_has_them() {
    let served = Served::new().await;
    let header = header(3000, -50);
    let file = table(&header, 3);
    std::fs::create_dir(served.root.path().join("features")).unwrap();
    std::fs::write(served.root.path().join("features/ctr.rows"), &file).unwrap();
    let tier = served.tier("dialect = \"tables\"\nranges_per_request = 500").await;
    assert!(tier.info().notes[0].contains("typed columns"));
    let object = tier.stat(&path("features/ctr.rows")).await.unwrap();
    let whole = tier.read(&object, 0..object.size).await.unwrap();
    assert_eq!(whole.cost.requests, 6);
    let told = TableHeader::decode(&whole.bytes, object.size).unwrap();
    assert_eq!(
        (told.schema.clone(), told.stride, told.rows, told.first_id),
        (header.schema.clone(), header.stride, 3000, -50)
    );
    assert_eq!(
        whole.bytes[told.header_len() as usize..],
        file[header.header_len() as usize..]
    );
    // Any range, across rows and from the header into them.
    let head = told.header_len();
    let ranges = [
        head - 10..head + 10,
        head + 511..head + 1025,
        object.size - 1..object.size,
        5..9,
        head..head,
        0..0,
    ];
    let parts = tier.read_many(&object, &ranges).await.unwrap().parts;
    for (range, part) in ranges.into_iter().zip(parts) {
        assert_eq!(part, whole.bytes[range.start as usize..range.end as usize]);
    }
    assert_eq!(tier.list(None).await.unwrap(), std::slice::from_ref(&object));
    for (name, kind) in [
        ("features/none.rows", ErrorKind::NotFound),
        ("models/ctr/1/model.onnx", ErrorKind::NotFound),
    ] {
        assert_eq!(tier.stat(&path(name)).await.unwrap_err().kind(), kind);
    }
    let refused = tier.delete(&object.path).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    // Another table of the same columns in its place.
    std::fs::write(served.root.path().join("features/new"), table(&header, 4)).unwrap();
    std::fs::rename(
        served.root.path().join("features/new"),
        served.root.path().join("features/ctr.rows"),
    )
    .unwrap();
    let row_0 = header.row_range(0).unwrap().start - header.header_len() + head;
    let error = tier.read(&object, row_0..row_0 + 512).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    let object = tier.stat(&object.path).await.unwrap();
    assert_eq!(
        tier.read(&object, row_0..row_0 + 512).await.unwrap().bytes,
        row(&header, 4, 0)
    );
}

/// DoGet by the library's own client: metadata of its schema, and its rows as the bytes of one batch.
async fn get(served: &Served, ticket: &str) -> Result<Vec<arrow_array::RecordBatch>, tonic::Status> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", served.address)).unwrap();
    let mut client = FlightServiceClient::new(endpoint.connect_lazy());
    let ticket = arrow_flight::Ticket::new(ticket.to_owned());
    let reply = client.do_get(ticket).await?.into_inner();
    let batches = FlightRecordBatchStream::new_from_flight_data(reply.map_err(Into::into));
    batches
        .map(|batch| batch.map_err(tonic::Status::from))
        .try_collect()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_are_answered_or_refused_by_name() {
    use arrow_array::{Array, FixedSizeBinaryArray};
    let served = Served::new().await;
    let header = header(100, 1);
    let tier: Arc<dyn Tier> = served.tier("").await;
    let file = table(&header, 1);
    let body = tierlab_storage::Body::Bytes(file.clone().into());
    let object = tier.put(&path("features/ctr.rows"), body).await.unwrap();
    put(&tier, "features/noise.rows", 1, 9000).await;
    put(&tier, "a/b", 2, 3_000_000).await;

    let rows = get(&served, "{\"table\":\"ctr\",\"ids\":[7,3,7],\"form\":\"rows\"}")
        .await
        .unwrap();
    let column = rows[0]
        .column(0)
        .as_any()
        .downcast_ref::<FixedSizeBinaryArray>()
        .unwrap()
        .clone();
    assert_eq!((column.len(), column.value_length()), (3, header.stride as i32));
    assert_eq!(column.value(1), row(&header, 1, 3));
    assert_eq!(rows[0].schema().metadata()["first_id"], "1");
    let whole = get(&served, "{\"object\":\"a/b\"}").await.unwrap();
    let bytes: Vec<u8> = whole
        .iter()
        .flat_map(|batch| {
            let column = batch
                .column(0)
                .as_any()
                .downcast_ref::<arrow_array::BinaryArray>()
                .unwrap();
            column
                .iter()
                .flat_map(|value| value.unwrap().to_vec())
                .collect::<Vec<u8>>()
        })
        .collect();
    assert!(bytes == content(2, 0..3_000_000));
    assert!(whole.len() > 2, "no message is larger than 1 MiB");

    let version = format!("{{\"table\":\"ctr\",\"version\":\"{}\"}}", object.version);
    let count =
        |batches: Vec<arrow_array::RecordBatch>| batches.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>();
    assert_eq!(count(get(&served, &version).await.unwrap()), 100);
    for (ticket, code, word) in [
        ("nonsense", tonic::Code::InvalidArgument, "ticket"),
        ("{\"table\":\"none\"}", tonic::Code::NotFound, "features/none.rows"),
        ("{\"table\":\"noise\"}", tonic::Code::DataLoss, "features/noise.rows"),
        ("{\"table\":\"ctr\",\"ids\":[1,0]}", tonic::Code::NotFound, "entity 0"),
        ("{\"table\":\"ctr\",\"ids\":[101]}", tonic::Code::NotFound, "entity 101"),
        (
            "{\"table\":\"ctr\",\"version\":\"old\"}",
            tonic::Code::FailedPrecondition,
            "version",
        ),
        ("{\"object\":\"../x\"}", tonic::Code::InvalidArgument, "path"),
        (
            "{\"object\":\"a/b\",\"ranges\":[[5,3]]}",
            tonic::Code::OutOfRange,
            "a/b",
        ),
        (
            "{\"object\":\"a/b\",\"ranges\":[[0,3000001]]}",
            tonic::Code::OutOfRange,
            "a/b",
        ),
    ] {
        let status = get(&served, ticket).await.unwrap_err();
        assert_eq!(status.code(), code, "{ticket}: {status}");
        assert!(status.message().contains(word), "{ticket}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_configs_and_servers_are_one_clear_error() {
    let served = Served::new().await;
    let zero = connect(&served.url(), "concurrency = 0").await.err().unwrap();
    assert_eq!(zero.kind(), ErrorKind::Invalid);
    let nobody = connect("grpc://127.0.0.1:1", "retries = 1").await.err().unwrap();
    assert_eq!(nobody.kind(), ErrorKind::Unavailable);
    assert!(nobody.to_string().contains("grpc://127.0.0.1:1"), "{nobody}");
}
