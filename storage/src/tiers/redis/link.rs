//! Connections to the nodes of a store, and calls over them. In: commands, each with its slot. Out: their replies, with
//! retries, within the limits of a request and of a call. Knows nothing of objects.
//!
//! All commands of a call that go to one node are sent together: one request, one round trip. A store without a cluster
//! is one node with all slots.

use super::config::RedisConfig;
use super::stream::{Allowance, Bounded, TOO_MUCH};
use crate::deadline;
use crate::error::with_causes;
use crate::retry::{Backoff, Retries};
use crate::unreported::{PendingCost, UnreportedCost};
use crate::{ErrorKind, ReadCost, StorageError};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisError, ServerError, Value,
};
use rustls_pki_types::ServerName;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tierlab_protocol::via::{Via, ViaSet};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};
use tokio_rustls::TlsConnector;

/// Slots of a cluster, by the specification of Redis Cluster.
const SLOTS: u16 = 16_384;
/// Maximum bytes of a reply besides its values: lengths, or the text of an error, which may include a user or a script.
const REPLY_BYTES: u64 = 2 << 10;
/// Text of a server's error at its maximum number of connections.
const FULL: &str = "max number of clients";
/// Maximum bytes of the replies during connection setup.
const SETUP_BYTES: u64 = 64 << 10;
/// Maximum bytes of a cluster's description.
const CLUSTER_BYTES: u64 = 1 << 20;
/// Minimum speed of a request, in bytes per second. A slower request is given up.
const MIN_BYTES_PER_S: u64 = 4_000_000;
/// Waits before retries, randomly up to 50 % longer, so that callers spread.
const BACKOFF: Backoff = Backoff::spread(Duration::from_millis(20), Duration::from_millis(800), 1.0, 1.5);

/// A command for the node that has a slot.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) cmd: Cmd,
    pub(super) slot: u16,
    /// Approximate bytes of its arguments.
    pub(super) sent_bytes: u64,
    /// Maximum bytes of its values.
    pub(super) reply_bytes: u64,
}

/// Connections to a store.
pub(super) struct RedisLink {
    pub(super) config: RedisConfig,
    /// Host and port from the config, in the form of all node addresses.
    seed: String,
    tls: Option<TlsConnector>,
    /// First command of a connection, if there is a password.
    login: Option<Cmd>,
    slots: Arc<Semaphore>,
    owners: Mutex<Arc<Owners>>,
    nodes: Mutex<HashMap<String, Arc<[RedisSlot]>>>,
    next: AtomicUsize,
    pub(super) unreported: UnreportedCost,
}

/// First and last slot of each range of a cluster, and its node; in order.
type Owners = Vec<(u16, u16, String)>;

/// Slot of a node's connection, which is opened on first use.
type RedisSlot = tokio::sync::Mutex<Option<Arc<RedisConnection>>>;

/// A connection, shared by the requests in flight on it.
struct RedisConnection {
    inner: MultiplexedConnection,
    allowance: Arc<Allowance>,
    /// Task that moves the bytes.
    driver: JoinHandle<()>,
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Commands with their replies so far.
struct RedisCall<'a> {
    object: &'a str,
    commands: &'a [Command],
    retries: Retries,
    first_sent: Option<Instant>,
    /// Reply of each command; `None` while it is missing.
    replies: Vec<Option<Value>>,
}

