//! Calls through a tier. In: a pick. Out: the call with its cost, its result checked. A write is a whole object, because tiers write
//! nothing else.

use super::local::range;
use crate::content::Data;
use crate::drive::{Call, Caller};
use crate::plan::{Operation, Point};
use crate::random::Pick;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use crc32c::crc32c_append;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::sync::Arc;
use std::time::Instant;
use tierlab_storage::{Body, Object, ObjectPath, ReadCost, StorageError, Tier};

/// Objects of a caller, written in turn.
pub(crate) const OBJECTS_PER_CALLER: u64 = 4;
/// Bytes that a restore reads at a time, while it computes the checksum of the previous ones.
const RESTORE_CHUNK_BYTES: u64 = 64 << 20;

/// One caller.
pub(crate) struct TierCaller {
    tier: Arc<dyn Tier>,
    data: Data,
    /// Folder of the data.
    folder: ObjectPath,
    operation: Operation,
    caller: u32,
    written: u64,
    /// Content of writes, generated before the first one.
    content: Bytes,
    /// CRC-32C of the restored object.
    sum: u32,
}

impl TierCaller {
    /// Creates a caller, with the content that it writes or expects.
    ///
    /// # Errors
    /// Data without a folder.
    pub(crate) fn new(tier: Arc<dyn Tier>, data: Data, point: &Point, caller: u32) -> Result<Self> {
        let first = data.objects.first().map(|object| object.path.as_str());
        let folder = first.and_then(|path| path.rsplit_once('/'));
        let content_bytes = if point.operation.writes() { point.block_bytes } else { 0 };
        let sum = match point.operation {
            Operation::Restore => data.sum(caller),
            _ => 0,
        };
        Ok(Self {
            folder: ObjectPath::new(folder.context("the data has no folder")?.0)?,
            operation: point.operation,
            content: data.bytes(caller, 0..content_bytes).into(),
            sum,
            tier,
            data,
            caller,
            written: 0,
        })
    }

    fn object(&self, number: u32) -> &Object {
        &self.data.objects[number as usize]
    }

    async fn read(&self, pick: Pick, at: Instant) -> Result<Call> {
        let range = range(pick);
        let read = self.tier.read(self.object(pick.file), range.clone());
        let (read, mut call) = timed("a read failed", pick.len, at, read).await?;
        self.data.check(pick.file, &range, &read.bytes, read.bytes.len())?;
        call.cost = read.cost;
        Ok(call)
    }

    async fn put(&mut self, pick: Pick, at: Instant) -> Result<Call> {
        let name = format!("written/{}-{}.bin", self.caller, self.written % OBJECTS_PER_CALLER);
        self.written += 1;
        self.write(&self.folder.join(&name)?, pick.len, at).await
    }

    async fn write(&self, path: &ObjectPath, len: usize, at: Instant) -> Result<Call> {
        let put = self.tier.put(path, Body::Bytes(self.content.slice(..len)));
        let (_, mut call) = timed("a write failed", len, at, put).await?;
        call.cost.requests = self.tier.put_requests(len as u64);
        Ok(call)
    }

    async fn stat(&self, pick: Pick, at: Instant) -> Result<Call> {
        let path = &self.object(pick.file).path;
        let (found, call) = timed("a look-up failed", 0, at, self.tier.stat(path)).await?;
        let (found, wanted) = (found.size, self.data.file_bytes);
        ensure!(found == wanted, "{path}: the size is {found} B, not {wanted} B");
        Ok(call)
    }

    async fn list(&self, at: Instant) -> Result<Call> {
        let list = self.tier.list(Some(&self.folder));
        let (found, call) = timed("a listing failed", 0, at, list).await?;
        let (found, wanted, folder) = (found.len(), self.data.objects.len(), &self.folder);
        ensure!(found == wanted, "{folder}: objects listed: {found}, not {wanted}");
        Ok(call)
    }

    async fn delete(&self, pick: Pick, at: Instant) -> Result<Call> {
        let delete = self.tier.delete(&self.object(pick.file).path);
        Ok(timed("a removal failed", 0, at, delete).await?.1)
    }

