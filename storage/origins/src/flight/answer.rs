//! Replies of DoGet. In: a table and ids. Out: a stream of messages with checksums, each of at most [`MESSAGE_BYTES`] or
//! one row, read at the client's pace. Knows nothing of gRPC.

use super::folder::{Table, TableFolder};
use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_schema::Schema;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use std::sync::Arc;
use tierlab_storage::tiers::flight::message::{self, MESSAGE_BYTES};
use tierlab_storage::tiers::flight::rows::to_batch;
use tierlab_storage::tiers::flight::status::to_status;
use tierlab_storage::tiers::nvme::NvmeTier;
use tierlab_storage::{ErrorKind, StorageError, Tier};
use tonic::Status;

/// Messages that are read ahead of the client.
const READ_AHEAD: usize = 2;
/// Maximum rows per message.
const MESSAGE_ROWS: usize = 16_384;

/// Messages, as a client gets them.
pub(super) type Messages = BoxStream<'static, Result<FlightData, Status>>;

/// Rows of a table: the rows of `ids`, or all rows.
pub(super) fn rows(folder: &TableFolder, table: &Arc<Table>, ids: Option<Vec<i64>>) -> Result<Messages, StorageError> {
    let have = table.header.ids();
    if let Some(id) = ids.iter().flatten().find(|id| !have.contains(id)) {
        let detail = format!("no entity {id}: ids run from {} up to {}", have.start, have.end);
        return Err(ErrorKind::NotFound.error(&table.object.path, detail));
    }
    let per_message = (MESSAGE_BYTES / u64::from(table.header.stride)).max(1);
    let per_message = usize::try_from(per_message).unwrap_or(1).min(MESSAGE_ROWS);
    let ids: Box<dyn Iterator<Item = i64> + Send> = match ids {
        Some(ids) => Box::new(ids.into_iter()),
        None => Box::new(have),
    };
    let (tier, of_batches) = (Arc::clone(&folder.tier), Arc::clone(table));
    let batches = stream::iter(chunks(ids, per_message)).map(move |chunk| {
        let (tier, table) = (Arc::clone(&tier), Arc::clone(&of_batches));
        async move { batch(&tier, &table, chunk).await }
    });
    let messages = FlightDataEncoderBuilder::new()
        .with_schema(Arc::clone(&table.schema))
        .with_max_flight_data_size(usize::MAX)
        .build(batches.buffered(READ_AHEAD));
    Ok(messages
        .map(|message| message.map(message::seal).map_err(Status::from))
        .boxed())
}

/// The ids of each message.
fn chunks(mut ids: impl Iterator<Item = i64>, count: usize) -> impl Iterator<Item = Vec<i64>> {
    std::iter::from_fn(move || {
        let chunk: Vec<i64> = ids.by_ref().take(count).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

async fn batch(tier: &NvmeTier, table: &Table, ids: Vec<i64>) -> Result<RecordBatch, FlightError> {
    let stride = u64::from(table.header.stride);
    let start = |id: i64| table.first_row + id.abs_diff(table.header.first_id) * stride;
    // The tier reads rows that follow each other as one.
    let ranges: Vec<_> = ids.iter().map(|&id| start(id)..start(id) + stride).collect();
    let read = tier.read_many(&table.object, &ranges).await.map_err(|e| failed(&e))?;
    // A damaged row must not get a new checksum.
    to_batch(&table.header, &table.schema, &ids, &read.parts).map_err(|what| {
        let error = ErrorKind::Corrupt.error(&table.object.path, what);
        failed(&error)
    })
}

fn failed(error: &StorageError) -> FlightError {
    FlightError::from(to_status(error))
}

/// Schema as GetSchema and GetFlightInfo send it.
pub(super) fn encoded(schema: &Schema) -> Result<Bytes, StorageError> {
    use arrow_flight::{IpcMessage, SchemaAsIpc};
    let options = arrow_ipc::writer::IpcWriteOptions::default();
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &options).try_into();
    let message = message.map_err(|e| ErrorKind::Corrupt.error("schema", e.to_string()))?;
    Ok(message.0)
}