impl RedisLink {
    /// Prepares the connections; each is opened on first use.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, StorageError> {
        let (seed, is_tls) = config.checked_address()?;
        Ok(Self {
            tls: if is_tls { Some(config.tls()?) } else { None },
            login: config.login()?,
            slots: Arc::new(Semaphore::new(config.concurrency as usize)),
            owners: Mutex::new(Arc::new(vec![(0, SLOTS - 1, seed.clone())])),
            nodes: Mutex::default(),
            next: AtomicUsize::new(0),
            unreported: UnreportedCost::default(),
            config: config.clone(),
            seed,
        })
    }

    /// URL of the store, without user and password.
    pub(super) fn url(&self) -> &str {
        self.config.url.trim_end_matches('/')
    }

    fn attempt(&self) -> Duration {
        Duration::from_millis(self.config.attempt_ms)
    }

    /// Slot of a key; all keys have the same slot if there is no cluster.
    pub(super) fn slot(&self, key: &[u8]) -> u16 {
        if self.config.cluster { crc16(key) % SLOTS } else { 0 }
    }

    /// Runs commands other than reads, without returning their cost.
    pub(super) async fn run_all(
        self: &Arc<Self>,
        object: &str,
        commands: &[Command],
    ) -> Result<Vec<Value>, StorageError> {
        let mut cost = PendingCost::new(&self.unreported);
        let replies = self.run(object, commands, &mut cost).await;
        cost.report();
        replies
    }

    /// Runs commands, those of each node together, and returns their replies in order. Commands that failed transiently
    /// are retried.
    pub(super) async fn run(
        self: &Arc<Self>,
        object: &str,
        commands: &[Command],
        cost: &mut PendingCost<'_>,
    ) -> Result<Vec<Value>, StorageError> {
        let bytes = commands
            .iter()
            .map(|command| command.sent_bytes + command.reply_bytes)
            .sum();
        let limit = deadline::remaining(Duration::from_millis(self.config.timeout_ms) + of_bytes(bytes));
        let mut call = RedisCall {
            object,
            commands,
            retries: Retries::new(BACKOFF, Instant::now(), limit, self.config.retries),
            first_sent: None,
            replies: vec![None; commands.len()],
        };
        loop {
            match self.round(&mut call, cost).await {
                Ok(()) => return Ok(call.replies.into_iter().flatten().collect()),
                Err(failure) => call.retries.after(failure).await?,
            }
            match tokio::time::timeout(call.retries.left(), self.find_owners(object)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("cannot refresh the nodes of the cluster: {error}"),
                Err(_) => tracing::debug!("refreshing the nodes of the cluster timed out"),
            }
        }
    }

    /// Sends the missing commands once, and stores their replies. Commands on keys that are being moved are sent on at
    /// once to the node in the `ASK` reply, which already has them.
    async fn round(self: &Arc<Self>, call: &mut RedisCall<'_>, cost: &mut PendingCost<'_>) -> Result<(), StorageError> {
        let mut requests = self.requests(call)?;
        let mut failure: Option<StorageError> = None;
        for is_asking in [false, true] {
            let mut sent = Vec::new();
            for (address, members) in std::mem::take(&mut requests) {
                let reply = self.send(call, address.clone(), (&members, is_asking), cost).await?;
                sent.push((address, members, reply));
            }
            // A permanent failure takes precedence.
            let mut fails = |error| match &failure {
                Some(first) if !first.kind().is_transient() => {}
                _ => failure = Some(error),
            };
            let mut moving: HashMap<String, Vec<usize>> = HashMap::new();
            for (address, members, reply) in sent {
                let broken = |e: JoinError| ErrorKind::Unavailable.error(call.object, e.to_string());
                let values = match reply.await.map_err(broken).flatten() {
                    Ok(values) => values,
                    Err(error) => {
                        fails(error);
                        continue;
                    }
                };
                for (i, value) in members.into_iter().zip(values) {
                    match value {
                        Value::ServerError(error) => match self.moving_to(&address, &error).filter(|_| !is_asking) {
                            Some(next) => moving.entry(next).or_default().push(i),
                            None => fails(self.refused(call.object, &address, &error)),
                        },
                        value => call.replies[i] = Some(value),
                    }
                }
            }
            requests = moving.into_iter().collect();
        }
        cost.add(&ReadCost {
            device: call.first_sent.map_or(Duration::ZERO, |first| first.elapsed()),
            ..ReadCost::default()
        });
        failure.map_or(Ok(()), Err)
    }

    /// Address of the node to which a command's keys have moved, if the node `from` refused the command for that
    /// reason.
    fn moving_to(&self, from: &str, error: &ServerError) -> Option<String> {
        let names = self.config.cluster && error.code() == "ASK";
        let (_, node) = error.details().filter(|_| names)?.rsplit_once(' ')?;
        let (host, port) = node.rsplit_once(':')?;
        Some(address_of(host, port.parse().ok()?, from))
    }

    /// Sends commands to a node once a slot is free; each after `ASKING` if its keys are being moved to that node.
    async fn send(
        self: &Arc<Self>,
        call: &mut RedisCall<'_>,
        address: String,
        (members, is_asking): (&[usize], bool),
        cost: &mut PendingCost<'_>,
    ) -> Result<JoinHandle<Result<Vec<Value>, StorageError>>, StorageError> {
        let (left, queued) = (call.retries.left(), Instant::now());
        let slot = tokio::time::timeout(left, Arc::clone(&self.slots).acquire_owned()).await;
        // The semaphore is never closed.
        let slot = slot.map_err(|_| {
            let (url, detail) = (self.url(), "no free slot for a request in time; raise `concurrency`");
            ErrorKind::Timeout.error(call.object, format!("{url}: {detail}"))
        })?;
        let queue = queued.elapsed();
        let (mut pipeline, mut max_bytes, mut bytes) = (Pipeline::new(), 0, 0);
        for command in members.iter().map(|&i| &call.commands[i]) {
            if is_asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(command.cmd.clone());
            max_bytes += command.reply_bytes + REPLY_BYTES;
            bytes += command.sent_bytes + command.reply_bytes;
        }
        let limit = call.retries.left().min(self.attempt() + of_bytes(bytes));
        cost.add(&ReadCost {
            via: ViaSet::of(Via::Redis),
            queue,
            requests: 1,
            retries: u32::from(call.retries.count > 0),
            ..ReadCost::default()
        });
        call.first_sent.get_or_insert_with(Instant::now);
        let (link, object) = (Arc::clone(self), call.object.to_owned());
        // On its own task, which outlives a caller that goes away, because the reply still arrives.
        Ok(tokio::spawn(async move {
            let _slot = slot;
            let values = link.execute(&object, &address, &pipeline, max_bytes, limit).await?;
            // The reply to each `ASKING` is skipped.
            let skip = usize::from(is_asking);
            Ok(values.into_iter().skip(skip).step_by(1 + skip).collect())
        }))
    }

    /// Groups missing commands by node, at most `part_bytes` per group unless a single command is larger.
    fn requests(&self, call: &RedisCall<'_>) -> Result<Vec<(String, Vec<usize>)>, StorageError> {
        let owners = Arc::clone(&self.owners.lock());
        let mut requests: Vec<(String, Vec<usize>)> = Vec::new();
        // Index and bytes of the last request to each node.
        let mut open: HashMap<&str, (usize, u64)> = HashMap::new();
        for (i, command) in call.commands.iter().enumerate() {
            if call.replies[i].is_some() {
                continue;
            }
            let at = owners.partition_point(|(_, last, _)| *last < command.slot);
            let Some((_, _, address)) = owners.get(at).filter(|(first, ..)| *first <= command.slot) else {
                let detail = format!("{}: cluster has no node for slot {}", self.url(), command.slot);
                return Err(ErrorKind::Unavailable.error(call.object, detail));
            };
            let bytes = command.sent_bytes + command.reply_bytes;
            let address = address.as_str();
            match open.get_mut(address) {
                Some((request, sum)) if *sum + bytes <= self.config.part_bytes => {
                    *sum += bytes;
                    requests[*request].1.push(i);
                }
                _ => {
                    open.insert(address, (requests.len(), bytes));
                    requests.push((address.to_owned(), vec![i]));
                }
            }
        }
        Ok(requests)
    }

    /// Asks a cluster for the owners of its slots: first the node of the config, then the known nodes. Does nothing
    /// without a cluster.
    pub(super) async fn find_owners(&self, object: &str) -> Result<(), StorageError> {
        if !self.config.cluster {
            return Ok(());
        }
        let current = Arc::clone(&self.owners.lock());
        let nodes = current.iter().map(|(_, _, address)| address.clone());
        let addresses: HashSet<String> = nodes.filter(|address| *address != self.seed).collect();
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLUSTER").arg("SLOTS");
        let mut failure = None;
        for address in std::iter::once(self.seed.clone()).chain(addresses) {
            let limit = deadline::remaining(self.attempt());
            let reply = self.execute(object, &address, &pipeline, CLUSTER_BYTES, limit);
            let error = match reply.await.map(|mut values| values.pop()) {
                Ok(Some(Value::ServerError(error))) => self.refused(object, &address, &error),
                Ok(reply) => match owners(&reply.unwrap_or(Value::Nil), &address) {
                    Some(owners) => {
                        let is_known = |at: &str| at == self.seed || owners.iter().any(|(_, _, owner)| owner == at);
                        self.nodes.lock().retain(|address, _| is_known(address));
                        *self.owners.lock() = Arc::new(owners);
                        return Ok(());
                    }
                    None => self.failed(object, &address, None, "incomplete reply to CLUSTER SLOTS"),
                },
                Err(error) => error,
            };
            failure.get_or_insert(error);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Sends commands to a node together, and waits for their replies.
    async fn execute(
        &self,
        object: &str,
        address: &str,
        commands: &Pipeline,
        max_bytes: u64,
        limit: Duration,
    ) -> Result<Vec<Value>, StorageError> {
        let replies = async {
            let connection = self.connection(address).await?;
            // If dropped before the replies have arrived, it spoils the connection.
            let expected = connection.allowance.expect(max_bytes);
            let mut inner = connection.inner.clone();
            let values = inner.send_packed_commands(commands, 0, commands.len()).await;
            let values = values.map_err(|error| connection.allowance.overrun().map_or(error, Into::into))?;
            let spoils = |error: &ServerError| {
                let is_moving = matches!(error.code(), "MOVED" | "ASK" | "TRYAGAIN");
                !is_moving && self.refused(object, address, error).kind().is_transient()
            };
            // A replaced node, for example, has a new address when its name is resolved again.
            let has_spoiled = |value: &Value| matches!(value, Value::ServerError(error) if spoils(error));
            if !values.iter().any(has_spoiled) {
                expected.arrived();
            }
            Ok(values)
        };
        match tokio::time::timeout(limit, replies).await {
            Ok(replies) => replies.map_err(|error: RedisError| {
                // A code means a refused login. Its text is omitted, because it may contain the password.
                let text = with_causes(error.to_string(), &error);
                match error.code() {
                    Some(code) if !text.contains(FULL) => {
                        let code = if code == "ERR" { "WRONGPASS" } else { code };
                        self.failed(object, address, Some(code), "")
                    }
                    code => self.failed(object, address, code, &text),
                }
            }),
            Err(_) => {
                let detail = format!("{address} did not answer within {} ms", limit.as_millis());
                Err(ErrorKind::Timeout.error(object, detail))
            }
        }
    }

    /// Returns the next connection to a node, and opens it if it is missing or broken.
    async fn connection(&self, address: &str) -> Result<Arc<RedisConnection>, RedisError> {
        let unused = || (0..self.config.connections).map(|_| RedisSlot::default()).collect();
        let slots = Arc::clone(self.nodes.lock().entry(address.to_owned()).or_insert_with(unused));
        let index = self.next.fetch_add(1, Ordering::Relaxed) % slots.len();
        let mut slot = slots[index].lock().await;
        match &*slot {
            Some(connection) if !connection.allowance.is_spoiled() => Ok(Arc::clone(connection)),
            _ => Ok(Arc::clone(slot.insert(Arc::new(self.connect(address).await?)))),
        }
    }

    async fn connect(&self, address: &str) -> Result<RedisConnection, RedisError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.begin(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(host(address).trim_matches(['[', ']']).to_owned())
                    .map_err(std::io::Error::other)?;
                self.begin(tls.connect(name, stream).await?).await
            }
        }
    }

    async fn begin(&self, stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Result<RedisConnection, RedisError> {
        let allowance = Arc::new(Allowance::default());
        let expected = allowance.expect(SETUP_BYTES);
        let (inner, writer) = tokio::io::split(stream);
        let reader = Bounded {
            inner,
            allowance: Arc::clone(&allowance),
        };
        // No limits here: each call has its own.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        let stream = tokio::io::join(reader, writer);
        let plain = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP2)
            .set_skip_set_lib_name();
        let (mut inner, driver) = MultiplexedConnection::new_with_config(&plain, stream, config).await?;
        let driver = tokio::spawn(driver);
        if let Some(login) = &self.login {
            inner.send_packed_command(login).await?.extract_error()?;
        }
        expected.arrived();
        Ok(RedisConnection {
            inner,
            allowance,
            driver,
        })
    }

    /// Error of a command that a node refused.
    fn refused(&self, object: &str, address: &str, error: &ServerError) -> StorageError {
        self.failed(object, address, Some(error.code()), error.details().unwrap_or_default())
    }

    /// Error of a node: its code and text, or the text of a broken connection.
    fn failed(&self, object: &str, address: &str, code: Option<&str>, text: &str) -> StorageError {
        use ErrorKind::{Corrupt, Denied, Invalid, Unavailable, Unsupported};
        let (kind, hint) = match code {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => (
                Denied,
                "access denied; check `username`, `password_env` or `password_file`, and the user's permissions",
            ),
            Some("MOVED" | "ASK" | "CROSSSLOT") if !self.config.cluster => {
                (Invalid, "server is a node of a cluster; set `cluster = true`")
            }
            Some("ERR") if text.contains("cluster support disabled") => {
                (Invalid, "server is not a cluster; remove `cluster`")
            }
            Some("ERR") if text.contains(FULL) => (
                Unavailable,
                "store has too many clients; raise `maxclients` or lower `connections`",
            ),
            Some("ERR") => (Unsupported, "store does not support a command of this tier"),
            Some("WRONGTYPE") => (Invalid, "another program uses these keys; change `prefix`"),
            Some("OOM") => (Unavailable, "store's memory is full; raise `maxmemory` or add nodes"),
            Some("READONLY") => (Unavailable, "server is a replica; set `url` to the primary"),
            None if text.contains(TOO_MUCH) => (Corrupt, "reply is too long"),
            None if text.contains("invalid peer certificate") => (
                Unavailable,
                "unknown certificate authority; set `ca_file` to its certificate",
            ),
            Some(_) => (Unavailable, "store cannot run the command now"),
            None => (Unavailable, "store does not answer"),
        };
        // Removes a command's arguments, which may be rows.
        let text = text.split(", with args").next().unwrap_or_default();
        let text: String = text.chars().take(160).collect();
        let code = code.unwrap_or_default();
        let detail = format!("{address}: {hint} ({})", format!("{code} {text}").trim().escape_debug());
        kind.error(object, detail)
    }
}

