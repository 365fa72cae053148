//! Writes. In: a body. Out: a new version that replaces the old one at once; the old chunks are then removed.
//!
//! The hash `{PREFIX}:unfinished` has a record of each upload and each removal, by the version's id. The owner of a
//! record does the work. It takes ownership by changing the record, with a script that fails if another process changed
//! it before. So any number of publishers may work at once, an interrupted upload is resumed, and nothing is left
//! behind: each write looks for idle work.

use super::version::Version;
use super::{ENTRY_BYTES, RedisTier, command, hashes, text};
use crate::tiers::source::Source;
use crate::{Body, ErrorKind, Object, ObjectPath, StorageError};
use redis::Value;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, UNIX_EPOCH};
use tierlab_formats::table::{KeyHash, PRELUDE_BYTES, TableHeader, header_len};

/// Maximum bytes in memory and in flight, or a single chunk if that is larger.
const WINDOW_BYTES: u64 = 8 << 20;
/// Keys removed at a time.
const MAX_UNLINKED: u64 = 32 << 10;
/// Idle seconds after which an upload of the same bytes is resumed. A window takes less.
const IDLE_S: u64 = 10;
/// Pause between two looks at another process's upload of the same bytes.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// Idle seconds after which work is removed.
const ABANDONED_S: u64 = 3600;

/// Changes the record ARGV[1] from ARGV[2] to ARGV[3]; empty text means no record. Returns 1 if the record is now
/// ARGV[3].
const CHANGE: &str = "\
local was = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if was == ARGV[3] then return 1 end
if was ~= ARGV[2] then return 0 end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
return 1";

/// Sets the mark of path ARGV[1] to ARGV[2]; empty text removes it. ARGV[3] and ARGV[4] are the upload's id and record;
/// the record must exist and is removed. Records the removal of the old version at time ARGV[5]. Returns 1 or 0, then
/// the old mark.
const SWAP: &str = "\
local old = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == '' then
  if not old then return {0, ''} end
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  if old == ARGV[2] then return {1, ''} end
  if (redis.call('HGET', KEYS[2], ARGV[3]) or '') ~= ARGV[4] then return {0, ''} end
  redis.call('HDEL', KEYS[2], ARGV[3])
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
if not old then return {1, ''} end
redis.call('HSET', KEYS[2], string.sub(old, 1, 16), ARGV[5] .. ' 0 - ' .. old .. ' ' .. ARGV[1])
return {1, old}";

/// Unfinished upload or removal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UploadRecord {
    /// Time of the last step, in seconds.
    at: u64,
    /// Number of chunks written.
    done: u64,
    /// Hash of all bytes; `-` for a removal.
    digest: String,
    version: Version,
    path: ObjectPath,
}

impl UploadRecord {
    /// Creates the record of a new removal.
    fn removal(version: Version, path: &ObjectPath, at: u64) -> Self {
        Self {
            at,
            done: 0,
            digest: "-".to_owned(),
            version,
            path: path.clone(),
        }
    }

    fn parse(record: &str) -> Option<Self> {
        let mut parts = record.splitn(5, ' ');
        Some(Self {
            at: parts.next()?.parse().ok()?,
            done: parts.next()?.parse().ok()?,
            digest: parts.next()?.to_owned(),
            version: Version::parse(parts.next()?)?,
            path: ObjectPath::new(parts.next()?).ok()?,
        })
    }
}

impl fmt::Display for UploadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, done, version, path) = (self.at, self.done, &self.version, &self.path);
        write!(f, "{at} {done} {} {version} {path}", self.digest)
    }
}

fn now() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

