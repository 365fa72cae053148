//! Hedged GETs. In: a GET, and latencies of first bytes. Out: the reply that starts first, either its own or that of a
//! second GET sent within the allowance; and the cost of the other GET.
//!
//! A losing GET is counted like any other, with all bytes that it requested. A small reply is read to its end in the
//! background, so that its connection stays usable for the next GET. A large reply is cancelled; its count is then an
//! upper bound, because the number of unsent bytes is unknown.

use super::attempts::Attempts;
use crate::{ErrorKind, StorageError};
use futures::future::{BoxFuture, Either, poll_immediate, select};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResult, ObjectStore};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of replies from which the quantile is computed.
const WINDOW: usize = 256;
/// Minimum replies before the first hedge.
const MIN_REPLIES: u64 = 32;
/// Number of replies between two computations of the quantile.
const UPDATE_INTERVAL: u64 = 16;

/// Hedging state of a bucket.
#[derive(Debug)]
pub(super) struct Hedging {
    quantile: f64,
    max_share: f64,
    counts: Mutex<HedgeCounts>,
}

#[derive(Debug, Default)]
struct HedgeCounts {
    /// Latest waits for a first byte, as a ring.
    recent: Vec<Duration>,
    replies: u64,
    /// Wait before a second GET, once known.
    delay: Option<Duration>,
    sent: u64,
    hedged: u64,
}

impl Hedging {
    /// Creates hedging as configured; `None` without a quantile.
    pub(super) fn new(bucket: &str, quantile: Option<f64>, max_share: f64) -> Result<Option<Self>, StorageError> {
        let invalid = |key: &str| ErrorKind::Invalid.error(bucket, format!("`{key}` must be between 0 and 1"));
        if !(0.0..=1.0).contains(&max_share) {
            return Err(invalid("hedge_max_share"));
        }
        let Some(quantile) = quantile else { return Ok(None) };
        if !(quantile > 0.0 && quantile < 1.0) {
            return Err(invalid("hedge_after_quantile"));
        }
        let counts = Mutex::default();
        Ok(Some(Self {
            quantile,
            max_share,
            counts,
        }))
    }

    /// Counts a GET and returns the wait before a second GET; `None` if too few reply times are known.
    pub(super) fn begin(&self) -> Option<Duration> {
        let mut counts = self.counts.lock();
        counts.sent += 1;
        counts.delay
    }

    /// Returns true, and counts the request, if a second GET stays within the share.
    pub(super) fn allow(&self) -> bool {
        let mut counts = self.counts.lock();
        let is_allowed = counts.hedged < (counts.sent as f64 * self.max_share) as u64;
        counts.hedged += u64::from(is_allowed);
        is_allowed
    }

    /// Records the time to the first byte of a reply.
    pub(super) fn record(&self, first_byte: Duration) {
        let mut counts = self.counts.lock();
        if counts.recent.len() < WINDOW {
            counts.recent.push(first_byte);
        } else {
            let oldest = counts.replies as usize % WINDOW;
            counts.recent[oldest] = first_byte;
        }
        counts.replies += 1;
        if counts.replies >= MIN_REPLIES && counts.replies.is_multiple_of(UPDATE_INTERVAL) {
            let mut sorted = counts.recent.clone();
            // Other GETs do not wait for the selection.
            drop(counts);
            let rank = ((sorted.len() as f64 * self.quantile).ceil() as usize).clamp(1, sorted.len()) - 1;
            let (_, delay, _) = sorted.select_nth_unstable(rank);
            self.counts.lock().delay = Some(*delay);
        }
    }
}

/// Maximum size of a losing reply that is read to its end. There are at most as many as second GETs, and each ends
/// within [`DRAIN_LIMIT`].
const DRAINED_BYTES: u64 = 64 << 10;
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

type Get = BoxFuture<'static, object_store::Result<GetResult>>;