/// Time limit of transferring `bytes`.
fn of_bytes(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1_000) / MIN_BYTES_PER_S)
}

/// Host of a node's address; an IPv6 address keeps its brackets.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Parses a reply to `CLUSTER SLOTS`, in which a node without a name is the node `from`. `None` if a slot is missing,
/// as in the reply of a node that was removed from its cluster.
fn owners(reply: &Value, from: &str) -> Option<Owners> {
    let Value::Array(ranges) = reply else { return None };
    let slot = |value: &Value| match value {
        Value::Int(slot) => u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS),
        _ => None,
    };
    let mut owners = Vec::new();
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [first, last, Value::Array(primary), ..] = &parts[..] else {
            return None;
        };
        let (host, port) = match &primary[..] {
            [Value::BulkString(host), Value::Int(port), ..] => (String::from_utf8(host.clone()).ok()?, *port),
            [Value::Nil, Value::Int(port), ..] => (String::new(), *port),
            _ => return None,
        };
        let node = address_of(&host, u16::try_from(port).ok()?, from);
        owners.push((slot(first)?, slot(last)?, node));
    }
    owners.sort_unstable_by_key(|(first, ..)| *first);
    let next = |next, (first, last, _): &(u16, u16, String)| (*first == next).then_some(last + 1);
    let covered = owners.iter().try_fold(0, next);
    (covered == Some(SLOTS)).then_some(owners)
}

