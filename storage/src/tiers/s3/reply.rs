//! The beginning of a reply. In: a GET. Out: its reply, or that of a second GET, sent where hedging says so, whichever
//! begins first; and what the other one cost.
//!
//! A losing GET is paid for like any other, so it is counted, with all bytes that it asked for. A small one is
//! read to its end in the background: its connection stays good for the next GET. A large one is cut off, and then its
//! count is an upper bound: what the server had not sent by then cannot be known.

use super::attempts::Attempts;
use super::bucket::Bucket;
use futures::future::{BoxFuture, Either, select};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResult, ObjectStore};
use std::time::{Duration, Instant};

/// A losing reply of at most this many bytes is read to its end; there are at most as many as second GETs, and each
/// ends within [`DRAIN_LIMIT`].
const DRAINED_BYTES: u64 = 64 << 10;
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

type Sent = BoxFuture<'static, object_store::Result<GetResult>>;

impl Bucket {
    /// The beginning of the reply to a GET of `bytes`.
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
                Either::Right(((), first)) if hedging.allow() => {
                    attempts.count_hedge();
                    race(first, self.send(key, options), bytes, attempts).await
                }
                Either::Right(((), first)) => first.await,
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

/// The first reply that is none of an error. The one that fails leaves it to the other.
async fn race(first: Sent, second: Sent, bytes: u64, attempts: &Attempts) -> object_store::Result<GetResult> {
    let (reply, loser) = match select(first, second).await {
        Either::Left((Err(_), other)) | Either::Right((Err(_), other)) => return other.await,
        Either::Left((reply, loser)) | Either::Right((reply, loser)) => (reply, loser),
    };
    attempts.count_lost(bytes);
    if bytes <= DRAINED_BYTES {
        tokio::spawn(tokio::time::timeout(DRAIN_LIMIT, async move {
            if let Ok(reply) = loser.await {
                // Nobody wants them.
                let _ = reply.bytes().await;
            }
        }));
    }
    reply
}