impl RedisTier {
    /// Writes an object, or resumes an interrupted upload of the same bytes.
    pub(super) async fn publish(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        let source = Source::open(body).await?;
        let digest = digest(&source).await?;
        let unfinished = self.clear(Some((path, &digest))).await?;
        let mut record = match self.resumed(unfinished).await? {
            Some(record) => record,
            None => {
                let id = RandomState::new().hash_one(&digest);
                let table = header(&source).await?;
                let fresh = UploadRecord {
                    at: now(),
                    done: 0,
                    digest,
                    version: Version::new(id, source.size, table.as_ref(), self.link.config.rows_per_key),
                    path: path.clone(),
                };
                self.change(&fresh, "", &fresh.to_string()).await?;
                fresh
            }
        };
        while record.done < record.version.chunks() {
            let done = self.write(&source, &record).await?;
            record = self.step(&record, done).await?;
        }
        let (is_done, old) = self.swap(path, Some(&record)).await?;
        if !is_done {
            return Err(self.superseded(path));
        }
        if let Some(old) = old
            && let Err(error) = self.remove_chunks(&old).await
        {
            // The object is written; a later write removes the chunks.
            tracing::warn!("cannot remove chunks of the old version: {error}");
        }
        Ok(Self::describe(path.clone(), &record.version))
    }

    /// Removes an object.
    pub(super) async fn remove(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.clear(None).await?;
        match self.swap(path, None).await? {
            (false, _) => Err(self.error(ErrorKind::NotFound, path, "no such object")),
            (true, None) => Ok(()),
            (true, Some(old)) => self.remove_chunks(&old).await,
        }
    }

    /// Removes abandoned work, and returns the unfinished upload of these bytes.
    async fn clear(&self, wanted: Option<(&ObjectPath, &str)>) -> Result<Option<UploadRecord>, StorageError> {
        let mut own_upload = None;
        let unfinished = self.scan(&hashes(self.prefix()).1).await?;
        for record in unfinished.values().filter_map(|text| UploadRecord::parse(text)) {
            if wanted == Some((&record.path, &record.digest)) {
                own_upload = Some(record);
            } else if record.at.saturating_add(ABANDONED_S) < now() {
                let claim = UploadRecord::removal(record.version.clone(), &record.path, now());
                let claimed = self.change(&record, &record.to_string(), &claim.to_string()).await;
                if claimed.is_ok() {
                    self.remove_chunks(&claim).await?;
                }
            }
        }
        Ok(own_upload)
    }