/// Address of a node that the node `from` names.
fn address_of(named: &str, port: u16, from: &str) -> String {
    match named {
        "" | "?" => format!("{}:{port}", host(from)),
        // IPv6 address.
        named if named.contains(':') => format!("[{named}]:{port}"),
        named => format!("{named}:{port}"),
    }
}

/// CRC-16/XMODEM, from which a cluster computes the slot of a key.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc: u16, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b"foo") % SLOTS, 12_182);
    }

    #[test]
    fn owners_are_read_or_refused() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value| Value::Array(vec![host, Value::Int(6379), bulk("id")]);
        let range = |first, last, host| Value::Array(vec![Value::Int(first), Value::Int(last), node(host)]);
        let reply = Value::Array(vec![range(8_000, 16_383, bulk("b")), range(0, 7_999, Value::Nil)]);
        let found = owners(&reply, "seed:1").unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(first, last, at)| (*first, *last, at.clone()))
            .collect();
        assert_eq!(
            found,
            [(0, 7_999, "seed:6379".to_owned()), (8_000, 16_383, "b:6379".to_owned())]
        );
        for other in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 70_000, Value::Nil)]),
            Value::Array(vec![]),
            Value::Array(vec![range(0, 16_382, Value::Nil)]),
            Value::Array(vec![range(0, 7_000, Value::Nil), range(7_002, 16_383, Value::Nil)]),
        ] {
            assert_eq!(owners(&other, "seed:1"), None);
        }
    }
}
