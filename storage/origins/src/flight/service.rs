//! Calls of Flight. In: requests. Out: replies, or a status that names the table. The reply of DoGet is a stream of
//! messages with checksums, each of at most [`MESSAGE_BYTES`] or one row, read at the client's pace.

use super::{Table, TableFolder};
use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::{self, BoxStream, StreamExt};
use std::sync::Arc;
use tierlab_storage::tiers::flight::message::{self, MESSAGE_BYTES, TableTicket, refusal, to_status};
use tierlab_storage::tiers::flight::rows::to_batch;
use tierlab_storage::tiers::nvme::NvmeTier;
use tierlab_storage::{ErrorKind, StorageError, Tier};
use tonic::{Request, Response, Status, Streaming};

/// Flight service of a folder.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) folder: Arc<TableFolder>,
}

type Reply<T> = Result<Response<T>, Status>;
type ReplyStream<T> = BoxStream<'static, Result<T, Status>>;

fn invalid(error: &anyhow::Error) -> Status {
    refusal(ErrorKind::Invalid, error.to_string())
}

impl Service {
    /// Describes a descriptor's table, with a ticket for its current version.
    async fn describe(&self, descriptor: &FlightDescriptor) -> Result<FlightInfo, Status> {
        let ticket = TableTicket::of_descriptor(descriptor).map_err(|e| invalid(&e))?;
        let table = self.folder.table(&ticket).await.map_err(|e| to_status(&e))?;
        info(&table, ticket.ids, descriptor.clone())
    }
}

/// A table's flight.
fn info(table: &Table, ids: Option<Vec<i64>>, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    let records = ids.as_ref().map_or(table.header.rows, |ids| ids.len() as u64);
    let bytes = records.saturating_mul(u64::from(table.header.stride));
    let ticket = TableTicket {
        table: table.header.schema.name.clone(),
        ids,
        version: Some(table.object.version.clone()),
    };
    let info = FlightInfo::new()
        .with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(ticket.encode())))
        .with_ordered(true)
        .with_descriptor(descriptor)
        .with_total_records(i64::try_from(records).unwrap_or(-1))
        .with_total_bytes(i64::try_from(bytes).unwrap_or(-1));
    info.try_with_schema(&table.schema)
        .map_err(|e| to_status(&ErrorKind::Corrupt.error("schema", e.to_string())))
}

fn unsupported<T>(call: &str) -> Result<T, Status> {
    Err(refusal(ErrorKind::Unsupported, format!("{call} is not supported")))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = ReplyStream<HandshakeResponse>;
    type ListFlightsStream = ReplyStream<FlightInfo>;
    type DoGetStream = Messages;
    type DoPutStream = ReplyStream<PutResult>;
    type DoActionStream = ReplyStream<arrow_flight::Result>;
    type ListActionsStream = ReplyStream<ActionType>;
    type DoExchangeStream = ReplyStream<FlightData>;

    async fn list_flights(&self, request: Request<Criteria>) -> Reply<Self::ListFlightsStream> {
        if !request.get_ref().expression.is_empty() {
            return unsupported("a listing by criteria");
        }
        let tables = self.folder.tables().await.map_err(|e| to_status(&e))?;
        let described = |table: &Arc<Table>| {
            let path = vec![table.header.schema.name.clone()];
            info(table, None, FlightDescriptor::new_path(path))
        };
        let infos: Vec<_> = tables.iter().map(described).collect();
        Ok(Response::new(stream::iter(infos).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Reply<FlightInfo> {
        Ok(Response::new(self.describe(request.get_ref()).await?))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Reply<SchemaResult> {
        let schema = self.describe(request.get_ref()).await?.schema;
        Ok(Response::new(SchemaResult { schema }))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Reply<Self::DoGetStream> {
        let ticket = TableTicket::parse(&request.get_ref().ticket).map_err(|e| invalid(&e))?;
        let table = self.folder.table(&ticket).await.map_err(|e| to_status(&e))?;
        let messages = rows(&self.folder, &table, ticket.ids).map_err(|e| to_status(&e))?;
        Ok(Response::new(messages))
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Reply<Self::DoPutStream> {
        unsupported("DoPut")
    }

    async fn do_action(&self, request: Request<Action>) -> Reply<Self::DoActionStream> {
        unsupported(&format!("the action `{}`", request.get_ref().r#type))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Reply<Self::ListActionsStream> {
        Ok(Response::new(stream::empty().boxed()))
    }

    async fn handshake(&self, _: Request<Streaming<HandshakeRequest>>) -> Reply<Self::HandshakeStream> {
        unsupported("Handshake")
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Reply<PollInfo> {
        unsupported("PollFlightInfo")
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Reply<Self::DoExchangeStream> {
        unsupported("DoExchange")
    }
}

/// Messages that are read ahead of the client.
const READ_AHEAD: usize = 2;
/// Maximum rows per message.
const MESSAGE_ROWS: usize = 16_384;

/// Messages as sent to a client.
type Messages = BoxStream<'static, Result<FlightData, Status>>;

/// Rows of a table: the rows of `ids`, or all rows.
fn rows(folder: &TableFolder, table: &Arc<Table>, ids: Option<Vec<i64>>) -> Result<Messages, StorageError> {
    let have = table.header.ids();
    if let Some(id) = ids.iter().flatten().find(|id| !have.contains(id)) {
        let detail = format!("no entity {id}: ids run from {} up to {}", have.start, have.end);
        return Err(ErrorKind::NotFound.error(&table.object.path, detail));
    }
    let per_message = (MESSAGE_BYTES / u64::from(table.header.stride)).max(1);
    // No more than requested: the ids of a whole message are allocated at once.
    let max = ids.as_ref().map_or(MESSAGE_ROWS, Vec::len).clamp(1, MESSAGE_ROWS);
    let per_message = usize::try_from(per_message).unwrap_or(1).min(max);
    let ids: Box<dyn Iterator<Item = i64> + Send> = match ids {
        Some(ids) => Box::new(ids.into_iter()),
        None => Box::new(have),
    };
    let (tier, of_batches) = (Arc::clone(&folder.tier), Arc::clone(table));
    let batches = stream::iter(ids).chunks(per_message).map(move |chunk| {
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

async fn batch(tier: &NvmeTier, table: &Table, ids: Vec<i64>) -> Result<RecordBatch, FlightError> {
    let stride = u64::from(table.header.stride);
    let start = |id: i64| table.first_row + id.abs_diff(table.header.first_id) * stride;
    // The tier reads adjacent rows as one.
    let ranges: Vec<_> = ids.iter().map(|&id| start(id)..start(id) + stride).collect();
    let read = tier.read_many(&table.object, &ranges).await.map_err(|e| failed(&e))?;
    // A damaged row must not get a new checksum.
    to_batch(&table.header, &table.schema, &ids, &read.parts).map_err(|detail| {
        let error = ErrorKind::Corrupt.error(&table.object.path, detail.to_string());
        failed(&error)
    })
}

fn failed(error: &StorageError) -> FlightError {
    FlightError::from(to_status(error))
}
