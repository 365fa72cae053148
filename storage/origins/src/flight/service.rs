//! Calls of Flight. In: requests. Out: replies, or a status that names object and kind; uploads as pieces for a blocking
//! writer. Other files define the contents of replies.

use super::answer::{self, Messages};
use super::folder::{Table, TableFolder};
use arrow_array::RecordBatch;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria as Expression, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket as Opaque,
};
use arrow_schema::Schema;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use std::io::{self, Read};
use std::sync::Arc;
use tierlab_storage::error::{ErrorKind, StorageError};
use tierlab_storage::path::ObjectPath;
use tierlab_storage::tier::{Object, Tier};
use tierlab_storage::tiers::flight::payload;
use tierlab_storage::tiers::flight::status::{refusal, to_status};
use tierlab_storage::tiers::flight::ticket::{About, Criteria, DELETE_ACTION, DeleteCommand, Form, PutCommand, Ticket};
use tokio::sync::mpsc;
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

    /// Describes a descriptor's object or table, with a ticket for its current version.
    async fn describe(&self, descriptor: &FlightDescriptor) -> Result<FlightInfo, Status> {
        let ticket = Ticket::of_descriptor(descriptor).map_err(invalid)?;
        let object = self.folder.object(&ticket).await.map_err(|e| to_status(&e))?;
        match ticket {
            Ticket::Object { .. } => object_info(&object, Some(descriptor)),
            Ticket::Table { ids, form, .. } => {
                let table = self.folder.table(object).await.map_err(|e| to_status(&e))?;
                table_info(&table, ids, form, Some(descriptor))
            }
        }
    }
}

/// A table's flight.
fn table_info(
    table: &Table,
    ids: Option<Vec<i64>>,
    form: Form,
    descriptor: Option<&FlightDescriptor>,
) -> Result<FlightInfo, Status> {
    let name = &table.header.schema.name;
    let records = ids.as_ref().map_or(table.header.rows, |ids| ids.len() as u64);
    let bytes = records.saturating_mul(u64::from(table.header.stride));
    let schema = answer::table_schema(table, form);
    let ticket = Ticket::Table {
        table: name.clone(),
        ids,
        form,
        version: Some(table.object.version.clone()),
    };
    let path = || FlightDescriptor::new_path(vec![name.clone()]);
    let info = info(&schema, &ticket, &table.object)?
        .with_descriptor(descriptor.cloned().unwrap_or_else(path))
        .with_total_records(i64::try_from(records).unwrap_or(-1))
        .with_total_bytes(i64::try_from(bytes).unwrap_or(-1));
    Ok(info)
}

/// An object's flight.
fn object_info(object: &Object, descriptor: Option<&FlightDescriptor>) -> Result<FlightInfo, Status> {
    let whole = |version| Ticket::Object {
        object: object.path.clone(),
        ranges: None,
        version,
    };
    let command = || FlightDescriptor::new_cmd(whole(None).encode());
    let schema = answer::bytes_schema(object, None);
    let info = info(&schema, &whole(Some(object.version.clone())), object)?
        .with_descriptor(descriptor.cloned().unwrap_or_else(command))
        .with_total_records(-1)
        .with_total_bytes(i64::try_from(object.size).unwrap_or(-1));
    Ok(info)
}

fn info(schema: &Schema, ticket: &Ticket, object: &Object) -> Result<FlightInfo, Status> {
    let mut info = FlightInfo::new()
        .with_endpoint(FlightEndpoint::new().with_ticket(Opaque::new(ticket.encode())))
        .with_ordered(true)
        .with_app_metadata(About::encode(object));
    info.schema = answer::encoded(schema).map_err(|e| to_status(&e))?;
    Ok(info)
}