    /// Follows an upload, and takes it over once it is idle. Returns it with all chunks if another process finishes it;
    /// `None` if it is gone or continues elsewhere. Bounded by the windows of the upload, since each change writes one.
    async fn resumed(&self, upload: Option<UploadRecord>) -> Result<Option<UploadRecord>, StorageError> {
        let Some(mut upload) = upload else { return Ok(None) };
        let mut unchanged = Duration::ZERO;
        while upload.at.saturating_add(IDLE_S) > now() && unchanged < Duration::from_secs(IDLE_S) {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
            unchanged += FOLLOW_INTERVAL;
            let id = format!("{:016x}", upload.version.id);
            let latest = self.scan(&hashes(self.prefix()).1).await?.remove(&id);
            match latest.and_then(|text| UploadRecord::parse(&text)) {
                Some(latest) if latest == upload => {}
                Some(latest) if latest.digest == upload.digest => (upload, unchanged) = (latest, Duration::ZERO),
                _ => {
                    let object = self.look_up(&upload.path).await;
                    upload.done = upload.version.chunks();
                    return Ok(object.is_ok_and(|version| version == upload.version).then_some(upload));
                }
            }
        }
        match self.step(&upload, upload.done).await {
            Ok(claim) => Ok(Some(claim)),
            Err(e) if e.kind() == ErrorKind::Changed => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes the next window of an upload, and returns the number of chunks written so far.
    async fn write(&self, source: &Source, record: &UploadRecord) -> Result<u64, StorageError> {
        let (version, name) = (&record.version, self.name(&record.path));
        let stem = version.keys(self.prefix(), &record.path);
        let start = version.chunk(record.done).start;
        let mut end = record.done + 1;
        while end < version.chunks() && version.chunk(end).end - start <= WINDOW_BYTES {
            end += 1;
        }
        let bytes = source.piece(start, version.chunk(end - 1).end - start).await?;
        let mut sets = Vec::new();
        for number in record.done..end {
            let chunk = version.chunk(number);
            // In bounds: the window holds the chunk.
            let value = &bytes[(chunk.start - start) as usize..(chunk.end - start) as usize];
            let key = format!("{stem}{number:x}");
            let mut set = command("SET", self.link.slot(key.as_bytes()), 0);
            set.sent_bytes = (key.len() + value.len()) as u64;
            set.cmd.arg(key).arg(value);
            sets.push(set);
        }
        self.link.run_all(&name, &sets).await?;
        Ok(end)
    }

    /// Removes all chunks of a version, and then its record.
    async fn remove_chunks(&self, record: &UploadRecord) -> Result<(), StorageError> {
        let (version, name) = (&record.version, self.name(&record.path));
        let stem = version.keys(self.prefix(), &record.path);
        let mut next = 0;
        while next < version.chunks() {
            let end = version.chunks().min(next + MAX_UNLINKED);
            let chunks: Vec<(u64, u64)> = (next..end).map(|number| (number, 0)).collect();
            let (unlinks, _) = self.chunk_commands("UNLINK", &stem, &chunks);
            self.link.run_all(&name, &unlinks).await?;
            next = end;
        }
        match self.change(record, &record.to_string(), "").await {
            // Another process did it.
            Err(e) if e.kind() == ErrorKind::Changed => Ok(()),
            other => other,
        }
    }

    /// Records a step of this process's work, or takes over work.
    async fn step(&self, record: &UploadRecord, done: u64) -> Result<UploadRecord, StorageError> {
        let next = UploadRecord {
            at: now(),
            done,
            ..record.clone()
        };
        self.change(record, &record.to_string(), &next.to_string()).await?;
        Ok(next)
    }

    async fn change(&self, record: &UploadRecord, was: &str, becomes: &str) -> Result<(), StorageError> {
        let mut eval = self.hash_command("EVAL", ENTRY_BYTES);
        let id = format!("{:016x}", record.version.id);
        eval.cmd.arg(CHANGE).arg(1).arg(hashes(self.prefix()).1);
        eval.cmd.arg(id).arg(was).arg(becomes);
        match self.run_one(&self.name(&record.path), eval).await? {
            Value::Int(1) => Ok(()),
            _ => Err(self.superseded(&record.path)),
        }
    }

    /// Replaces or removes an object. Returns true if done, and the removal of the old version.
    async fn swap(
        &self,
        path: &ObjectPath,
        upload: Option<&UploadRecord>,
    ) -> Result<(bool, Option<UploadRecord>), StorageError> {
        let (objects, unfinished) = hashes(self.prefix());
        let mark = upload.map_or_else(String::new, |record| record.version.to_string());
        let id = upload.map_or_else(String::new, |record| format!("{:016x}", record.version.id));
        let record = upload.map_or_else(String::new, UploadRecord::to_string);
        let at = now();
        let mut eval = self.hash_command("EVAL", ENTRY_BYTES);
        eval.cmd.arg(SWAP).arg(2).arg(objects).arg(unfinished);
        eval.cmd.arg(path.as_str()).arg(mark).arg(id).arg(record).arg(at);
        let reply = self.run_one(&self.name(path), eval).await?;
        let parts = match &reply {
            Value::Array(parts) => &parts[..],
            _ => &[],
        };
        let done = parts.first() == Some(&Value::Int(1));
        let old = parts.get(1).and_then(text).and_then(Version::parse);
        Ok((done, old.map(|version| UploadRecord::removal(version, path, at))))
    }

    fn superseded(&self, path: &ObjectPath) -> StorageError {
        let detail = "another publisher took over, or the store evicted the record (use `noeviction`); publish again";
        self.error(ErrorKind::Changed, path, detail)
    }
}

/// Hash of all bytes, equal for uploads of the same bytes.
async fn digest(source: &Source) -> Result<String, StorageError> {
    let (mut digest, mut at) = (0, 0);
    while at < source.size {
        let piece = source.piece(at, WINDOW_BYTES).await?;
        at += piece.len() as u64;
        digest = KeyHash::of(&[digest, KeyHash::of(&piece).low()].map(u64::to_le_bytes).concat()).low();
    }
    Ok(format!("{digest:016x}"))
}

/// Header of a feature table; `None` for any other body.
async fn header(source: &Source) -> Result<Option<TableHeader>, StorageError> {
    let prelude = source.piece(0, PRELUDE_BYTES as u64).await?;
    let Ok(len) = header_len(&prelude) else { return Ok(None) };
    let bytes = source.piece(0, len).await?;
    Ok(TableHeader::decode(&bytes, source.size).ok())
}
