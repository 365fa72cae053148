//! Reference tier: objects in this process. In: bytes, or a directory to load. Out: slices of them, without a copy.
//! Sets the noise floor and defines the behaviour of the other tiers; knows nothing of them.

use crate::limits::check_ranges;
use crate::tasks::blocking;
use crate::tier::check_size;
use crate::tiers::changed;
use crate::{Body, ErrorKind, Object, ObjectPath, Read, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};

/// Objects in memory. A version is the number of the write that made it, so no two are equal.
#[derive(Debug, Default)]
pub struct MemoryTier {
    /// Text of the location if the objects were loaded from a folder.
    location: Option<String>,
    state: RwLock<Objects>,
}

#[derive(Debug, Default)]
struct Objects {
    writes: u64,
    objects: BTreeMap<ObjectPath, (Object, Bytes)>,
}

impl MemoryTier {
    /// Loads every regular file below `root`. Later changes of the files are not seen.
    ///
    /// # Errors
    /// Fails if `root` is not a directory or a file cannot be read; the error names it.
    pub async fn load(root: &Path) -> Result<Self, StorageError> {
        let location = format!("memory, filled from {}", root.display());
        let root = root.to_owned();
        let load = move || {
            let mut objects = Objects::default();
            collect(&root, None, &mut objects).map(|()| objects)
        };
        let state = RwLock::new(blocking(&location, load).await?);
        let location = Some(location);
        Ok(Self { location, state })
    }
}

impl Objects {
    fn insert(&mut self, path: &ObjectPath, bytes: Bytes) -> Object {
        self.writes += 1;
        let (path, size, version) = (path.clone(), bytes.len() as u64, format!("w{}", self.writes));
        let object = Object { path, size, version };
        self.objects.insert(object.path.clone(), (object.clone(), bytes));
        object
    }

    fn get(&self, path: &ObjectPath) -> Result<(Object, Bytes), StorageError> {
        self.objects.get(path).cloned().ok_or_else(|| missing(path))
    }
}

fn missing(path: &ObjectPath) -> StorageError {
    ErrorKind::NotFound.error(path, "no such object in memory")
}

/// Reads the regular files below a folder; symbolic links are not followed, so nothing outside is loaded. Names that are
/// no object path are left out with a warning.
fn collect(folder: &Path, prefix: Option<&ObjectPath>, objects: &mut Objects) -> Result<(), StorageError> {
    let failed = |at: &Path, e: &std::io::Error| StorageError::from_io(at.display(), e);
    for entry in std::fs::read_dir(folder).map_err(|e| failed(folder, &e))? {
        let entry = entry.map_err(|e| failed(folder, &e))?;
        let at = entry.path();
        let kind = entry.file_type().map_err(|e| failed(&at, &e))?;
        let name = entry.file_name();
        let Some(path) = name.to_str().and_then(|name| ObjectPath::below(prefix, name).ok()) else {
            tracing::warn!(folder = %folder.display(), ?name, "skipped in listing: not a valid object path");
            continue;
        };
        if kind.is_dir() {
            collect(&at, Some(&path), objects)?;
        } else if kind.is_file() {
            let bytes = std::fs::read(&at).map_err(|e| failed(&at, &e))?;
            objects.insert(&path, bytes.into());
        }
    }
    Ok(())
}

#[async_trait]
impl Tier for MemoryTier {
    fn info(&self) -> TierInfo {
        TierInfo::new("memory", self.location.as_deref().unwrap_or("memory"), Vec::new())
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.state.read().get(path).map(|(object, _)| object)
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let started = Instant::now();
        let (now, bytes) = self.state.read().get(&object.path)?;
        if now != *object {
            return Err(changed(&object.path, &object.version, &now.version));
        }
        let mut read = ReadMany {
            parts: Vec::with_capacity(ranges.len()),
            cost: ReadCost::default(),
        };
        for range in ranges {
            // In bounds: the ranges are within `object.size`, which is the length of these bytes.
            read.parts.push(bytes.slice(range.start as usize..range.end as usize));
            read.cost.wire_bytes += range.end - range.start;
        }
        read.cost.via = ViaSet::of(Via::Memory);
        read.cost.requests = u32::try_from(ranges.len()).unwrap_or(u32::MAX);
        read.cost.device = started.elapsed();
        Ok(read)
    }

    async fn read_whole(&self, path: &ObjectPath, bytes: u64) -> Result<Read, StorageError> {
        let object = self.stat(path).await?;
        check_size(path, object.size, bytes)?;
        self.read(&object, 0..bytes).await
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let state = self.state.read();
        let objects = state.objects.values().map(|(object, _)| object);
        let chosen = objects.filter(|object| prefix.is_none_or(|prefix| object.path.is_below(prefix)));
        Ok(chosen.cloned().collect())
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        let bytes = match body {
            // A separate copy: a slice of a large buffer would keep the whole buffer.
            Body::Bytes(bytes) => Bytes::copy_from_slice(&bytes),
            Body::File(file) => tokio::fs::read(&file)
                .await
                .map_err(|e| StorageError::from_io(file.display(), &e))?
                .into(),
        };
        Ok(self.state.write().insert(path, bytes))
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        let removed = self.state.write().objects.remove(path);
        removed.map(drop).ok_or_else(|| missing(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Suite;
    use std::sync::Arc;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn memory_conforms() {
        let scratch = tempfile::tempdir().unwrap();
        let suite = Suite {
            tier: Arc::new(MemoryTier::default()),
            folder: ObjectPath::new("suite").unwrap(),
            scratch: scratch.path().to_owned(),
            notices_changes: true,
        };
        suite.run().await.unwrap();
    }

    #[tokio::test]
    async fn names_that_are_no_paths_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        for name in ["back\\slash", "new\nline", "good"] {
            std::fs::write(root.path().join(name), name).unwrap();
        }
        let listed = MemoryTier::load(root.path()).await.unwrap().list(None).await.unwrap();
        assert_eq!(
            listed.iter().map(|object| object.path.as_str()).collect::<Vec<_>>(),
            ["good"]
        );
    }
}
