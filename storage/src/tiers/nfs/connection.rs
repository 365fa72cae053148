//! One TCP connection with many calls under way. Replies find their calls by transaction id, in any order.
//!
//! In: calls, each with a deadline and, where bulk data is expected, the buffer that it lands in. Out: replies, or a
//! [`CallError`]. Whatever a call needs once it is sent is owned here: a caller that goes away leaves a reply that is
//! received and discarded, into a buffer that is still there. Knows nothing of NFS.

use super::moderation::REPLY_HEAD_BYTES;
use super::receive::{Receiver, SMALL_RECORD_BYTES};
use super::rpc::{Call, CallError, Head, next_xid};
use super::send::Outbox;
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::AbortHandle;

/// Bulk data inside a result: where it begins, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bulk {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// Where the bulk data of a reply goes, straight from the socket.
#[derive(Debug)]
pub(super) struct Landing {
    /// Finds the data from the first bytes of a result; `None` where there is none.
    pub(super) find: fn(&[u8]) -> Option<Bulk>,
    /// The longest data that may come.
    pub(super) room: usize,
    /// What it is appended to. Without one, a buffer is made when the data arrives: calls that only wait hold none, and
    /// memory that was just used is used again.
    pub(super) buffer: Option<BytesMut>,
}

impl Landing {
    /// The same for another attempt. The buffer went with the first.
    pub(super) fn again(&self) -> Self {
        Self { buffer: None, ..*self }
    }

    /// The buffer, with room for data of this length; `None` where it is longer than it may be.
    pub(super) fn into_buffer(self, len: usize) -> Option<BytesMut> {
        let buffer = self
            .buffer
            .unwrap_or_else(|| BytesMut::with_capacity(len.min(self.room)));
        (len <= self.room && len <= buffer.capacity() - buffer.len()).then_some(buffer)
    }
}

/// A result, and what came over the wire for it.
#[derive(Debug)]
pub(super) struct Reply {
    /// Up to the bulk data, where that has landed.
    pub(super) body: Bytes,
    pub(super) landed: Option<BytesMut>,
    pub(super) wire_bytes: u64,
}

/// Room for a call among those under way.
#[derive(Debug)]
pub(super) struct Place {
    _call: OwnedSemaphorePermit,
    /// Units of data that its reply will bring, where that is much.
    data: Option<OwnedSemaphorePermit>,
}

impl Place {
    pub(super) fn new(call: OwnedSemaphorePermit, data: Option<OwnedSemaphorePermit>) -> Self {
        Self { _call: call, data }
    }

    fn weight(&self) -> usize {
        1 + self.data.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

/// A place on a connection, given back when the reply is there or nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Claim {
    load: Arc<AtomicUsize>,
    place: Place,
}

impl Claim {
    pub(super) fn new(load: Arc<AtomicUsize>, place: Place) -> Self {
        load.fetch_add(place.weight(), Ordering::Relaxed);
        Self { load, place }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.load.fetch_sub(self.place.weight(), Ordering::Relaxed);
    }
}

pub(super) type Answer = Result<Reply, CallError>;

/// A call that is under way.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) landing: Option<Landing>,
    pub(super) sent: Instant,
    pub(super) deadline: Instant,
    pub(super) _claim: Claim,
}

impl Waiter {
    /// What its reply will bring, as far as that is for sure: a large one comes in pieces, and wakes as it comes.
    fn expects(&self) -> usize {
        match &self.landing {
            Some(landing) if landing.room > SMALL_RECORD_BYTES => 0,
            Some(landing) => landing.room + REPLY_HEAD_BYTES,
            None => REPLY_HEAD_BYTES,
        }
    }
}

/// Transaction ids are numbers of our own, one after another: multiplying spreads them well enough.
#[derive(Debug, Default)]
struct XidHasher(u64);

impl Hasher for XidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, xid: u32) {
        self.0 = (self.0 ^ u64::from(xid)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[derive(Debug, Default)]
struct Waiting {
    by_xid: HashMap<u32, Waiter, BuildHasherDefault<XidHasher>>,
    /// What all of them expect together.
    expected_bytes: usize,
    broken: Option<CallError>,
}

impl Waiting {
    /// Tells whether it is the only one.
    fn insert(&mut self, xid: u32, waiter: Waiter) -> bool {
        self.expected_bytes += waiter.expects();
        self.by_xid.insert(xid, waiter);
        self.by_xid.len() == 1
    }

    fn remove(&mut self, xid: u32) -> Option<Waiter> {
        let waiter = self.by_xid.remove(&xid)?;
        self.expected_bytes -= waiter.expects();
        Some(waiter)
    }

    fn remove_late(&mut self, now: Instant) -> Vec<Waiter> {
        let late = self.by_xid.extract_if(|_, waiter| waiter.deadline <= now);
        let late: Vec<Waiter> = late.map(|(_, waiter)| waiter).collect();
        self.expected_bytes -= late.iter().map(Waiter::expects).sum::<usize>();
        late
    }
}

/// What callers and the connection's task share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stream: TcpStream,
    outbox: Outbox,
    waiting: Mutex<Waiting>,
}

impl Shared {
    // Nothing panics while the lock is held.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose reply this is; nobody's where the call was given up.
    pub(super) fn take(&self, xid: u32) -> Option<Waiter> {
        self.waiting().remove(xid)
    }

