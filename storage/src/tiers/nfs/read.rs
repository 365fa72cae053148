//! Reads: adjacent ranges are joined, cut into READs, sent at once, and checked to be of one version.
//!
//! In: a looked-up object, and ranges. Out: their bytes, or [`ErrorKind::Changed`]. Every reply carries the file's
//! attributes, which must match the version. If a server omits the attributes, they are requested after the last byte.

use super::client::Fault;
use super::tree::{FileHandle, Tree, VersionMark};
use crate::limits::{buffer_for, check_ranges, rejoin, split_front};
use crate::ranges;
use crate::{ErrorKind, Object, ReadCost, ReadMany, StorageError};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Maximum repeated look-ups of a handle in one read.
const LOOKUPS: u32 = 2;
/// Maximum READs of a call that are in flight or wait for it: each takes about 8 KiB besides its data.
const MAX_READS: usize = 4096;

/// Result of a chain of READs.
struct ReadBytes {
    data: BytesMut,
    cost: ReadCost,
    /// True if every reply had attributes.
    proven: bool,
}

/// A read in progress.
struct Reading<'a> {
    tree: &'a Tree,
    known: Arc<FileHandle>,
}

pub(super) async fn read_many(tree: &Tree, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
    check_ranges(object, ranges)?;
    let mut cost = ReadCost::default();
    if ranges.iter().all(Range::is_empty) {
        return Ok(ReadMany {
            parts: vec![Bytes::new(); ranges.len()],
            cost,
        });
    }
    let mut lookups = 0;
    loop {
        let known = match tree.cached(object) {
            Some(known) => known,
            None => {
                lookups += 1;
                let about = tree.name(&object.path);
                let mut client = tree.client(&about);
                let (known, _) = tree.object(&mut client, &object.path).await?;
                cost.then(&client.cost);
                if known.version != object.version {
                    return Err(changed(&about, "replaced by another version"));
                }
                known
            }
        };
        let reading = Reading { tree, known };
        match reading.ranges(ranges, &mut cost).await {
            Ok(parts) => return Ok(ReadMany { parts, cost }),
            // The server may have restarted, or the file is gone and the look-up reports it.
            Err(fault) if fault.is_stale() && lookups < LOOKUPS => {
                cost.retries += 1;
                tree.forget(&object.path);
            }
            Err(fault) => return Err(fault.about(&reading.known.name)),
        }
    }
}

fn changed(about: &str, what: &str) -> StorageError {
    ErrorKind::Changed.error(about, format!("no longer the looked-up version: {what}"))
}

impl Reading<'_> {
    async fn ranges(&self, ranges: &[Range<u64>], cost: &mut ReadCost) -> Result<Vec<Bytes>, Fault> {
        let (parts, mut of_reads, proven) = match ranges {
            [one] if one.end - one.start <= u64::from(self.tree.read_bytes) => {
                let read = self.chain(one.clone(), None).await?;
                (vec![read.data.freeze()], read.cost, read.proven)
            }
            many => Box::pin(self.joined(many)).await?,
        };
        if !proven {
            let mut client = self.tree.client(&self.known.name);
            let attributes = client.getattr(&self.known.handle).await?;
            if VersionMark::of(&attributes) != self.known.mark {
                return Err(changed(&self.known.name, "changed during the read").into());
            }
            of_reads.then(&client.cost);
        }
        // The earlier look-up took its time before these reads.
        cost.then(&of_reads);
        Ok(parts)
    }

    /// Reads many ranges, adjacent ranges as one, and long ranges as concurrent READs, each into its part of one buffer.
    /// Returns their bytes, their cost, and true if the version is proven.
    async fn joined(&self, ranges: &[Range<u64>]) -> Result<(Vec<Bytes>, ReadCost, bool), Fault> {
        let most = u64::from(self.tree.read_bytes);
        let runs = ranges::runs(ranges, self.tree.coalesce_bytes, most);
        let mut pieces = Vec::new();
        for (of, run) in runs.iter().enumerate() {
            let len = run.range.end - run.range.start;
            let mut rest = None;
            if len > most {
                rest = Some(buffer_for(&self.known.name, len)?);
            }
            for piece in ranges::pieces(&run.range, most) {
                let len = (piece.end - piece.start) as usize;
                let into = rest.as_mut().map(|rest| split_front(rest, len));
                pieces.push((of, piece, into));
            }
        }
        let chain = |(of, piece, into)| async move { self.chain(piece, into).await.map(|read| (of, read)) };
        let mut reads = stream::iter(pieces.into_iter().map(chain)).buffered(MAX_READS);
        let (mut cost, mut proven) = (ReadCost::default(), true);
        let mut wholes = vec![BytesMut::new(); runs.len()];
        while let Some((of, read)) = reads.try_next().await? {
            cost.merge(&read.cost);
            proven &= read.proven;
            rejoin(&mut wholes[of], read.data);
        }
        let mut parts = Vec::with_capacity(ranges.len());
        for (run, whole) in runs.iter().zip(wholes) {
            if run.members == 1 {
                parts.push(whole.freeze());
                continue;
            }
            // Copied, so that keeping one part does not keep its neighbours.
            let began = Instant::now();
            let members = &ranges[parts.len()..parts.len() + run.members];
            let at = |offset: u64| (offset - run.range.start) as usize;
            let part = |range: &Range<u64>| Bytes::copy_from_slice(&whole[at(range.start)..at(range.end)]);
            parts.extend(members.iter().map(part));
            cost.copy += began.elapsed();
        }
        Ok((parts, cost, proven))
    }

    /// Sends READs from the start of a range until it is complete: a single READ, unless the server sends short
    /// replies.
    async fn chain(&self, range: Range<u64>, mut buffer: Option<BytesMut>) -> Result<ReadBytes, Fault> {
        let mut cost = ReadCost::default();
        let mut proven = true;
        let mut at = range.start;
        let mut data = BytesMut::new();
        while at < range.end {
            let count = u64::from(self.tree.read_bytes).min(range.end - at) as u32;
            let mut client = self.tree.client(&self.known.name);
            let reply = client.read(&self.known.handle, at, count, buffer.take()).await?;
            cost.then(&client.cost);
            match &reply.attributes {
                Some(attributes) if VersionMark::of(attributes) == self.known.mark => {}
                Some(_) => return Err(changed(&self.known.name, "its attributes differ").into()),
                None => proven = false,
            }
            at += reply.data.len() as u64;
            if at < range.end && (reply.end_of_file || reply.data.is_empty()) {
                if reply.end_of_file {
                    return Err(changed(&self.known.name, "shorter than at the look-up").into());
                }
                let what = "server answered READ without bytes";
                return Err(ErrorKind::Unavailable.error(&self.known.name, what).into());
            }
            if data.is_empty() {
                data = reply.data;
            } else {
                let began = Instant::now();
                data.extend_from_slice(&reply.data);
                cost.copy += began.elapsed();
            }
        }
        Ok(ReadBytes { data, cost, proven })
    }
}
