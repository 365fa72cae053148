//! Calls of Flight. In: requests. Out: replies, or a status that names the table. Other files define the contents of
//! replies.

use super::answer::{self, Messages};
use super::folder::{Table, TableFolder};
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::{self, BoxStream, StreamExt};
use std::sync::Arc;
use tierlab_storage::ErrorKind;
use tierlab_storage::tiers::flight::status::{refusal, to_status};
use tierlab_storage::tiers::flight::ticket::TableTicket;
use tonic::{Request, Response, Status, Streaming};

/// Flight service of a folder.
#[derive(Debug)]
pub(super) struct Service {
    folder: Arc<TableFolder>,
}

type Reply<T> = Result<Response<T>, Status>;
type Several<T> = BoxStream<'static, Result<T, Status>>;

fn invalid(what: String) -> Status {
    refusal(ErrorKind::Invalid, what)
}

impl Service {
    pub(super) const fn new(folder: Arc<TableFolder>) -> Self {
        Self { folder }
    }

    /// Describes a descriptor's table, with a ticket for its current version.
    async fn describe(&self, descriptor: &FlightDescriptor) -> Result<FlightInfo, Status> {
        let ticket = TableTicket::of_descriptor(descriptor).map_err(invalid)?;
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
    let mut info = FlightInfo::new()
        .with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(ticket.encode())))
        .with_ordered(true)
        .with_descriptor(descriptor)
        .with_total_records(i64::try_from(records).unwrap_or(-1))
        .with_total_bytes(i64::try_from(bytes).unwrap_or(-1));
    info.schema = answer::encoded(&table.schema).map_err(|e| to_status(&e))?;
    Ok(info)
}

fn unsupported<T>(call: &str) -> Result<T, Status> {
    Err(refusal(ErrorKind::Unsupported, format!("{call} is not offered")))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Several<HandshakeResponse>;
    type ListFlightsStream = Several<FlightInfo>;
    type DoGetStream = Messages;
    type DoPutStream = Several<PutResult>;
    type DoActionStream = Several<arrow_flight::Result>;
    type ListActionsStream = Several<ActionType>;
    type DoExchangeStream = Several<FlightData>;

    async fn list_flights(&self, request: Request<Criteria>) -> Reply<Self::ListFlightsStream> {
        if !request.get_ref().expression.is_empty() {
            return unsupported("a listing by criteria");
        }
        let tables = self.folder.tables().await.map_err(|e| to_status(&e))?;
        let infos: Vec<_> = tables
            .iter()
            .map(|table| {
                let path = vec![table.header.schema.name.clone()];
                info(table, None, FlightDescriptor::new_path(path))
            })
            .collect();
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
        let ticket = TableTicket::parse(&request.get_ref().ticket).map_err(invalid)?;
        let table = self.folder.table(&ticket).await.map_err(|e| to_status(&e))?;
        let messages = answer::rows(&self.folder, &table, ticket.ids).map_err(|e| to_status(&e))?;
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
