//! Replies of DoGet. In: a ticket's object or table. Out: a stream of messages with checksums, each of at most
//! [`MESSAGE_BYTES`] and one row, read at the client's pace. Knows nothing of gRPC.

use super::folder::{Table, TableFolder};
use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use tierlab_storage::error::{ErrorKind, StorageError};
use tierlab_storage::limits::check_ranges;
use tierlab_storage::tier::{Object, Tier};
use tierlab_storage::tiers::flight::payload::{self, MESSAGE_BYTES};
use tierlab_storage::tiers::flight::rows::to_batch;
use tierlab_storage::tiers::flight::schema;
use tierlab_storage::tiers::flight::status::to_status;
use tierlab_storage::tiers::flight::ticket::Form;
use tierlab_storage::tiers::nvme::NvmeTier;
use tonic::Status;

/// Messages that are read ahead of the client.
const READ_AHEAD: usize = 2;
/// Maximum rows per message.
const MESSAGE_ROWS: usize = 16_384;

/// Messages, as a client gets them.
pub(super) type Messages = BoxStream<'static, Result<FlightData, Status>>;

/// The schema of ranges of an object.
pub(super) fn bytes_schema(object: &Object, width: Option<i32>) -> SchemaRef {
    let metadata = [("object", object.path.as_str()), ("version", &object.version)];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    payload::schema("bytes", width, HashMap::from(metadata))
}

/// The schema of a table's rows in a form.
pub(super) fn table_schema(table: &Table, form: Form) -> SchemaRef {
    match form {
        Form::Columns => Arc::clone(&table.schema),
        Form::Rows => {
            let metadata = schema::metadata(&table.header, &table.object.version);
            payload::schema("row", i32::try_from(table.header.stride).ok(), metadata)
        }
    }
}

/// Ranges of an object.
pub(super) fn ranges(
    folder: &TableFolder,
    object: Object,
    ranges: Option<Vec<Range<u64>>>,
) -> Result<Messages, StorageError> {
    let whole = 0..object.size;
    let ranges = ranges.unwrap_or_else(|| vec![whole]);
    check_ranges(&object, &ranges)?;
    let schema = bytes_schema(&object, width(&ranges));
    let (tier, of_batches) = (Arc::clone(&folder.tier), Arc::clone(&schema));
    let batches = stream::iter(groups(ranges)).map(move |group| {
        let (tier, object, schema) = (Arc::clone(&tier), object.clone(), Arc::clone(&of_batches));
        async move {
            let parts = tier.read_many(&object, &group).await.map_err(|e| failed(&e))?.parts;
            Ok(payload::batch(&schema, &parts)?)
        }
    });
    Ok(messages(schema, batches.buffered(READ_AHEAD).boxed()))
}

/// Common length of all ranges, if they have one that is small enough for a message.
fn width(ranges: &[Range<u64>]) -> Option<i32> {
    let len = |range: &Range<u64>| range.end - range.start;
    let width = len(ranges.first()?);
    let same = width > 0 && width <= MESSAGE_BYTES && ranges.iter().all(|range| len(range) == width);
    same.then(|| i32::try_from(width).ok()).flatten()
}

/// Groups ranges by message; longer ranges are split.
fn groups(ranges: Vec<Range<u64>>) -> impl Iterator<Item = Vec<Range<u64>>> {
    let mut pieces = ranges
        .into_iter()
        .flat_map(|range| {
            // An empty range is a value as well.
            let count = (range.end - range.start).div_ceil(MESSAGE_BYTES).max(1);
            (0..count).map(move |i| {
                let start = range.start + i * MESSAGE_BYTES;
                start..(start + MESSAGE_BYTES).min(range.end)
            })
        })
        .peekable();
    std::iter::from_fn(move || {
        let mut group = vec![pieces.next()?];
        let mut bytes = group[0].end - group[0].start;
        while let Some(next) = pieces.next_if(|next| {
            let sum = bytes + (next.end - next.start);
            let fits = sum <= MESSAGE_BYTES && group.len() < MESSAGE_ROWS;
            if fits {
                bytes = sum;
            }
            fits
        }) {
            group.push(next);
        }
        Some(group)
    })
}

/// Rows of a table: the rows of `ids`, or all rows.
pub(super) fn rows(
    folder: &TableFolder,
    table: &Arc<Table>,
    ids: Option<Vec<i64>>,
    form: Form,
) -> Result<Messages, StorageError> {
    let have = table.header.ids();
    if let Some(id) = ids.iter().flatten().find(|id| !have.contains(id)) {
        let detail = format!("no entity {id}: ids run from {} up to {}", have.start, have.end);
        return Err(StorageError::new(
            ErrorKind::NotFound,
            table.object.path.as_str(),
            detail,
        ));
    }
    let per_message = (MESSAGE_BYTES / u64::from(table.header.stride)).max(1);
    let per_message = usize::try_from(per_message).unwrap_or(1).min(MESSAGE_ROWS);
    let schema = table_schema(table, form);
    let (tier, table, of_batches) = (Arc::clone(&folder.tier), Arc::clone(table), Arc::clone(&schema));
    let batches = stream::iter(chunks(ids, have, per_message)).map(move |chunk| {
        let (tier, table, schema) = (Arc::clone(&tier), Arc::clone(&table), Arc::clone(&of_batches));
        async move { batch(&tier, &table, &schema, chunk, form).await }
    });
    Ok(messages(schema, batches.buffered(READ_AHEAD).boxed()))
}

