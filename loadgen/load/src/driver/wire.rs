//! Times of a connection, read at its system calls. In: a byte stream. Out: the same stream, whose first write and reads set the
//! times of the request in flight. Knows nothing of HTTP.

use crate::endpoint::Stream;
use crate::pacer::Clock;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// Stream that reads the time before the first write of each request, and on demand after each read.
pub(super) struct Wire {
    io: TokioIo<Stream>,
    send_time: Arc<SendTime>,
    /// True if read times are used.
    stamps_reads: bool,
}

impl Wire {
    pub(super) const fn new(io: TokioIo<Stream>, send_time: Arc<SendTime>, stamps_reads: bool) -> Self {
        Self {
            io,
            send_time,
            stamps_reads,
        }
    }
}

impl Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if self.stamps_reads && polled.is_ready() {
            self.send_time.note_read();
        }
        polled
    }
}

impl Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.send_time.set();
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.send_time.set();
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

/// Value before a request is sent.
const CLEAR: u64 = u64::MAX;

/// Send time of the request in flight on one connection, and times of reads. The send time is unset before the first
/// request, while the connection is opened.
#[derive(Debug)]
pub(super) struct SendTime {
    clock: OnceLock<Clock>,
    sent_us: AtomicU64,
    /// First read since the start of the request; unset if unused, like `read_us`.
    first_read_us: AtomicU64,
    /// Latest read.
    read_us: AtomicU64,
}

impl Default for SendTime {
    fn default() -> Self {
        Self {
            clock: OnceLock::new(),
            sent_us: AtomicU64::new(CLEAR),
            first_read_us: AtomicU64::new(CLEAR),
            read_us: AtomicU64::new(CLEAR),
        }
    }
}

impl SendTime {
    /// Begins a new request, on the step's clock.
    pub(super) fn begin(&self, clock: Clock) {
        self.clock.get_or_init(|| clock);
        self.sent_us.store(CLEAR, Ordering::Relaxed);
        self.first_read_us.store(CLEAR, Ordering::Relaxed);
    }

    /// Sets the times of reads to now.
    fn note_read(&self) {
        let Some(clock) = self.clock.get() else { return };
        let now_us = clock.now_us();
        self.read_us.store(now_us, Ordering::Relaxed);
        if self.first_read_us() == CLEAR {
            self.first_read_us.store(now_us, Ordering::Relaxed);
        }
    }

    pub(super) fn first_read_us(&self) -> u64 {
        self.first_read_us.load(Ordering::Relaxed)
    }

    /// Returns the first read since the request was begun, if reads are stamped.
    pub(super) fn first_byte_us(&self) -> Option<u64> {
        Some(self.first_read_us()).filter(|&us| us != CLEAR)
    }

    pub(super) fn read_us(&self) -> u64 {
        self.read_us.load(Ordering::Relaxed)
    }

    /// Sets the send time to now, unless it is set.
    pub(super) fn set(&self) {
        if let Some(clock) = self.clock.get()
            && !self.is_set()
        {
            self.sent_us.store(clock.now_us(), Ordering::Relaxed);
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.sent_us().is_some()
    }

    /// Returns the send time on the step's clock; `None` if it is unset.
    pub(super) fn sent_us(&self) -> Option<u64> {
        Some(self.sent_us.load(Ordering::Relaxed)).filter(|&us| us != CLEAR)
    }
}
