//! Tier over a Flight server that stores objects: reads by ranges, and all other operations. In: paths and ranges. Out:
//! stored bytes of the version that was looked up, which every ticket names. A DoGet that breaks is resumed where it
//! broke.

use super::fill::{self, Fill};
use super::get::{self, Sink};
use super::link::Link;
use super::payload;
use super::status::from_status;
use super::ticket::{About, Criteria, DELETE_ACTION, DeleteCommand, Ticket, to_json};
use crate::error::{ErrorKind, StorageError};
use crate::limits::Listing;
use crate::path::ObjectPath;
use crate::tier::{Object, ReadCost, ReadMany};
use arrow_array::RecordBatch;
use arrow_flight::{Action, Criteria as Expression, FlightDescriptor};
use arrow_schema::SchemaRef;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::via::{Via, ViaSet};
use tokio::task::JoinSet;

/// Maximum results of an action to wait for; `tierlab-origin` sends none.
const MAX_RESULTS: u32 = 16;

/// Limits by which reads are split into DoGets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) part_bytes: u64,
    pub(super) ranges: usize,
}

pub(super) async fn stat(link: &Link, path: &ObjectPath) -> Result<Object, StorageError> {
    let ticket = Ticket::Object {
        object: path.clone(),
        ranges: None,
        version: None,
    };
    let descriptor = FlightDescriptor::new_cmd(ticket.encode());
    let mut call = link.begin(path.as_str(), Duration::ZERO);
    loop {
        let mut lease = call.lease();
        let told = async {
            let info = call.attempt(lease.client.get_flight_info(descriptor.clone())).await?;
            let info = info.map_err(|status| from_status(call.object(), &status))?;
            let object = About::parse(&info.into_inner().app_metadata);
            object.map_err(|what| StorageError::new(ErrorKind::Corrupt, call.object(), what))
        };
        match told.await {
            Ok(object) => return Ok(object),
            Err(failure) => call.retry(failure, &lease).await?,
        }
    }
}

pub(super) async fn list(link: &Link, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
    let criteria = to_json(&Criteria {
        objects: true,
        below: prefix.map(ToString::to_string),
    });
    let mut call = link.begin(prefix.map_or("", ObjectPath::as_str), Duration::ZERO);
    loop {
        let mut lease = call.lease();
        let told = async {
            let failed = |status| from_status(call.object(), &status);
            let expression = Expression {
                expression: criteria.clone().into(),
            };
            let infos = call.attempt(lease.client.list_flights(expression)).await?;
            let mut infos = infos.map_err(failed)?.into_inner();
            let mut listing = Listing::of(call.object());
            while let Some(info) = call.attempt(infos.message()).await?.map_err(failed)? {
                let object = About::parse(&info.app_metadata);
                listing.push(object.map_err(|what| StorageError::new(ErrorKind::Corrupt, call.object(), what))?)?;
            }
            Ok(listing.end())
        };
        match told.await {
            Ok(objects) => return Ok(objects),
            Err(failure) => call.retry(failure, &lease).await?,
        }
    }
}

pub(super) async fn delete(link: &Link, path: &ObjectPath) -> Result<(), StorageError> {
    let action = Action {
        r#type: DELETE_ACTION.to_owned(),
        body: to_json(&DeleteCommand {
            object: path.to_string(),
        })
        .into(),
    };
    let mut call = link.begin(path.as_str(), Duration::ZERO);
    loop {
        let mut lease = call.lease();
        let done = async {
            let failed = |status| from_status(call.object(), &status);
            let results = call.attempt(lease.client.do_action(action.clone())).await?;
            let mut results = results.map_err(failed)?.into_inner();
            for _ in 0..MAX_RESULTS {
                if call.attempt(results.message()).await?.map_err(failed)?.is_none() {
                    break;
                }
            }
            Ok::<_, StorageError>(())
        };
        match done.await {
            Ok(()) => return Ok(()),
            // The attempt before may have removed it, and its reply was lost.
            Err(e) if e.kind() == ErrorKind::NotFound && call.retries() > 0 => return Ok(()),
            Err(failure) => call.retry(failure, &lease).await?,
        }
    }
}

