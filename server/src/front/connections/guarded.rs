//! A stream with limits on its client: it has to send something soon after it connected, and to read what is written to it.
//! A client that shuts down its sending side still gets its reply.
//!
//! In: a stream. Out: the protocol that is spoken on it; then the same stream, with an error of the kind `TimedOut` for a
//! client that reads so slowly that 64 KiB take longer than the write timeout. The time between requests and the heads of
//! requests are left to the protocol.
//!
//! When a client stops sending, it may still wait for its reply (`shutdown`) or be gone (`close`): on the wire both are the
//! same FIN. The difference shows in the answer to the next byte, which is a RST where nobody is left. So the first letter
//! of the reply, which is `H` whatever the reply will be, is sent ahead, and hyper is told of the end only once the reply
//! is written, or of a reset when that comes. The price: a client that went away is noticed a round trip later, plus 20 ms
//! to half a second; one whose network takes the letter and answers nothing is served to the end. HTTP/2 has no half-closed
//! connection: one whose client cannot send any more cannot be kept alive, and ends at once.

use super::activity::Activity;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::server::TlsStream;

/// HTTP/2 connection preface.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A client that took this much is given the whole write timeout again.
pub(super) const PROGRESS_BYTES: usize = 64 << 10;
/// First byte of every HTTP/1 reply.
const FIRST_LETTER: u8 = b'H';
/// The first and the longest pause between two checks whether a client that sends no more is still there.
const LOOK_PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// Byte stream below a connection.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// True if the client has reset the connection. It asks the socket: a read after the end of the stream only returns the end
    /// again.
    fn is_reset(&self) -> bool;
}

impl Transport for TcpStream {
    fn is_reset(&self) -> bool {
        !matches!(self.take_error(), Ok(None))
    }
}

impl Transport for TlsStream<TcpStream> {
    fn is_reset(&self) -> bool {
        self.get_ref().0.is_reset()
    }
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// The stream.
pub(super) struct GuardedStream<S> {
    stream: S,
    activity: Arc<Activity>,
    write_timeout: Duration,
    /// Bytes read to detect the protocol, and how many of them were handed on.
    opening: [u8; PREFACE.len()],
    opening_len: usize,
    reread: usize,
    /// True if the end of the client's stream may be hidden from hyper.
    half_closes: bool,
    half_closed: Option<HalfClosed>,
    /// True if the stream ended before a body was complete.
    looked: bool,
    /// True if all written bytes were flushed.
    flushed: bool,
    /// Requests that had begun when something was written last.
    written_at: u64,
    /// True if the first byte of the next reply was sent ahead.
    first_letter_sent: bool,
    /// Since a write had to wait, until everything is written or enough was.
    stall: Option<Stall>,
}

struct Stall {
    limit: Pin<Box<Sleep>>,
    bytes: usize,
}

/// The client sends no more.
struct HalfClosed {
    next_look: Pin<Box<Sleep>>,
    pause: Duration,
}

impl<S: Transport> GuardedStream<S> {
    pub(super) fn new(stream: S, write_timeout: Duration, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            activity,
            write_timeout,
            opening: [0; PREFACE.len()],
            opening_len: 0,
            reread: 0,
            half_closes: false,
            half_closed: None,
            looked: false,
            flushed: true,
            written_at: 0,
            first_letter_sent: false,
            stall: None,
        }
    }

    /// Finds out which protocol the client speaks, by its first bytes. They are read again.
    ///
    /// # Errors
    /// A client that does not send enough within `limit`; a stream that fails.
    pub(super) async fn protocol(&mut self, limit: Duration) -> io::Result<Protocol> {
        let protocol = timeout(limit, self.read_opening()).await;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the client connected and sent nothing");
        let protocol = protocol.map_err(late)??;
        self.half_closes = protocol == Protocol::Http1;
        Ok(protocol)
    }

    async fn read_opening(&mut self) -> io::Result<Protocol> {
        use tokio::io::AsyncReadExt;
        let (bytes, len) = (&mut self.opening, &mut self.opening_len);
        loop {
            let read = self.stream.read(&mut bytes[*len..]).await?;
            *len += read;
            if read == 0 || bytes[..*len] != PREFACE[..*len] {
                return Ok(Protocol::Http1);
            }
            if *len == PREFACE.len() {
                return Ok(Protocol::Http2);
            }
        }
    }

