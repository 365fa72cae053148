//! Reads: ranges cut into READs, spread over the pool, checked to be of one version.
//!
//! In: an object as it was looked up, and ranges. Out: their bytes, or [`ErrorKind::Changed`]. Every reply carries the
//! file's attributes, and each must be those of the version; where a server leaves them out they are asked for after
//! the last byte.

use super::client::Fault;
use super::tree::{Tree, version_of};
use crate::error::{ErrorKind, StorageError};
use crate::tier::{Object, ReadCost, ReadMany, check_ranges};
use bytes::{Bytes, BytesMut};
use futures::future::try_join_all;
use nfs3_types::nfs3::nfs_fh3;
use std::ops::Range;
use std::time::Instant;

/// Where bytes are: in the reply that brought them, or in a buffer that they were copied to.
enum Data {
    Reply(Bytes),
    Buffer(BytesMut),
}

impl Data {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Reply(bytes) => bytes,
            Self::Buffer(buffer) => buffer.freeze(),
        }
    }

    fn into_buffer(self) -> BytesMut {
        match self {
            Self::Reply(bytes) => bytes.into(),
            Self::Buffer(buffer) => buffer,
        }
    }
}

/// What one READ chain brings.
struct Piece {
    data: Data,
    cost: ReadCost,
    /// Whether every reply had attributes.
    proven: bool,
}

/// A read under way.
struct Reading<'a> {
    tree: &'a Tree,
    about: &'a str,
    object: &'a Object,
    handle: nfs_fh3,
}

pub(super) async fn read_many(tree: &Tree, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
    check_ranges(object, ranges)?;
    let about = tree.name(&object.path);
    let mut cost = ReadCost::default();
    if ranges.iter().all(Range::is_empty) {
        return Ok(ReadMany {
            parts: vec![Bytes::new(); ranges.len()],
            cost,
        });
    }
    let mut fresh = false;
    loop {
        let handle = match tree.kept(object) {
            Some(handle) => handle,
            None => {
                let mut client = tree.client(&about, &mut cost);
                let (handle, attributes) = tree.object(&mut client, &object.path).await?;
                if version_of(&attributes) != object.version {
                    return Err(changed(&about, "another version lies there now"));
                }
                fresh = true;
                handle
            }
        };
        let reading = Reading {
            tree,
            about: &about,
            object,
            handle,
        };
        match reading.ranges(ranges, &mut cost).await {
            Ok(parts) => return Ok(ReadMany { parts, cost }),
            // Once: the server may have restarted, or the file is gone and the look-up will say so.
            Err(fault) if fault.is_stale() && !fresh => {
                cost.retries += 1;
                tree.forget(&object.path);
            }
            Err(fault) => return Err(fault.about(&about)),
        }
    }
}

fn changed(about: &str, what: &str) -> StorageError {
    StorageError::new(
        ErrorKind::Changed,
        about,
        format!("no longer the version looked up: {what}"),
    )
}

impl Reading<'_> {
    async fn ranges(&self, ranges: &[Range<u64>], cost: &mut ReadCost) -> Result<Vec<Bytes>, Fault> {
        let pieces = try_join_all(ranges.iter().map(|range| self.range(range.clone()))).await?;
        let mut proven = true;
        let mut parts = Vec::with_capacity(pieces.len());
        let mut of_reads = ReadCost::default();
        for piece in pieces {
            of_reads.merge(&piece.cost);
            proven &= piece.proven;
            parts.push(piece.data.into_bytes());
        }
        if !proven {
            let mut after = ReadCost::default();
            let attributes = self.tree.client(self.about, &mut after).getattr(&self.handle).await?;
            if version_of(&attributes) != self.object.version {
                return Err(changed(self.about, "it changed during the read").into());
            }
            of_reads.device += after.device;
            after.device = std::time::Duration::ZERO;
            of_reads.merge(&after);
        }
        // What came before, a look-up, was waited for first.
        of_reads.queue += cost.queue;
        of_reads.device += cost.device;
        cost.merge(&of_reads);
        Ok(parts)
    }

    /// One range: whole in one reply, or in parallel READs into one buffer.
    async fn range(&self, range: Range<u64>) -> Result<Piece, Fault> {
        let step = u64::from(self.tree.read_bytes);
        if range.end - range.start <= step {
            return self.chain(range, None).await;
        }
        let invalid = |e: std::num::TryFromIntError| StorageError::new(ErrorKind::Invalid, self.about, e.to_string());
        let mut rest = BytesMut::with_capacity(usize::try_from(range.end - range.start).map_err(invalid)?);
        let mut chains = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + step);
            // Cut by capacity: full pieces of one allocation join again without a copy.
            let tail = rest.split_off(usize::try_from(end - at).map_err(invalid)?);
            chains.push(self.chain(at..end, Some(std::mem::replace(&mut rest, tail))));
            at = end;
        }
        let mut whole = BytesMut::new();
        let (mut cost, mut proven) = (ReadCost::default(), true);
        for piece in try_join_all(chains).await? {
            cost.merge(&piece.cost);
            proven &= piece.proven;
            let buffer = piece.data.into_buffer();
            if whole.is_empty() {
                whole = buffer;
            } else {
                whole.unsplit(buffer);
            }
        }
        Ok(Piece {
            data: Data::Buffer(whole),
            cost,
            proven,
        })
    }

    /// READs from the start of a range until it is whole: one, unless the server answers short. Into a buffer when
    /// given; else the reply itself is the answer where it is whole.
    async fn chain(&self, range: Range<u64>, into: Option<BytesMut>) -> Result<Piece, Fault> {
        let mut cost = ReadCost::default();
        let mut proven = true;
        let mut at = range.start;
        let mut buffer = into;
        while at < range.end {
            let mut of_call = ReadCost::default();
            let count = u32::try_from(range.end - at)
                .unwrap_or(u32::MAX)
                .min(self.tree.read_bytes);
            let reply = self
                .tree
                .client(self.about, &mut of_call)
                .read(&self.handle, at, count)
                .await?;
            // One after another, so waits add up.
            cost.queue += of_call.queue;
            cost.device += of_call.device;
            (of_call.queue, of_call.device) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
            cost.merge(&of_call);
            match &reply.attributes {
                Some(attributes) if version_of(attributes) == self.object.version => {}
                Some(_) => return Err(changed(self.about, "its attributes are others").into()),
                None => proven = false,
            }
            let end = at + reply.data.len() as u64;
            if end < range.end && (reply.end_of_file || reply.data.is_empty()) {
                return Err(if reply.end_of_file {
                    changed(self.about, "it is shorter").into()
                } else {
                    StorageError::new(
                        ErrorKind::Unavailable,
                        self.about,
                        "the server answers READ with no bytes",
                    )
                    .into()
                });
            }
            if buffer.is_none() && at == range.start && end == range.end {
                return Ok(Piece {
                    data: Data::Reply(reply.data),
                    cost,
                    proven,
                });
            }
            let began = Instant::now();
            buffer.get_or_insert_default().extend_from_slice(&reply.data);
            cost.copy += began.elapsed();
            at = end;
        }
        Ok(Piece {
            data: Data::Buffer(buffer.unwrap_or_default()),
            cost,
            proven,
        })
    }
}
