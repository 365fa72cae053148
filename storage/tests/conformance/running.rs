//! A running case: its folder on the tier, its expectations, and contents whose every byte identifies its position.

use super::Suite;
use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use tierlab_storage::content::content;
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, Read, ReadMany, StorageError, Tier};

/// A running case, in its own folder.
pub(super) struct Bench<'a> {
    pub(super) suite: &'a Suite,
    pub(super) tier: &'a Arc<dyn Tier>,
    pub(super) folder: ObjectPath,
}

pub(super) fn expect_kind<T: Debug>(label: &str, result: Result<T, StorageError>, kinds: &[ErrorKind]) -> Result<()> {
    match result {
        Err(e) if kinds.contains(&e.kind()) && !e.object().is_empty() => Ok(()),
        Err(e) => bail!("{label}: {e}, where {kinds:?} with the object's name should be"),
        Ok(_) => bail!("{label}: succeeded, where {kinds:?} should be"),
    }
}

/// Compares without printing megabytes: reports only the first difference.
fn expect_bytes(label: &str, got: &[u8], seed: u64, range: &Range<u64>) -> Result<()> {
    let want = content(seed, range.clone());
    ensure!(got.len() == want.len(), "{label} {range:?}: {} bytes", got.len());
    match got.iter().zip(&want).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => bail!("{label} {range:?}: the byte at {} is wrong", range.start + at as u64),
    }
}

pub(super) fn expect_parts(many: &ReadMany, seed: u64, ranges: &[Range<u64>]) -> Result<()> {
    ensure!(
        many.parts.len() == ranges.len(),
        "{} parts for {} ranges",
        many.parts.len(),
        ranges.len()
    );
    let mut pairs = many.parts.iter().zip(ranges);
    pairs.try_for_each(|(part, range): (&Bytes, _)| expect_bytes("read_many", part, seed, range))
}

impl Bench<'_> {
    pub(super) fn path(&self, name: &str) -> Result<ObjectPath> {
        Ok(self.folder.join(name)?)
    }

    pub(super) async fn put(&self, name: &str, seed: u64, size: u64) -> Result<Object> {
        let body = Body::Bytes(content(seed, 0..size).into());
        let object = self.tier.put(&self.path(name)?, body).await?;
        ensure!(object.size == size, "a put of {size} bytes says {}", object.size);
        Ok(object)
    }

    pub(super) async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        self.tier.read(object, range).await
    }

    pub(super) async fn expect(&self, object: &Object, seed: u64, range: Range<u64>) -> Result<()> {
        let read = self.read(object, range.clone()).await?;
        expect_bytes("read", &read.bytes, seed, &range)
    }

    /// Checks a read of a version that is gone: an error that names the change, or, if allowed, exactly the old bytes.
    pub(super) fn expect_changed(
        &self,
        label: &str,
        result: Result<Read, StorageError>,
        seed: u64,
        range: &Range<u64>,
    ) -> Result<()> {
        match result {
            Ok(read) if !self.suite.notices_changes => expect_bytes(label, &read.bytes, seed, range),
            other => expect_kind(label, other, &[ErrorKind::Changed, ErrorKind::NotFound]),
        }
    }

    /// The paths below a folder, without the folder.
    pub(super) async fn names_below(&self, folder: &ObjectPath) -> Result<Vec<String>> {
        let listed = self.tier.list(Some(folder)).await?;
        let cut = folder.as_str().len() + 1;
        Ok(listed
            .into_iter()
            .map(|object| object.path.as_str().chars().skip(cut).collect())
            .collect())
    }
}