    /// Takes note of a write; a pending one becomes an error when it has been waiting for too long.
    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                if let Some(stall) = &mut self.stall {
                    stall.bytes += bytes;
                    if stall.bytes >= PROGRESS_BYTES {
                        self.end_stall();
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
                limit: Box::pin(sleep(self.write_timeout)),
                bytes: 0,
            }
        });
        ready!(stall.limit.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not take its reply",
        )))
    }

    fn end_stall(&mut self) {
        if self.stall.take().is_some() {
            self.activity.set_stalled(false);
        }
    }

    /// The client sends no more: while it is owed a reply, hyper is not told before this is looked into.
    fn poll_half_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.activity.owes_a_reply() && self.flushed {
            // The last part of a body may have been read and not handed on yet.
            if !self.activity.is_reading() || std::mem::replace(&mut self.looked, true) {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.looked = false;
        if self.half_closed.is_none() {
            self.send_first_letter(cx);
        }
        let half_closed = self.half_closed.get_or_insert_with(|| HalfClosed {
            next_look: Box::pin(sleep(LOOK_PAUSES[0])),
            pause: LOOK_PAUSES[0],
        });
        loop {
            ready!(half_closed.next_look.as_mut().poll(cx));
            if self.stream.is_reset() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            half_closed.pause = (half_closed.pause * 2).min(LOOK_PAUSES[1]);
            half_closed.next_look = Box::pin(sleep(half_closed.pause));
        }
    }

    /// Sends the letter where the next byte is surely a reply's first one: nothing is left to flush, and nothing was written
    /// since the last request began.
    fn send_first_letter(&mut self, cx: &mut Context<'_>) {
        if !self.flushed || self.written_at == self.activity.opened() || self.first_letter_sent {
            return;
        }
        if let Poll::Ready(Ok(1)) = Pin::new(&mut self.stream).poll_write(cx, &[FIRST_LETTER]) {
            self.first_letter_sent = true;
            let _ = Pin::new(&mut self.stream).poll_flush(cx);
        }
    }

    /// Writes what follows the letter that was sent ahead.
    fn poll_write_rest(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.first() != Some(&FIRST_LETTER) {
            return Poll::Ready(Err(io::Error::other("a reply begins with another letter")));
        }
        let rest = &buf[1..];
        let written = if rest.is_empty() {
            0
        } else {
            let written = Pin::new(&mut self.stream).poll_write(cx, rest);
            ready!(self.written(cx, written))?
        };
        self.first_letter_sent = false;
        Poll::Ready(Ok(written + 1))
    }

    fn note_write(&mut self) {
        self.flushed = false;
        self.written_at = self.activity.opened();
    }
}

