//! Connections to a Flight server and retries of calls. In: a config. Out: clients, limited by the time of an attempt
//! and of a call. Failed or silent connections are replaced.

use super::FlightConfig;
use super::message::from_status;
use crate::retry::{Backoff, Retries};
use crate::tiers::check_not_zero;
use crate::{ErrorKind, StorageError};
use arrow_flight::flight_service_client::FlightServiceClient;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Time limit of a TCP connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Flow-control window of a stream and of a connection, in bytes.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Waits before retries: up to half as long again, so that callers spread.
const BACKOFF: Backoff = Backoff::spread(Duration::from_millis(50), Duration::from_millis(800), 1.0, 1.5);

/// The connections.
#[derive(Debug)]
pub(super) struct FlightLink {
    /// URL of the server.
    pub(super) url: String,
    endpoint: Endpoint,
    connections: Vec<Mutex<FlightConnection>>,
    next: AtomicUsize,
    slots: Semaphore,
    pub(super) config: FlightConfig,
}

/// Connection; `generation` counts its replacements.
#[derive(Debug)]
struct FlightConnection {
    channel: Channel,
    generation: u64,
}

pub(super) type FlightClient = FlightServiceClient<Channel>;

impl FlightConfig {
    /// Returns the address in gRPC's form. Checks that no key is zero.
    pub(super) fn checked_address(&self) -> Result<String, StorageError> {
        // The part before an `@` may contain a password.
        let shown = self.url.rsplit('@').next().unwrap_or_default();
        let invalid = |detail: String| ErrorKind::Invalid.error(shown, detail);
        let keys = [
            ("connections", u64::from(self.connections)),
            ("concurrency", u64::from(self.concurrency)),
            ("ranges_per_request", u64::from(self.ranges_per_request)),
            ("part_bytes", self.part_bytes),
            ("max_message_bytes", self.max_message_bytes),
            ("timeout_ms", self.timeout_ms),
            ("attempt_ms", self.attempt_ms),
        ];
        check_not_zero(shown, &keys)?;
        if self.url.starts_with("grpc+tls://") {
            let detail = "TLS is not supported: put a TLS-terminating proxy in front, and use grpc://host:port";
            return Err(invalid(detail.into()));
        }
        let (plain, tcp) = (self.url.strip_prefix("grpc://"), self.url.strip_prefix("grpc+tcp://"));
        let rest = plain.or(tcp).filter(|_| shown == self.url);
        let authority: Option<http::uri::Authority> = rest.and_then(|rest| rest.trim_end_matches('/').parse().ok());
        match authority {
            Some(authority) if authority.port().is_some() => Ok(format!("http://{authority}")),
            _ => Err(invalid("`url` must be grpc://host:port".into())),
        }
    }
}

impl FlightLink {
    /// Prepares the connections; each is opened at its first use.
    pub(super) fn new(config: &FlightConfig) -> Result<Self, StorageError> {
        let endpoint = Endpoint::from_shared(config.checked_address()?)
            .map_err(|e| ErrorKind::Invalid.error(&config.url, e.to_string()))?
            .connect_timeout(CONNECT_LIMIT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let connection = |_| {
            let channel = endpoint.connect_lazy();
            Mutex::new(FlightConnection { channel, generation: 0 })
        };
        Ok(Self {
            url: config.url.trim_end_matches('/').to_owned(),
            connections: (0..config.connections).map(connection).collect(),
            next: AtomicUsize::new(0),
            slots: Semaphore::new(config.concurrency as usize),
            config: config.clone(),
            endpoint,
        })
    }

    /// Name of an object in errors.
    pub(super) fn name(&self, below: &str) -> String {
        format!("{}/{below}", self.url)
    }

    /// Waits for a slot among the calls in flight.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.slots.acquire().await.ok()
    }

    /// Starts a call about `object`.
    pub(super) fn begin(&self, object: &str) -> RetriedCall<'_> {
        let limit = Duration::from_millis(self.config.timeout_ms);
        RetriedCall {
            link: self,
            object: self.name(object),
            retries: Retries::new(BACKOFF, Instant::now(), limit, self.config.retries),
            used: (0, 0),
        }
    }

    /// Replaces the connection of a failed attempt, unless another attempt has.
    fn renew(&self, (index, generation): (usize, u64)) {
        let mut connection = self.connections[index].lock();
        if connection.generation == generation {
            connection.channel = self.endpoint.connect_lazy();
            connection.generation += 1;
        }
    }
}

