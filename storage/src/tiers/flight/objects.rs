//! Tier over a Flight server that stores objects: reads by ranges, and all other operations. In: paths and ranges. Out:
//! stored bytes of the version that was looked up, which every ticket names. A DoGet that breaks is resumed where it
//! broke.

use super::get::{self, Link, RetriedCall, Sink};
use super::payload::{self, MESSAGE_BYTES};
use super::status::from_status;
use super::ticket::{About, Criteria, DELETE_ACTION, DeleteCommand, PutCommand, Ticket, to_json};
use crate::error::{ErrorKind, StorageError};
use crate::limits::{Listing, buffer, rejoin, split_front};
use crate::path::ObjectPath;
use crate::tasks::at_once;
use crate::tier::{Body, Object, ReadCost, ReadMany};
use crate::tiers::source::Source;
use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{Action, Criteria as Expression, FlightData, FlightDescriptor};
use arrow_schema::SchemaRef;
use bytes::{Bytes, BytesMut};
use futures::future::ready;
use futures::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::via::{Via, ViaSet};

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
    let fills = cut(ranges, bounds.part_bytes, bounds.ranges).ok_or_else(|| {
        let detail = "a range of more bytes than memory can hold";
        StorageError::new(ErrorKind::Invalid, link.name(object.path.as_str()), detail)
    })?;
    let mut cost = ReadCost::default();
    let get = |fill: Fill| {
        let (link, object) = (Arc::clone(link), object.clone());
        async move { read(&link, &object, fill).await }
    };
    let gets = fills.into_iter().map(get).collect();
    let name = link.name(object.path.as_str());
    let full = at_once(&name, gets, |(_, of_get)| cost.merge(of_get)).await?;
    let full = full.into_iter().map(|(fill, _)| fill).collect();
    Ok(ReadMany {
        parts: parts(full, ranges.len()),
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

/// The slowest that an upload may be, in bytes per second.
const SLOWEST: u64 = 4_000_000;

/// Writes an object by DoPut. The size goes first and every message has a checksum, so that a server of ours takes an
/// upload whole or not at all.
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
    client: &mut super::get::Client,
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
        *self.0.lock() = Some(error);
    }

    fn take(&self) -> Option<StorageError> {
        self.0.lock().take()
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

/// Piece of a range, read by one DoGet.
#[derive(Debug)]
struct Piece {
    /// The index of the range.
    of: usize,
    bytes: Range<u64>,
    into: BytesMut,
}

impl Piece {
    fn missing(&self) -> Range<u64> {
        self.bytes.start + self.into.len() as u64..self.bytes.end
    }
}

/// Contents of one DoGet request.
#[derive(Debug, Default)]
pub(super) struct Fill {
    pieces: Vec<Piece>,
    /// The first piece that is not whole.
    at: usize,
}

/// Splits ranges into DoGets of at most `part_bytes` bytes and `count` pieces. Empty ranges need none. `None` if a
/// range exceeds memory.
pub(super) fn cut(ranges: &[Range<u64>], part_bytes: u64, count: usize) -> Option<Vec<Fill>> {
    let mut fills: Vec<Fill> = Vec::new();
    let mut room = 0;
    for (of, range) in ranges.iter().enumerate() {
        // One allocation per range, split between its pieces, so that joining them copies nothing.
        let mut rest = buffer(usize::try_from(range.end - range.start).ok()?)?;
        let mut start = range.start;
        while start < range.end {
            if room == 0 || fills.last().is_none_or(|fill| fill.pieces.len() >= count) {
                fills.push(Fill::default());
                room = part_bytes;
            }
            let end = range.end.min(start.saturating_add(room));
            let len = usize::try_from(end - start).ok()?;
            let into = split_front(&mut rest, len);
            room -= end - start;
            if let Some(fill) = fills.last_mut() {
                fill.pieces.push(Piece {
                    of,
                    bytes: start..end,
                    into,
                });
            }
            start = end;
        }
    }
    Some(fills)
}

impl Fill {
    /// The ranges that are still missing, in the order in which their bytes are taken.
    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        self.pieces[self.at..].iter().map(Piece::missing).collect()
    }

    /// True if every byte has arrived.
    pub(super) fn is_full(&self) -> bool {
        self.at == self.pieces.len()
    }

    /// Takes the next bytes; `false` if more bytes arrive than were requested.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> bool {
        while let Some(piece) = self.pieces.get_mut(self.at) {
            let missing = piece.missing();
            let take = usize::try_from(missing.end - missing.start)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let (now, later) = bytes.split_at(take);
            piece.into.extend_from_slice(now);
            bytes = later;
            if !piece.missing().is_empty() {
                return true;
            }
            self.at += 1;
        }
        bytes.is_empty()
    }
}

/// The parts of `count` ranges, once all DoGets are full; in the order in which they were cut.
pub(super) fn parts(fills: Vec<Fill>, count: usize) -> Vec<Bytes> {
    let mut parts: Vec<BytesMut> = vec![BytesMut::new(); count];
    for piece in fills.into_iter().flat_map(|fill| fill.pieces) {
        rejoin(&mut parts[piece.of], piece.into);
    }
    parts.into_iter().map(BytesMut::freeze).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::content;
    use proptest::prelude::*;

    #[test]
    fn a_range_that_no_memory_has_is_refused() {
        assert!(cut(&[0..10, 0..1 << 62], 8 << 20, 100).is_none());
    }

    proptest! {
        #[test]
        fn parts_are_the_ranges_however_they_come(
            ranges in proptest::collection::vec((0_u64..5000, 0_u64..900), 0..40),
            part_bytes in 1_u64..2000,
            count in 1_usize..10,
            chunk in 1_usize..700,
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
            let mut fills = cut(&ranges, part_bytes, count).unwrap();
            for fill in &mut fills {
                let asked = fill.missing();
                prop_assert!(!asked.is_empty() && asked.len() <= count);
                prop_assert!(asked.iter().map(|range| range.end - range.start).sum::<u64>() <= part_bytes);
                // Broken off once and resumed, as after a failure.
                let bytes: Vec<u8> = asked.into_iter().flat_map(|range| content(1, range)).collect();
                let half = bytes.len() / 2;
                for chunk in bytes[..half].chunks(chunk) {
                    prop_assert!(fill.feed(chunk) && !fill.is_full());
                }
                let rest: Vec<u8> = fill.missing().into_iter().flat_map(|range| content(1, range)).collect();
                prop_assert_eq!(&rest, &bytes[half..]);
                for chunk in rest.chunks(chunk) {
                    prop_assert!(fill.feed(chunk));
                }
                prop_assert!(fill.is_full() && fill.feed(&[]) && !fill.feed(&[0]));
            }
            for (range, part) in ranges.iter().zip(parts(fills, ranges.len())) {
                prop_assert_eq!(part, content(1, range.clone()));
            }
        }
    }
}
