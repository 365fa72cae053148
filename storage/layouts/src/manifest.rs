//! Description of the table in a folder.

use crate::layout::Layout;
use crate::rows;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, StorageError, Tier};

/// The manifest's name in its folder.
pub const NAME: &str = "layout.json";
/// Maximum size of a manifest, in bytes.
pub const MAX_BYTES: u64 = 16 << 20;

/// Description of the table in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Layout of the rows.
    pub layout: Layout,
    /// Name of the subfolder with the rows; different rows have different names.
    pub version: String,
    /// Columns, and the key if entities have keys.
    pub schema: TableSchema,
    /// Number of rows.
    pub rows: u64,
    /// Entity id of the first row.
    pub first_id: i64,
    /// Rows of every shard but the last; with a file for each entity, of every folder but the last.
    pub rows_per_shard: u64,
    /// Bytes of all shards and indexes.
    pub bytes: u64,
    /// Bytes of the index of keys, which is beside the shards; 0 if entities do not have keys.
    #[serde(default)]
    pub key_index_bytes: u64,
    /// CRC-32C of the index of each shard, if shards have indexes beside them.
    pub index_crcs: Vec<u32>,
}

impl Manifest {
    /// Reads and checks the manifest of a folder.
    ///
    /// # Errors
    /// Fails if there is no manifest, or if it is damaged or contradicts itself.
    pub async fn load(tier: &dyn Tier, folder: &ObjectPath) -> Result<Self, StorageError> {
        let object = tier.stat(&folder.join(NAME)?).await?;
        Self::read(tier, &object).await
    }

    /// Reads and checks the version of a manifest that was looked up. A damaged copy around the tier is dropped, and the
    /// manifest read from the tier itself.
    pub(crate) async fn read(tier: &dyn Tier, object: &Object) -> Result<Self, StorageError> {
        match Self::read_once(tier, object).await {
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                rows::forget(tier, object).await;
                Self::read_once(tier, object).await
            }
            read => read,
        }
    }

    async fn read_once(tier: &dyn Tier, object: &Object) -> Result<Self, StorageError> {
        let path = &object.path;
        let bad = |detail: String| ErrorKind::Corrupt.error(path, detail);
        let size = object.size;
        if size > MAX_BYTES {
            return Err(bad(format!("not a manifest: {size} bytes; the limit is {MAX_BYTES}")));
        }
        let read = tier.read(object, 0..size).await?;
        let manifest: Self = serde_json::from_slice(&read.bytes)
            .map_err(|e| bad(format!("not a manifest of a layout ({e}): lay the table out again")))?;
        manifest.header().map_err(|e| bad(e.to_string()))?;
        let shards = match manifest.layout.has_index() {
            false => 0,
            true => manifest.rows.div_ceil(manifest.rows_per_shard.max(1)),
        };
        if manifest.rows_per_shard == 0 || manifest.index_crcs.len() as u64 != shards {
            let detail = "its shards do not hold its rows: lay the table out again";
            return Err(rows::corrupt(path, detail));
        }
        Ok(manifest)
    }

    pub(crate) async fn store(&self, tier: &dyn Tier, folder: &ObjectPath) -> Result<(), StorageError> {
        let path = folder.join(NAME)?;
        let text = serde_json::to_vec_pretty(self).map_err(|e| ErrorKind::Invalid.error(&path, e.to_string()))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(
                ErrorKind::Invalid.error(&path, "too many shards: lay the table out in larger ones (--shard-mib)")
            );
        }
        tier.put(&path, Body::Bytes(Bytes::from(text))).await.map(drop)
    }

    /// Returns the header that the rows would have in the rows format.
    pub(crate) fn header(&self) -> Result<TableHeader, tierlab_formats::table::TableError> {
        TableHeader::without_blocks(self.schema.clone(), self.rows, self.first_id)?.with_index(self.key_index_bytes)
    }

    /// Number of objects in the folder: rows or shards, their indexes, the index of keys, and the manifest.
    pub fn objects(&self) -> u64 {
        let rows = self.rows_per_shard;
        let rows_each = if self.layout == Layout::Files { 1 } else { rows };
        self.rows.div_ceil(rows_each) + self.index_crcs.len() as u64 + u64::from(self.schema.key.is_some()) + 1
    }

    /// Path of the index of keys.
    pub(crate) fn key_index(&self, folder: &ObjectPath) -> Result<ObjectPath, StorageError> {
        folder.join(&format!("{}/keys.index", self.version))
    }

    /// Path of a shard; with a file for each entity, of the folder.
    pub(crate) fn shard(&self, folder: &ObjectPath, number: u64) -> Result<ObjectPath, StorageError> {
        let version = &self.version;
        folder.join(&match self.layout {
            Layout::Files => format!("{version}/{number:06}"),
            layout => format!("{version}/{number:06}.{}", layout.extension()),
        })
    }

    /// Shard of an entity; `None` if the table does not have the entity.
    pub(crate) fn shard_of(&self, id: i64) -> Option<u64> {
        let row = u64::try_from(id.checked_sub(self.first_id)?).ok()?;
        (row < self.rows).then(|| row / self.rows_per_shard)
    }
}

/// Key of an entity, as used in names.
pub(crate) fn key(id: i64) -> String {
    format!("{id:012}")
}
