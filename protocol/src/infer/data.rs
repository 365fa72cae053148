//! The bytes of a tensor or of a body: in one piece, or in the pieces in which they arrived.
//!
//! In: [`Bytes`]. Out: the pieces in order, a part of them, or all in one piece. Parts share memory; only
//! [`Data::whole`] and [`Data::into_whole`] copy, and only if there are several pieces.

use bytes::{Buf, Bytes, BytesMut};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::slice::Iter;

/// Bytes in one or several pieces; equality ignores the cuts.
#[derive(Clone, Default)]
pub struct Data {
    /// First piece; empty only if there are no bytes.
    first: Bytes,
    /// Further pieces, none of them empty.
    rest: Vec<Bytes>,
}

impl Data {
    /// Bytes in all pieces.
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() {
            self.first = piece;
        } else if !piece.is_empty() {
            self.rest.push(piece);
        }
    }

    /// The pieces, in order; a single empty one if there are no bytes.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns a reader at the start.
    pub fn reader(&self) -> DataReader<'_> {
        DataReader {
            piece: &self.first,
            current: &self.first,
            next: self.rest.iter(),
            left: self.len(),
        }
    }

    /// The bytes in `range`, sharing memory.
    ///
    /// # Panics
    /// When the range ends past the end.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut reader = self.reader();
        reader.advance(range.start);
        reader.share(range.len())
    }

    /// Takes `len` bytes off the front, sharing memory.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn split_to(&mut self, len: usize) -> Self {
        let mut reader = self.reader();
        let (front, back) = (reader.share(len), reader.share(reader.left));
        *self = back;
        front
    }

    /// True if there is at most one piece, so that making it contiguous needs no copy.
    pub fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }

    /// All bytes in one piece.
    pub fn whole(&self) -> Cow<'_, [u8]> {
        if self.rest.is_empty() {
            Cow::Borrowed(&self.first)
        } else {
            Cow::Owned(self.gather().into())
        }
    }

    /// All bytes in one piece.
    #[must_use]
    pub fn into_whole(self) -> Bytes {
        if self.rest.is_empty() {
            self.first
        } else {
            self.gather().freeze()
        }
    }

    fn gather(&self) -> BytesMut {
        let mut all = BytesMut::with_capacity(self.len());
        self.pieces().for_each(|piece| all.extend_from_slice(piece));
        all
    }
}

/// Position in [`Data`].
pub struct DataReader<'a> {
    piece: &'a Bytes,
    /// Rest of the current piece; empty only at the end.
    current: &'a [u8],
    next: Iter<'a, Bytes>,
    left: usize,
}

impl DataReader<'_> {
    /// The next `len` bytes, sharing memory.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn share(&mut self, len: usize) -> Data {
        let mut share = Data::default();
        self.share_into(len, &mut share);
        share
    }

    /// Same as [`DataReader::share`], at the end of `into`.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn share_into(&mut self, mut len: usize, into: &mut Data) {
        assert!(len <= self.left, "{len} of {} bytes", self.left);
        while len > 0 {
            let part = &self.current[..len.min(self.current.len())];
            into.push(self.piece.slice_ref(part));
            len -= part.len();
            self.advance(part.len());
        }
    }
}

impl Buf for DataReader<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.current
    }

    fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.left, "{bytes} of {} bytes", self.left);
        self.left -= bytes;
        while bytes >= self.current.len()
            && let Some(next) = self.next.next()
        {
            bytes -= self.current.len();
            (self.piece, self.current) = (next, next);
        }
        self.current = &self.current[bytes..];
    }
}

impl<B: Into<Bytes>> From<B> for Data {
    fn from(bytes: B) -> Self {
        Self {
            first: bytes.into(),
            rest: Vec::new(),
        }
    }
}

impl FromIterator<u8> for Data {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        Bytes::from_iter(bytes).into()
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.whole() == other.whole()
    }
}

impl Eq for Data {}

impl PartialEq<[u8]> for Data {
    fn eq(&self, other: &[u8]) -> bool {
        *self.whole() == *other
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Bytes::copy_from_slice(&self.whole()), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same bytes, cut at the given places.
    fn cut(bytes: &[u8], at: &[usize]) -> Data {
        let mut data = Data::default();
        let mut at: Vec<usize> = at.iter().map(|at| at % (bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        for ends in at.windows(2) {
            data.push(Bytes::copy_from_slice(&bytes[ends[0]..ends[1]]));
        }
        data
    }

    proptest! {
        #[test]
        fn it_is_the_same_however_it_is_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            at in prop::collection::vec(any::<usize>(), 0..5),
            range in (any::<usize>(), any::<usize>()),
        ) {
            let data = cut(&bytes, &at);
            prop_assert_eq!(data.len(), bytes.len());
            prop_assert_eq!(data.is_empty(), bytes.is_empty());
            prop_assert_eq!(&data, &Data::from(bytes.clone()));
            prop_assert_eq!(&data.whole()[..], &bytes[..]);
            let (a, b) = (range.0 % (bytes.len() + 1), range.1 % (bytes.len() + 1));
            let (from, to) = (a.min(b), a.max(b));
            prop_assert_eq!(data.slice(from..to), Data::from(bytes[from..to].to_vec()));
            let mut rest = data.clone();
            let front = rest.split_to(from);
            prop_assert_eq!(front, Data::from(bytes[..from].to_vec()));
            prop_assert_eq!(&rest.into_whole()[..], &bytes[from..]);
            prop_assert!(data.pieces().all(|piece| !piece.is_empty()) || bytes.is_empty());
        }
    }

    #[test]
    fn one_piece_is_never_copied() {
        let bytes = Bytes::from(vec![7; 100]);
        let data = Data::from(bytes.clone());
        assert_eq!(data.whole().as_ptr(), bytes.as_ptr());
        assert_eq!(data.slice(10..20).whole().as_ptr(), bytes[10..].as_ptr());
        assert_eq!(data.into_whole().as_ptr(), bytes.as_ptr());
    }
}
