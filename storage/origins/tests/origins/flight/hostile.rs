//! Hostile Flight server: sizes and row counts beyond any memory, endless actions, flights and batches. Each is an error,
//! soon.

use super::harness::connect;
use crate::path;
use arrow_array::RecordBatch;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::utils::batches_to_flight_data;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use arrow_schema::{DataType, Field, Schema};
use futures::stream::{self, BoxStream, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tierlab_storage::ErrorKind;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

type Reply<T> = Result<Response<T>, Status>;
type ReplyStream<T> = BoxStream<'static, Result<T, Status>>;

struct Hostile;

impl Hostile {
    async fn start() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder().add_service(FlightServiceServer::new(Self));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        format!("grpc://{address}")
    }

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("entity_id", DataType::Int64, false),
            Field::new("x", DataType::Float32, false),
        ])
    }

    fn info() -> FlightInfo {
        FlightInfo::new()
            .try_with_schema(&Self::schema())
            .unwrap()
            .with_descriptor(FlightDescriptor::new_path(vec!["t".to_owned()]))
            .with_total_records(1 << 55)
    }
}

/// The same thing for ever.
fn endless<T: Clone + Send + 'static>(thing: T) -> Reply<ReplyStream<T>> {
    Ok(Response::new(stream::repeat_with(move || Ok(thing.clone())).boxed()))
}

fn none<T>() -> Reply<T> {
    Err(Status::unimplemented("not here"))
}

#[tonic::async_trait]
impl FlightService for Hostile {
    type HandshakeStream = ReplyStream<HandshakeResponse>;
    type ListFlightsStream = ReplyStream<FlightInfo>;
    type DoGetStream = ReplyStream<FlightData>;
    type DoPutStream = ReplyStream<PutResult>;
    type DoExchangeStream = ReplyStream<FlightData>;
    type DoActionStream = ReplyStream<arrow_flight::Result>;
    type ListActionsStream = ReplyStream<ActionType>;

    async fn handshake(&self, _: Request<Streaming<HandshakeRequest>>) -> Reply<Self::HandshakeStream> {
        none()
    }
    async fn list_flights(&self, _: Request<Criteria>) -> Reply<Self::ListFlightsStream> {
        endless(Self::info())
    }
    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Reply<FlightInfo> {
        Ok(Response::new(Self::info()))
    }
    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Reply<PollInfo> {
        none()
    }
    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Reply<SchemaResult> {
        none()
    }
    async fn do_get(&self, _: Request<Ticket>) -> Reply<Self::DoGetStream> {
        // The schema, then batches without rows for ever.
        let schema = Self::schema();
        let batch = RecordBatch::new_empty(Arc::new(schema.clone()));
        let mut messages = batches_to_flight_data(&schema, [&batch]).unwrap();
        let batches = stream::repeat(messages.pop().unwrap());
        Ok(Response::new(stream::iter(messages).chain(batches).map(Ok).boxed()))
    }
    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Reply<Self::DoPutStream> {
        none()
    }
    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Reply<Self::DoExchangeStream> {
        none()
    }
    async fn do_action(&self, _: Request<Action>) -> Reply<Self::DoActionStream> {
        none()
    }
    async fn list_actions(&self, _: Request<Empty>) -> Reply<Self::ListActionsStream> {
        endless(ActionType {
            r#type: "something".to_owned(),
            description: String::new(),
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_says_is_not_believed() {
    let url = Hostile::start().await;
    let bounded = Duration::from_secs(120);
    let tier = tokio::time::timeout(
        bounded,
        connect(&url, "retries = 0\ntimeout_ms = 60000\nattempt_ms = 60000"),
    );
    let tier = tier.await.expect("its actions are not looked at for ever").unwrap();
    let object = tier.stat(&path("features/t.rows")).await.unwrap();
    assert!(object.size > 1 << 55, "{object:?}");
    let error = tier.read(&object, 0..object.size).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let listed = tokio::time::timeout(bounded, tier.list(None))
        .await
        .expect("the listing ends");
    let error = listed.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Timeout),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_without_rows_do_not_outlast_their_call() {
    let url = Hostile::start().await;
    let tier = connect(&url, "retries = 0\ntimeout_ms = 3000\nattempt_ms = 3000");
    let tier = tier.await.unwrap();
    let object = tier.stat(&path("features/t.rows")).await.unwrap();
    let read = tier.read(&object, object.size - 4..object.size);
    let read = tokio::time::timeout(Duration::from_secs(60), read).await;
    let error = read.expect("the read ends").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}
