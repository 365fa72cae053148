//! A stream whose client must go on: it has to say something soon after it came, and to take what it asked for.
//!
//! In: a stream. Out: the same stream, with an error of the kind `TimedOut` for a client that opens a connection and does
//! not speak, or that reads so slowly that a reply of 64 KiB takes longer than the write timeout. The time between requests
//! and the heads of requests are left to the protocol.

use super::Bounds;
use super::activity::Activity;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The protocol is known after this many bytes: the length of HTTP/2's preface.
const OPENING_BYTES: usize = 24;
/// A client that took this much is given the whole write timeout again.
const PROGRESS_BYTES: usize = 64 << 10;

/// The stream.
pub(super) struct Guarded<S> {
    stream: S,
    activity: Arc<Activity>,
    write_timeout: Duration,
    /// Until the protocol is known.
    opening: Option<Pin<Box<Sleep>>>,
    opening_bytes: usize,
    /// Since a write had to wait, until everything is written or enough was.
    stall: Option<Stall>,
}

struct Stall {
    limit: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, bounds: &Bounds, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            activity,
            write_timeout: bounds.write_timeout,
            opening: Some(Box::pin(tokio::time::sleep(bounds.header_timeout))),
            opening_bytes: 0,
            stall: None,
        }
    }

    /// Takes note of a write; a pending one becomes an error when it has been waiting for too long.
    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.opening = None;
                if let Some(stall) = &mut self.stall {
                    stall.bytes += bytes;
                    if stall.bytes >= PROGRESS_BYTES {
                        self.move_on();
                    }
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.wait(cx),
        }
    }

    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let stall = self.stall.get_or_insert_with(|| {
            self.activity.set_stalled(true);
            Stall {
                limit: Box::pin(tokio::time::sleep(self.write_timeout)),
                bytes: 0,
            }
        });
        ready!(stall.limit.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not take its reply",
        )))
    }

    fn move_on(&mut self) {
        if self.stall.take().is_some() {
            self.activity.set_stalled(false);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        let Some(opening) = &mut this.opening else { return read };
        this.opening_bytes += buf.filled().len() - before;
        if this.opening_bytes >= OPENING_BYTES {
            this.opening = None;
        } else if read.is_pending() {
            ready!(opening.as_mut().poll(cx));
            let what = "the client came and did not speak";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what)));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.written(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// The protocols flush once all that they have is written.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_flush(cx) {
            Poll::Ready(flushed) => {
                this.move_on();
                Poll::Ready(flushed)
            }
            Poll::Pending => this.wait(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_shutdown(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => this.wait(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::activity::Register;
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// Long enough for the machine to be busy with something else, short enough to wait for.
    const TIMEOUT: Duration = Duration::from_secs(1);
    const BOUNDS: Bounds = Bounds {
        max: 1,
        header_timeout: TIMEOUT,
        write_timeout: TIMEOUT,
    };

    fn guarded(buffer: usize) -> (Guarded<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (server, client) = duplex(buffer);
        let activity = Arc::clone(&Arc::new(Register::default()).enter().activity);
        (Guarded::new(server, &BOUNDS, activity), client)
    }

    #[tokio::test]
    async fn a_client_that_does_not_speak_is_cut_off_and_one_that_spoke_is_not() {
        let (mut server, _client) = guarded(100);
        let error = server.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let (mut server, mut client) = guarded(100);
        client.write_all(&[1; 24]).await.unwrap();
        server.read_exact(&mut [0; 24]).await.unwrap();
        let later = tokio::time::timeout(TIMEOUT * 3 / 2, server.read_u8()).await;
        assert!(later.is_err(), "silence between requests is not this stream's business");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off_and_a_slow_one_is_not() {
        let (mut server, _client) = guarded(100);
        let error = server.write_all(&[0; 200]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let (mut server, mut client) = guarded(PROGRESS_BYTES);
        let reader = tokio::spawn(async move {
            let mut piece = vec![0; PROGRESS_BYTES];
            for _ in 0..6 {
                tokio::time::sleep(TIMEOUT / 4).await;
                client.read_exact(&mut piece).await.unwrap();
            }
        });
        server.write_all(&vec![0; 6 * PROGRESS_BYTES]).await.unwrap();
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn a_byte_now_and_then_is_not_enough() {
        let (mut server, mut client) = guarded(100);
        let reader = tokio::spawn(async move {
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(TIMEOUT / 10).await;
            }
        });
        let error = server.write_all(&[0; 2000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(server);
        reader.await.unwrap();
    }
}
