//! A Flight server as a tier. In: paths `features/NAME.rows` and ranges of them. Out: the bytes of the file that the table
//! would be.

use super::FlightConfig;
use super::get::get_rows;
use super::link::Link;
use super::status::from_status;
use super::table::Table;
use super::ticket::{table_name, table_path};
use crate::limits::{Listing, check_ranges};
use crate::tasks::at_once;
use crate::{Body, ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use arrow_flight::{Criteria, Empty, FlightDescriptor, FlightInfo};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};

/// Maximum tables remembered; one more clears them all.
const MAX_KNOWN: usize = 256;

/// A Flight server.
#[derive(Debug)]
pub struct FlightTier {
    link: Arc<Link>,
    id_column: Arc<str>,
    part_bytes: u64,
    rows_per_get: usize,
    known: Mutex<HashMap<ObjectPath, Arc<Table>>>,
}

impl FlightTier {
    /// Prepares the connections, and asks the server for its actions, so that a wrong address fails now.
    ///
    /// # Errors
    /// Fails if the config contradicts itself or if the server does not answer.
    pub async fn connect(config: &FlightConfig) -> Result<Self, StorageError> {
        let link = Arc::new(Link::new(config)?);
        let mut call = link.begin("");
        loop {
            let mut lease = link.lease();
            let told = async {
                let told = call.attempt(lease.client.list_actions(Empty {})).await?;
                told.map_err(|status| from_status(&link.url, &status))
            };
            match told.await {
                Ok(_) => break,
                Err(e) if e.kind() == ErrorKind::Unsupported => break,
                Err(failure) => call.retry(failure, &lease).await?,
            }
        }
        Ok(Self {
            link,
            id_column: config.id_column.as_str().into(),
            part_bytes: config.part_bytes,
            rows_per_get: usize::try_from(config.ranges_per_request).unwrap_or(usize::MAX),
            known: Mutex::default(),
        })
    }

    fn error(&self, kind: ErrorKind, path: &ObjectPath, what: impl Into<String>) -> StorageError {
        kind.error(self.link.name(path.as_str()), what)
    }

    fn read_only(&self, path: &ObjectPath) -> StorageError {
        let what =
            "tables of a Flight server are read only: write them where it keeps them, and models to another tier";
        self.error(ErrorKind::Unsupported, path, what)
    }

    async fn look_up(&self, path: &ObjectPath) -> Result<Arc<Table>, StorageError> {
        let Some(name) = table_name(path) else {
            let detail = "a Flight server has tables alone, which are features/NAME.rows";
            return Err(self.error(ErrorKind::NotFound, path, detail));
        };
        let descriptor = FlightDescriptor::new_path(vec![name.to_owned()]);
        let mut call = self.link.begin(path.as_str());
        let info = loop {
            let mut lease = self.link.lease();
            let told = async {
                let info = call.attempt(lease.client.get_flight_info(descriptor.clone())).await?;
                Ok(info.map_err(|status| from_status(&call.object, &status))?.into_inner())
            };
            match told.await {
                Ok(info) => break info,
                Err(failure) => call.retry(failure, &lease).await?,
            }
        };
        let table = Table::describe(name, path, &self.id_column, info);
        let table = table.map_err(|what| self.error(ErrorKind::Invalid, path, what))?;
        let table = Arc::new(table);
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(path.clone(), Arc::clone(&table));
        Ok(table)
    }

    /// Maximum rows per DoGet.
    fn per_request(&self, table: &Table) -> usize {
        let by_bytes = self.part_bytes / u64::from(table.header.stride);
        usize::try_from(by_bytes)
            .unwrap_or(usize::MAX)
            .clamp(1, self.rows_per_get)
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

#[async_trait]
impl Tier for FlightTier {
    fn info(&self) -> TierInfo {
        let note = "Flight: typed columns, read only; rows are laid out and sealed here, so their checksums do not reach back \
                    to the server, and a table replaced under an unchanged description is not noticed";
        TierInfo::new("flight", &self.link.url, vec![note.to_owned()])
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        Ok(self.look_up(path).await?.object.clone())
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let known = self.known.lock().get(&object.path).cloned();
        let table = match known {
            Some(table) if table.object == *object => table,
            _ => self.look_up(&object.path).await?,
        };
        if table.object != *object {
            return Err(self.error(ErrorKind::Changed, &object.path, "its description is another now"));
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

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let mut call = self.link.begin(prefix.map_or("", ObjectPath::as_str));
        let infos = loop {
            let mut lease = self.link.lease();
            let told = async {
                let failed = |status| from_status(&call.object, &status);
                let infos = call.attempt(lease.client.list_flights(Criteria::default())).await?;
                let (mut infos, mut all) = (infos.map_err(failed)?.into_inner(), Vec::new());
                let mut listing = Listing::of(&call.object);
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
            let described = table_path(name).and_then(|path| Table::describe(name, &path, &self.id_column, info));
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

    async fn put(&self, path: &ObjectPath, _: Body) -> Result<Object, StorageError> {
        Err(self.read_only(path))
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        Err(self.read_only(path))
    }
}
