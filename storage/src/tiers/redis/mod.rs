//! Tier over a key-value store: Redis, Valkey, KeyDB, ElastiCache, MemoryDB.
//!
//! In: object paths and ranges. Out: bytes of the version that was looked up. The hash `{PREFIX}:objects` has each
//! object's mark (`version.rs`) by its path. Each chunk of an object is the value of its own key, which includes the
//! version. So a read requests only values, by `MGET`, and never mixes versions: the keys of a replaced version are
//! gone, which is [`ErrorKind::Changed`].
//!
//! Costs: a request is everything sent to one node at once, regardless of the number of keys: it is one round trip, and
//! commands have no price. `wire_bytes` are the bytes of the values. `queue` is the wait for one of `concurrency`
//! slots, `device` the time from sending to the last reply, including retries, `copy` the time to join values.

use crate::limits::{Listing, buffer_for, check_ranges};
use crate::tiers::{changed, cut};
use crate::unreported::PendingCost;
use crate::{Body, ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bytes::Bytes;
use link::{Command, RedisLink};
use redis::{Cmd, Value};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use version::Version;

mod access;
mod config;
mod link;
mod put;
mod stream;
mod version;

pub use config::RedisConfig;

/// Entries of a hash requested at a time. An entry is a path and a mark.
const SCAN_COUNT: u32 = 1000;
const SCAN_BYTES: u64 = 16 << 20;
/// Maximum bytes of a mark, a record or a script's reply.
const ENTRY_BYTES: u64 = 4 << 10;

/// Tier over a key-value store.
pub struct RedisTier {
    link: Arc<RedisLink>,
}

impl RedisTier {
    /// Connects to the store, so that a wrong address or password fails now, and finds the nodes of a cluster.
    ///
    /// # Errors
    /// Fails if the config is inconsistent, or if the store does not answer or refuses the user.
    pub async fn connect(config: &RedisConfig) -> Result<Self, StorageError> {
        let link = Arc::new(RedisLink::new(config)?);
        let tier = Self { link };
        let url = tier.link.url();
        tier.link.find_owners(url).await?;
        let mut get = tier.hash_command("HGET", ENTRY_BYTES);
        get.cmd.arg(hashes(tier.prefix()).0).arg("");
        tier.run_one(url, get).await?;
        Ok(tier)
    }

    /// Runs a single command other than a read.
    async fn run_one(&self, object: &str, command: Command) -> Result<Value, StorageError> {
        let mut replies = self.link.run_all(object, &[command]).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }

    fn prefix(&self) -> &str {
        &self.link.config.prefix
    }

    /// Name of an object in errors.
    fn name(&self, path: &ObjectPath) -> String {
        format!("{}/{path}", self.link.url())
    }

    fn error(&self, kind: ErrorKind, path: &ObjectPath, detail: impl Into<String>) -> StorageError {
        kind.error(self.name(path), detail)
    }

    /// Creates a command on the hashes.
    fn hash_command(&self, name: &str, reply_bytes: u64) -> Command {
        command(name, self.link.slot(self.prefix().as_bytes()), reply_bytes)
    }

    /// Current version of a path.
    async fn look_up(&self, path: &ObjectPath) -> Result<Version, StorageError> {
        let mut get = self.hash_command("HGET", ENTRY_BYTES);
        get.cmd.arg(hashes(self.prefix()).0).arg(path.as_str());
        match self.run_one(&self.name(path), get).await? {
            Value::Nil => Err(self.error(ErrorKind::NotFound, path, "no such object")),
            mark => text(&mark).and_then(Version::parse).ok_or_else(|| {
                let detail = "entry was not written by this tier; another program may use the same `prefix`";
                self.error(ErrorKind::Corrupt, path, detail)
            }),
        }
    }

    /// All entries of a hash.
    async fn scan(&self, hash: &str) -> Result<BTreeMap<String, String>, StorageError> {
        let about = format!("{} {hash}", self.link.url());
        let invalid = || ErrorKind::Corrupt.error(&about, "invalid reply to HSCAN");
        // Counts the received entries, which ends an endless scan.
        let mut bounds = Listing::of(about.as_str());
        let (mut entries, mut cursor) = (BTreeMap::new(), "0".to_owned());
        loop {
            let mut scan = self.hash_command("HSCAN", SCAN_BYTES);
            scan.cmd.arg(hash).arg(&cursor).arg("COUNT").arg(SCAN_COUNT);
            let Value::Array(reply) = self.run_one(&about, scan).await? else {
                return Err(invalid());
            };
            let [next, Value::Array(found)] = &reply[..] else {
                return Err(invalid());
            };
            bounds.named(0)?;
            for pair in found.chunks(2) {
                let [Some(field), Some(value)] = [0, 1].map(|i| pair.get(i).and_then(text)) else {
                    return Err(invalid());
                };
                bounds.named(field.len() + value.len())?;
                entries.insert(field.to_owned(), value.to_owned());
            }
            text(next).ok_or_else(invalid)?.clone_into(&mut cursor);
            if cursor == "0" {
                return Ok(entries);
            }
        }
    }

    /// Commands on chunks, each with the indices of its chunks. `chunks` has numbers and expected bytes. Keys of one
    /// slot share a command.
    fn chunk_commands(&self, name: &str, stem: &str, chunks: &[(u64, u64)]) -> (Vec<Command>, Vec<Vec<usize>>) {
        let (mut commands, mut members) = (Vec::<Command>::new(), Vec::<Vec<usize>>::new());
        let mut open: HashMap<u16, usize> = HashMap::new();
        for (i, (number, reply_bytes)) in chunks.iter().enumerate() {
            let key = format!("{stem}{number:x}");
            let slot = self.link.slot(key.as_bytes());
            let at = open.entry(slot).or_insert(usize::MAX);
            let is_full = |command: &Command| command.reply_bytes + command.sent_bytes >= self.link.config.part_bytes;
            if commands.get(*at).is_none_or(is_full) {
                *at = commands.len();
                commands.push(command(name, slot, 0));
                members.push(Vec::new());
            }
            let command = &mut commands[*at];
            command.sent_bytes += key.len() as u64;
            // Bytes of a value's length and line ends.
            command.reply_bytes += reply_bytes + 16;
            command.cmd.arg(key);
            members[*at].push(i);
        }
        (commands, members)
    }

    /// Reads chunks of a version, each with its number.
    async fn chunks(
        &self,
        object: &Object,
        version: &Version,
        numbers: &[u64],
        cost: &mut PendingCost<'_>,
    ) -> Result<Vec<Bytes>, StorageError> {
        let lengths = |number: &u64| {
            let bytes = version.chunk(*number);
            (*number, bytes.end - bytes.start)
        };
        let wanted: Vec<(u64, u64)> = numbers.iter().map(lengths).collect();
        let stem = version.keys(self.prefix(), &object.path);
        let (commands, members) = self.chunk_commands("MGET", &stem, &wanted);
        let replies = self.link.run(&self.name(&object.path), &commands, cost).await?;
        let mut chunks = vec![Bytes::new(); wanted.len()];
        for (reply, members) in replies.into_iter().zip(members) {
            let Value::Array(values) = reply else {
                return Err(self.error(ErrorKind::Corrupt, &object.path, "invalid reply to MGET"));
            };
            // A reply with too few values leaves the others empty, which is detected below.
            for (i, value) in members.into_iter().zip(values) {
                match value {
                    Value::BulkString(bytes) => chunks[i] = bytes.into(),
                    _ => return Err(self.missing_chunk(object, version, wanted[i].0).await),
                }
            }
        }
        let mut pairs = wanted.iter().zip(&chunks);
        if let Some(((number, len), chunk)) = pairs.find(|((_, len), chunk)| chunk.len() as u64 != *len) {
            let found = chunk.len();
            let detail = format!("chunk {number} has {found} bytes instead of {len}; publish the object again");
            return Err(self.error(ErrorKind::Corrupt, &object.path, detail));
        }
        cost.add(&ReadCost {
            wire_bytes: wanted.iter().map(|(_, len)| len).sum(),
            ..ReadCost::default()
        });
        Ok(chunks)
    }

    /// Error for a missing chunk of a version.
    async fn missing_chunk(&self, object: &Object, version: &Version, number: u64) -> StorageError {
        match self.look_up(&object.path).await {
            Err(error) => error,
            Ok(now) if now == *version => {
                let hint = "set `maxmemory-policy noeviction`, remove the object and publish it again";
                let detail = format!("chunk {number} is missing: the store dropped it; {hint}");
                self.error(ErrorKind::Corrupt, &object.path, detail)
            }
            Ok(now) => self.changed(object, &now.to_string()),
        }
    }

    fn changed(&self, object: &Object, now: &str) -> StorageError {
        changed(self.name(&object.path), &object.version, now)
    }

    fn describe(path: ObjectPath, version: &Version) -> Object {
        let (size, version) = (version.size, version.to_string());
        Object { path, size, version }
    }
}

/// Joins the bytes of a range, from the chunks from `first` on.
fn join(
    object: &str,
    range: &Range<u64>,
    version: &Version,
    first: u64,
    chunks: &[Bytes],
) -> Result<Bytes, StorageError> {
    let start = version.chunk(first).start;
    // In bounds: the chunks hold the range.
    let at = (range.start - start) as usize;
    let len = (range.end - range.start) as usize;
    if let [chunk] = chunks {
        return Ok(cut(chunk, at..at + len));
    }
    let mut joined = buffer_for(object, range.end - range.start)?;
    for (i, chunk) in chunks.iter().enumerate() {
        let chunk = if i == 0 { &chunk[at..] } else { &chunk[..] };
        joined.extend_from_slice(&chunk[..chunk.len().min(len - joined.len())]);
    }
    Ok(joined.freeze())
}

/// Hashes of all objects and of unfinished work, both on one node.
fn hashes(prefix: &str) -> (String, String) {
    (format!("{{{prefix}}}:objects"), format!("{{{prefix}}}:unfinished"))
}

fn command(name: &str, slot: u16, reply_bytes: u64) -> Command {
    let mut cmd = Cmd::new();
    cmd.arg(name);
    Command {
        cmd,
        slot,
        sent_bytes: name.len() as u64,
        reply_bytes,
    }
}

/// Text of a value; `None` for other types.
fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[async_trait]
impl Tier for RedisTier {
    fn info(&self) -> TierInfo {
        TierInfo::new("redis", format!("{}/{}", self.link.url(), self.prefix()), Vec::new())
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        Ok(Self::describe(path.clone(), &self.look_up(path).await?))
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let version = Version::parse(&object.version).filter(|version| version.size == object.size);
        let version = version.ok_or_else(|| self.changed(object, "of this tier's own marks"))?;
        let mut numbers: Vec<u64> = ranges.iter().flat_map(|range| version.covering(range)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut cost = PendingCost::new(&self.link.unreported);
        let chunks = self.chunks(object, &version, &numbers, &mut cost).await?;
        let began = Instant::now();
        let parts = ranges.iter().map(|range| {
            let wanted = version.covering(range);
            if wanted.is_empty() {
                return Ok(Bytes::new());
            }
            let at = numbers.partition_point(|number| *number < wanted.start);
            // In bounds, and all chunks of the range are consecutive.
            let count = (wanted.end - wanted.start) as usize;
            let held = &chunks[at..at + count];
            join(object.path.as_str(), range, &version, wanted.start, held)
        });
        let parts = parts.collect::<Result<_, _>>()?;
        let mut cost = cost.report();
        cost.copy = began.elapsed();
        Ok(ReadMany { parts, cost })
    }

    fn take_unreported(&self) -> Option<ReadCost> {
        self.link.unreported.take()
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let mut listing = Listing::of(self.link.url());
        for (path, mark) in self.scan(&hashes(self.prefix()).0).await? {
            // Entries not written by this tier are not objects.
            let (Ok(path), Some(version)) = (ObjectPath::new(&path), Version::parse(&mark)) else {
                continue;
            };
            if prefix.is_none_or(|prefix| path.is_below(prefix)) {
                listing.keep(Self::describe(path, &version));
            }
        }
        Ok(listing.end())
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.publish(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.remove(path).await
    }
}
