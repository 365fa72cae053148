//! Columns of kept requests, in Parquet.

use super::{RequestFacts, StepId};
use crate::store::files::write_with;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use prost::Message as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tierlab_analysis::record::Outcome;
use tierlab_load::driver::KeptRequest;
use tierlab_load::payload::{Body, Protocol};
use tierlab_protocol::grpc::client::unframed;
use tierlab_protocol::grpc::messages::ModelInferRequest;
use tierlab_protocol::infer::InferRequest;
use tierlab_protocol::timing::Stage;

/// Rows that are converted at once.
const BATCH: usize = 8_192;
/// Rows of a row group, which is written as soon as it is full.
const ROW_GROUP: usize = 16 * BATCH;

pub(super) fn write(path: &Path, step: &StepId, requests: &[KeptRequest], facts: &RequestFacts) -> io::Result<()> {
    let shapes = facts.shapes();
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let properties = properties.set_max_row_group_row_count(Some(ROW_GROUP)).build();
    let schema = batch(step, &[], facts, &shapes)?.schema();
    write_with(path, |file| {
        let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).map_err(io::Error::other)?;
        for chunk in requests.chunks(BATCH) {
            let rows = batch(step, chunk, facts, &shapes)?;
            writer.write(&rows).map_err(io::Error::other)?;
        }
        writer.close().map(drop).map_err(io::Error::other)
    })
}

fn batch(step: &StepId, requests: &[KeptRequest], facts: &RequestFacts, shapes: &[String]) -> io::Result<RecordBatch> {
    let (point, offered_rps, repeat) = step;
    let texts = |of: &dyn Fn(&KeptRequest) -> Option<String>| {
        let column: StringArray = requests.iter().map(of).collect();
        Arc::new(column) as ArrayRef
    };
    let counts = |of: &dyn Fn(&KeptRequest) -> Option<u64>| {
        let column: UInt64Array = requests.iter().map(of).collect();
        Arc::new(column) as ArrayRef
    };
    let body = |request: &KeptRequest| facts.bodies.get(request.index % facts.bodies.len().max(1));
    let shape = |request: &KeptRequest| shapes.get(request.index % shapes.len().max(1)).cloned();
    let line = |request: &KeptRequest| {
        let line = body(request)?.line.as_ref()?;
        Some(format!("{} {}", line.method, line.path))
    };
    let key = |request: &KeptRequest| Some(facts.population.as_ref()?.shown(*facts.ids.get(request.index)?));
    let outcome = |request: &KeptRequest| match request.sample.outcome {
        Outcome::Ok => Some("ok".to_owned()),
        Outcome::Failed(failure) => Some(failure.to_string()),
    };
    let is_in = |request: &KeptRequest| facts.window_us.contains(&request.sample.due_us);
    let in_window = BooleanArray::from(requests.iter().map(is_in).collect::<Vec<bool>>());
    let offered_rps = Float64Array::from(vec![*offered_rps; requests.len()]);
    let bytes = |request: &KeptRequest| Some(body(request)?.bytes.len() as u64);
    let columns = [
        ("point", texts(&|_| Some(point.clone()))),
        ("offered_rps", Arc::new(offered_rps)),
        ("repeat", counts(&|_| Some(u64::from(*repeat)))),
        ("request", counts(&|request| Some(request.index as u64))),
        ("in_window", Arc::new(in_window)),
        ("due_us", counts(&|request| Some(request.sample.due_us))),
        ("sent_us", counts(&|request| Some(request.sample.sent_us))),
        ("first_byte_us", counts(&|request| request.first_byte_us)),
        ("done_us", counts(&|request| Some(request.sample.done_us))),
        ("outcome", texts(&outcome)),
        ("status", counts(&|request| request.status.map(u64::from))),
        ("request_bytes", counts(&bytes)),
        ("reply_bytes", counts(&|request| Some(request.reply_bytes? as u64))),
        ("line", texts(&line)),
        ("shapes", texts(&shape)),
        ("key", texts(&key)),
    ];
    let columns = columns.map(|(name, column)| (name.to_owned(), column, true));
    let stages = Stage::ALL.into_iter().map(|stage| {
        let us = |request: &KeptRequest| Some(request.sample.timings.as_ref()?.get(stage).as_micros() as u64);
        (format!("{}_us", stage.as_str()), counts(&us), true)
    });
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().chain(stages)).map_err(io::Error::other)
}

