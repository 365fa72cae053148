//! Limits on the sizes that a tier reports: reads, lengths of listings. In: a size that a tier reports. Out: memory for
//! it, or an error instead of an abort. A tier is another machine, and may report any size.

use crate::{ErrorKind, Object, StorageError};
use bytes::{Bytes, BytesMut};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Maximum bytes per read call: larger objects are read in several calls.
pub const MAX_READ_BYTES: u64 = 16 << 30;
/// Maximum objects per listing.
pub const MAX_LISTED: usize = 200_000;
/// Maximum bytes of the paths and versions of a listing.
pub const MAX_LISTED_BYTES: usize = 64 << 20;
/// Time limit of a listing.
pub const LISTING_LIMIT: Duration = Duration::from_secs(60);
/// Size up to which memory is allocated without a check; larger allocations may fail.
const SMALL_BYTES: usize = 16 << 20;

/// Allocates an empty buffer for a range of an object. The error names the object.
pub(crate) fn buffer_for(object: &str, len: u64) -> Result<BytesMut, StorageError> {
    let out_of_memory = || {
        let detail = format!("no memory for {len} bytes; read it in smaller ranges");
        ErrorKind::Unavailable.error(object, detail)
    };
    let len = usize::try_from(len).map_err(|_| out_of_memory())?;
    if len <= SMALL_BYTES {
        return Ok(BytesMut::with_capacity(len));
    }
    let mut memory = Vec::new();
    memory.try_reserve_exact(len).map_err(|_| out_of_memory())?;
    // Takes over the allocation, including its capacity: nothing else refers to it.
    Ok(BytesMut::from(Bytes::from(memory)))
}

/// Splits memory for `len` bytes off the front of an empty buffer. Splits by capacity, so that filled pieces of one
/// allocation join again without a copy ([`rejoin`]).
pub(crate) fn split_front(rest: &mut BytesMut, len: usize) -> BytesMut {
    let tail = rest.split_off(len.min(rest.capacity()));
    std::mem::replace(rest, tail)
}

/// Adds the next filled piece of an allocation.
pub(crate) fn rejoin(whole: &mut BytesMut, piece: BytesMut) {
    if whole.is_empty() {
        *whole = piece;
    } else {
        whole.unsplit(piece);
    }
}

/// Checks ranges against an object's size before any I/O.
///
/// # Errors
/// [`ErrorKind::OutOfRange`] for a reversed range or a range past the end; [`ErrorKind::Invalid`] if the ranges exceed
/// [`MAX_READ_BYTES`] together.
pub fn check_ranges(object: &Object, ranges: &[Range<u64>]) -> Result<(), StorageError> {
    let mut sum = 0_u64;
    for range in ranges {
        if range.start > range.end || range.end > object.size {
            let detail = format!("range {range:?} is past the end of {} bytes", object.size);
            return Err(ErrorKind::OutOfRange.error(&object.path, detail));
        }
        sum = sum.saturating_add(range.end - range.start);
    }
    if sum > MAX_READ_BYTES {
        let detail = format!("call for {sum} bytes exceeds the limit of {MAX_READ_BYTES}");
        return Err(ErrorKind::Invalid.error(&object.path, detail).with_public_detail());
    }
    Ok(())
}

/// Listing in progress; enforces its limits.
#[derive(Debug)]
pub(crate) struct Listing {
    about: String,
    objects: Vec<Object>,
    bytes: usize,
    names: usize,
    began: Instant,
}

impl Listing {
    /// Starts a listing. `about` names it in errors.
    pub(crate) fn of(about: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            objects: Vec::new(),
            bytes: 0,
            names: 0,
            began: Instant::now(),
        }
    }

    /// Counts a name that the tier sent, wanted or not.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the tier sends too many names; [`ErrorKind::Timeout`] if the listing takes too long.
    pub(crate) fn named(&mut self, bytes: usize) -> Result<(), StorageError> {
        self.names += 1;
        self.bytes += bytes;
        let refuse = |kind: ErrorKind, detail: String| Err(kind.error(&self.about, detail));
        if self.names > MAX_LISTED || self.bytes > MAX_LISTED_BYTES {
            let detail = format!("listing exceeds {MAX_LISTED} objects or {MAX_LISTED_BYTES} bytes of names");
            return refuse(ErrorKind::Corrupt, detail);
        }
        if self.began.elapsed() > LISTING_LIMIT {
            let detail = format!("listing not finished within {} s", LISTING_LIMIT.as_secs());
            return refuse(ErrorKind::Timeout, detail);
        }
        Ok(())
    }

    /// Adds an object.
    ///
    /// # Errors
    /// Same as [`Listing::named`].
    pub(crate) fn push(&mut self, object: Object) -> Result<(), StorageError> {
        self.named(object.path.as_str().len() + object.version.len())?;
        self.keep(object);
        Ok(())
    }

    /// Adds an object that was already counted by [`named`](Listing::named).
    pub(crate) fn keep(&mut self, object: Object) {
        self.objects.push(object);
    }

    /// Listed objects, sorted by path.
    pub(crate) fn end(mut self) -> Vec<Object> {
        self.objects.sort_by(|a, b| a.path.cmp(&b.path));
        self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectPath;

    #[test]
    fn memory_that_is_not_there_is_refused() {
        for len in [0, 1, SMALL_BYTES, SMALL_BYTES + 1] {
            let mut memory = buffer_for("x", len as u64).unwrap();
            assert!(memory.is_empty() && memory.capacity() >= len);
            // Split into pieces, filled and joined again in place, as reads do it.
            let (at, mut tail) = (memory.as_ptr(), memory.split_off(len / 2));
            memory.resize(len / 2, 1);
            tail.resize(len - len / 2, 2);
            memory.unsplit(tail);
            assert!(memory.len() == len && (len < 2 || memory.as_ptr() == at));
        }
        for len in [1 << 46, 1 << 62, u64::MAX] {
            assert_eq!(buffer_for("x", len).unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }

    #[test]
    fn endless_listings_end() {
        let object = |i: usize| Object {
            path: ObjectPath::new(&format!("{i}")).unwrap(),
            size: 0,
            version: String::new(),
        };
        let mut listing = Listing::of("x");
        let refused = (0..).find_map(|i| listing.push(object(i)).err()).unwrap();
        assert_eq!((refused.kind(), refused.object()), (ErrorKind::Corrupt, "x"));
        let mut listing = Listing::of("x");
        assert!(listing.named(MAX_LISTED_BYTES + 1).is_err());
        let mut listing = Listing::of("x");
        listing.began = Instant::now()
            .checked_sub(LISTING_LIMIT + Duration::from_secs(1))
            .unwrap();
        assert_eq!(listing.named(1).unwrap_err().kind(), ErrorKind::Timeout);
        let mut listing = Listing::of("x");
        for i in [2, 1] {
            listing.push(object(i)).unwrap();
        }
        assert_eq!(listing.end()[0].path.as_str(), "1");
    }
}
