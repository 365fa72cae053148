//! Stream with limits on its client, which must send bytes soon after it connects and must read what is written.
//!
//! In: a stream. Out: its protocol, then the same stream. Fails with `TimedOut` if a client reads so slowly that 64 KiB
//! take longer than the write timeout. The protocols limit the time between requests and of request heads. A client
//! that shuts down its sending side counts as gone, since `shutdown` and `close` look the same on the wire: hyper ends
//! the connection, and the work for its request is dropped.

use super::activity::Activity;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep, timeout};

/// HTTP/2 connection preface.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Number of bytes that a client must read to restart its write timeout.
pub(super) const PROGRESS_BYTES: usize = 64 << 10;
/// Maximum bytes of an unwanted body that are read after the reply, and the time limit of reading them.
const LINGER_BYTES: usize = 64 << 20;
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Byte stream below a connection.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Transport for S {}

/// Protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

pub(super) struct GuardedStream<S> {
    stream: S,
    activity: Arc<Activity>,
    write_timeout: Duration,
    /// Bytes read to detect the protocol, and how many of them were passed on.
    first_bytes: [u8; PREFACE.len()],
    first_len: usize,
    replayed: usize,
    /// Set while a write waits, until all of it or [`PROGRESS_BYTES`] are written.
    stall: Option<Stall>,
    /// Set once the server has shut down its side, if a body was abandoned.
    linger: Option<Stall>,
}

/// A wait for the client, and the number of bytes moved since its start.
struct Stall {
    limit: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<S: Transport> GuardedStream<S> {
    pub(super) fn new(stream: S, write_timeout: Duration, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            activity,
            write_timeout,
            first_bytes: [0; PREFACE.len()],
            first_len: 0,
            replayed: 0,
            stall: None,
            linger: None,
        }
    }

    /// Detects the client's protocol from its first bytes, which are read again afterwards.
    ///
    /// # Errors
    /// Fails if the client does not send enough within `limit`, or if the stream fails.
    pub(super) async fn protocol(&mut self, limit: Duration) -> io::Result<Protocol> {
        use tokio::io::AsyncReadExt;
        let (stream, bytes, len) = (&mut self.stream, &mut self.first_bytes, &mut self.first_len);
        let detect = async {
            loop {
                let read = stream.read(&mut bytes[*len..]).await?;
                *len += read;
                if read == 0 || bytes[..*len] != PREFACE[..*len] {
                    return Ok::<_, io::Error>(Protocol::Http1);
                }
                if *len == PREFACE.len() {
                    return Ok(Protocol::Http2);
                }
            }
        };
        let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "client connected but sent nothing");
        timeout(limit, detect).await.map_err(timed_out)?
    }

    /// Records a write; a pending write fails once it has waited too long.
    fn after_write(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            return self.wait(cx);
        }
        if let (Poll::Ready(Ok(bytes)), Some(stall)) = (&written, &mut self.stall) {
            stall.bytes += bytes;
            if stall.bytes >= PROGRESS_BYTES {
                self.end_stall();
            }
        }
        written
    }

    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let stall = self.stall.get_or_insert_with(|| {
            self.activity.set_stalled(true);
            Stall {
                limit: Box::pin(sleep(self.write_timeout)),
                bytes: 0,
            }
        });
        ready!(stall.limit.as_mut().poll(cx));
        let timed_out = io::Error::new(io::ErrorKind::TimedOut, "client does not read its reply");
        Poll::Ready(Err(timed_out))
    }

    /// Reads the rest of an unwanted body. Closing earlier would reset the connection, and the client would lose the
    /// reply (RFC 9112, 9.6).
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| Stall {
            limit: Box::pin(sleep(LINGER_TIME)),
            bytes: 0,
        });
        let mut piece = [0; 8 << 10];
        while linger.bytes < LINGER_BYTES {
            let mut read = ReadBuf::new(&mut piece);
            match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if !read.filled().is_empty() => linger.bytes += read.filled().len(),
                Poll::Ready(_) => break,
                Poll::Pending => return linger.limit.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }

    fn end_stall(&mut self) {
        if self.stall.take().is_some() {
            self.activity.set_stalled(false);
        }
    }
}

