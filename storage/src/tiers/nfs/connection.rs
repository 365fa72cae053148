//! TCP connection with many calls in flight. Replies find their calls by transaction id, in any order. Records are sent
//! in order and complete, even if their callers go away: if no other call is in flight, the caller sends its record at
//! once; otherwise the record waits until every ready task has added its own, and they leave together.
//!
//! In: calls, each with a deadline and, if bulk data is expected, its buffer. Out: replies, or a [`CallError`]. The
//! connection owns everything that a sent call needs: if the caller goes away, the reply is still received into a live
//! buffer and discarded. Knows nothing of NFS.

use super::receive::Receiver;
use super::rpc::{CallError, padding};
use super::waiting::{Answer, Landing, LoadClaim, Outgoing, Waiter, Waiting};
use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// Maximum segments per system call.
const MAX_SEGMENTS: usize = 64;
/// Data up to this size is copied behind its call; larger data is a separate segment.
const COPIED_BYTES: usize = 16 << 10;
/// Size at which a staging buffer's allocation is replaced.
const STAGING_BYTES: usize = 16 << 10;

/// State shared by callers and the connection's task.
#[derive(Debug)]
struct ConnectionState {
    stream: TcpStream,
    outbox: Outbox,
    waiting: Waiting,
}

/// Connection that accepts calls until it breaks. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<ConnectionState>,
    task: AbortHandle,
}

/// Fails the waiting calls when the task ends in any way, even with its runtime.
struct Ending(Arc<ConnectionState>);

impl Drop for Ending {
    fn drop(&mut self) {
        let error = CallError::Broken("connection was closed".to_owned());
        self.0.waiting.fail(&error);
    }
}

impl Connection {
    /// Takes over a stream. `limit` is the time limit of a call. If the server is silent for half of it while calls
    /// wait, the connection counts as lost.
    pub(super) fn start(stream: TcpStream, limit: Duration) -> Self {
        let shared = Arc::new(ConnectionState {
            stream,
            outbox: Outbox::default(),
            waiting: Waiting::default(),
        });
        let ending = Ending(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            let shared = &ending.0;
            let mut receiver = Receiver::new(&shared.stream, &shared.waiting, limit);
            // A single task serves both directions: replies make their callers send again, on the same core.
            let error = tokio::select! {
                biased;
                error = shared.outbox.run(&shared.stream) => error,
                error = receiver.run() => error,
            };
            shared.waiting.fail(&error);
        });
        Self {
            shared,
            task: task.abort_handle(),
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.shared.waiting.is_broken()
    }

