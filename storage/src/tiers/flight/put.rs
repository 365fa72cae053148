//! Writing an object by DoPut. In: a body. Out: the object as the server has it. The size goes first and every message has
//! a checksum, so that a server of ours takes an upload whole or not at all.

use super::link::{Link, RetriedCall};
use super::payload::{self, MESSAGE_BYTES};
use super::status::from_status;
use super::ticket::{About, PutCommand, to_json};
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object};
use crate::tiers::source::Source;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, FlightDescriptor};
use futures::future::ready;
use futures::stream::{self, Stream, StreamExt};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The slowest that an upload may be, in bytes per second.
const SLOWEST: u64 = 4_000_000;

pub(super) async fn put(link: &Link, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
    let source = Arc::new(Source::open(body).await?);
    let mut call = link.begin(path.as_str(), Duration::from_secs(source.size() / SLOWEST));
    loop {
        let mut lease = call.lease();
        let broken = Broken::default();
        let upload = upload(path, &source, &broken);
        let put = put_once(&call, &mut lease.client, upload).await;
        if let Some(error) = broken.take() {
            return Err(error);
        }
        match put {
            Ok(object) => return Ok(object),
            Err(failure) => call.retry(failure, &lease).await?,
        }
    }
}

async fn put_once(
    call: &RetriedCall<'_>,
    client: &mut super::link::Client,
    upload: impl Stream<Item = FlightData> + Send + 'static,
) -> Result<Object, StorageError> {
    let failed = |status| from_status(call.object(), &status);
    let results = call.whole(client.do_put(upload)).await?;
    let mut results = results.map_err(failed)?.into_inner();
    let result = call.whole(results.message()).await?.map_err(failed)?;
    let told = result.ok_or("the server took the upload and told no result".to_owned());
    let object = told.and_then(|result| About::parse(&result.app_metadata));
    object.map_err(|what| StorageError::new(ErrorKind::Corrupt, call.object(), what))
}

/// Local error that ended an upload early.
#[derive(Debug, Clone, Default)]
struct Broken(Arc<Mutex<Option<StorageError>>>);

impl Broken {
    fn set(&self, error: StorageError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn take(&self) -> Option<StorageError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Messages of an upload. They end early, which the server notices, if the source cannot be read.
fn upload(path: &ObjectPath, source: &Arc<Source>, broken: &Broken) -> impl Stream<Item = FlightData> + Send + 'static {
    let (source, broken) = (Arc::clone(source), broken.clone());
    let (size, name) = (source.size(), path.to_string());
    let command = to_json(&PutCommand {
        object: name.clone(),
        size,
    });
    let schema = payload::schema("bytes", None, HashMap::new());
    let of_batches = Arc::clone(&schema);
    let batches = stream::unfold(0, move |at| {
        let (source, schema) = (Arc::clone(&source), Arc::clone(&of_batches));
        async move {
            if at >= size {
                return None;
            }
            let piece = source.piece(at, MESSAGE_BYTES).await;
            let next = piece.as_ref().map_or(size, |piece| at + piece.len() as u64);
            let batch = piece.map_err(|e| FlightError::from_external_error(e.into()));
            let batch = batch.and_then(|piece| payload::batch(&schema, &[piece]).map_err(FlightError::from));
            Some((batch, next))
        }
    });
    let messages = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_flight_descriptor(Some(FlightDescriptor::new_cmd(command)))
        .with_max_flight_data_size(usize::MAX)
        .build(batches);
    messages
        .map(move |message| {
            message
                .inspect_err(|e| broken.set(super::status::from_flight(&name, e)))
                .ok()
                .map(payload::seal)
        })
        .take_while(|message| ready(message.is_some()))
        .filter_map(ready)
}