/// Rows of a message.
enum Chunk {
    These(Vec<i64>),
    From(Range<i64>),
}

fn chunks(ids: Option<Vec<i64>>, all: Range<i64>, count: usize) -> Box<dyn Iterator<Item = Chunk> + Send> {
    match ids {
        Some(ids) => {
            let mut rest = ids.into_iter();
            Box::new(std::iter::from_fn(move || {
                let chunk: Vec<i64> = rest.by_ref().take(count).collect();
                (!chunk.is_empty()).then_some(Chunk::These(chunk))
            }))
        }
        None => {
            let starts = all.clone().step_by(count);
            let step = i64::try_from(count).unwrap_or(i64::MAX);
            Box::new(starts.map(move |start| Chunk::From(start..start.saturating_add(step).min(all.end))))
        }
    }
}

async fn batch(
    tier: &NvmeTier,
    table: &Table,
    schema: &SchemaRef,
    chunk: Chunk,
    form: Form,
) -> Result<RecordBatch, FlightError> {
    let stride = u64::from(table.header.stride);
    let start = |id: i64| table.first_row + id.abs_diff(table.header.first_id) * stride;
    let (ids, rows) = match chunk {
        Chunk::These(ids) => {
            let ranges: Vec<_> = ids.iter().map(|&id| start(id)..start(id) + stride).collect();
            let read = tier.read_many(&table.object, &ranges).await.map_err(|e| failed(&e))?;
            (ids, read.parts)
        }
        Chunk::From(ids) => {
            let read = tier.read(&table.object, start(ids.start)..start(ids.end)).await;
            let bytes = read.map_err(|e| failed(&e))?.bytes;
            let at = |row: usize| row * table.header.stride as usize;
            let rows = (0..bytes.len() / table.header.stride as usize).map(|row| bytes.slice(at(row)..at(row + 1)));
            let rows: Vec<Bytes> = rows.collect();
            (ids.collect(), rows)
        }
    };
    match form {
        Form::Rows => Ok(payload::batch(schema, &rows)?),
        // A damaged row must not get a new checksum.
        Form::Columns => to_batch(&table.header, schema, &ids, &rows).map_err(|what| {
            let error = StorageError::new(ErrorKind::Corrupt, table.object.path.as_str(), what);
            failed(&error)
        }),
    }
}

fn failed(error: &StorageError) -> FlightError {
    FlightError::from(to_status(error))
}

fn messages(schema: SchemaRef, batches: BoxStream<'static, Result<RecordBatch, FlightError>>) -> Messages {
    FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_max_flight_data_size(usize::MAX)
        .build(batches)
        .map(|message| message.map(payload::seal).map_err(Status::from))
        .boxed()
}

/// Schema as GetSchema and GetFlightInfo send it.
pub(super) fn encoded(schema: &Schema) -> Result<Bytes, StorageError> {
    use arrow_flight::{IpcMessage, SchemaAsIpc};
    let options = arrow_ipc::writer::IpcWriteOptions::default();
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &options).try_into();
    let message = message.map_err(|e| StorageError::new(ErrorKind::Corrupt, "schema", e.to_string()))?;
    Ok(message.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn groups_hold_the_ranges_in_order(ranges in proptest::collection::vec((0_u64..1 << 40, 0_u64..3 << 20), 0..30)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
            let groups: Vec<_> = groups(ranges.clone()).collect();
            for group in &groups {
                prop_assert!(!group.is_empty());
                prop_assert!(group.iter().map(|range| range.end - range.start).sum::<u64>() <= MESSAGE_BYTES);
            }
            let mut cut = Vec::new();
            for Range { mut start, end } in ranges {
                while end - start > MESSAGE_BYTES {
                    cut.push(start..start + MESSAGE_BYTES);
                    start += MESSAGE_BYTES;
                }
                cut.push(start..end);
            }
            prop_assert_eq!(groups.concat(), cut);
        }
    }

    #[test]
    fn equal_lengths_are_told() {
        assert_eq!(width(&[0..512, 9..521]), Some(512));
        assert_eq!(width(&[0..512, 9..520]), None);
        assert_eq!(width(&[3..3, 9..9]), None);
        assert_eq!(width(&[]), None);
        assert_eq!(width(&[0..MESSAGE_BYTES + 1, 0..MESSAGE_BYTES + 1]), None);
    }
}