    /// Sends a call, at `now`. On error the server has not received it.
    pub(super) fn submit(
        &self,
        outgoing: &Outgoing<'_>,
        landing: Option<Landing>,
        claim: LoadClaim,
        now: Instant,
    ) -> Result<oneshot::Receiver<Answer>, CallError> {
        let (answer, receiver) = oneshot::channel();
        let waiter = Waiter {
            answer,
            landing,
            sent: now,
            deadline: outgoing.deadline,
            _claim: claim,
        };
        let shared = &self.shared;
        let alone = shared.waiting.add(outgoing.xid, waiter)?;
        if let Err(error) = shared.outbox.push(&shared.stream, outgoing, alone) {
            drop(shared.waiting.take(outgoing.xid));
            if matches!(error, CallError::Broken(_)) {
                shared.waiting.fail(&error);
            }
            return Err(error);
        }
        Ok(receiver)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

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
struct Outbox {
    queue: Mutex<Queue>,
    filled: Notify,
}

impl Outbox {
    /// Adds a record. `alone` is true if no other call is in flight, so that batching is useless.
    fn push(&self, stream: &TcpStream, outgoing: &Outgoing<'_>, alone: bool) -> Result<(), CallError> {
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
    async fn run(&self, stream: &TcpStream) -> CallError {
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
    use super::super::rpc::{Call, Head};
    use super::super::waiting::{Bulk, CallPermit};
    use super::*;
    use nfs3_types::rpc::{accept_stat_data, accepted_reply, fragment_header, msg_body, opaque_auth, reply_body};
    use nfs3_types::xdr_codec::Pack;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    /// A call of these tests is a head of 40 bytes behind its mark, and 8 bytes of arguments.
    const CALL_BYTES: usize = 4 + 40 + 8;

    fn success(xid: u32, result: &[u8]) -> Vec<u8> {
        let accepted = accepted_reply {
            verf: opaque_auth::default(),
            reply_data: accept_stat_data::SUCCESS,
        };
        let mut packed = xid.to_be_bytes().to_vec();
        msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted))
            .pack(&mut packed)
            .unwrap();
        [packed.as_slice(), result].concat()
    }

    fn mark(len: usize, last: bool) -> Vec<u8> {
        fragment_header::new(u32::try_from(len).unwrap(), last)
            .into_xdr_buf()
            .to_vec()
    }

    fn record(xid: u32, result: &[u8]) -> Vec<u8> {
        let reply = success(xid, result);
        [mark(reply.len(), true), reply].concat()
    }

    /// Data of any length: one word that says how long, then the bytes.
    fn find(result: &[u8]) -> Option<Bulk> {
        let len = u32::from_be_bytes(*result.first_chunk()?) as usize;
        Some(Bulk { at: 4, len })
    }

    fn bulky(data: &[u8]) -> Vec<u8> {
        [&u32::try_from(data.len()).unwrap().to_be_bytes(), data].concat()
    }

    /// A server that reads `calls` calls, then sends what `answer` makes of their xids, and closes when it is read out.
    async fn serve(
        calls: usize,
        answer: impl FnOnce(&[u32]) -> Vec<u8> + Send + 'static,
    ) -> (Connection, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut xids = Vec::new();
            for _ in 0..calls {
                let mut call = [0; CALL_BYTES];
                stream.read_exact(&mut call).await.unwrap();
                xids.push(u32::from_be_bytes(*call[4..].first_chunk().unwrap()));
            }
            // A client that found fault closes before everything is sent.
            let _ = stream.write_all(&answer(&xids)).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let stream = TcpStream::connect(address).await.unwrap();
        (Connection::start(stream, Duration::from_secs(10)), server)
    }

    fn submit(connection: &Connection, tag: u64, room: Option<usize>) -> oneshot::Receiver<Answer> {
        submit_within(connection, tag, room, Duration::from_secs(10))
    }

    fn submit_within(
        connection: &Connection,
        tag: u64,
        room: Option<usize>,
        limit: Duration,
    ) -> oneshot::Receiver<Answer> {
        let call = Call {
            program: 1,
            version: 1,
            procedure: 1,
            arguments: tag.to_be_bytes().to_vec(),
            data: Bytes::new(),
        };
        let head = Head::new(&opaque_auth::default());
        let now = Instant::now();
        let outgoing = Outgoing::new(&call, &head, now + limit);
        let landing = room.map(|room| Landing {
            find,
            room,
            buffer: (room % 2 == 0).then(|| BytesMut::with_capacity(room)),
        });
        let permit = CallPermit {
            _call: Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap(),
            data: None,
        };
        let claim = LoadClaim::new(Arc::default(), permit);
        connection.submit(&outgoing, landing, claim, now).unwrap()
    }

    #[tokio::test]
    async fn replies_find_their_calls_in_any_order_and_in_pieces() {
        let large: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let sent = large.clone();
        let (connection, _server) = serve(4, move |xids| {
            let cut = success(xids[1], b"in pieces");
            [
                record(xids[3], &bulky(b"small")),
                record(xids[0].wrapping_sub(77), &bulky(&sent)), // nobody's
                record(xids[2], &bulky(&sent)),
                [mark(10, false), cut[..10].to_vec()].concat(),
                [mark(cut.len() - 10, true), cut[10..].to_vec()].concat(),
                record(xids[0], b"first call"),
            ]
            .concat()
        })
        .await;
        let calls: Vec<_> = [None, None, Some(200_000), Some(5)]
            .into_iter()
            .enumerate()
            .map(|(tag, room)| submit(&connection, tag as u64, room))
            .collect();
        let mut replies = Vec::new();
        for call in calls {
            replies.push(call.await.unwrap().unwrap());
        }
        assert_eq!(replies[0].body, "first call");
        assert_eq!(replies[1].body, "in pieces");
        assert!(replies[2].landed.as_ref().unwrap() == large.as_slice());
        assert_eq!(replies[3].landed.as_ref().unwrap(), b"small".as_slice());
    }

    /// Many replies that come fast are taken in bundles; the last of them, and one that comes after a long pause with
    /// others outstanding, are not left lying.
    #[tokio::test]
    async fn bundled_replies_all_arrive() {
        const CALLS: usize = 4000;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut call = [0; CALL_BYTES];
            for answered in 0..CALLS {
                stream.read_exact(&mut call).await.unwrap();
                let xid = u32::from_be_bytes(*call[4..].first_chunk().unwrap());
                if answered % 1500 == 1000 {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
                // Some replies are errors, which are much shorter than expected.
                let result = match answered % 50 {
                    40..50 => vec![0; 4],
                    _ => bulky(&[answered as u8; 4096]),
                };
                stream.write_all(&record(xid, &result)).await.unwrap();
            }
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let stream = TcpStream::connect(address).await.unwrap();
        let connection = Arc::new(Connection::start(stream, Duration::from_secs(10)));
        let callers = (0..40_u64).map(|caller| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                for _ in 0..CALLS / 40 {
                    let reply = submit(&connection, caller, Some(4096)).await.unwrap().unwrap();
                    assert!(matches!(reply.landed.unwrap().len(), 0 | 4096));
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        assert_eq!(connection.shared.waiting.expected_bytes(), 0);
        drop(connection);
        server.await.unwrap();
    }

    #[tokio::test]
    async fn replies_to_calls_that_were_given_up_are_discarded() {
        let data = vec![7; 100_000];
        let (connection, _server) = serve(300, move |xids| {
            xids.iter().flat_map(|xid| record(*xid, &bulky(&data))).collect()
        })
        .await;
        let mut last = None;
        for tag in 0..300 {
            // Each drops the call before it.
            last = Some(submit(&connection, tag, Some(100_000)));
        }
        let reply = last.unwrap().await.unwrap().unwrap();
        assert!(reply.landed.unwrap().iter().all(|byte| *byte == 7));
    }

    #[tokio::test]
    async fn what_is_no_reply_ends_the_connection() {
        type Answerer = fn(u32) -> Vec<u8>;
        let cut = |xid| record(xid, b"result")[..20].to_vec();
        let huge = |_| mark(1 << 30, true);
        let a_call = |xid: u32| [mark(8, true), xid.to_be_bytes().to_vec(), vec![0; 4]].concat();
        let too_much = |xid| record(xid, &bulky(&[1; 9]));
        let too_much_bulk = |xid| record(xid, &bulky(&[1; 100_000]));
        let less_than_said = |xid| record(xid, &[0, 0, 0, 8, 1]);
        let nothing = |_| Vec::new();
        let empty_fragments = |_| mark(0, false).repeat(1 << 20);
        let empty_records = |_| mark(0, true).repeat(1 << 20);
        let nobodys = |xid: u32| record(xid.wrapping_sub(1), b"").repeat(100_000);
        let answers: [Answerer; 10] = [
            cut,
            huge,
            a_call,
            too_much,
            too_much_bulk,
            less_than_said,
            nothing,
            empty_fragments,
            empty_records,
            nobodys,
        ];
        for answer in answers {
            let (connection, server) = serve(1, move |xids| answer(xids[0])).await;
            let ended = tokio::time::timeout(Duration::from_secs(10), submit(&connection, 1, Some(8))).await;
            assert!(!matches!(ended.unwrap(), Ok(Ok(_))));
            tokio::time::timeout(Duration::from_secs(10), async {
                while !connection.is_broken() {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .unwrap();
            drop(connection);
            server.await.unwrap();
        }
    }

    /// A server that sends the same bytes for ever, in one piece after another. The runtime has one thread, which the
    /// receiver shares with this test.
    async fn serve_without_end(bytes: Vec<u8>, limit: Duration) -> (Connection, tokio::task::JoinHandle<()>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::task::spawn_blocking(move || {
            use std::io::Write as _;
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&bytes).is_ok() {}
        });
        let stream = TcpStream::connect(address).await.unwrap();
        (Connection::start(stream, limit), server)
    }

    /// Endless data within the rules: one record of many fragments, and records that answer no call.
    #[tokio::test]
    async fn a_server_that_never_pauses_stops_neither_other_tasks_nor_deadlines() {
        let fragment = [mark(1, false), vec![7]].concat().repeat(1 << 14);
        let large = record(1, &bulky(&[1; 1 << 20]));
        for bytes in [mark(0, false).repeat(1 << 16), fragment, large] {
            let limit = Duration::from_millis(200);
            let (connection, server) = serve_without_end(bytes, limit).await;
            let answer = submit_within(&connection, 1, None, limit);
            let other = tokio::spawn(async {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            });
            let ended = tokio::time::timeout(Duration::from_secs(60), async {
                other.await.unwrap();
                answer.await.unwrap().unwrap_err()
            });
            ended.await.unwrap();
            drop(connection);
            server.await.unwrap();
        }
    }

    /// A record that arrives byte by byte is never silent, and ends the connection at the time limit of a call.
    #[tokio::test]
    async fn a_record_that_does_not_end_ends_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&mark(10_000, true)).await.unwrap();
            while stream.write_all(&[0]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let stream = TcpStream::connect(address).await.unwrap();
        let connection = Connection::start(stream, Duration::from_millis(200));
        let broken = tokio::time::timeout(Duration::from_secs(30), async {
            while !connection.is_broken() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        broken.await.unwrap();
        drop(connection);
        server.await.unwrap();
    }

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
