//! Removal of earlier versions of a table. In: a folder, and its current manifest. Out: the folder without shards of
//! other versions.

use crate::manifest::{self, Manifest};
use tierlab_storage::{ErrorKind, ObjectPath, StorageError, Tier};

/// Removes what lies in a folder and belongs to another version than the manifest's; how many objects that were, and their bytes. Who still
/// reads by an old manifest finds nothing there from now on.
///
/// # Errors
/// A tier that cannot list or refuses; what was removed before that is gone.
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
