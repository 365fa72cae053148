//! Tier over a Flight server that serves only typed tables. In: paths `features/NAME.rows` and ranges of them. Out: the
//! bytes of the file that the table would be: a header made of the Arrow schema, and rows laid out and sealed here as
//! they arrive.
//!
//! Requirements on the server: GetFlightInfo of the path `[NAME]` returns a schema with an int64 column of ids and the
//! number of rows (`rows` in the schema's metadata, or the info's `total_records`). `first_id` in the metadata is the
//! id of the first row (default: 0); ids are consecutive. DoGet of `{"table":NAME,"ids":[…]}` sends these rows in this
//! order, with the column of ids. If the metadata has a `version`, any replaced table is detected. Without a `version`,
//! only a change of schema, row count or metadata is detected.

use super::get::{self, Link, Sink};
use super::objects::Bounds;
use super::rows::lay_out;
use super::schema::to_table;
use super::status::from_status;
use super::ticket::{Form, Ticket, table_name, table_path};
use crate::error::{ErrorKind, StorageError};
use crate::limits::{Listing, buffer_for};
use crate::path::ObjectPath;
use crate::tasks::at_once;
use crate::tier::{Object, ReadCost, ReadMany};
use arrow_array::RecordBatch;
use arrow_flight::{Criteria, FlightDescriptor, FlightInfo};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_formats::table::TableHeader;
use tierlab_protocol::via::{Via, ViaSet};

/// Maximum tables remembered; one more clears them all.
const MAX_KNOWN: usize = 256;
/// The key of a version in a schema's metadata.
const VERSION_KEY: &str = "version";

/// The tables of a server.
#[derive(Debug)]
pub(super) struct Tables {
    link: Arc<Link>,
    id_column: Arc<str>,
    bounds: Bounds,
    known: Mutex<HashMap<ObjectPath, Arc<Table>>>,
}

/// A table as it was looked up.
#[derive(Debug)]
struct Table {
    name: String,
    object: Object,
    header: TableHeader,
    head: Bytes,
    /// `version` of the schema's metadata.
    version: Option<String>,
}

impl Tables {
    pub(super) fn new(link: Arc<Link>, id_column: &str, bounds: Bounds) -> Self {
        Self {
            link,
            id_column: id_column.into(),
            bounds,
            known: Mutex::default(),
        }
    }

