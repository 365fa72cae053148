//! Tier to publish to: interruptible calls, with errors that name object and tier.

use crate::error::ModelsError;
use crate::stop::Stop;
use bytes::Bytes;
use std::ops::Range;
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, StorageError, Tier};

/// Tier with the stop that ends its calls.
pub(super) struct TierSink<'a> {
    pub(super) tier: &'a dyn Tier,
    pub(super) stop: &'a Stop,
}

impl TierSink<'_> {
    /// Returns the object, or `None` if it does not exist.
    pub(super) async fn stat(&self, path: &ObjectPath) -> Result<Option<Object>, ModelsError> {
        self.call(path, async {
            match self.tier.stat(path).await {
                Ok(object) => Ok(Some(object)),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e),
            }
        })
        .await
    }

    /// Reads one range of an object.
    pub(super) async fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes, ModelsError> {
        let read = self.call(&object.path, self.tier.read(object, range)).await?;
        Ok(read.bytes)
    }

    /// Reads a small object completely; `None` if it does not exist.
    pub(super) async fn read_whole(&self, path: &ObjectPath) -> Result<Option<Bytes>, ModelsError> {
        match self.stat(path).await? {
            Some(object) => self.read(&object, 0..object.size).await.map(Some),
            None => Ok(None),
        }
    }

    /// Puts an object and checks that the tier has all of it.
    pub(super) async fn put(&self, path: &ObjectPath, body: Body, bytes: u64) -> Result<(), ModelsError> {
        let object = self.call(path, self.tier.put(path, body)).await?;
        if object.size == bytes {
            return Ok(());
        }
        let arrived = object.size;
        let what = format!("{arrived} of {bytes} bytes arrived: the file changed meanwhile; publish again");
        Err(self.error(path, ErrorKind::Changed.error(path.as_str(), what)))
    }

    /// Removes an object.
    pub(super) async fn remove(&self, path: &ObjectPath) -> Result<(), ModelsError> {
        self.call(path, self.tier.delete(path)).await
    }

    async fn call<T>(
        &self,
        path: &ObjectPath,
        call: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, ModelsError> {
        let call = async { call.await.map_err(|e| self.error(path, e)) };
        self.stop.race(call).await
    }

    fn error(&self, path: &ObjectPath, source: StorageError) -> ModelsError {
        let info = self.tier.info();
        ModelsError::Tier {
            object: path.to_string(),
            tier: info.kind,
            location: info.location,
            source,
        }
    }
}

/// Returns the path of an object below a prefix.
pub(super) fn object_path(prefix: &str, name: &str) -> Result<ObjectPath, ModelsError> {
    ObjectPath::new(&format!("{prefix}/{name}")).map_err(|e| ModelsError::bad(&e.object(), &e.detail()))
}
