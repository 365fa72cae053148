//! A body or message as it arrives, in pieces.
//!
//! In: chunks. Out: their bytes, with as few copies as can be: a large chunk is kept as it is, small ones are brought
//! together.

use bytes::{Bytes, BytesMut};
use tierlab_protocol::infer::Data;

/// Chunks below this are brought together: each of them would keep the buffer that it was read into.
pub(crate) const KEPT_BYTES: usize = 4 << 10;

/// Received parts of a body. Bytes copied here are copied again into a tensor, so only small chunks are.
#[derive(Debug, Default)]
pub(crate) struct BodyPieces {
    data: Data,
    small: BytesMut,
}

impl BodyPieces {
    /// Takes a chunk.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if self.data.is_empty() || chunk.len() >= KEPT_BYTES {
            self.data.push(self.small.split().freeze());
            self.data.push(chunk);
        } else {
            self.small.extend_from_slice(&chunk);
        }
    }

    /// Gives everything away that was taken.
    pub(crate) fn take(&mut self) -> Data {
        self.data.push(self.small.split().freeze());
        std::mem::take(&mut self.data)
    }
}