impl<S: Transport> AsyncRead for GuardedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.replayed < this.first_len {
            let again = &this.first_bytes[this.replayed..this.first_len];
            let again = &again[..again.len().min(buf.remaining())];
            buf.put_slice(again);
            this.replayed += again.len();
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(cx, buf)
    }
}

impl<S: Transport> AsyncWrite for GuardedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.after_write(cx, written)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, buf);
        this.after_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// The protocols flush after they have written everything.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        if flushed.is_pending() {
            return this.wait(cx);
        }
        this.end_stall();
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            let done = Pin::new(&mut this.stream).poll_shutdown(cx);
            if done.is_pending() {
                return this.wait(cx);
            }
            if matches!(done, Poll::Ready(Err(_))) || !this.activity.body_abandoned.load(Relaxed) {
                return done;
            }
        }
        this.linger(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Admission, Limits};
    use prometheus::IntGauge;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// Long enough for the machine to be busy with something else, short enough to wait for where the clock cannot be stopped.
    const TIMEOUT: Duration = Duration::from_secs(1);

    /// From now on timers end at once, in their order, and only when nothing else is to be done.
    fn stop_clock() {
        #[cfg(feature = "stopped-clock")]
        tokio::time::pause();
    }

    struct Both {
        server: GuardedStream<DuplexStream>,
        client: DuplexStream,
        activity: Arc<Activity>,
    }

    fn both(buffer: usize) -> Both {
        let (server, client) = duplex(buffer);
        let limits = Limits {
            max_in_flight: 1,
            max_body_bytes: 1,
            max_buffered_bytes: 1,
            timeout: TIMEOUT,
        };
        let admission = Admission::new(limits, IntGauge::new("a", "a").unwrap());
        let activity = Activity::new(admission, false);
        Both {
            server: GuardedStream::new(server, TIMEOUT, Arc::clone(&activity)),
            client,
            activity,
        }
    }

    #[tokio::test]
    async fn the_protocol_is_known_by_its_first_bytes_which_are_read_again() {
        for (sent, protocol) in [
            (&PREFACE[..], Protocol::Http2),
            (b"GET /v2 HTTP/1.1\r\n\r\n", Protocol::Http1),
            (b"PRI * HTTP/1.1\r\n\r\n0000", Protocol::Http1),
        ] {
            let mut both = both(100);
            both.client.write_all(sent).await.unwrap();
            assert_eq!(both.server.protocol(TIMEOUT).await.unwrap(), protocol);
            let mut again = vec![0; sent.len()];
            both.server.read_exact(&mut again[..5]).await.unwrap();
            both.server.read_exact(&mut again[5..]).await.unwrap();
            assert_eq!(again, sent);
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_speak_is_cut_off_and_one_that_spoke_is_not() {
        stop_clock();
        for sent in [&b""[..], &PREFACE[..23]] {
            let mut silent = both(100);
            silent.client.write_all(sent).await.unwrap();
            let error = silent.server.protocol(TIMEOUT).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        let mut talkative = both(100);
        talkative.client.write_all(PREFACE).await.unwrap();
        talkative.server.protocol(TIMEOUT).await.unwrap();
        talkative.server.read_exact(&mut [0; 24]).await.unwrap();
        let later = timeout(TIMEOUT * 3 / 2, talkative.server.read_u8()).await;
        assert!(later.is_err(), "silence between requests is not this stream's business");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off_and_a_slow_one_is_not() {
        stop_clock();
        let mut deaf = both(100);
        let error = deaf.server.write_all(&[0; 200]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(deaf.activity.waits_for_client());

        let mut slow = both(PROGRESS_BYTES);
        let reader = tokio::spawn(async move {
            let mut piece = vec![0; PROGRESS_BYTES];
            for _ in 0..6 {
                tokio::time::sleep(TIMEOUT / 4).await;
                slow.client.read_exact(&mut piece).await.unwrap();
            }
        });
        slow.server.write_all(&vec![0; 6 * PROGRESS_BYTES]).await.unwrap();
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn a_byte_now_and_then_is_not_enough() {
        stop_clock();
        let Both {
            mut server, mut client, ..
        } = both(100);
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
