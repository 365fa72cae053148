//! First bytes of a reply. In: a GET. Out: its reply, or that of a hedged second GET, whichever begins first; and the
//! cost of the other GET.
//!
//! A losing GET costs like any other, so it is counted, with all bytes that it requested. A small reply is read to its
//! end in the background: its connection stays usable for the next GET. A large reply is cut off, and its count is then
//! an upper bound: the bytes not yet sent by then are unknown.

use super::attempts::Attempts;
use super::bucket::Bucket;
use futures::future::{BoxFuture, Either, poll_immediate, select};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResult, ObjectStore};
use std::time::{Duration, Instant};

/// Maximum size of a losing reply that is read to its end. There are at most as many as second GETs, and each ends
/// within [`DRAIN_LIMIT`].
const DRAINED_BYTES: u64 = 64 << 10;
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

type Sent = BoxFuture<'static, object_store::Result<GetResult>>;

impl Bucket {
    /// Waits for the first bytes of the reply to a GET of `bytes`.
    pub(super) async fn reply(
        &self,
        key: &Key,
        options: GetOptions,
        bytes: u64,
        attempts: &Attempts,
    ) -> object_store::Result<GetResult> {
        let Some(hedging) = &self.hedging else {
            return self.reads.get_opts(key, options).await;
        };
        let sent = Instant::now();
        let delay = hedging.begin();
        let first = self.send(key, options.clone());
        let result = match delay {
            None => first.await,
            Some(delay) => match select(first, Box::pin(tokio::time::sleep(delay))).await {
                Either::Left((result, _)) => result,
                Either::Right(((), mut first)) => match poll_immediate(&mut first).await {
                    // It began as the wait ended.
                    Some(result) => result,
                    None if hedging.allow() => race(first, self.send(key, options), bytes, attempts).await,
                    None => first.await,
                },
            },
        };
        if result.is_ok() {
            hedging.record(sent.elapsed());
        }
        result
    }

    fn send(&self, key: &Key, options: GetOptions) -> Sent {
        let (store, key) = (self.reads.clone(), key.clone());
        Box::pin(async move { store.get_opts(&key, options).await })
    }
}

/// Returns the first reply that is not an error. A failed GET leaves the result to the other GET.
async fn race(first: Sent, second: Sent, bytes: u64, attempts: &Attempts) -> object_store::Result<GetResult> {
    let hedge = attempts.clone();
    let second: Sent = Box::pin(async move {
        hedge.count_hedge();
        second.await
    });
    let before = attempts.requests();
    // The second GET is polled first, so that it goes out whatever happens to the first meanwhile.
    let (reply, loser) = match select(second, first).await {
        Either::Left((Err(_), other)) | Either::Right((Err(_), other)) => return other.await,
        Either::Left((reply, loser)) | Either::Right((reply, loser)) => (reply, loser),
    };
    // A GET that never went out costs nothing, and does not go out any more.
    if attempts.requests() == before {
        attempts.uncount_hedge();
        return reply;
    }
    attempts.count_lost(bytes);
    if bytes <= DRAINED_BYTES {
        tokio::spawn(tokio::time::timeout(DRAIN_LIMIT, async move {
            if let Ok(reply) = loser.await {
                // No caller wants them.
                let _ = reply.bytes().await;
            }
        }));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt as _;
    use object_store::memory::InMemory;
    use std::future::pending;
    use std::sync::Arc;

    #[derive(Clone, Copy, PartialEq)]
    enum Second {
        Replied,
        Slow,
        /// A GET may be delayed before it goes out, for example by fetching credentials.
        HeldUp,
    }

    #[tokio::test]
    async fn what_is_counted_went_out_however_the_race_ends() {
        let store = Arc::new(InMemory::new());
        store.put(&Key::from("o"), vec![7_u8; 100].into()).await.unwrap();
        for (first_replies, second, lost) in [
            (true, Second::Slow, 100),
            (true, Second::Replied, 100),
            (false, Second::Replied, 100),
            (true, Second::HeldUp, 0),
        ] {
            let attempts = Attempts::default();
            let get = |replies: bool| {
                let store = Arc::clone(&store);
                async move {
                    if !replies {
                        pending::<()>().await;
                    }
                    store.get_opts(&Key::from("o"), GetOptions::default()).await
                }
            };
            // The first GET went out before the race.
            attempts.count_request();
            let (counted, reply) = (attempts.clone(), get(second == Second::Replied));
            let sent: Sent = Box::pin(async move {
                if second == Second::HeldUp {
                    pending::<()>().await;
                }
                counted.count_request();
                reply.await
            });
            let reply = race(Box::pin(get(first_replies)), sent, 100, &attempts).await.unwrap();
            assert_eq!(reply.bytes().await.unwrap().len(), 100);
            assert_eq!(attempts.lost_bytes(), lost);
            assert_eq!(u64::from(attempts.requests()) * 100, 100 + lost);
            assert_eq!(attempts.hedges(), attempts.requests() - 1);
        }
    }
}
