//! A single DoGet, from the ticket to the last batch.
//! In: a connection, a ticket, a sink for the batches. Out: nothing, or why the call ended early. Checks messages that
//! carry a checksum; silence ends the call. Knows nothing of objects and rows.

use super::link::{Lease, RetriedCall};
use super::payload;
use super::status::{from_flight, from_status};
use crate::error::{ErrorKind, StorageError};
use arrow_array::RecordBatch;
use arrow_flight::Ticket;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Receiver of a reply's schema and batches.
pub(super) trait Sink: Send {
    /// The schema, before any batch.
    fn schema(&mut self, schema: &SchemaRef) -> Result<(), StorageError>;
    /// The next batch.
    fn batch(&mut self, batch: &RecordBatch) -> Result<(), StorageError>;
}

/// Sends a ticket and passes the reply to `sink`. Adds the bytes received to `wire_bytes`.
pub(super) async fn get(
    call: &RetriedCall<'_>,
    lease: &mut Lease,
    ticket: Vec<u8>,
    sink: &mut dyn Sink,
    wire_bytes: &mut u64,
) -> Result<(), StorageError> {
    let ticket = Ticket { ticket: ticket.into() };
    let reply = call.attempt(lease.client.do_get(ticket)).await?;
    let reply = reply.map_err(|status| from_status(call.object(), &status))?;
    let came = Arc::new(AtomicU64::new(0));
    let (counter, object) = (Arc::clone(&came), call.object().to_owned());
    let messages = reply.into_inner().map(move |message| {
        let message = message?;
        let bytes = message.data_header.len() + message.data_body.len() + message.app_metadata.len();
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        // Damage on the way may not be there the next time.
        payload::check(&message).map_err(|what| {
            let error = StorageError::new(ErrorKind::Unavailable, object.as_str(), what);
            FlightError::from_external_error(error.into())
        })?;
        Ok(message)
    });
    let mut decoder = FlightDataDecoder::new(messages);
    let ended = async {
        while let Some(decoded) = call.attempt(decoder.next()).await? {
            match decoded.map_err(|e| from_flight(call.object(), &e))?.payload {
                DecodedPayload::None => {}
                DecodedPayload::Schema(schema) => sink.schema(&schema)?,
                DecodedPayload::RecordBatch(batch) => sink.batch(&batch)?,
            }
        }
        Ok(())
    }
    .await;
    *wire_bytes += came.load(Ordering::Relaxed);
    ended
}
