//! Sending half of a connection: records queue here and leave together.
//!
//! In: records of any task. Out: bytes on the stream, in order and complete, even if the caller goes away. If no other
//! call is in flight, the caller sends its record at once. Otherwise the record waits until every ready task has added
//! its own.

use super::rpc::{CallError, padding};
use super::waiting::Outgoing;
use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Maximum segments per system call.
const MAX_SEGMENTS: usize = 64;
/// Data up to this size is copied behind its call; larger data is a separate segment.
const COPIED_BYTES: usize = 16 << 10;
/// Size at which a staging buffer's allocation is replaced.
const STAGING_BYTES: usize = 16 << 10;

/// Calls waiting to be sent.
#[derive(Debug, Default)]
struct Queue {
    /// Segments before the staged bytes.
    segments: VecDeque<Bytes>,
    staging: BytesMut,
    /// True if the sending task holds earlier bytes that must be sent first.
    sending: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.staging.is_empty()
    }

    /// Turns the staged bytes into a segment.
    fn seal(&mut self) {
        if !self.staging.is_empty() {
            let sealed = self.staging.split().freeze();
            self.segments.push_back(sealed);
        }
    }

    /// Adds the trailing data of the last record.
    fn add_data(&mut self, data: &Bytes) {
        if data.len() > COPIED_BYTES {
            self.seal();
            self.segments.push_back(data.clone());
        } else {
            self.staging.extend_from_slice(data);
        }
        self.staging.extend_from_slice(padding(data.len()));
    }
}

/// Outgoing records of a connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    filled: Notify,
}

impl Outbox {
    /// Adds a record. `alone` is true if no other call is in flight, so that batching is useless.
    pub(super) fn push(&self, stream: &TcpStream, outgoing: &Outgoing<'_>, alone: bool) -> Result<(), CallError> {
        let mut queue = self.queue.lock();
        let at_once = alone && !queue.sending && queue.is_empty();
        if queue.staging.capacity() == 0 {
            queue.staging.reserve(STAGING_BYTES);
        }
        let Outgoing { head, call, xid, .. } = outgoing;
        head.encode(call, *xid, &mut queue.staging)?;
        queue.add_data(&call.data);
        if at_once && queue.segments.is_empty() {
            match stream.try_write(&queue.staging) {
                Ok(sent) => queue.staging.advance(sent),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
        let left = !queue.is_empty();
        drop(queue);
        if left {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Sends queued records until the stream fails.
    pub(super) async fn run(&self, stream: &TcpStream) -> CallError {
        loop {
            self.filled.notified().await;
            // Other ready tasks add their records first.
            tokio::task::yield_now().await;
            if let Err(e) = self.drain(stream).await {
                return e.into();
            }
        }
    }

    async fn drain(&self, stream: &TcpStream) -> io::Result<()> {
        loop {
            let mut segments = {
                let mut queue = self.queue.lock();
                queue.seal();
                queue.sending = !queue.is_empty();
                std::mem::take(&mut queue.segments)
            };
            if segments.is_empty() {
                return Ok(());
            }
            while !segments.is_empty() {
                let first = segments.iter().take(MAX_SEGMENTS);
                let slices: Vec<IoSlice<'_>> = first.map(|segment| IoSlice::new(segment)).collect();
                match stream.try_write_vectored(&slices) {
                    Ok(sent) => advance(&mut segments, sent),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
                    Err(e) => return Err(e),
                }
            }
        }
    }
}

/// Removes the sent bytes from the front.
fn advance(segments: &mut VecDeque<Bytes>, mut sent: usize) {
    while let Some(first) = segments.front_mut() {
        if sent < first.len() {
            first.advance(sent);
            return;
        }
        sent -= first.len();
        segments.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_sent_is_what_is_taken_off(lengths in prop::collection::vec(0..5_usize, 0..6), share in 0.0..=1.0) {
            let mut segments: VecDeque<Bytes> = lengths.iter().map(|len| vec![1; *len].into()).collect();
            let total: usize = lengths.iter().sum();
            let sent = (total as f64 * share) as usize;
            advance(&mut segments, sent);
            prop_assert_eq!(segments.iter().map(Bytes::len).sum::<usize>(), total - sent);
        }
    }
}
