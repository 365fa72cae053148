//! Accepted connections, of which a server has a bounded number: the next one waits in the listener's backlog. In: a
//! listener. Out: connections, each of which releases its slot when it ends. Independent of protocols.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pause after a connection could not be accepted, as without free descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// A connection and its slot.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// If true at its end, the connection is reset, not closed.
    pub(crate) reset: Arc<AtomicBool>,
    _slot: OwnedSemaphorePermit,
}

/// Accepts the next connection once there is a slot.
///
/// # Errors
/// A permanent failure of the listener.
pub(crate) async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> io::Result<Connection> {
    // The semaphore is never closed.
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => {
                return Ok(Connection {
                    stream,
                    reset: Arc::default(),
                    _slot: slot,
                });
            }
            Err(e) if is_passing(&e) => {
                tracing::warn!("origin: accept: {e}");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
            Err(e) => return Err(e),
        }
    }
}

/// True for errors of one connection that do not affect the next.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    ) || matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed)
            && let Err(e) = self.stream.set_zero_linger()
        {
            tracing::debug!("origin: a connection is closed instead of reset: {e}");
        }
    }
}

#[cfg(feature = "flight")]
impl tonic::transport::server::Connected for Connection {
    type ConnectInfo = tonic::transport::server::TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_more_waits_until_one_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let slots = Arc::new(Semaphore::new(2));
        let _clients = [
            TcpStream::connect(address).await,
            TcpStream::connect(address).await,
            TcpStream::connect(address).await,
        ];
        let first = accept(&listener, &slots).await.unwrap();
        let _second = accept(&listener, &slots).await.unwrap();
        let third = tokio::time::timeout(Duration::from_millis(50), accept(&listener, &slots));
        assert!(third.await.is_err(), "a third of two");
        drop(first);
        accept(&listener, &slots).await.unwrap();
    }
}