/// Reads ranges that were checked against the object's size.
pub(super) async fn read_many(
    link: &Arc<Link>,
    bounds: Bounds,
    object: &Object,
    ranges: &[Range<u64>],
) -> Result<ReadMany, StorageError> {
    let fills = fill::cut(ranges, bounds.part_bytes, bounds.ranges).ok_or_else(|| {
        let detail = "a range of more bytes than memory can hold";
        StorageError::new(ErrorKind::Invalid, link.name(object.path.as_str()), detail)
    })?;
    let mut cost = ReadCost::default();
    let mut full = Vec::with_capacity(fills.len());
    if fills.len() == 1 {
        for fill in fills {
            full.push((0, read(link, object, fill).await?));
        }
    } else {
        // Tasks, so that several cores take the bytes in; dropping the set ends them.
        let mut tasks = JoinSet::new();
        for (place, fill) in fills.into_iter().enumerate() {
            let (link, object) = (Arc::clone(link), object.clone());
            tasks.spawn(async move { read(&link, &object, fill).await.map(|done| (place, done)) });
        }
        while let Some(ended) = tasks.join_next().await {
            let broken = |e| StorageError::new(ErrorKind::Unavailable, link.name(object.path.as_str()), format!("{e}"));
            full.push(ended.map_err(broken)??);
        }
        full.sort_unstable_by_key(|(place, _)| *place);
    }
    for (_, (_, of_get)) in &full {
        cost.merge(of_get);
    }
    let full = full.into_iter().map(|(_, (fill, _))| fill).collect();
    Ok(ReadMany {
        parts: fill::parts(full, ranges.len()),
        cost,
    })
}

/// Reads one DoGet, with retries.
async fn read(link: &Link, object: &Object, mut fill: Fill) -> Result<(Fill, ReadCost), StorageError> {
    let queued = Instant::now();
    let _slot = link.slot().await;
    let sent = Instant::now();
    let mut call = link.begin(object.path.as_str(), Duration::ZERO);
    let mut cost = ReadCost {
        via: ViaSet::of(Via::Flight),
        queue: sent - queued,
        ..ReadCost::default()
    };
    loop {
        let mut lease = call.lease();
        cost.requests += 1;
        let ticket = Ticket::Object {
            object: object.path.clone(),
            ranges: Some(fill.missing()),
            version: Some(object.version.clone()),
        };
        let name = call.object().to_owned();
        let mut filling = Filling {
            name: &name,
            fill: &mut fill,
        };
        let got = get::get(&call, &mut lease, ticket.encode(), &mut filling, &mut cost.wire_bytes).await;
        let short = || StorageError::new(ErrorKind::Unavailable, name.as_str(), "the reply ended early");
        match got.and_then(|()| if fill.is_full() { Ok(()) } else { Err(short()) }) {
            Ok(()) => break,
            Err(failure) => call.retry(failure, &lease).await?,
        }
    }
    cost.retries = call.retries();
    cost.device = sent.elapsed();
    Ok((fill, cost))
}

struct Filling<'a> {
    name: &'a str,
    fill: &'a mut Fill,
}

impl Sink for Filling<'_> {
    fn schema(&mut self, schema: &SchemaRef) -> Result<(), StorageError> {
        payload::check_schema(schema).map_err(|what| StorageError::new(ErrorKind::Corrupt, self.name, what))
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<(), StorageError> {
        let failed = |what: String| StorageError::new(ErrorKind::Corrupt, self.name, what);
        let bytes = payload::values(batch).map_err(failed)?;
        if self.fill.feed(bytes) {
            Ok(())
        } else {
            Err(failed("the server sent more than was asked for".into()))
        }
    }
}
