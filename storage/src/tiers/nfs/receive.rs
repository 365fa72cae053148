//! Receiving half of a connection.
//!
//! In: bytes of the stream. Out: replies, handed to their callers by transaction id. Small records are parsed together
//! out of one buffer; the bulk data of a large record goes from the socket to its caller's buffer. Records without a
//! waiting call are read to their end and dropped, so that the next record is found.
//!
//! Bounds on a server: a record has a maximum size and a time limit, fragments before the last must hold data, and only
//! a limited number of records in a row may belong to no call. Each read of the socket uses the task's budget and
//! compares the clock with the deadlines. So a server that never pauses stops neither other tasks nor timeouts.

use super::moderation::{AT_ONCE, Moderation};
use super::rpc::{CallError, result_at, xid_of};
use super::waiting::{Bulk, Reply, SMALL_RECORD_BYTES, Waiter, Waiting};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use nfs3_types::rpc::fragment_header;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SetUsize;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Maximum size of a reply: the largest READ, and room for its head.
const MAX_RECORD_BYTES: usize = (1 << 20) + (64 << 10);
/// Bytes needed to recognise a large record: the RPC head with the longest verifier, and attributes. No more are read
/// at once if a large record is expected, so that its data is not read along.
const HEAD_BYTES: usize = 1 << 10;
/// Bytes taken at once while records are small.
const MANY_BYTES: usize = 128 << 10;
/// Maximum wait for a low-water mark, at the resolution of the runtime's timer.
const MARK_WAIT: Duration = Duration::from_millis(1);
/// Maximum number of consecutive records that belong to no call: replies that arrived after their calls timed out.
const MAX_UNCLAIMED_RECORDS: u32 = 4096;
/// Deadline checks per time limit, within the bounds below.
const CHECKS_PER_LIMIT: u32 = 8;