impl RequestFacts {
    /// Shapes of the inputs of each body, such as `x[1,3]; y[1]`.
    fn shapes(&self) -> Vec<String> {
        let shapes = |body: &Body| {
            let request = match self.protocol {
                Protocol::Http => InferRequest::decode(&body.bytes.clone().into(), body.json_len).ok()?,
                Protocol::Grpc => {
                    let message = ModelInferRequest::decode(unframed(&body.bytes)?).ok()?;
                    InferRequest::try_from(message).ok()?
                }
            };
            let inputs = request.inputs.iter().map(|input| {
                let dims: Vec<String> = input.shape.iter().map(i64::to_string).collect();
                format!("{}[{}]", input.name, dims.join(","))
            });
            Some(inputs.collect::<Vec<_>>().join("; "))
        };
        let bodies = self.bodies.iter().filter(|_| self.has_tensors);
        bodies.map(|body| shapes(body).unwrap_or_default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SLOWEST, write};
    use super::*;
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::UInt64Type;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use tierlab_analysis::record::{Failure, Sample};
    use tierlab_load::keys::{KeyDistribution, Population};

    #[test]
    fn rows_are_in_the_order_of_the_schedule_in_several_row_groups() {
        let count = ROW_GROUP + 10;
        let requests = (0..count).rev().map(|index| KeptRequest {
            index,
            sample: Sample {
                due_us: index as u64,
                sent_us: index as u64 + 2,
                done_us: index as u64 + if index == 77 { 9_000 } else { 100 },
                outcome: if index == 3 {
                    Outcome::Failed(Failure::Status(503))
                } else {
                    Outcome::Ok
                },
                timings: None,
            },
            first_byte_us: (index != 3).then_some(index as u64 + 50),
            status: Some(200),
            reply_bytes: None,
        });
        let facts = RequestFacts {
            protocol: Protocol::Http,
            ids: (0..count as i64).map(|id| id + 1_000).collect(),
            population: Some(Population::new(0, 10, KeyDistribution::Uniform, 1)),
            bodies: Arc::new(vec![Body::new(Bytes::from_static(b"12345"))]),
            has_tensors: true,
            window_us: 1..count as u64,
        };
        let step = ("t off".into(), 10.0, 2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests/a.parquet");
        let slow = write(&path, &step, requests.collect(), &facts).unwrap();
        assert_eq!((slow.len(), slow[0].request, slow[0].latency_us), (SLOWEST, 77, 9_000));
        let file = std::fs::File::open(&path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let batch = reader.with_batch_size(100).build().unwrap().next().unwrap().unwrap();
        let number = |name: &str, row: usize| {
            let column = batch.column_by_name(name).unwrap().as_primitive::<UInt64Type>();
            (!column.is_null(row)).then(|| column.value(row))
        };
        let text = |name: &str, row: usize| {
            batch
                .column_by_name(name)
                .unwrap()
                .as_string::<i32>()
                .value(row)
                .to_owned()
        };
        assert_eq!((number("request", 77), number("done_us", 77)), (Some(77), Some(9_077)));
        assert_eq!(
            (number("first_byte_us", 3), number("request_bytes", 3)),
            (None, Some(5))
        );
        assert_eq!((text("outcome", 3), text("outcome", 4)), ("503".into(), "ok".into()));
        assert_eq!((text("key", 5), text("point", 5)), ("1005".into(), "t off".into()));
        assert_eq!(number("infer_us", 5), None);
        assert!(!batch.column_by_name("in_window").unwrap().as_boolean().value(0));
        assert_eq!(std::fs::read_dir(folder.path().join("requests")).unwrap().count(), 1);
    }
}
