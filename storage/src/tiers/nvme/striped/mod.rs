//! Objects striped over several local folders, each preferably on its own device. In: object paths. Out: bytes,
//! reassembled from parts that the folders' engines read concurrently. Layout on disk: [`disk`].
//!
//! The version of an object includes the versions of its manifest and of all its parts. A part is never rewritten, and
//! each part of a read is checked like any file of an [`NvmeTier`]. So all bytes are of the looked-up version.

mod disk;
#[cfg(test)]
mod tests;

use super::root::Root;
use super::tier::NvmeTier;
use crate::limits::check_ranges;
use crate::tasks::blocking;
use crate::tiers::source::Source;
use crate::tiers::{changed, check_multiple, remember};
use crate::{Body, ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bytes::Bytes;
use disk::Striped;
use futures::future::try_join_all;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Maximum cached look-ups; one more clears the cache.
const REMEMBERED: usize = 4096;
/// Unit of stripe sizes: smaller stripes would over-read at each boundary.
const STRIPE_UNIT: u64 = 4096;
const LARGEST_STRIPE: u64 = 1 << 30;

/// Tier over several folders.
#[derive(Debug)]
pub struct StripedTier {
    tiers: Vec<NvmeTier>,
    roots: Vec<Arc<Root>>,
    stripe_bytes: u64,
    known: Mutex<HashMap<ObjectPath, Arc<Striped>>>,
    /// Held while a manifest changes.
    changing: Arc<Mutex<()>>,
}

impl StripedTier {
    /// Creates a tier that stripes over open folders, in this order. Blocks: it removes parts left by crashed puts.
    pub(super) fn new(tiers: Vec<NvmeTier>, stripe_bytes: u64) -> Result<Self, StorageError> {
        check_multiple("stripe_bytes", stripe_bytes, STRIPE_UNIT, LARGEST_STRIPE)?;
        let roots: Vec<_> = tiers.iter().map(|tier| tier.files.root.clone()).collect();
        for (i, root) in roots.iter().enumerate() {
            if roots[..i].iter().any(|other| other.location == root.location) {
                return Err(ErrorKind::Invalid.error("roots", format!("duplicate folder: {}", root.location.display())));
            }
        }
        if let Err(error) = disk::sweep(&roots) {
            tracing::warn!(%error, "cannot remove parts left by crashed puts");
        }
        Ok(Self {
            tiers,
            roots,
            stripe_bytes,
            known: Mutex::default(),
            changing: Arc::default(),
        })
    }

    async fn look_up(&self, path: &ObjectPath) -> Result<Arc<Striped>, StorageError> {
        let (roots, of) = (self.roots.clone(), path.clone());
        let striped = blocking(path.as_str(), move || disk::look_up(&roots, &of)).await?;
        Ok(self.remember(striped))
    }

    fn remember(&self, striped: Striped) -> Arc<Striped> {
        let striped = Arc::new(striped);
        remember(&self.known, REMEMBERED, striped.object.path.clone(), striped.clone());
        striped
    }

    fn forget(&self, path: &ObjectPath) {
        self.known.lock().remove(path);
    }

    /// Parts of the looked-up version.
    async fn parts_of(&self, object: &Object) -> Result<Arc<Striped>, StorageError> {
        let known = self.known.lock().get(&object.path).cloned();
        if let Some(striped) = known.filter(|striped| striped.object == *object) {
            return Ok(striped);
        }
        let striped = self.look_up(&object.path).await?;
        if striped.object == *object {
            return Ok(striped);
        }
        Err(changed(&object.path, &object.version, &striped.object.version))
    }

    async fn read_parts(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let striped = self.parts_of(object).await?;
        let layout = striped.layout;
        let tiers = self.tiers.iter().zip(&striped.parts).enumerate();
        let reads = tiers.map(|(part, (tier, file))| {
            let needed: Vec<_> = ranges.iter().map(|range| layout.part_range(range, part)).collect();
            async move {
                if needed.iter().all(Range::is_empty) {
                    return Ok(None);
                }
                tier.read_many(file, &needed).await.map(Some)
            }
        });
        let parts = try_join_all(reads).await?;
        let begun = Instant::now();
        let mut cost = ReadCost::default();
        for many in parts.iter().flatten() {
            cost.merge(&many.cost);
        }
        let mut copied = false;
        let join = |(i, range): (usize, &Range<u64>)| {
            let piece = |many: &Option<ReadMany>| many.as_ref().map_or_else(Bytes::new, |many| many.parts[i].clone());
            let pieces: Vec<Bytes> = parts.iter().map(piece).collect();
            let (whole, copy) = layout.join(range, &pieces);
            copied |= copy;
            whole
        };
        let whole = ranges.iter().enumerate().map(join).collect();
        if copied {
            cost.copy += begun.elapsed();
        }
        Ok(ReadMany { parts: whole, cost })
    }

    /// Converts an error about a part to an error about its object. A missing or changed part means a missing or
    /// changed object.
    async fn explain(&self, object: &Object, error: StorageError) -> StorageError {
        let of_object = |kind: ErrorKind, detail: &str| kind.error(&object.path, detail);
        if !matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
            return of_object(error.kind(), error.detail());
        }
        self.forget(&object.path);
        if error.object() == object.path.as_str() {
            return error;
        }
        match self.look_up(&object.path).await {
            Err(e) => e,
            Ok(_) => of_object(ErrorKind::Changed, &format!("{}: {}", error.object(), error.detail())),
        }
    }
}

#[async_trait]
impl Tier for StripedTier {
    fn info(&self) -> TierInfo {
        let infos: Vec<_> = self.tiers.iter().map(Tier::info).collect();
        let locations: Vec<_> = infos.iter().map(|info| info.location.as_str()).collect();
        let (folders, bytes) = (infos.len(), self.stripe_bytes);
        let mut notes = vec![format!("striped over {folders} folders, {bytes} bytes each")];
        for info in &infos {
            notes.extend(info.notes.iter().map(|note| format!("{}: {note}", info.location)));
        }
        TierInfo::new(infos[0].kind, locations.join(", "), notes)
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        Ok(self.look_up(path).await?.object.clone())
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        match self.read_parts(object, ranges).await {
            Ok(read) => Ok(read),
            Err(error) => Err(self.explain(object, error).await),
        }
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let (roots, prefix) = (self.roots.clone(), prefix.cloned());
        let location = self.info().location;
        blocking(&location, move || disk::list(&roots, prefix.as_ref())).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        let (roots, of, stripe_bytes) = (self.roots.clone(), path.clone(), self.stripe_bytes);
        let changing = self.changing.clone();
        let source = Source::open(body).await?;
        let put = move || disk::put(&roots, &of, &source, stripe_bytes, &changing);
        let striped = blocking(path.as_str(), put).await?;
        Ok(self.remember(striped).object.clone())
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        let (roots, of, changing) = (self.roots.clone(), path.clone(), self.changing.clone());
        let deleted = blocking(path.as_str(), move || disk::delete(&roots, &of, &changing)).await;
        self.forget(path);
        deleted
    }

    /// Folders of object paths exist only in the first root.
    async fn remove_folder(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.tiers[0].remove_folder(path).await
    }
}