/// State of the receiving half.
pub(super) struct Receiver<'a> {
    stream: &'a TcpStream,
    waiting: &'a Waiting,
    limit: Duration,
    buffer: BytesMut,
    /// Bytes to take at once.
    read_bytes: usize,
    /// Time at which the server last sent bytes.
    heard: Instant,
    /// Arrival of the record that is not complete yet.
    record_began: Option<Instant>,
    /// Records since the last record with a waiting call.
    unclaimed: u32,
    check: Pin<Box<Sleep>>,
    next_check: Instant,
    moderation: Moderation,
    /// Ends the wait for a low-water mark.
    mark_wait: Pin<Box<Sleep>>,
    /// Reply whose data is arriving; its call may have ended.
    arriving: Option<Waiter>,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(stream: &'a TcpStream, waiting: &'a Waiting, limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            stream,
            waiting,
            limit,
            buffer: BytesMut::new(),
            read_bytes: MANY_BYTES,
            heard: now,
            record_began: None,
            unclaimed: 0,
            check: Box::pin(tokio::time::sleep(check_period(limit))),
            next_check: now + check_period(limit),
            moderation: Moderation::new(now),
            mark_wait: Box::pin(tokio::time::sleep(MARK_WAIT)),
            arriving: None,
        }
    }

    /// Receives until the stream or the server fails.
    pub(super) async fn run(&mut self) -> CallError {
        loop {
            if let Err(error) = self.record().await {
                return error;
            }
        }
    }

    async fn record(&mut self) -> Result<(), CallError> {
        self.record_began = None;
        let (len, last) = self.mark().await?;
        self.record_began = Some(self.heard);
        if !last {
            return self.fragments(len).await;
        }
        let is_large = len > SMALL_RECORD_BYTES;
        let (least, at_once) = if is_large {
            (HEAD_BYTES, HEAD_BYTES)
        } else {
            (len, MANY_BYTES)
        };
        self.read_bytes = at_once;
        self.fill(least).await?;
        let Some(waiter) = self.claim(xid_of(&self.buffer[..least]))? else {
            return self.skip(len).await;
        };
        if is_large
            && let Some(landing) = &waiter.landing
            && let Ok(start) = result_at(&self.buffer)
            && let Some(bulk) = (landing.find)(&self.buffer[start..])
        {
            return self.land(len, start, bulk, waiter).await;
        }
        self.fill(len).await?;
        settle(waiter, &self.buffer[..len])?;
        self.buffer.advance(len);
        Ok(())
    }

    /// Returns the call that a record answers, if one still waits.
    ///
    /// # Errors
    /// A record too short for a transaction id, or too many records that answer no call.
    fn claim(&mut self, xid: Option<u32>) -> Result<Option<Waiter>, CallError> {
        let xid = xid.ok_or_else(|| CallError::protocol("record without a transaction id"))?;
        let waiter = self.waiting.take(xid);
        self.unclaimed = if waiter.is_some() { 0 } else { self.unclaimed + 1 };
        if self.unclaimed > MAX_UNCLAIMED_RECORDS {
            let what = format!("{} consecutive records that answer no call", self.unclaimed);
            return Err(CallError::protocol(what));
        }
        Ok(waiter)
    }

    /// Reads the next record mark: the length of a fragment, and true if it is the record's last.
    async fn mark(&mut self) -> Result<(usize, bool), CallError> {
        self.fill(4).await?;
        let mark = fragment_header::from(self.buffer.get_u32().to_be_bytes());
        let len = mark.fragment_length() as usize;
        if len > MAX_RECORD_BYTES {
            return Err(too_large());
        }
        Ok((len, mark.eof()))
    }

    /// Joins a record of several fragments before it is parsed.
    async fn fragments(&mut self, first: usize) -> Result<(), CallError> {
        let mut record = BytesMut::new();
        let (mut len, mut last) = (first, false);
        loop {
            if record.len() + len > MAX_RECORD_BYTES {
                return Err(too_large());
            }
            if len == 0 && !last {
                return Err(CallError::protocol("empty fragment before the end of a record"));
            }
            self.fill(len).await?;
            record.extend_from_slice(&self.buffer[..len]);
            self.buffer.advance(len);
            if last {
                break;
            }
            (len, last) = self.mark().await?;
        }
        let waiter = self.claim(xid_of(&record))?;
        waiter.map_or(Ok(()), |waiter| settle(waiter, &record))
    }

    /// Reads a large record whose data goes to its caller's buffer.
    async fn land(&mut self, record: usize, start: usize, bulk: Bulk, mut waiter: Waiter) -> Result<(), CallError> {
        let at = start + bulk.at;
        let buffer = waiter.landing.take().and_then(|landing| landing.into_buffer(bulk.len));
        let Some(mut buffer) = buffer.filter(|_| at <= self.buffer.len() && at + bulk.len <= record) else {
            return Err(CallError::protocol("more data than requested, or less than announced"));
        };
        self.arriving = Some(waiter);
        let body = Bytes::copy_from_slice(&self.buffer[start..at]);
        self.buffer.advance(at);
        let here = self.buffer.len().min(bulk.len);
        buffer.extend_from_slice(&self.buffer[..here]);
        self.buffer.advance(here);
        let mut rest = (&mut buffer).limit(bulk.len - here);
        while rest.has_remaining_mut() {
            self.take_into(&mut rest, 0).await?;
        }
        self.skip(record - at - bulk.len).await?;
        if let Some(waiter) = self.arriving.take() {
            let reply = Reply {
                body,
                landed: Some(buffer),
                wire_bytes: record as u64 + 4,
            };
            // Sending fails only if the caller went away.
            let _ = waiter.answer.send(Ok(reply));
        }
        // The caller's next call goes out before the next megabyte is read.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Fills the buffer to at least `bytes` bytes.
    async fn fill(&mut self, bytes: usize) -> Result<(), CallError> {
        while self.buffer.len() < bytes {
            let more = (bytes - self.buffer.len()).max(self.read_bytes);
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.reserve(more);
            let held = buffer.len();
            let taken = self.take_into(&mut (&mut buffer).limit(more), held).await;
            self.buffer = buffer;
            taken?;
        }
        Ok(())
    }

    async fn skip(&mut self, mut bytes: usize) -> Result<(), CallError> {
        while bytes > 0 {
            let here = self.buffer.len().min(bytes);
            self.buffer.advance(here);
            bytes -= here;
            self.fill(bytes.min(MANY_BYTES)).await?;
        }
        Ok(())
    }

    /// Reads available bytes, waiting for at least one. `held` received bytes belong to replies not yet parsed.
    async fn take_into(&mut self, buffer: &mut impl BufMut, held: usize) -> Result<(), CallError> {
        let stream = self.stream;
        loop {
            let expected = self.waiting.expected_bytes().saturating_sub(held);
            if let Some(mark) = self.moderation.choose(expected) {
                self.wake_at(mark)?;
            }
            tokio::select! {
                biased;
                ready = stream.readable() => ready?,
                () = &mut self.check => {
                    self.check_deadlines()?;
                    continue;
                }
                () = &mut self.mark_wait, if self.moderation.is_on() => {
                    self.end_mark_wait()?;
                    continue;
                }
            }
            match stream.try_read_buf(buffer) {
                Ok(0) => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "server closed the connection").into());
                }
                Ok(bytes) => {
                    self.heard = Instant::now();
                    self.moderation.heard(self.heard, bytes);
                    if self.heard >= self.next_check {
                        self.check_deadlines()?;
                    }
                    // A socket that always has bytes never makes this task wait by itself.
                    tokio::task::consume_budget().await;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Has the socket wake this task once the given number of bytes has arrived, or the server closes.
    fn wake_at(&mut self, mark: usize) -> io::Result<()> {
        if mark > AT_ONCE {
            self.mark_wait.as_mut().reset((Instant::now() + MARK_WAIT).into());
        }
        match setsockopt(self.stream, LowWater, &mark) {
            // Not every kernel offers it; then every reply wakes.
            Err(error) if mark > AT_ONCE => {
                tracing::debug!(%error, "low-water mark is unavailable: every reply wakes");
                self.moderation.refuse();
                Ok(())
            }
            set => Ok(set?),
        }
    }

    /// Reads available bytes after a time without a wake-up. Each reply restarts the wait.
    fn end_mark_wait(&mut self) -> io::Result<()> {
        if self.heard.elapsed() < MARK_WAIT {
            self.mark_wait.as_mut().reset((self.heard + MARK_WAIT).into());
            return Ok(());
        }
        self.moderation.calm().map_or(Ok(()), |mark| self.wake_at(mark))
    }

    fn check_deadlines(&mut self) -> Result<(), CallError> {
        let now = Instant::now();
        self.next_check = now + check_period(self.limit);
        self.check.as_mut().reset(self.next_check.into());
        let oldest = self.waiting.expire(now).into_iter();
        let oldest = oldest.chain(self.arriving.as_ref().map(|waiter| waiter.sent)).min();
        if let Some(waiter) = self.arriving.take_if(|waiter| waiter.deadline <= now) {
            let _ = waiter.answer.send(Err(CallError::Late));
        }
        if self.record_began.is_some_and(|began| now - began > self.limit) {
            let ms = self.limit.as_millis();
            return Err(CallError::Broken(format!("reply took longer than {ms} ms to arrive")));
        }
        match oldest.map(|oldest| now - oldest.max(self.heard)) {
            Some(silence) if silence > self.limit / 2 => {
                let silence = silence.as_millis();
                Err(CallError::Broken(format!("server was silent for {silence} ms")))
            }
            _ => Ok(()),
        }
    }
}

/// Number of received bytes that wakes the reader of a socket.
#[derive(Debug, Clone, Copy)]
struct LowWater;

nix::setsockopt_impl!(LowWater, libc::SOL_SOCKET, libc::SO_RCVLOWAT, usize, SetUsize);

fn check_period(limit: Duration) -> Duration {
    (limit / CHECKS_PER_LIMIT).clamp(Duration::from_millis(5), Duration::from_millis(500))
}

fn too_large() -> CallError {
    CallError::protocol(format!("reply exceeds {MAX_RECORD_BYTES} bytes"))
}

/// Answers a call with a whole record. After an error the connection cannot be used.
fn settle(waiter: Waiter, record: &[u8]) -> Result<(), CallError> {
    let reply = result_at(record).and_then(|start| {
        let result = &record[start..];
        let wire_bytes = record.len() as u64 + 4;
        let bulk = waiter.landing.as_ref().and_then(|landing| (landing.find)(result));
        let (body, landed) = match waiter.landing.zip(bulk) {
            None => (result, None),
            Some((landing, Bulk { at, len })) => {
                let data = result.get(at..).and_then(|rest| rest.get(..len));
                let data = data.ok_or_else(|| CallError::protocol("less data than announced"))?;
                let buffer = landing.into_buffer(len);
                let mut buffer = buffer.ok_or_else(|| CallError::protocol("more data than requested"))?;
                buffer.extend_from_slice(data);
                (&result[..at], Some(buffer))
            }
        };
        Ok(Reply {
            body: Bytes::copy_from_slice(body),
            landed,
            wire_bytes,
        })
    });
    let fatal = reply.as_ref().err().filter(|error| error.is_fatal()).cloned();
    // Sending fails only if the caller went away.
    let _ = waiter.answer.send(reply);
    fatal.map_or(Ok(()), Err)
}