    pub(super) async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        Ok(self.look_up(path).await?.object.clone())
    }

    async fn look_up(&self, path: &ObjectPath) -> Result<Arc<Table>, StorageError> {
        let Some(name) = table_name(path) else {
            let detail = "this server has tables alone, which are features/NAME.rows";
            return Err(StorageError::new(
                ErrorKind::NotFound,
                self.link.name(path.as_str()),
                detail,
            ));
        };
        let descriptor = FlightDescriptor::new_path(vec![name.to_owned()]);
        let mut call = self.link.begin(path.as_str(), Duration::ZERO);
        let info = loop {
            let mut lease = call.lease();
            let told = async {
                let info = call.attempt(lease.client.get_flight_info(descriptor.clone())).await?;
                Ok(info.map_err(|status| from_status(call.object(), &status))?.into_inner())
            };
            match told.await {
                Ok(info) => break info,
                Err(failure) => call.retry(failure, &lease).await?,
            }
        };
        let table = self.describe(name, path, info);
        let table = table.map_err(|what| StorageError::new(ErrorKind::Invalid, self.link.name(path.as_str()), what))?;
        let table = Arc::new(table);
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(path.clone(), Arc::clone(&table));
        Ok(table)
    }

    fn describe(&self, name: &str, path: &ObjectPath, info: FlightInfo) -> Result<Table, String> {
        let (records, metadata) = (info.total_records, info.app_metadata.clone());
        let schema = info.try_decode_schema();
        let schema = schema.map_err(|e| format!("its schema cannot be read: {e}"))?;
        let told = to_table(name, &self.id_column, &schema)?;
        let rows = told.rows.or_else(|| u64::try_from(records).ok());
        let rows = rows.ok_or(
            "nothing tells how many rows it has: set `rows` in the schema's metadata, or the info's total_records",
        )?;
        let header = TableHeader::without_blocks(told.schema, rows, told.first_id).map_err(|e| e.to_string())?;
        let head = header.encode();
        let version = schema.metadata().get(VERSION_KEY).cloned();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), &metadata);
        Ok(Table {
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

    pub(super) async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let mut call = self.link.begin(prefix.map_or("", ObjectPath::as_str), Duration::ZERO);
        let infos = loop {
            let mut lease = call.lease();
            let told = async {
                let failed = |status| from_status(call.object(), &status);
                let infos = call.attempt(lease.client.list_flights(Criteria::default())).await?;
                let (mut infos, mut all) = (infos.map_err(failed)?.into_inner(), Vec::new());
                let mut listing = Listing::of(call.object());
                while let Some(info) = call.attempt(infos.message()).await?.map_err(failed)? {
                    listing.named(info.schema.len() + info.app_metadata.len())?;
                    // Everything else is dropped: a reply may hold any number of endpoints.
                    all.push(FlightInfo {
                        endpoint: Vec::new(),
                        ..info
                    });
                }
                Ok(all)
            };
            match told.await {
                Ok(infos) => break infos,
                Err(failure) => call.retry(failure, &lease).await?,
            }
        };
        let mut objects = Vec::new();
        for info in infos {
            let descriptor = info.flight_descriptor.clone().unwrap_or_default();
            let [name] = &descriptor.path[..] else { continue };
            let described = table_path(name).and_then(|path| self.describe(name, &path, info));
            match described {
                Ok(table) if prefix.is_none_or(|prefix| table.object.path.is_below(prefix)) => {
                    objects.push(table.object);
                }
                Ok(_) => {}
                Err(what) => tracing::warn!(flight = name, "left out of a listing: {what}"),
            }
        }
        objects.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(objects)
    }

    /// Reads ranges that were checked against the object's size.
    pub(super) async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let known = self.known.lock().get(&object.path).cloned();
        let table = match known {
            Some(table) if table.object == *object => table,
            _ => self.look_up(&object.path).await?,
        };
        if table.object != *object {
            return Err(changed(
                &self.link.name(object.path.as_str()),
                "its description is another now",
            ));
        }
        let wanted: Vec<Range<u64>> = ranges.iter().map(|range| table.rows_of(range)).collect();
        let ids = table.ids(&wanted)?;
        let read = self.rows(&table, &ids).await;
        let (chunks, cost) = read.inspect_err(|e| {
            if e.kind() == ErrorKind::Changed {
                self.known.lock().remove(&object.path);
            }
        })?;
        let began = Instant::now();
        let (per_chunk, stride) = (self.per_request(&table), table.header.stride as usize);
        let mut next = 0;
        let parts = ranges.iter().zip(wanted).map(|(range, rows)| {
            let first = next;
            next += usize::try_from(rows.end - rows.start).unwrap_or(0);
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

    /// Maximum rows per DoGet.
    fn per_request(&self, table: &Table) -> usize {
        let by_bytes = self.bounds.part_bytes / u64::from(table.header.stride);
        usize::try_from(by_bytes)
            .unwrap_or(usize::MAX)
            .clamp(1, self.bounds.ranges)
    }

    /// Reads rows in chunks of one DoGet each.
    async fn rows(&self, table: &Arc<Table>, ids: &[i64]) -> Result<(Vec<Vec<u8>>, ReadCost), StorageError> {
        if ids.is_empty() {
            // The header alone, which is made here.
            let cost = ReadCost {
                via: ViaSet::of(Via::Memory),
                ..ReadCost::default()
            };
            return Ok((Vec::new(), cost));
        }
        let get = |ids: &[i64]| {
            let (link, table, id_column) = (Arc::clone(&self.link), Arc::clone(table), Arc::clone(&self.id_column));
            let ids = ids.to_vec();
            async move { get_rows(&link, &table, &id_column, &ids).await }
        };
        let gets = ids.chunks(self.per_request(table)).map(get).collect();
        let mut cost = ReadCost::default();
        let name = self.link.name(table.object.path.as_str());
        let chunks = at_once(&name, gets, |(_, of_get)| cost.merge(of_get)).await?;
        Ok((chunks.into_iter().map(|(rows, _)| rows).collect(), cost))
    }
}

impl Table {
    /// The rows that a range touches.
    fn rows_of(&self, range: &Range<u64>) -> Range<u64> {
        let (head, stride) = (self.head.len() as u64, u64::from(self.header.stride));
        if range.end <= head || range.is_empty() {
            return 0..0;
        }
        range.start.saturating_sub(head) / stride..(range.end - head).div_ceil(stride)
    }

    /// The ids of rows, of which there may be more than fit into memory.
    fn ids(&self, rows: &[Range<u64>]) -> Result<Vec<i64>, StorageError> {
        let count = rows
            .iter()
            .fold(0, |sum: u64, rows| sum.saturating_add(rows.end - rows.start));
        let mut ids = Vec::new();
        let reserved = usize::try_from(count)
            .ok()
            .and_then(|count| ids.try_reserve_exact(count).ok());
        reserved.ok_or_else(|| {
            let detail = format!("no memory for {count} ids; read it in smaller ranges");
            StorageError::new(ErrorKind::Unavailable, self.object.path.as_str(), detail)
        })?;
        let id = |row: u64| self.header.first_id + row.cast_signed();
        ids.extend(rows.iter().cloned().flatten().map(id));
        Ok(ids)
    }

    /// The bytes of a range, of the header and of the rows that it touches, the first of which is `first`.
    fn part<'a>(
        &self,
        range: &Range<u64>,
        first: u64,
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Bytes, StorageError> {
        let (head, stride) = (self.head.len() as u64, u64::from(self.header.stride));
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        if range.end <= head {
            return Ok(self.head.slice(place(range.start)..place(range.end)));
        }
        let mut part = buffer_for(self.object.path.as_str(), range.end - range.start)?;
        if range.start < head {
            part.extend_from_slice(&self.head[place(range.start)..]);
        }
        let mut at = head + first * stride;
        for row in rows {
            let from = range.start.saturating_sub(at);
            part.extend_from_slice(&row[place(from)..place((range.end - at).min(stride))]);
            at += stride;
        }
        Ok(part.freeze())
    }
}

fn changed(object: &str, what: &str) -> StorageError {
    StorageError::new(ErrorKind::Changed, object, what)
}

/// Reads the rows of one DoGet, with retries.
async fn get_rows(
    link: &Link,
    table: &Table,
    id_column: &str,
    ids: &[i64],
) -> Result<(Vec<u8>, ReadCost), StorageError> {
    let queued = Instant::now();
    let _slot = link.slot().await;
    let sent = Instant::now();
    let mut call = link.begin(table.object.path.as_str(), Duration::ZERO);
    let mut cost = ReadCost {
        via: ViaSet::of(Via::Flight),
        queue: sent - queued,
        ..ReadCost::default()
    };
    let name = call.object().to_owned();
    let mut laying = Laying {
        name: &name,
        table,
        id_column,
        missing: ids,
        rows: Vec::with_capacity(ids.len() * table.header.stride as usize),
    };
    loop {
        let mut lease = call.lease();
        cost.requests += 1;
        let ticket = Ticket::Table {
            table: table.name.clone(),
            ids: Some(laying.missing.to_vec()),
            form: Form::Columns,
            version: None,
        };
        match get::get(&call, &mut lease, ticket.encode(), &mut laying, &mut cost.wire_bytes).await {
            Ok(()) => break,
            Err(failure) => call.retry(failure, &lease).await?,
        }
    }
    if !laying.missing.is_empty() {
        let detail = format!("of {} rows asked for, {} did not come", ids.len(), laying.missing.len());
        return Err(StorageError::new(ErrorKind::Corrupt, name, detail));
    }
    cost.retries = call.retries();
    cost.device = sent.elapsed();
    Ok((laying.rows, cost))
}

struct Laying<'a> {
    name: &'a str,
    table: &'a Table,
    id_column: &'a str,
    missing: &'a [i64],
    rows: Vec<u8>,
}

impl Sink for Laying<'_> {
    fn schema(&mut self, schema: &SchemaRef) -> Result<(), StorageError> {
        let version = schema.metadata().get(VERSION_KEY);
        if version.is_some() && version != self.table.version.as_ref() {
            let what = format!("it was version {:?}, and is {version:?} now", self.table.version);
            return Err(changed(self.name, &what));
        }
        let columns = |schema: &Schema| to_table(&self.table.name, self.id_column, schema).map(|told| told.schema);
        if columns(schema).as_ref() != Ok(&self.table.header.schema) {
            return Err(changed(self.name, "its columns are others now"));
        }
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<(), StorageError> {
        let corrupt = |what: String| StorageError::new(ErrorKind::Corrupt, self.name, what);
        let Some((now, later)) = self.missing.split_at_checked(batch.num_rows()) else {
            return Err(corrupt("the server sent more rows than were asked for".into()));
        };
        let rows = lay_out(&self.table.header, self.id_column, batch, now).map_err(corrupt)?;
        self.rows.extend_from_slice(&rows);
        self.missing = later;
        Ok(())
    }
}
