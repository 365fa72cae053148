//! Body or message in the pieces in which it arrives.
//!
//! In: chunks. Out: their bytes, with as few copies as possible: a large chunk is kept as it is, small ones are joined.

use bytes::{Bytes, BytesMut};
use tierlab_protocol::infer::Data;

/// Size below which chunks are joined, because each would keep the whole buffer into which it was read.
pub(crate) const KEPT_BYTES: usize = 4 << 10;

/// Received parts of a body. Bytes copied here are copied again into a tensor, so only small chunks are.
#[derive(Debug, Default)]
pub(crate) struct BodyPieces {
    data: Data,
    small: BytesMut,
}

impl BodyPieces {
    /// Adds a chunk.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if self.data.is_empty() || chunk.len() >= KEPT_BYTES {
            self.data.push(self.small.split().freeze());
            self.data.push(chunk);
        } else {
            self.small.extend_from_slice(&chunk);
        }
    }

    /// Takes everything received so far.
    pub(crate) fn take(&mut self) -> Data {
        self.data.push(self.small.split().freeze());
        std::mem::take(&mut self.data)
    }
}
