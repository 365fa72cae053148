//! Reads of tables, whole and in parts, as several DoGets, and tickets of any client.

use super::harness::{Served, connect, header, row, stat, table};
use crate::path;
use arrow_array::{Int64Array, RecordBatch};
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::flight_service_client::FlightServiceClient;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use std::ops::Range;
use tierlab_formats::table::TableHeader;
use tierlab_protocol::via::{Via, ViaSet};
use tierlab_storage::{Body, ErrorKind};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_those_of_the_file_however_they_are_cut() {
    let served = Served::new().await;
    let file = table(&header(700, -3), 1);
    served.write(&file);
    let size = file.len() as u64;
    let of_file = |range: &Range<u64>| &file[range.start as usize..range.end as usize];
    for more in [
        "",
        "part_bytes = 70000\nranges_per_request = 37\nconnections = 2\nconcurrency = 5",
    ] {
        let tier = served.tier(more).await;
        let object = stat(&tier).await;
        assert_eq!(object.size, size);
        let mut ranges = vec![0..size, 0..0, size..size, size - 1..size];
        ranges.extend((0..60_u64).map(|i| {
            let start = i * 7919 % size;
            start..(start + i * i * 13).min(size)
        }));
        let parts = tier.read_many(&object, &ranges).await.unwrap().parts;
        assert_eq!(parts.len(), ranges.len());
        for (range, part) in ranges.iter().zip(parts) {
            assert!(part == of_file(range), "{range:?}");
        }
        let together = join_all(ranges.iter().map(|range| tier.read(&object, range.clone()))).await;
        for (range, read) in ranges.iter().zip(together) {
            assert!(read.unwrap().bytes == of_file(range), "{range:?}");
        }
        for (start, end) in [(0, size + 1), (5, 3)] {
            let refused = tier.read(&object, start..end).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::OutOfRange, "{refused}");
        }
        assert_eq!(tier.list(Some(&path("features"))).await.unwrap(), [object]);
        assert_eq!(tier.list(Some(&path("models"))).await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_many_rows_is_one_request() {
    let served = Served::new().await;
    let header = header(2000, 100);
    served.write(&table(&header, 1));
    let ids: Vec<i64> = (0..1000).map(|i| 100 + i * 7 % 2000).collect();
    let ranges: Vec<_> = ids.iter().map(|&id| header.row_range(id).unwrap()).collect();
    let tier = served.tier("").await;
    let object = stat(&tier).await;
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
    // Blocks of the file have checksums, which cannot be laid out.
    let header = TableHeader::new(header(3000, -50).schema, 3000, -50, 1).unwrap();
    let file = table(&header, 3);
    served.write(&file);
    let tier = served.tier("ranges_per_request = 500").await;
    assert!(tier.info().notes[0].contains("typed columns"));
    let object = stat(&tier).await;
    let whole = tier.read(&object, 0..object.size).await.unwrap();
    assert_eq!(whole.cost.requests, 6);
    let decoded = TableHeader::decode(&whole.bytes, object.size).unwrap();
    assert_eq!(
        (decoded.schema.clone(), decoded.stride, decoded.rows, decoded.first_id),
        (header.schema.clone(), header.stride, 3000, -50)
    );
    assert_eq!(
        whole.bytes[decoded.header_len() as usize..],
        file[header.header_len() as usize..]
    );
    // Any range, across rows and from the header into them.
    let head = decoded.header_len();
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
    let body = Body::Bytes(bytes::Bytes::new());
    for refused in [
        tier.delete(&object.path).await.unwrap_err(),
        tier.put(&object.path, body).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("read-only"), "{refused}");
    }
    // Another table of the same columns in its place.
    served.write(&table(&header, 4));
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
async fn get(served: &Served, ticket: &str) -> Result<Vec<RecordBatch>, tonic::Status> {
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
    let served = Served::new().await;
    let header = header(3000, 1);
    served.write(&table(&header, 1));
    std::fs::write(served.root.path().join("features/noise.rows"), [7; 9000]).unwrap();

    let rows = get(&served, "{\"table\":\"ctr\",\"ids\":[7,3,7]}").await.unwrap();
    let ids = rows[0].column_by_name("entity_id").unwrap().as_any();
    assert_eq!(ids.downcast_ref::<Int64Array>().unwrap().values()[..], [7, 3, 7]);
    let schema = rows[0].schema();
    assert_eq!(schema.metadata()["first_id"], "1");

    let count = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    let whole = get(&served, "{\"table\":\"ctr\"}").await.unwrap();
    assert_eq!(count(&whole), 3000);
    assert!(whole.len() > 1, "no message is larger than 1 MiB");
    let version = format!("{{\"table\":\"ctr\",\"version\":\"{}\"}}", schema.metadata()["version"]);
    assert_eq!(count(&get(&served, &version).await.unwrap()), 3000);
    for (ticket, code, word) in [
        ("nonsense", tonic::Code::InvalidArgument, "ticket"),
        ("{\"table\":\"none\"}", tonic::Code::NotFound, "features/none.rows"),
        ("{\"table\":\"noise\"}", tonic::Code::DataLoss, "features/noise.rows"),
        ("{\"table\":\"ctr\",\"ids\":[1,0]}", tonic::Code::NotFound, "entity 0"),
        (
            "{\"table\":\"ctr\",\"ids\":[3001]}",
            tonic::Code::NotFound,
            "entity 3001",
        ),
        (
            "{\"table\":\"ctr\",\"version\":\"old\"}",
            tonic::Code::FailedPrecondition,
            "version",
        ),
        ("{\"object\":\"a/b\"}", tonic::Code::InvalidArgument, "object"),
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