/// A call with its retries.
#[derive(Debug)]
pub(super) struct RetriedCall<'a> {
    link: &'a FlightLink,
    /// Name of the object in errors.
    pub(super) object: String,
    pub(super) retries: Retries,
    /// Index and generation of the connection of the current attempt.
    used: (usize, u64),
}

impl RetriedCall<'_> {
    /// Returns the client of the next attempt.
    pub(super) fn client(&mut self) -> FlightClient {
        let link = self.link;
        let index = link.next.fetch_add(1, Ordering::Relaxed) % link.connections.len();
        let connection = link.connections[index].lock();
        self.used = (index, connection.generation);
        FlightServiceClient::new(connection.channel.clone())
            .max_decoding_message_size(link.config.max_message_bytes as usize)
            .max_encoding_message_size(usize::MAX)
    }

    /// Waits for an answer like [`attempt`](Self::attempt), and converts its status.
    pub(super) async fn reply<T>(&self, answer: impl Future<Output = Result<T, Status>>) -> Result<T, StorageError> {
        let answer = self.attempt(answer).await?;
        answer.map_err(|status| from_status(&self.object, &status))
    }

    /// Waits for the server's next message, within the limits of an attempt's silence and of the call. An endless
    /// stream neither blocks the thread nor outlives the call.
    pub(super) async fn attempt<T>(&self, answer: impl Future<Output = T>) -> Result<T, StorageError> {
        let late = |detail: String| ErrorKind::Timeout.error(&self.object, detail);
        let left = self.retries.left();
        if left.is_zero() {
            return Err(late(format!("not finished within {} ms", self.link.config.timeout_ms)));
        }
        let limit = Duration::from_millis(self.link.config.attempt_ms).min(left);
        let answer = tokio::time::timeout(limit, answer).await;
        tokio::task::consume_budget().await;
        answer.map_err(|_| late(format!("no message for {} ms", limit.as_millis())))
    }

    /// After a failed attempt, waits and returns if another attempt follows; otherwise returns the error.
    pub(super) async fn retry(&mut self, failure: StorageError) -> Result<(), StorageError> {
        if failure.kind().is_transient() {
            self.link.renew(self.used);
        }
        self.retries.after(failure).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_and_is_bounded() {
        for nth in 1..41 {
            let (min, max) = (BACKOFF.wait(nth, 0), BACKOFF.wait(nth, u64::MAX));
            assert!(min <= max && max <= Duration::from_millis(1200));
            assert!(min <= BACKOFF.wait(nth + 1, 0));
        }
    }

    fn config(text: &str) -> Result<FlightConfig, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn addresses_are_checked() {
        for (url, want) in [
            ("grpc://127.0.0.1:8815", "http://127.0.0.1:8815"),
            ("grpc+tcp://flight.example:1/", "http://flight.example:1"),
            ("grpc://[::1]:8815", "http://[::1]:8815"),
        ] {
            assert_eq!(
                config(&format!("url = \"{url}\"")).unwrap().checked_address().unwrap(),
                want
            );
        }
        for url in [
            "",
            "127.0.0.1:1",
            "http://h:1",
            "grpc://",
            "grpc://h",
            "grpc://h:1/x",
            "grpc+tls://h:1",
        ] {
            let error = config(&format!("url = \"{url}\""))
                .unwrap()
                .checked_address()
                .unwrap_err();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, url));
        }
        let secret = config("url = \"grpc://user:word@h:1\"")
            .unwrap()
            .checked_address()
            .unwrap_err();
        assert_eq!(secret.object(), "h:1");
        let zero = config("url = \"grpc://h:1\"\npart_bytes = 0").unwrap();
        assert!(zero.checked_address().unwrap_err().detail().contains("part_bytes"));
        let unknown = config("url = \"grpc://h:1\"\ndialect = \"sql\"").unwrap_err();
        assert!(unknown.to_string().contains("dialect"), "{unknown}");
    }
}