fn path(text: &str) -> Result<ObjectPath, Status> {
    ObjectPath::new(text).map_err(|e| to_status(&e))
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

    async fn list_flights(&self, request: Request<Expression>) -> Reply<Self::ListFlightsStream> {
        let expression = request.into_inner().expression;
        let criteria = if expression.is_empty() {
            Criteria::default()
        } else {
            let parsed = serde_json::from_slice(&expression);
            parsed.map_err(|e| {
                invalid(format!(
                    "no criteria: {e}; they are {{\"objects\":true,\"below\":PATH}}"
                ))
            })?
        };
        let below = criteria.below.as_deref().map(path).transpose()?;
        let infos: Vec<Result<FlightInfo, Status>> = if criteria.objects {
            let objects = self.folder.tier.list(below.as_ref()).await.map_err(|e| to_status(&e))?;
            objects.iter().map(|object| object_info(object, None)).collect()
        } else {
            let tables = self.folder.tables().await.map_err(|e| to_status(&e))?;
            let inside = |table: &Arc<Table>| below.as_ref().is_none_or(|below| table.object.path.is_below(below));
            let tables = tables.iter().filter(|table| inside(table));
            tables
                .map(|table| table_info(table, None, Form::default(), None))
                .collect()
        };
        Ok(Response::new(stream::iter(infos).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Reply<FlightInfo> {
        Ok(Response::new(self.describe(request.get_ref()).await?))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Reply<SchemaResult> {
        let schema = self.describe(request.get_ref()).await?.schema;
        Ok(Response::new(SchemaResult { schema }))
    }

    async fn do_get(&self, request: Request<Opaque>) -> Reply<Self::DoGetStream> {
        let ticket = Ticket::parse(&request.get_ref().ticket).map_err(invalid)?;
        let messages = async {
            let object = self.folder.object(&ticket).await?;
            match ticket {
                Ticket::Object { ranges, .. } => answer::ranges(&self.folder, object, ranges),
                Ticket::Table { ids, form, .. } => {
                    let table = self.folder.table(object).await?;
                    answer::rows(&self.folder, &table, ids, form)
                }
            }
        };
        let messages = messages.await.map_err(|e: StorageError| to_status(&e))?;
        Ok(Response::new(messages))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Reply<Self::DoPutStream> {
        let object = take(&self.folder, request.into_inner()).await?;
        let result = PutResult {
            app_metadata: About::encode(&object).into(),
        };
        Ok(Response::new(stream::iter([Ok(result)]).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Reply<Self::DoActionStream> {
        let action = request.into_inner();
        if action.r#type != DELETE_ACTION {
            return unsupported(&format!("the action `{}`", action.r#type));
        }
        let command: DeleteCommand = serde_json::from_slice(&action.body)
            .map_err(|e| invalid(format!("no command: {e}; it is {{\"object\":PATH}}")))?;
        let path = path(&command.object)?;
        self.folder.tier.delete(&path).await.map_err(|e| to_status(&e))?;
        Ok(Response::new(stream::empty().boxed()))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Reply<Self::ListActionsStream> {
        let delete = ActionType {
            r#type: DELETE_ACTION.to_owned(),
            description: "removes an object: {\"object\":PATH}".to_owned(),
        };
        Ok(Response::new(stream::iter([Ok(delete)]).boxed()))
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

/// Pieces on their way to the writer.
const PIECES: usize = 4;

/// Takes an upload. One that ends early, or is damaged, leaves nothing behind.
pub(super) async fn take(folder: &TableFolder, mut messages: Streaming<FlightData>) -> Result<Object, Status> {
    let first = messages.message().await?;
    let first = first.ok_or_else(|| refusal(ErrorKind::Invalid, "an upload begins with its descriptor"))?;
    let command = first
        .flight_descriptor
        .as_ref()
        .map_or(&[][..], |descriptor| &descriptor.cmd);
    let command: PutCommand = serde_json::from_slice(command).map_err(|e| {
        let what = format!("no command of an upload: {e}; it is {{\"object\":PATH,\"size\":BYTES}}");
        refusal(ErrorKind::Invalid, what)
    })?;
    let path = ObjectPath::new(&command.object).map_err(|e| to_status(&e))?;
    let (pieces, taken) = mpsc::channel(PIECES);
    let reader = Pieces {
        taken,
        current: Bytes::new(),
        missing: command.size,
    };
    let messages = stream::iter([Ok(first)]).chain(messages);
    let (sent, stored) = tokio::join!(send(messages.boxed(), pieces), folder.put(&path, reader));
    // The error that broke the upload says more than its end.
    sent?;
    stored.map_err(|e| to_status(&e))
}

/// Passes on the values of all batches. If it fails, the writer's pieces end early.
async fn send(
    messages: stream::BoxStream<'static, Result<FlightData, Status>>,
    pieces: mpsc::Sender<Bytes>,
) -> Result<(), Status> {
    let checked = messages.map(|message| {
        let message = message?;
        payload::check(&message).map_err(|what| refusal(ErrorKind::Unavailable, what))?;
        Ok::<_, FlightError>(message)
    });
    let mut decoder = FlightDataDecoder::new(checked);
    while let Some(decoded) = decoder.next().await {
        match decoded?.payload {
            DecodedPayload::None => {}
            DecodedPayload::Schema(schema) => {
                payload::check_schema(&schema).map_err(|what| refusal(ErrorKind::Invalid, what))?;
            }
            DecodedPayload::RecordBatch(batch) => {
                if pieces.send(piece(&batch)?).await.is_err() {
                    // The writer has stopped; its result has the error.
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn piece(batch: &RecordBatch) -> Result<Bytes, Status> {
    let values = payload::values(batch).map_err(|what| refusal(ErrorKind::Invalid, what))?;
    Ok(Bytes::copy_from_slice(values))
}

/// Pieces for the writer: exactly as many bytes as announced, or an error.
struct Pieces {
    taken: mpsc::Receiver<Bytes>,
    current: Bytes,
    missing: u64,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let broken = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        while self.current.is_empty() {
            match self.taken.blocking_recv() {
                Some(piece) => self.current = piece,
                None if self.missing == 0 => return Ok(0),
                None => return broken(format!("the upload ended {} bytes early", self.missing)),
            }
        }
        let len = self.current.len().min(buffer.len());
        if len as u64 > self.missing {
            return broken("the upload is longer than it was said to be".into());
        }
        buffer[..len].copy_from_slice(&self.current.split_to(len));
        self.missing -= len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(size: u64, pieces: &[&'static [u8]]) -> io::Result<Vec<u8>> {
        let (sender, taken) = mpsc::channel(9);
        for piece in pieces {
            sender.try_send(Bytes::from_static(piece)).unwrap();
        }
        drop(sender);
        let mut reader = Pieces {
            taken,
            current: Bytes::new(),
            missing: size,
        };
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn an_upload_is_whole_or_an_error() {
        assert_eq!(read(5, &[b"ab", b"", b"cde"]).unwrap(), b"abcde");
        assert_eq!(read(0, &[]).unwrap(), b"");
        assert!(read(6, &[b"ab", b"cde"]).is_err());
        assert!(read(4, &[b"ab", b"cde"]).is_err());
    }
}
