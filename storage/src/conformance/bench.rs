//! A running case: its folder on the tier, and its expectations.

use super::content::content;
use super::suite::Suite;
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object, Read, ReadMany};
use bytes::Bytes;
use std::fmt::{self, Debug};
use std::ops::Range;

/// Success, or the unexpected result.
pub(super) type Outcome = Result<(), String>;

/// A running case, in its own folder.
pub(super) struct Bench<'a> {
    pub(super) suite: &'a Suite,
    pub(super) folder: ObjectPath,
}

pub(super) fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise()) }
}

pub(super) fn expect_kind<T: Debug>(what: &str, result: Result<T, StorageError>, kinds: &[ErrorKind]) -> Outcome {
    match result {
        Err(e) if kinds.contains(&e.kind()) && !e.object().is_empty() => Ok(()),
        Err(e) => Err(format!("{what}: {e}, where {kinds:?} with the object's name should be")),
        Ok(_) => Err(format!("{what}: succeeded, where {kinds:?} should be")),
    }
}

/// Compares without printing megabytes: reports only the first difference.
fn expect_bytes(what: &str, got: &[u8], seed: u64, range: &Range<u64>) -> Outcome {
    let want = content(seed, range.clone());
    ensure(got.len() == want.len(), || {
        format!("{what} {range:?}: {} bytes", got.len())
    })?;
    match got.iter().zip(&want).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!(
            "{what} {range:?}: the byte at {} is wrong",
            range.start + at as u64
        )),
    }
}

pub(super) fn expect_parts(many: &ReadMany, seed: u64, ranges: &[Range<u64>]) -> Outcome {
    ensure(many.parts.len() == ranges.len(), || {
        format!("{} parts for {} ranges", many.parts.len(), ranges.len())
    })?;
    let mut pairs = many.parts.iter().zip(ranges);
    pairs.try_for_each(|(part, range): (&Bytes, _)| expect_bytes("read_many", part, seed, range))
}

impl Bench<'_> {
    pub(super) fn path(&self, name: &str) -> Result<ObjectPath, String> {
        self.folder.join(name).map_err(text)
    }

    pub(super) async fn put(&self, name: &str, seed: u64, size: u64) -> Result<Object, String> {
        let body = Body::Bytes(content(seed, 0..size).into());
        let object = self.suite.tier.put(&self.path(name)?, body).await.map_err(text)?;
        ensure(object.size == size, || {
            format!("a put of {size} bytes says {}", object.size)
        })?;
        Ok(object)
    }

    pub(super) async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        self.suite.tier.read(object, range).await
    }

    pub(super) async fn expect(&self, object: &Object, seed: u64, range: Range<u64>) -> Outcome {
        let read = self.read(object, range.clone()).await.map_err(text)?;
        expect_bytes("read", &read.bytes, seed, &range)
    }

    /// Checks a read of a version that is gone: an error that names the change, or, if allowed, exactly the old bytes.
    pub(super) fn expect_gone(
        &self,
        what: &str,
        result: Result<Read, StorageError>,
        seed: u64,
        range: &Range<u64>,
    ) -> Outcome {
        match result {
            Ok(read) if !self.suite.notices_changes => expect_bytes(what, &read.bytes, seed, range),
            other => expect_kind(what, other, &[ErrorKind::Changed, ErrorKind::NotFound]),
        }
    }

    /// The paths below a folder, without the folder.
    pub(super) async fn names_below(&self, folder: &ObjectPath) -> Result<Vec<String>, String> {
        let listed = self.suite.tier.list(Some(folder)).await.map_err(text)?;
        let cut = folder.as_str().len() + 1;
        Ok(listed
            .into_iter()
            .map(|object| object.path.as_str().chars().skip(cut).collect())
            .collect())
    }
}