    /// Looks the object up, because each checkpoint is a new version, and reads it as a server loads a model.
    async fn restore(&self, at: Instant) -> Result<Call> {
        let path = &self.object(self.caller).path;
        let read = async {
            let object = self.tier.stat(path).await?;
            let starts = (0..object.size).step_by(RESTORE_CHUNK_BYTES as usize);
            let reads = starts.map(|at| self.tier.read(&object, at..(at + RESTORE_CHUNK_BYTES).min(object.size)));
            let mut reads = stream::iter(reads).buffered(2);
            let (mut sum, mut cost) = (0, ReadCost::default());
            while let Some(read) = reads.try_next().await? {
                sum = crc32c_append(sum, &read.bytes);
                cost.merge(&read.cost);
            }
            Ok((object.size, sum, cost))
        };
        let (bytes, written) = (self.data.file_bytes, self.sum);
        let ((found, sum, cost), mut call) = timed("a restore failed", bytes as usize, at, read).await?;
        ensure!(
            (found, sum) == (bytes, written),
            "{path}: read {found} B with checksum {sum:08x}, but {bytes} B with {written:08x} were written"
        );
        call.cost = cost;
        Ok(call)
    }
}

/// Makes a call that moves `bytes` bytes, with its time since `started` as cost.
async fn timed<T>(
    failed: &'static str,
    bytes: usize,
    started: Instant,
    act: impl Future<Output = Result<T, StorageError>>,
) -> Result<(T, Call)> {
    let done = act.await;
    let ended = Instant::now();
    let cost = ReadCost {
        device: ended - started,
        wire_bytes: bytes as u64,
        requests: u32::from(bytes > 0),
        ..ReadCost::default()
    };
    let call = Call {
        started,
        ended,
        bytes,
        cost,
    };
    Ok((done.context(failed)?, call))
}

impl Caller for TierCaller {
    async fn call(&mut self, pick: Pick, at: Instant) -> Result<Call> {
        match self.operation {
            Operation::Stat => self.stat(pick, at).await,
            Operation::List => self.list(at).await,
            Operation::Delete => self.delete(pick, at).await,
            Operation::Checkpoint => {
                let path = &self.object(self.caller).path;
                self.write(path, self.content.len(), at).await
            }
            Operation::Restore => self.restore(at).await,
            _ if pick.write => self.put(pick, at).await,
            _ => self.read(pick, at).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;
    use tierlab_storage::tiers::memory::MemoryTier;

    const PICK: Pick = Pick {
        file: 0,
        offset: 0,
        len: 4096,
        write: false,
    };

    async fn data(tier: &Arc<dyn Tier>) -> Data {
        let stop = Stop::default();
        Data::write(tier, "bench/x", (2, 8192), 3, &stop).await.unwrap()
    }

    fn caller(tier: &Arc<dyn Tier>, data: &Data, operation: Operation) -> TierCaller {
        let point = Point {
            operation,
            ..Point::reads("memory", 4096)
        };
        TierCaller::new(tier.clone(), data.clone(), &point, 1).unwrap()
    }

    #[tokio::test]
    async fn a_restore_reads_what_the_checkpoint_wrote_and_nothing_else() {
        let tier: Arc<dyn Tier> = Arc::new(MemoryTier::default());
        let data = data(&tier).await;
        let written = caller(&tier, &data, Operation::Checkpoint)
            .call(PICK, Instant::now())
            .await
            .unwrap();
        let restored = caller(&tier, &data, Operation::Restore)
            .call(PICK, Instant::now())
            .await
            .unwrap();
        assert_eq!((written.bytes, restored.bytes), (4096, 4096));
        let mut bytes = data.bytes(1, 0..4096);
        bytes[4095] ^= 1;
        let path = &data.objects[1].path;
        tier.put(path, Body::Bytes(bytes.into())).await.unwrap();
        let error = caller(&tier, &data, Operation::Restore)
            .call(PICK, Instant::now())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("checksum"), "{error}");
    }

    #[tokio::test]
    async fn operations_on_objects_check_what_they_find() {
        let tier: Arc<dyn Tier> = Arc::new(MemoryTier::default());
        let data = data(&tier).await;
        for operation in [Operation::Stat, Operation::List, Operation::Delete] {
            let call = caller(&tier, &data, operation)
                .call(PICK, Instant::now())
                .await
                .unwrap();
            assert_eq!((call.bytes, call.cost.requests), (0, 0));
        }
        // The removed object is missing from the next listing, and cannot be looked up.
        for (operation, wanted) in [
            (Operation::List, "objects listed: 1, not 2"),
            (Operation::Stat, "look-up"),
        ] {
            let error = caller(&tier, &data, operation)
                .call(PICK, Instant::now())
                .await
                .unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
