//! `requests/*.parquet` in a run's folder: every request of a step, a row each in the order of the schedule.
//!
//! In: the requests that a step kept, and facts of its bodies. Out: a file, written after the step and before the next one, so
//! that no disk delays a send; in batches, so that memory stays bounded. Knows nothing of plans and targets.

use super::files::written;
use super::histograms::hdr_file;
use crate::error::StoreError;
use arrow_array::builder::{BooleanBuilder, Float64Builder, StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use prost::Message as _;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tierlab_analysis::record::{Factors, Outcome, SlowRequest};
use tierlab_load::driver::KeptRequest;
use tierlab_load::keys::Population;
use tierlab_load::payload::{Body, Protocol};
use tierlab_protocol::grpc::client::unframed;
use tierlab_protocol::grpc::messages::ModelInferRequest;
use tierlab_protocol::infer::InferRequest;
use tierlab_protocol::timing::Stage;

/// Rows that are converted at once.
const BATCH: usize = 8_192;
/// Rows of a row group, which is written as soon as it is full.
const ROW_GROUP: usize = 16 * BATCH;
/// Slow requests that a result names.
const SLOWEST: usize = 5;

/// Facts of a step's requests that their samples do not have.
#[derive(Debug)]
pub struct RequestFacts {
    /// Protocol of the bodies.
    pub protocol: Protocol,
    /// First entity of each request; empty without entities.
    pub ids: Vec<i64>,
    /// Population of the entities.
    pub population: Option<Population>,
    /// Bodies, sent in turn.
    pub bodies: Arc<Vec<Body>>,
    /// True if shapes are read from the bodies.
    pub has_tensors: bool,
}

/// Step of the requests.
#[derive(Debug)]
pub struct StepOf {
    /// Name of the point.
    pub point: String,
    /// Rate of the point.
    pub offered_rps: f64,
    /// Index of the repeat, from 0.
    pub repeat: u32,
    /// Measured window, in microseconds since the step's start.
    pub window_us: Range<u64>,
}

/// Returns the name of a repeat's file, relative to the run's folder; a later attempt replaces it.
#[must_use]
pub fn file(factors: &Factors, repeat: u32) -> String {
    let name = hdr_file(factors, repeat);
    let stem = name.strip_prefix("hdr/").and_then(|name| name.strip_suffix(".hdr"));
    format!("requests/{}.parquet", stem.unwrap_or(&name))
}

/// Writes the requests of a step, and returns the slowest good replies of its window.
///
/// # Errors
/// A folder or file that cannot be written.
pub fn write(
    path: &Path,
    step: &StepOf,
    mut kept: Vec<KeptRequest>,
    facts: &RequestFacts,
) -> Result<Vec<SlowRequest>, StoreError> {
    kept.sort_unstable_by_key(|request| request.index);
    let shapes = facts.shapes();
    write_rows(path, step, &kept, (facts, &shapes)).map_err(StoreError::io(path))?;
    Ok(slowest(&step.window_us, &kept))
}

fn write_rows(path: &Path, step: &StepOf, kept: &[KeptRequest], facts: (&RequestFacts, &[String])) -> io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .build();
    let first = batch(step, &[], facts)?;
    written(path, |file| {
        let mut writer = ArrowWriter::try_new(file, first.schema(), Some(properties)).map_err(io::Error::other)?;
        for some in kept.chunks(BATCH) {
            writer.write(&batch(step, some, facts)?).map_err(io::Error::other)?;
        }
        writer.close().map(drop).map_err(io::Error::other)
    })
}

