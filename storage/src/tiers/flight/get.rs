//! One DoGet, from the ticket to the last row. In: ids of a table. Out: their rows, laid out and sealed, of the version
//! that was looked up. Checks messages that carry a checksum.

use super::link::{Lease, Link, RetriedCall};
use super::message;
use super::rows::lay_out;
use super::schema::to_table;
use super::status::{from_flight, from_status};
use super::table::{Table, VERSION_KEY};
use super::ticket::TableTicket;
use crate::{ErrorKind, ReadCost, StorageError};
use arrow_array::RecordBatch;
use arrow_flight::Ticket;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_schema::{Schema, SchemaRef};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};

/// Reads the rows of one DoGet, with retries.
pub(super) async fn get_rows(
    link: &Link,
    table: &Table,
    id_column: &str,
    ids: &[i64],
) -> Result<(Vec<u8>, ReadCost), StorageError> {
    let queued = Instant::now();
    let _slot = link.slot().await;
    let sent = Instant::now();
    let mut call = link.begin(table.object.path.as_str());
    let mut cost = ReadCost {
        via: ViaSet::of(Via::Flight),
        queue: sent - queued,
        ..ReadCost::default()
    };
    let name = call.object.clone();
    let mut laying = Laying {
        name: &name,
        table,
        id_column,
        missing: ids,
        rows: Vec::with_capacity(ids.len() * table.header.stride as usize),
    };
    loop {
        let mut lease = link.lease();
        cost.requests += 1;
        // A ticket has no version, which other servers do not know: that of the reply's schema is compared.
        let ticket = TableTicket {
            table: table.name.clone(),
            ids: Some(laying.missing.to_vec()),
            version: None,
        };
        match get(&call, &mut lease, ticket.encode(), &mut laying, &mut cost.wire_bytes).await {
            Ok(()) => break,
            Err(failure) => call.retry(failure, &lease).await?,
        }
    }
    if !laying.missing.is_empty() {
        let detail = format!("of {} rows asked for, {} did not come", ids.len(), laying.missing.len());
        return Err(ErrorKind::Corrupt.error(name, detail));
    }
    cost.retries = call.retries.made;
    cost.device = sent.elapsed();
    Ok((laying.rows, cost))
}

/// Rows of a reply, laid out as they arrive.
struct Laying<'a> {
    name: &'a str,
    table: &'a Table,
    id_column: &'a str,
    missing: &'a [i64],
    rows: Vec<u8>,
}

impl Laying<'_> {
    /// Checks the schema, which comes before any batch, against the table as it was looked up.
    fn schema(&mut self, schema: &SchemaRef) -> Result<(), StorageError> {
        let version = schema.metadata().get(VERSION_KEY);
        if version.is_some() && version != self.table.version.as_ref() {
            let what = format!("it was version {:?}, and is {version:?} now", self.table.version);
            return Err(ErrorKind::Changed.error(self.name, what));
        }
        let columns = |schema: &Schema| to_table(&self.table.name, self.id_column, schema).map(|told| told.schema);
        if columns(schema).as_ref() != Ok(&self.table.header.schema) {
            return Err(ErrorKind::Changed.error(self.name, "its columns are others now"));
        }
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<(), StorageError> {
        let corrupt = |what: String| ErrorKind::Corrupt.error(self.name, what);
        let Some((now, later)) = self.missing.split_at_checked(batch.num_rows()) else {
            return Err(corrupt("the server sent more rows than were asked for".into()));
        };
        let rows = lay_out(&self.table.header, self.id_column, batch, now).map_err(corrupt)?;
        self.rows.extend_from_slice(&rows);
        self.missing = later;
        Ok(())
    }
}

/// Sends a ticket and lays out the reply. Adds the bytes received to `wire_bytes`.
async fn get(
    call: &RetriedCall<'_>,
    lease: &mut Lease,
    ticket: Vec<u8>,
    laying: &mut Laying<'_>,
    wire_bytes: &mut u64,
) -> Result<(), StorageError> {
    let ticket = Ticket { ticket: ticket.into() };
    let reply = call.attempt(lease.client.do_get(ticket)).await?;
    let reply = reply.map_err(|status| from_status(&call.object, &status))?;
    let came = Arc::new(AtomicU64::new(0));
    let (counter, object) = (Arc::clone(&came), call.object.clone());
    let messages = reply.into_inner().map(move |message| {
        let message = message?;
        let bytes = message.data_header.len() + message.data_body.len() + message.app_metadata.len();
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        // Damage on the way may not be there the next time.
        message::check(&message).map_err(|what| {
            let error = ErrorKind::Unavailable.error(&object, what);
            FlightError::from_external_error(error.into())
        })?;
        Ok(message)
    });
    let mut decoder = FlightDataDecoder::new(messages);
    let ended = async {
        while let Some(decoded) = call.attempt(decoder.next()).await? {
            match decoded.map_err(|e| from_flight(&call.object, &e))?.payload {
                DecodedPayload::None => {}
                DecodedPayload::Schema(schema) => laying.schema(&schema)?,
                DecodedPayload::RecordBatch(batch) => laying.batch(&batch)?,
            }
        }
        Ok(())
    }
    .await;
    *wire_bytes += came.load(Ordering::Relaxed);
    ended
}
