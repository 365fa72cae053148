//! Bound on the bytes of a server. In: a stream, and the number of bytes that the requests in flight may bring. Out:
//! the same stream, which fails at the first byte beyond that. The library keeps a reply in memory until it is
//! complete, whatever length the server claims.

use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Text of the error.
pub(super) const TOO_MUCH: &str = "server sent more bytes than requested";

/// Bytes that a connection may still receive.
#[derive(Debug, Default)]
pub(super) struct Allowance(Mutex<Allowed>);

#[derive(Debug, Default)]
struct Allowed {
    /// Sum of the maximum reply sizes of the requests in flight.
    in_flight: u64,
    /// Bytes that may still arrive; at least those of the outstanding replies.
    left: u64,
    /// True if a reply did not arrive, or too many bytes did.
    is_spoiled: bool,
    /// True if too many bytes arrived.
    is_overrun: bool,
}

impl Allowance {
    /// True if the connection must not be used again.
    pub(super) fn is_spoiled(&self) -> bool {
        self.0.lock().is_spoiled
    }

    /// Error of a connection that received too many bytes; the library only reports that it ended.
    pub(super) fn overrun(&self) -> Option<io::Error> {
        self.0.lock().is_overrun.then(too_much)
    }

    /// Allows the reply of a request. If the returned guard is dropped before the reply has arrived, it spoils the
    /// connection.
    pub(super) fn expect(self: &Arc<Self>, max_bytes: u64) -> Expected {
        let mut allowed = self.0.lock();
        allowed.in_flight += max_bytes;
        allowed.left += max_bytes;
        Expected {
            allowance: Arc::clone(self),
            max_bytes,
            has_arrived: false,
        }
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let mut allowed = self.0.lock();
        let Some(left) = allowed.left.checked_sub(bytes) else {
            (allowed.is_spoiled, allowed.is_overrun) = (true, true);
            return Err(too_much());
        };
        allowed.left = left;
        Ok(())
    }
}

fn too_much() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, TOO_MUCH)
}

/// A request in flight.
pub(super) struct Expected {
    allowance: Arc<Allowance>,
    max_bytes: u64,
    has_arrived: bool,
}

impl Expected {
    /// Ends the request after its reply has arrived.
    pub(super) fn arrived(mut self) {
        self.has_arrived = true;
        let mut allowed = self.allowance.0.lock();
        allowed.in_flight -= self.max_bytes;
        // Unused bytes of a shorter reply are not left to the next.
        allowed.left = allowed.left.min(allowed.in_flight);
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        // The reply may still arrive, on a connection that is not used again.
        self.allowance.0.lock().is_spoiled |= !self.has_arrived;
    }
}

/// Stream limited to its allowance.
pub(super) struct Bounded<S> {
    pub(super) inner: S,
    pub(super) allowance: Arc<Allowance>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, into))?;
        Poll::Ready(self.allowance.take((into.filled().len() - before) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn bytes_beyond_the_requests_in_flight_end_the_stream() {
        let (mut server, inner) = tokio::io::duplex(64);
        let allowance = Arc::new(Allowance::default());
        let mut stream = Bounded {
            inner,
            allowance: Arc::clone(&allowance),
        };
        let (short, other) = (allowance.expect(10), allowance.expect(4));
        server.write_all(b"123").await.unwrap();
        assert_eq!(stream.read_buf(&mut Vec::new()).await.unwrap(), 3);
        // The reply had three bytes of ten, and the other request's four may follow.
        short.arrived();
        server.write_all(b"4567").await.unwrap();
        assert_eq!(stream.read_buf(&mut Vec::new()).await.unwrap(), 4);
        other.arrived();
        assert!(!allowance.is_spoiled());
        server.write_all(b"8").await.unwrap();
        let error = stream.read_buf(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), TOO_MUCH);
        assert!(allowance.is_spoiled());
    }
}