fn batch(step: &StepOf, kept: &[KeptRequest], (facts, shapes): (&RequestFacts, &[String])) -> io::Result<RecordBatch> {
    let body = |request: &KeptRequest| facts.bodies.get(request.index % facts.bodies.len().max(1));
    let texts = |of: &dyn Fn(&KeptRequest) -> Option<String>| {
        let mut column = StringBuilder::new();
        kept.iter().for_each(|request| column.append_option(of(request)));
        Arc::new(column.finish()) as ArrayRef
    };
    let counts = |of: &dyn Fn(&KeptRequest) -> Option<u64>| {
        let mut column = UInt64Builder::new();
        kept.iter().for_each(|request| column.append_option(of(request)));
        Arc::new(column.finish()) as ArrayRef
    };
    let mut rates = Float64Builder::new();
    rates.append_value_n(step.offered_rps, kept.len());
    let mut in_window = BooleanBuilder::new();
    kept.iter()
        .for_each(|request| in_window.append_value(step.window_us.contains(&request.sample.due_us)));
    let some_text = |text: &str| Some(text.to_owned());
    let columns = vec![
        ("point", texts(&|_| some_text(&step.point))),
        ("offered_rps", Arc::new(rates.finish()) as ArrayRef),
        ("repeat", counts(&|_| Some(step.repeat.into()))),
        ("request", counts(&|request| Some(request.index as u64))),
        ("in_window", Arc::new(in_window.finish()) as ArrayRef),
        ("due_us", counts(&|request| Some(request.sample.due_us))),
        ("sent_us", counts(&|request| Some(request.sample.sent_us))),
        ("first_byte_us", counts(&|request| request.first_byte_us)),
        ("done_us", counts(&|request| Some(request.sample.done_us))),
        (
            "outcome",
            texts(&|request| match request.sample.outcome {
                Outcome::Ok => some_text("ok"),
                Outcome::Failed(failure) => Some(failure.to_string()),
            }),
        ),
        ("status", counts(&|request| request.status.map(u64::from))),
        (
            "request_bytes",
            counts(&|request| Some(body(request)?.bytes.len() as u64)),
        ),
        (
            "reply_bytes",
            counts(&|request| request.reply_bytes.map(|bytes| bytes as u64)),
        ),
        (
            "line",
            texts(&|request| {
                let line = body(request)?.line.as_ref()?;
                Some(format!("{} {}", line.method, line.path))
            }),
        ),
        (
            "shapes",
            texts(&|request| shapes.get(request.index % shapes.len().max(1)).cloned()),
        ),
        ("key", texts(&|request| facts.key(request.index))),
    ];
    let mut columns: Vec<(String, ArrayRef, bool)> = columns
        .into_iter()
        .map(|(name, array)| (name.to_owned(), array, true))
        .collect();
    for stage in Stage::ALL {
        let us = |request: &KeptRequest| Some(request.sample.timings.as_ref()?.get(stage).as_micros() as u64);
        columns.push((format!("{}_us", stage.as_str()), counts(&us), true));
    }
    RecordBatch::try_from_iter_with_nullable(columns).map_err(io::Error::other)
}

impl RequestFacts {
    fn key(&self, index: usize) -> Option<String> {
        Some(self.population.as_ref()?.shown(*self.ids.get(index)?))
    }

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

fn slowest(window_us: &Range<u64>, kept: &[KeptRequest]) -> Vec<SlowRequest> {
    let good = |request: &&KeptRequest| request.sample.is_ok() && window_us.contains(&request.sample.due_us);
    let mut slowest: Vec<&KeptRequest> = kept.iter().filter(good).collect();
    slowest.sort_by_key(|request| std::cmp::Reverse(request.sample.latency_us()));
    let slow = slowest.into_iter().take(SLOWEST).map(|request| {
        let timings = request.sample.timings.as_ref();
        let stage = timings.and_then(|timings| {
            Stage::ALL
                .into_iter()
                .max_by_key(|stage| timings.get(*stage))
                .zip(Some(timings))
        });
        SlowRequest {
            request: request.index as u64,
            due_us: request.sample.due_us,
            latency_us: request.sample.latency_us(),
            lag_us: request.sample.lag_us(),
            stage: stage.map(|(stage, timings)| (stage.as_str().to_owned(), timings.get(stage).as_micros() as u64)),
        }
    });
    slow.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::UInt64Type;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use tierlab_analysis::record::{Failure, Sample};
    use tierlab_load::keys::KeyDistribution;

    #[test]
    fn rows_are_in_the_order_of_the_schedule_in_several_row_groups() {
        let count = ROW_GROUP + 10;
        let kept = (0..count).rev().map(|index| KeptRequest {
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
        };
        let step = StepOf {
            point: "t off".into(),
            offered_rps: 10.0,
            repeat: 2,
            window_us: 1..count as u64,
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests/a.parquet");
        let slow = write(&path, &step, kept.collect(), &facts).unwrap();
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
