//! Connections to a Flight server, and how often and how long a call is tried. In: a config. Out: clients to call with,
//! and for each call its [`Tries`]. A connection that failed or fell silent is replaced. Knows nothing of objects.

use super::config::FlightConfig;
use crate::error::{ErrorKind, StorageError};
use arrow_flight::flight_service_client::FlightServiceClient;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::transport::{Channel, Endpoint};

/// The longest wait for a TCP connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Bytes that a stream, and a connection, may send ahead of the reader.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// The first wait before a repeat; each further one is twice as long, up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_millis(800);

/// A client over one of the connections.
pub(super) type Client = FlightServiceClient<Channel>;

/// The connections.
#[derive(Debug)]
pub(super) struct Link {
    url: String,
    endpoint: Endpoint,
    lanes: Vec<Mutex<Lane>>,
    next: AtomicUsize,
    slots: Semaphore,
    max_message_bytes: usize,
    limit: Duration,
    attempt: Duration,
    retries: u32,
}

/// One connection. `life` counts how often it was replaced.
#[derive(Debug)]
struct Lane {
    channel: Channel,
    life: u64,
}

/// One attempt's connection.
#[derive(Debug)]
pub(super) struct Lease {
    lane: usize,
    life: u64,
    pub(super) client: Client,
}

impl Link {
    /// Prepares the connections; each is made when it is first used.
    pub(super) fn new(config: &FlightConfig) -> Result<Self, StorageError> {
        let endpoint = Endpoint::from_shared(config.checked_address()?)
            .map_err(|e| StorageError::new(ErrorKind::Invalid, config.url.as_str(), e.to_string()))?
            .connect_timeout(CONNECT_LIMIT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let lane = |_| {
            let channel = endpoint.connect_lazy();
            Mutex::new(Lane { channel, life: 0 })
        };
        let slots = usize::try_from(config.concurrency).unwrap_or(usize::MAX);
        Ok(Self {
            url: config.url.trim_end_matches('/').to_owned(),
            lanes: (0..config.connections).map(lane).collect(),
            next: AtomicUsize::new(0),
            slots: Semaphore::new(slots.min(Semaphore::MAX_PERMITS)),
            max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(usize::MAX),
            limit: Duration::from_millis(config.timeout_ms),
            attempt: Duration::from_millis(config.attempt_ms),
            retries: config.retries,
            endpoint,
        })
    }

    /// Where the server is.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// An object's name in errors.
    pub(super) fn name(&self, below: &str) -> String {
        format!("{}/{below}", self.url)
    }

    /// A place among the calls under way.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.slots.acquire().await.ok()
    }

    /// Begins a call about `object`, which may take `more` than the usual time.
    pub(super) fn begin(&self, object: &str, more: Duration) -> Tries<'_> {
        Tries {
            link: self,
            object: self.name(object),
            began: Instant::now(),
            limit: self.limit + more,
            retries: 0,
        }
    }

    fn lane(&self, lane: usize) -> MutexGuard<'_, Lane> {
        self.lanes[lane].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Lease {
        let lane = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        let (channel, life) = {
            let lane = self.lane(lane);
            (lane.channel.clone(), lane.life)
        };
        let client = Client::new(channel)
            .max_decoding_message_size(self.max_message_bytes)
            .max_encoding_message_size(usize::MAX);
        Lease { lane, life, client }
    }

    /// Replaces the connection of an attempt that failed, unless another attempt has.
    fn renew(&self, lease: &Lease) {
        let mut lane = self.lane(lease.lane);
        if lane.life == lease.life {
            lane.channel = self.endpoint.connect_lazy();
            lane.life += 1;
        }
    }
}

/// One call, with its repeats.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    link: &'a Link,
    object: String,
    began: Instant,
    limit: Duration,
    retries: u32,
}

impl Tries<'_> {
    /// The object's name in errors.
    pub(super) fn object(&self) -> &str {
        &self.object
    }

    /// Repeats so far.
    pub(super) const fn retries(&self) -> u32 {
        self.retries
    }

    /// A connection for the next attempt.
    pub(super) fn lease(&self) -> Lease {
        self.link.lease()
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.began.elapsed())
    }

    /// Waits for the server's next word, and no longer than an attempt may be silent.
    pub(super) async fn heard<T>(&self, word: impl Future<Output = T>) -> Result<T, StorageError> {
        self.within(self.link.attempt, word).await
    }

    /// Waits as long as the call has time.
    pub(super) async fn whole<T>(&self, word: impl Future<Output = T>) -> Result<T, StorageError> {
        self.within(self.limit, word).await
    }

    async fn within<T>(&self, limit: Duration, word: impl Future<Output = T>) -> Result<T, StorageError> {
        let limit = limit.min(self.left());
        tokio::time::timeout(limit, word).await.map_err(|_| {
            let detail = format!("no word for {} ms", limit.as_millis());
            StorageError::new(ErrorKind::Timeout, self.object.as_str(), detail)
        })
    }

    /// After a failed attempt: waits and returns when there is to be another, or says why there is not.
    pub(super) async fn again(&mut self, failure: StorageError, lease: &Lease) -> Result<(), StorageError> {
        if !failure.kind().is_transient() {
            return Err(failure);
        }
        self.link.renew(lease);
        let random = RandomState::new().hash_one(self.retries);
        let wait = backoff(self.retries, random);
        if self.retries >= self.link.retries || self.left() <= wait {
            let detail = format!(
                "{}; given up after {} attempts in {} ms",
                failure.detail(),
                self.retries + 1,
                self.began.elapsed().as_millis()
            );
            return Err(StorageError::new(failure.kind(), failure.object(), detail));
        }
        tracing::debug!("asked again in {} ms: {failure}", wait.as_millis());
        self.retries += 1;
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// The wait after so many repeats: doubled each time, and up to half as long again, so that callers spread.
fn backoff(repeats: u32, random: u64) -> Duration {
    let base = FIRST_BACKOFF.saturating_mul(1 << repeats.min(10)).min(LONGEST_BACKOFF);
    base + base.mul_f64(random as f64 / u64::MAX as f64 / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_and_is_bounded() {
        for repeats in 0..40 {
            let (least, most) = (backoff(repeats, 0), backoff(repeats, u64::MAX));
            assert!(least <= most && most <= LONGEST_BACKOFF.mul_f64(1.5));
            assert!(least <= backoff(repeats + 1, 0));
        }
    }
}
