//! A Flight server as a tier. In: paths `features/NAME.rows` and ranges of them. Out: the bytes that the table has as a
//! file. A DoGet takes ids of a table and returns their rows, laid out and sealed, of the version that was looked up;
//! messages that carry a checksum are checked.

use super::FlightConfig;
use super::link::{FlightClient, FlightLink, RetriedCall};
use super::message::{self, TableTicket, from_flight, table_name, table_path};
use super::rows::lay_out;
use super::schema::to_table;
use crate::limits::{Listing, buffer_for, check_ranges};
use crate::tasks::concurrently;
use crate::tiers::remember;
use crate::{Body, ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use anyhow::{Context as _, anyhow};
use arrow_array::RecordBatch;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::{Criteria, Empty, FlightDescriptor, FlightInfo, Ticket};
use arrow_schema::{Schema, SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tierlab_formats::table::TableHeader;
use tierlab_protocol::via::{Via, ViaSet};

/// Maximum tables remembered; one more clears them all.
const MAX_TABLES: usize = 256;

/// Tier over an Arrow Flight server.
#[derive(Debug)]
pub struct FlightTier {
    link: Arc<FlightLink>,
    tables: Mutex<HashMap<ObjectPath, Arc<Table>>>,
}

impl FlightTier {
    /// Prepares the connections, and asks the server for its actions, so that a wrong address fails now.
    ///
    /// # Errors
    /// Fails if the config is inconsistent or the server does not answer.
    pub async fn connect(config: &FlightConfig) -> Result<Self, StorageError> {
        let link = Arc::new(FlightLink::new(config)?);
        let mut call = link.begin("");
        loop {
            let mut client = call.client();
            match call.reply(client.list_actions(Empty {})).await {
                Ok(_) => break,
                Err(e) if e.kind() == ErrorKind::Unsupported => break,
                Err(failure) => call.retry(failure).await?,
            }
        }
        let tables = Mutex::default();
        Ok(Self { link, tables })
    }

    fn error(&self, kind: ErrorKind, path: &ObjectPath, detail: impl Into<String>) -> StorageError {
        kind.error(self.link.name(path.as_str()), detail)
    }

    fn read_only(&self, path: &ObjectPath) -> StorageError {
        let text = "the Flight tier is read-only: write tables to the server's own storage, and models to another tier";
        self.error(ErrorKind::Unsupported, path, text)
    }

    async fn look_up(&self, path: &ObjectPath) -> Result<Arc<Table>, StorageError> {
        let Some(name) = table_name(path) else {
            let detail = "a Flight server has only tables; use a path features/NAME.rows";
            return Err(self.error(ErrorKind::NotFound, path, detail));
        };
        let descriptor = FlightDescriptor::new_path(vec![name.to_owned()]);
        let mut call = self.link.begin(path.as_str());
        let info = loop {
            let mut client = call.client();
            match call.reply(client.get_flight_info(descriptor.clone())).await {
                Ok(info) => break info.into_inner(),
                Err(failure) => call.retry(failure).await?,
            }
        };
        let table = Table::describe(name, path, &self.link.config.id_column, info);
        let table = table.map_err(|detail| self.error(ErrorKind::Invalid, path, detail.to_string()))?;
        let table = Arc::new(table);
        remember(&self.tables, MAX_TABLES, path.clone(), Arc::clone(&table));
        Ok(table)
    }

    /// Maximum rows per DoGet.
    fn per_request(&self, table: &Table) -> usize {
        let config = &self.link.config;
        let by_bytes = config.part_bytes / u64::from(table.header.stride);
        by_bytes.clamp(1, config.ranges_per_request.into()) as usize
    }

    /// Reads rows in chunks of one DoGet each.
    async fn rows(&self, table: &Arc<Table>, ids: &[i64]) -> Result<(Vec<Vec<u8>>, ReadCost), StorageError> {
        if ids.is_empty() {
            // Only the header, which is built here.
            let cost = ReadCost {
                via: ViaSet::of(Via::Memory),
                ..ReadCost::default()
            };
            return Ok((Vec::new(), cost));
        }
        let get = |ids: &[i64]| {
            let (link, table, ids) = (Arc::clone(&self.link), Arc::clone(table), ids.to_vec());
            async move { get_rows(&link, &table, &ids).await }
        };
        let gets = ids.chunks(self.per_request(table)).map(get).collect();
        let mut cost = ReadCost::default();
        let name = self.link.name(table.object.path.as_str());
        let chunks = concurrently(&name, gets, |(_, of_get)| cost.merge(of_get)).await?;
        Ok((chunks.into_iter().map(|(rows, _)| rows).collect(), cost))
    }
}

#[async_trait]
impl Tier for FlightTier {
    fn info(&self) -> TierInfo {
        let note = "Flight: typed columns, read-only; rows are laid out and sealed here, so their checksums do not cover the \
                    server, and a table replaced under an unchanged description is not detected";
        TierInfo::new("flight", &self.link.url, vec![note.to_owned()])
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        Ok(self.look_up(path).await?.object.clone())
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let cached = self.tables.lock().get(&object.path).cloned();
        let table = match cached {
            Some(table) if table.object == *object => table,
            _ => self.look_up(&object.path).await?,
        };
        if table.object != *object {
            let detail = "its description changed on the server";
            return Err(self.error(ErrorKind::Changed, &object.path, detail));
        }
        let wanted: Vec<Range<u64>> = ranges.iter().map(|range| table.rows_of(range)).collect();
        let ids = table.ids(&wanted)?;
        let read = self.rows(&table, &ids).await;
        let (chunks, cost) = read.inspect_err(|e| {
            if e.kind() == ErrorKind::Changed {
                self.tables.lock().remove(&object.path);
            }
        })?;
        let began = Instant::now();
        let (per_chunk, stride) = (self.per_request(&table), table.header.stride as usize);
        let mut next = 0;
        let parts = ranges.iter().zip(wanted).map(|(range, rows)| {
            let first = next;
            next += (rows.end - rows.start) as usize;
            let row = |at: usize| {
                let start = at % per_chunk * stride;
                &chunks[at / per_chunk][start..start + stride]
            };
            table.part(range, rows.start, (first..next).map(row))
        });
        let parts = parts.collect::<Result<_, _>>()?;
        let copy = began.elapsed();
        Ok(ReadMany {
            parts,
            cost: ReadCost { copy, ..cost },
        })
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let mut call = self.link.begin(prefix.map_or("", ObjectPath::as_str));
        let infos = loop {
            let mut client = call.client();
            let listed = async {
                let mut infos = call.reply(client.list_flights(Criteria::default())).await?.into_inner();
                let (mut all, mut listing) = (Vec::new(), Listing::of(&call.object));
                while let Some(info) = call.reply(infos.message()).await? {
                    listing.named(info.schema.len() + info.app_metadata.len())?;
                    // The rest is dropped: a reply may hold any number of endpoints.
                    all.push(FlightInfo {
                        endpoint: Vec::new(),
                        ..info
                    });
                }
                Ok(all)
            };
            match listed.await {
                Ok(infos) => break infos,
                Err(failure) => call.retry(failure).await?,
            }
        };
        let mut objects = Vec::new();
        for info in infos {
            let descriptor = info.flight_descriptor.clone().unwrap_or_default();
            let [name] = &descriptor.path[..] else { continue };
            let id_column = &self.link.config.id_column;
            let described = table_path(name).and_then(|path| Table::describe(name, &path, id_column, info));
            match described {
                Ok(table) if prefix.is_none_or(|prefix| table.object.path.is_below(prefix)) => {
                    objects.push(table.object);
                }
                Ok(_) => {}
                Err(detail) => tracing::warn!(flight = name, "skipped in listing: {detail}"),
            }
        }
        objects.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(objects)
    }

    async fn put(&self, path: &ObjectPath, _: Body) -> Result<Object, StorageError> {
        Err(self.read_only(path))
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        Err(self.read_only(path))
    }
}

/// Reads the rows of one DoGet, with retries.
async fn get_rows(link: &FlightLink, table: &Table, ids: &[i64]) -> Result<(Vec<u8>, ReadCost), StorageError> {
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
    let mut reply = ReplyRows {
        name: &name,
        table,
        id_column: &link.config.id_column,
        missing: ids,
        rows: Vec::with_capacity(ids.len() * table.header.stride as usize),
    };
    loop {
        let mut client = call.client();
        cost.requests += 1;
        // The ticket has no version, since other servers do not know it: the version in the reply's schema is compared.
        let ticket = TableTicket {
            table: table.name.clone(),
            ids: Some(reply.missing.to_vec()),
            version: None,
        };
        match get(&call, &mut client, ticket.encode(), &mut reply, &mut cost.wire_bytes).await {
            Ok(()) => break,
            Err(failure) => call.retry(failure).await?,
        }
    }
    if !reply.missing.is_empty() {
        let (all, missing) = (ids.len(), reply.missing.len());
        let detail = format!("reply is incomplete: {missing} of {all} rows missing");
        return Err(ErrorKind::Corrupt.error(name, detail));
    }
    cost.retries = call.retries.count;
    cost.device = sent.elapsed();
    Ok((reply.rows, cost))
}

/// Rows of a reply, laid out as they arrive.
struct ReplyRows<'a> {
    name: &'a str,
    table: &'a Table,
    id_column: &'a str,
    missing: &'a [i64],
    rows: Vec<u8>,
}

impl ReplyRows<'_> {
    /// Compares the schema, which precedes any batch, with the looked-up table.
    fn schema(&mut self, schema: &SchemaRef) -> Result<(), StorageError> {
        let version = schema.metadata().get(VERSION_KEY);
        if version.is_some() && version != self.table.version.as_ref() {
            let was = &self.table.version;
            let detail = format!("table changed on the server: version was {was:?}, is {version:?} now");
            return Err(ErrorKind::Changed.error(self.name, detail));
        }
        let columns = |schema: &Schema| to_table(&self.table.name, self.id_column, schema).map(|table| table.schema);
        if columns(schema).ok().as_ref() != Some(&self.table.header.schema) {
            return Err(ErrorKind::Changed.error(self.name, "table changed on the server: its columns differ"));
        }
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<(), StorageError> {
        let corrupt = |detail: String| ErrorKind::Corrupt.error(self.name, detail);
        let parts = self.missing.split_at_checked(batch.num_rows());
        let (now, later) = parts.ok_or_else(|| corrupt("server sent more rows than requested".into()))?;
        lay_out(&self.table.header, self.id_column, batch, now, &mut self.rows).map_err(|e| corrupt(e.to_string()))?;
        self.missing = later;
        Ok(())
    }
}

/// Sends a ticket and lays out the reply. Adds the bytes received to `wire_bytes`.
async fn get(
    call: &RetriedCall<'_>,
    client: &mut FlightClient,
    ticket: Vec<u8>,
    rows: &mut ReplyRows<'_>,
    wire_bytes: &mut u64,
) -> Result<(), StorageError> {
    let ticket = Ticket { ticket: ticket.into() };
    let reply = call.reply(client.do_get(ticket)).await?;
    let received = Arc::new(AtomicU64::new(0));
    let (counter, object) = (Arc::clone(&received), call.object.clone());
    let messages = reply.into_inner().map(move |message| {
        let message = message?;
        let bytes = message.data_header.len() + message.data_body.len() + message.app_metadata.len();
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        // Damage in transit may not recur on a retry.
        message::check(&message).map_err(|detail| {
            let error = ErrorKind::Unavailable.error(&object, detail.to_string());
            FlightError::from_external_error(error.into())
        })?;
        Ok(message)
    });
    let mut decoder = FlightDataDecoder::new(messages);
    let ended = async {
        while let Some(decoded) = call.attempt(decoder.next()).await? {
            match decoded.map_err(|e| from_flight(&call.object, &e))?.payload {
                DecodedPayload::None => {}
                DecodedPayload::Schema(schema) => rows.schema(&schema)?,
                DecodedPayload::RecordBatch(batch) => rows.batch(&batch)?,
            }
        }
        Ok(())
    }
    .await;
    *wire_bytes += received.load(Ordering::Relaxed);
    ended
}

/// Metadata key of a schema's version.
const VERSION_KEY: &str = "version";

/// Looked-up table.
#[derive(Debug)]
struct Table {
    name: String,
    object: Object,
    header: TableHeader,
    head: Bytes,
    /// `version` of the schema's metadata.
    version: Option<String>,
}

impl Table {
    /// Reads a description. The error says what is wrong with it.
    fn describe(name: &str, path: &ObjectPath, id_column: &str, info: FlightInfo) -> anyhow::Result<Self> {
        let (records, metadata) = (info.total_records, info.app_metadata.clone());
        let schema = info.try_decode_schema();
        let schema = schema.map_err(|e| anyhow!("invalid schema: {e}"))?;
        let found = to_table(name, id_column, &schema)?;
        let rows = found.rows.or_else(|| u64::try_from(records).ok());
        let rows =
            rows.context("unknown number of rows: set `rows` in the schema's metadata, or the info's total_records")?;
        let header = TableHeader::without_blocks(found.schema, rows, found.first_id)?;
        let head = header.encode();
        let version = schema.metadata().get(VERSION_KEY).cloned();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), &metadata);
        Ok(Self {
            name: name.to_owned(),
            object: Object {
                path: path.clone(),
                size: header.file_len(),
                version: format!("{sum:08x}-{}", version.as_deref().unwrap_or_default()),
            },
            header,
            head: head.into(),
            version,
        })
    }

    /// Rows that a range touches.
    fn rows_of(&self, range: &Range<u64>) -> Range<u64> {
        let (head, stride) = (self.head.len() as u64, u64::from(self.header.stride));
        if range.end <= head || range.is_empty() {
            return 0..0;
        }
        range.start.saturating_sub(head) / stride..(range.end - head).div_ceil(stride)
    }

    /// Ids of rows. Fails if they do not fit into memory.
    fn ids(&self, rows: &[Range<u64>]) -> Result<Vec<i64>, StorageError> {
        let count: u64 = rows.iter().map(|rows| rows.end - rows.start).sum();
        let mut ids = Vec::new();
        ids.try_reserve_exact(count as usize).map_err(|_| {
            let detail = format!("no memory for {count} ids; read it in smaller ranges");
            ErrorKind::Unavailable.error(&self.object.path, detail)
        })?;
        let id = |row: u64| self.header.first_id + row.cast_signed();
        ids.extend(rows.iter().cloned().flatten().map(id));
        Ok(ids)
    }

    /// Bytes of a range, from the header and the rows that it touches; `first` is the first of these rows.
    fn part<'a>(
        &self,
        range: &Range<u64>,
        first: u64,
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Bytes, StorageError> {
        let (head, stride) = (self.head.len() as u64, u64::from(self.header.stride));
        if range.end <= head {
            return Ok(self.head.slice(range.start as usize..range.end as usize));
        }
        let mut part = buffer_for(self.object.path.as_str(), range.end - range.start)?;
        if range.start < head {
            part.extend_from_slice(&self.head[range.start as usize..]);
        }
        let mut at = head + first * stride;
        for row in rows {
            let from = range.start.saturating_sub(at);
            part.extend_from_slice(&row[from as usize..(range.end - at).min(stride) as usize]);
            at += stride;
        }
        Ok(part.freeze())
    }
}
