//! Bounded number of connections: the next connection waits in the listener's backlog. In: a listener. Out: a stream of
//! connections, each of which releases its permit when it ends. Knows nothing of the protocol.

use futures::stream::{self, Stream};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// The wait after a connection could not be accepted, as when there are no descriptors left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// A connection and its permit.
#[derive(Debug)]
pub(super) struct CountedStream {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// Accepts connections, `count` at a time.
pub(super) fn accept(listener: TcpListener, count: usize) -> impl Stream<Item = io::Result<CountedStream>> {
    let places = Arc::new(Semaphore::new(count));
    stream::unfold((listener, places), |(listener, places)| async move {
        // The semaphore is never closed.
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let accepted = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(e) => {
                    tracing::warn!("Flight origin: accept: {e}");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        };
        let held = accepted.set_nodelay(true).map(|()| CountedStream {
            stream: accepted,
            _place: place,
        });
        Some((held, (listener, places)))
    })
}

impl Connected for CountedStream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    #[tokio::test]
    async fn one_more_waits_until_one_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut incoming = Box::pin(accept(listener, 2));
        let _clients = [
            TcpStream::connect(address).await,
            TcpStream::connect(address).await,
            TcpStream::connect(address).await,
        ];
        let first = incoming.next().await.unwrap().unwrap();
        let _second = incoming.next().await.unwrap().unwrap();
        let third = tokio::time::timeout(Duration::from_millis(50), incoming.next());
        assert!(third.await.is_err(), "a third of two");
        drop(first);
        incoming.next().await.unwrap().unwrap();
    }
}
