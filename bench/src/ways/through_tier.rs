//! Accesses through a tier. In: a pick. Out: the bytes, checked, and their cost. A write is a whole object: tiers write nothing else.

use super::local::range;
use crate::chance::Pick;
use crate::content::Data;
use crate::drive::{Call, Caller};
use anyhow::{Context, Result};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use tierlab_storage::{Body, Object, ObjectPath, ReadCost, Tier};

/// Objects of a caller, written in turn.
pub(crate) const OWN_OBJECTS: u64 = 4;

/// One caller.
pub(crate) struct ThroughTier {
    tier: Arc<dyn Tier>,
    data: Data,
    folder: String,
    caller: u32,
    written: u64,
    /// Content of its writes, made before the first of them. Nobody reads what is written.
    content: Bytes,
}

impl ThroughTier {
    /// Creates a caller that writes at most `write_bytes` at a time.
    pub(crate) fn new(tier: Arc<dyn Tier>, data: Data, folder: &str, caller: u32, write_bytes: u64) -> Self {
        Self {
            tier,
            content: data.bytes(caller, 0..write_bytes).into(),
            data,
            folder: folder.to_owned(),
            caller,
            written: 0,
        }
    }

    async fn read(&self, pick: Pick) -> Result<Call> {
        let object: &Object = &self.data.objects[pick.file as usize];
        let range = range(pick);
        let begun = Instant::now();
        let read = self.tier.read(object, range.clone()).await;
        let ended = Instant::now();
        let read = read.context("a read failed")?;
        self.data.check(pick.file, &range, &read.bytes, read.bytes.len())?;
        Ok(Call {
            begun,
            ended,
            bytes: pick.len,
            cost: read.cost,
        })
    }

    async fn put(&mut self, pick: Pick) -> Result<Call> {
        let name = format!(
            "{}/written/{}-{}.bin",
            self.folder,
            self.caller,
            self.written % OWN_OBJECTS
        );
        self.written += 1;
        let path = ObjectPath::new(&name)?;
        let body = Body::Bytes(self.content.slice(..pick.len));
        let begun = Instant::now();
        self.tier.put(&path, body).await.context("a write failed")?;
        let ended = Instant::now();
        let cost = ReadCost {
            device: ended - begun,
            wire_bytes: pick.len as u64,
            requests: 1,
            ..ReadCost::default()
        };
        Ok(Call {
            begun,
            ended,
            bytes: pick.len,
            cost,
        })
    }
}

impl Caller for ThroughTier {
    async fn call(&mut self, pick: Pick) -> Result<Call> {
        match pick.write {
            true => self.put(pick).await,
            false => self.read(pick).await,
        }
    }
}