impl<S: Transport> AsyncRead for GuardedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.reread < this.opening_len {
            let again = &this.opening[this.reread..this.opening_len];
            let again = &again[..again.len().min(buf.remaining())];
            buf.put_slice(again);
            this.reread += again.len();
            return Poll::Ready(Ok(()));
        }
        if this.half_closed.is_some() {
            return this.poll_half_closed(cx);
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        if this.half_closes && buf.filled().len() == before && buf.remaining() > 0 {
            return this.poll_half_closed(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Transport> AsyncWrite for GuardedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.note_write();
        if this.first_letter_sent {
            return this.poll_write_rest(cx, buf);
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.written(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.note_write();
        if this.first_letter_sent {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return this.poll_write_rest(cx, first.map_or(&[][..], |buf| buf));
        }
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
                this.flushed = true;
                this.end_stall();
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
    use super::*;
    use crate::pipeline::admission::{Admission, Limits};
    use prometheus::IntGauge;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::watch;

    /// Long enough for the machine to be busy with something else, short enough to wait for where the clock cannot be stopped.
    const TIMEOUT: Duration = Duration::from_secs(1);

    /// From now on timers end at once, in their order, and only when nothing else is to be done.
    fn stop_clock() {
        #[cfg(feature = "stopped-clock")]
        tokio::time::pause();
    }

    /// A stream in memory, and whether a RST has come on it.
    struct Line(DuplexStream, watch::Receiver<bool>);

    impl Transport for Line {
        fn is_reset(&self) -> bool {
            *self.1.borrow()
        }
    }

    impl AsyncRead for Line {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Line {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    struct Both {
        server: GuardedStream<Line>,
        client: DuplexStream,
        reset: watch::Sender<bool>,
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
        let (reset, seen) = watch::channel(false);
        Both {
            server: GuardedStream::new(Line(server, seen), TIMEOUT, Arc::clone(&activity)),
            client,
            reset,
            activity,
        }
    }

    #[tokio::test]
    async fn the_protocol_is_known_by_its_first_bytes_which_are_read_again() {
        for (said, protocol) in [
            (&PREFACE[..], Protocol::Http2),
            (b"GET /v2 HTTP/1.1\r\n\r\n", Protocol::Http1),
            (b"PRI * HTTP/1.1\r\n\r\n0000", Protocol::Http1),
        ] {
            let mut both = both(100);
            both.client.write_all(said).await.unwrap();
            assert_eq!(both.server.protocol(TIMEOUT).await.unwrap(), protocol);
            let mut again = vec![0; said.len()];
            both.server.read_exact(&mut again[..5]).await.unwrap();
            both.server.read_exact(&mut again[5..]).await.unwrap();
            assert_eq!(again, said);
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_speak_is_cut_off_and_one_that_spoke_is_not() {
        stop_clock();
        for said in [&b""[..], &PREFACE[..23]] {
            let mut silent = both(100);
            silent.client.write_all(said).await.unwrap();
            let error = silent.server.protocol(TIMEOUT).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        let mut spoke = both(100);
        spoke.client.write_all(PREFACE).await.unwrap();
        spoke.server.protocol(TIMEOUT).await.unwrap();
        spoke.server.read_exact(&mut [0; 24]).await.unwrap();
        let later = timeout(TIMEOUT * 3 / 2, spoke.server.read_u8()).await;
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

    #[tokio::test]
    async fn who_sends_no_more_gets_the_reply_whole_and_the_end_is_heard_of_after_it() {
        stop_clock();
        for piece in [1, 3, 100] {
            let mut both = both(100);
            both.client.write_all(b"GET").await.unwrap();
            both.server.protocol(TIMEOUT).await.unwrap();
            both.server.read_exact(&mut [0; 3]).await.unwrap();
            let request = both.activity.open(false);
            both.client.shutdown().await.unwrap();
            let early = timeout(TIMEOUT / 4, both.server.read(&mut [0; 10])).await;
            assert!(early.is_err(), "the end is kept back");
            // It is there before the reply.
            assert_eq!(both.client.read_u8().await.unwrap(), b'H');
            for part in b"HTTP/1.1 200 OK".chunks(piece) {
                both.server.write_all(part).await.unwrap();
            }
            drop(request);
            let unflushed = timeout(TIMEOUT / 4, both.server.read(&mut [0; 10])).await;
            assert!(unflushed.is_err(), "the reply is not flushed");
            both.server.flush().await.unwrap();
            assert_eq!(both.server.read(&mut [0; 10]).await.unwrap(), 0);
            drop(both.server);
            let mut rest = Vec::new();
            both.client.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"TTP/1.1 200 OK");
        }
    }

    #[tokio::test]
    async fn who_is_gone_is_noticed_while_the_reply_is_made_and_a_cut_body_at_once() {
        stop_clock();
        let mut gone = both(100);
        gone.client.write_all(b"GET").await.unwrap();
        gone.server.protocol(TIMEOUT).await.unwrap();
        gone.server.read_exact(&mut [0; 3]).await.unwrap();
        let request = gone.activity.open(false);
        let body = gone.activity.read_body();
        gone.client.shutdown().await.unwrap();
        assert_eq!(gone.server.read(&mut [0; 10]).await.unwrap(), 0, "the body is cut");
        drop(body);
        gone.reset.send_replace(true);
        let error = gone.server.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        drop(request);
    }

    #[tokio::test]
    async fn nothing_is_sent_ahead_of_a_reply_that_has_begun() {
        stop_clock();
        let mut both = both(100);
        both.client.write_all(b"GET").await.unwrap();
        both.server.protocol(TIMEOUT).await.unwrap();
        both.server.read_exact(&mut [0; 3]).await.unwrap();
        let _request = both.activity.open(false);
        both.server.write_all(b"HTTP").await.unwrap();
        both.server.flush().await.unwrap();
        both.client.shutdown().await.unwrap();
        let early = timeout(TIMEOUT / 4, both.server.read(&mut [0; 10])).await;
        assert!(early.is_err());
        both.server.write_all(b"/1.1").await.unwrap();
        both.server.shutdown().await.unwrap();
        let mut all = Vec::new();
        both.client.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"HTTP/1.1");
    }
}