    /// The bytes that small replies will bring.
    pub(super) fn expected_bytes(&self) -> usize {
        self.waiting().expected_bytes
    }

    /// Ends the wait of calls whose deadline has passed; returns since when the oldest of the others waits.
    pub(super) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut waiting = self.waiting();
        for waiter in waiting.remove_late(now) {
            // Nobody listens where the caller went away.
            let _ = waiter.answer.send(Err(CallError::Late));
        }
        waiting.by_xid.values().map(|waiter| waiter.sent).min()
    }

    fn fail(&self, error: &CallError) {
        let waiters = {
            let mut waiting = self.waiting();
            waiting.broken.get_or_insert_with(|| error.clone());
            waiting.expected_bytes = 0;
            std::mem::take(&mut waiting.by_xid)
        };
        for waiter in waiters.into_values() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }
}

/// A connection that takes calls until it breaks. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    task: AbortHandle,
}

/// Fails what waits when the task ends in any way, also with its runtime.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.fail(&CallError::Broken("the connection was closed".to_owned()));
    }
}

impl Connection {
    /// Takes a stream over. `limit` is how long a call may take: a server that is silent for half of it while calls
    /// wait has lost the connection.
    pub(super) fn start(stream: TcpStream, limit: Duration) -> Self {
        let shared = Arc::new(Shared {
            stream,
            outbox: Outbox::default(),
            waiting: Mutex::default(),
        });
        let ending = Ending(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            let shared = &ending.0;
            let mut receiver = Receiver::new(shared, limit);
            // One task for both ways: replies make their callers send again, on the same core.
            let error = tokio::select! {
                biased;
                error = shared.outbox.run(&shared.stream) => error,
                error = receiver.run() => error,
            };
            shared.fail(&error);
        });
        Self {
            shared,
            task: task.abort_handle(),
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.shared.waiting().broken.is_some()
    }

    /// Sends a call, at `now`. An error means that the server has not seen it.
    pub(super) fn submit(
        &self,
        outgoing: &Outgoing<'_>,
        landing: Option<Landing>,
        claim: Claim,
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
        let alone = {
            let mut waiting = self.shared.waiting();
            if let Some(error) = &waiting.broken {
                return Err(error.clone());
            }
            waiting.insert(outgoing.xid, waiter)
        };
        let Shared { stream, outbox, .. } = &*self.shared;
        if let Err(error) = outbox.push(stream, outgoing, alone) {
            drop(self.shared.take(outgoing.xid));
            if matches!(error, CallError::Broken(_)) {
                self.shared.fail(&error);
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

/// A call with what repeats of it share.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) call: &'a Call,
    pub(super) head: &'a Head,
    /// The same in every repeat, so that a server can tell.
    pub(super) xid: u32,
    pub(super) deadline: Instant,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(call: &'a Call, head: &'a Head, deadline: Instant) -> Self {
        Self {
            call,
            head,
            xid: next_xid(),
            deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs3_types::rpc::{accept_stat_data, accepted_reply, fragment_header, msg_body, opaque_auth, reply_body};
    use nfs3_types::xdr_codec::Pack;
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
        let call = Call {
            program: 1,
            version: 1,
            procedure: 1,
            arguments: tag.to_be_bytes().to_vec(),
            data: Bytes::new(),
        };
        let head = Head::new(&opaque_auth::default());
        let now = Instant::now();
        let outgoing = Outgoing::new(&call, &head, now + Duration::from_secs(10));
        let landing = room.map(|room| Landing {
            find,
            room,
            buffer: (room % 2 == 0).then(|| BytesMut::with_capacity(room)),
        });
        let call = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let claim = Claim::new(Arc::default(), Place::new(call, None));
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
                // Now and then an error, which is much shorter than what was to be expected.
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
        assert_eq!(connection.shared.expected_bytes(), 0);
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
        let answers: [Answerer; 7] = [cut, huge, a_call, too_much, too_much_bulk, less_than_said, nothing];
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
}