/// Waits for the first bytes of the reply to a GET of `bytes`.
pub(super) async fn reply(
    hedging: Option<&Hedging>,
    store: &Arc<dyn ObjectStore>,
    key: &Key,
    options: GetOptions,
    (bytes, attempts): (u64, &Attempts),
) -> object_store::Result<GetResult> {
    let Some(hedging) = hedging else {
        return store.get_opts(key, options).await;
    };
    let sent = Instant::now();
    let delay = hedging.begin();
    let first = send(store, key, options.clone());
    let result = match delay {
        None => first.await,
        Some(delay) => match select(first, Box::pin(tokio::time::sleep(delay))).await {
            Either::Left((result, _)) => result,
            Either::Right(((), mut first)) => match poll_immediate(&mut first).await {
                // The reply arrived as the wait ended.
                Some(result) => result,
                None if hedging.allow() => race(first, send(store, key, options), bytes, attempts).await,
                None => first.await,
            },
        },
    };
    if result.is_ok() {
        hedging.record(sent.elapsed());
    }
    result
}

fn send(store: &Arc<dyn ObjectStore>, key: &Key, options: GetOptions) -> Get {
    let (store, key) = (Arc::clone(store), key.clone());
    Box::pin(async move { store.get_opts(&key, options).await })
}

/// Returns the first reply that is not an error. If one GET fails, the other decides.
async fn race(first: Get, second: Get, bytes: u64, attempts: &Attempts) -> object_store::Result<GetResult> {
    let hedge = attempts.clone();
    let second: Get = Box::pin(async move {
        hedge.lock().hedges += 1;
        second.await
    });
    let before = attempts.lock().requests;
    // The second GET is polled first, so that it is sent even if the first ends meanwhile.
    let (reply, loser) = match select(second, first).await {
        Either::Left((Err(_), other)) | Either::Right((Err(_), other)) => return other.await,
        Either::Left((reply, loser)) | Either::Right((reply, loser)) => (reply, loser),
    };
    // A GET that was never sent costs nothing, and is not sent any more.
    if attempts.lock().requests == before {
        attempts.lock().hedges -= 1;
        return reply;
    }
    attempts.lock().wire_bytes += bytes;
    if bytes <= DRAINED_BYTES {
        tokio::spawn(tokio::time::timeout(DRAIN_LIMIT, async move {
            if let Ok(reply) = loser.await {
                // No caller wants these bytes.
                let _ = reply.bytes().await;
            }
        }));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_follows_the_quantile_of_the_recent_replies() {
        let hedging = Hedging::new("b", Some(0.95), 1.0).unwrap().unwrap();
        for ms in 1..32 {
            hedging.record(Duration::from_millis(ms));
            assert_eq!(hedging.begin(), None);
        }
        hedging.record(Duration::from_millis(32));
        assert_eq!(hedging.begin(), Some(Duration::from_millis(31)));
        for _ in 0..WINDOW {
            hedging.record(Duration::from_millis(5));
        }
        assert_eq!(hedging.begin(), Some(Duration::from_millis(5)));
    }

    #[test]
    fn second_gets_stay_within_their_share() {
        let hedging = Hedging::new("b", Some(0.5), 0.1).unwrap().unwrap();
        let mut allowed = 0;
        for _ in 0..1000 {
            hedging.begin();
            allowed += u64::from(hedging.allow());
        }
        assert_eq!(allowed, 100);
    }

    #[test]
    fn settings_out_of_range_are_named() {
        for (quantile, share, named) in [
            (Some(0.0), 0.1, "hedge_after_quantile"),
            (Some(1.0), 0.1, "hedge_after_quantile"),
            (Some(f64::NAN), 0.1, "hedge_after_quantile"),
            (None, -0.1, "hedge_max_share"),
            (Some(0.9), 1.1, "hedge_max_share"),
        ] {
            let error = Hedging::new("b", quantile, share).unwrap_err();
            assert!(error.detail().contains(named), "{error}");
        }
        assert!(Hedging::new("b", None, 0.05).unwrap().is_none());
    }
}

#[cfg(test)]
mod reply_tests {
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
            attempts.lock().requests += 1;
            let (counted, reply) = (attempts.clone(), get(second == Second::Replied));
            let sent: Get = Box::pin(async move {
                if second == Second::HeldUp {
                    pending::<()>().await;
                }
                counted.lock().requests += 1;
                reply.await
            });
            let reply = race(Box::pin(get(first_replies)), sent, 100, &attempts).await.unwrap();
            assert_eq!(reply.bytes().await.unwrap().len(), 100);
            let tally = attempts.lock();
            assert_eq!(tally.wire_bytes, lost);
            assert_eq!(u64::from(tally.requests) * 100, 100 + lost);
            assert_eq!(tally.hedges, tally.requests - 1);
        }
    }
}
