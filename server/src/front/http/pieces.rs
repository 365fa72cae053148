//! A reply's body in several pieces.
//!
//! In: the pieces, and the account that they are counted on. Out: a frame for each; the whole length is known before the
//! first. What was handed out is counted by the connection; what waits here stays on the account.

use crate::request::admission::Account;
use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec::IntoIter;
use tierlab_protocol::infer::Piece;

/// The body.
pub(super) struct Pieces {
    rest: IntoIter<Piece>,
    /// Bytes in the rest.
    left: u64,
    account: Account,
}

impl Pieces {
    pub(super) fn new(pieces: Vec<Piece>, account: Account) -> Self {
        let left = pieces.iter().map(|piece| piece.bytes().len() as u64).sum();
        Self {
            rest: pieces.into_iter(),
            left,
            account,
        }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.rest.next() else {
            return Poll::Ready(None);
        };
        let len = piece.bytes().len();
        self.left -= len as u64;
        if matches!(piece, Piece::Own(_)) {
            self.account.release(len);
        }
        Poll::Ready(Some(Ok(Frame::data(piece.into_bytes()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
