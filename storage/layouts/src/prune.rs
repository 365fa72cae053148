//! Removal of earlier versions of a table. In: a folder, and its current manifest. Out: the folder without shards of
//! other versions.

use crate::manifest::{self, Manifest};
use tierlab_storage::{ErrorKind, ObjectPath, StorageError, Tier};

/// Removes a folder's objects of other versions than the manifest's. Returns their number and bytes. Readers with an
/// old manifest find none of its objects afterwards.
///
/// # Errors
/// Fails if the tier cannot list or refuses to remove; objects removed before stay removed.
pub async fn prune(tier: &dyn Tier, folder: &ObjectPath, keep: &Manifest) -> Result<(u64, u64), StorageError> {
    let (own, manifest) = (folder.join(&keep.version)?, folder.join(manifest::NAME)?);
    let own = format!("{own}/");
    let (mut objects, mut bytes) = (0, 0);
    for object in tier.list(Some(folder)).await? {
        if object.path == manifest || object.path.as_str().starts_with(&own) {
            continue;
        }
        match tier.delete(&object.path).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {
                objects += 1;
                bytes += object.size;
            }
        }
    }
    Ok((objects, bytes))
}
