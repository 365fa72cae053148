//! Writes: to a temporary name, made durable, then renamed into place.
//!
//! In: a path and a body. Out: the object. WRITEs are unstable and parallel, and a COMMIT covers each window of them. If
//! the server restarted within a window, which its verifier shows, everything is written again.

use super::client::Fault;
use super::tree::{PARTIAL, Tree, describe};
use crate::ranges;
use crate::tasks::clean_up;
use crate::tiers::next_nanos;
use crate::tiers::source::Source;
use crate::{Body, ErrorKind, Object, ObjectPath, StorageError};
use futures::{StreamExt, TryStreamExt, stream};
use nfs3_types::nfs3::{fattr3, nfs_fh3, nfsstat3, nfstime3, sattr3, set_mtime, writeverf3};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Maximum attempts of a put when the server restarts or handles are stale.
const ATTEMPTS: u32 = 3;
/// WRITEs in flight per connection: each holds its bytes in memory.
const WRITES_PER_CONNECTION: usize = 4;
/// Bytes per COMMIT, which the server brings to its disk within the limit of a call.
const COMMIT_BYTES: u64 = 64 << 20;
/// The last modification time handed out, in nanoseconds since 1970.
static CLOCK: AtomicU64 = AtomicU64::new(0);

pub(super) async fn put(tree: &Arc<Tree>, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
    let name = path.segments().next_back();
    if name.is_some_and(|name| name.starts_with(PARTIAL)) {
        let detail = format!("names that start with {PARTIAL} are reserved for files under construction");
        return Err(ErrorKind::Invalid.error(path, detail));
    }
    let source = Source::open(body).await?;
    let about = tree.name(path);
    for _ in 0..ATTEMPTS {
        let generation = tree.generation();
        match attempt(tree, path, &about, &source).await {
            Ok(Some(object)) => return Ok(object),
            Ok(None) => {}
            Err(fault) if fault.is_stale() => {
                tree.refresh(&mut tree.client(&about), generation).await?;
            }
            // A leading part of the path is a file, or the path is a directory.
            Err(Fault::Status(status @ (nfsstat3::NFS3ERR_NOTDIR | nfsstat3::NFS3ERR_ISDIR))) => {
                let detail = format!("path is a directory, or lies below a file ({status})");
                return Err(ErrorKind::Invalid.error(about, detail));
            }
            Err(fault) => return Err(fault.about(&about)),
        }
    }
    Err(ErrorKind::Unavailable.error(about, format!("server lost the written data {ATTEMPTS} times")))
}

/// Writes the object; `None` if the server lost some of it, and everything is to be written again.
async fn attempt(tree: &Arc<Tree>, path: &ObjectPath, about: &str, source: &Source) -> Result<Option<Object>, Fault> {
    let mut client = tree.client(about);
    let (directory, name) = tree.parent(&mut client, path, true).await?;
    let stamp = next_nanos(&CLOCK);
    let temporary = format!("{PARTIAL}{:x}-{stamp:x}", std::process::id());
    let mut partial = PartialFile {
        tree: Arc::clone(tree),
        directory: directory.clone(),
        name: Some(temporary.clone()),
    };
    let file = client.create(&directory, &temporary).await?;
    for window in ranges::pieces(&(0..source.size), COMMIT_BYTES) {
        let written = write(tree, about, &file, source, window).await?;
        let committed = client.commit(&file).await?;
        if written.is_some_and(|written| written != committed) {
            return Ok(None);
        }
    }
    let mtime = nfstime3 {
        seconds: u32::try_from(stamp / 1_000_000_000).unwrap_or(u32::MAX),
        nseconds: u32::try_from(stamp % 1_000_000_000).unwrap_or_default(),
    };
    let times = sattr3 {
        mtime: set_mtime::SET_TO_CLIENT_TIME(mtime),
        ..sattr3::default()
    };
    client.setattr(&file, times).await?;
    match client.rename(&directory, &temporary, name).await {
        Ok(()) => {}
        // The reply was lost; the file at the path shows whether the server renamed.
        Err(Fault::Call(e)) if e.kind().is_transient() => {
            let (ours, there) = (client.getattr(&file).await?, client.lookup(&directory, name).await);
            if !matches!(there, Ok((_, there)) if there.fileid == ours.fileid) {
                return Err(Fault::Call(e));
            }
        }
        Err(Fault::Status(nfsstat3::NFS3ERR_EXIST)) => return Err(Fault::Status(nfsstat3::NFS3ERR_ISDIR)),
        Err(fault) => return Err(fault),
    }
    partial.name = None;
    let attributes: fattr3 = client.getattr(&file).await?;
    let object = describe(path, &attributes);
    if object.size != source.size {
        let detail = format!("{} bytes were written, but the server has {}", source.size, object.size);
        return Err(ErrorKind::Corrupt.error(about, detail).into());
    }
    tree.keep(path, file, &attributes);
    Ok(Some(object))
}

/// Writes a window and returns the verifier. If the WRITEs' verifiers differ, returns a verifier that matches no
/// COMMIT.
async fn write(
    tree: &Tree,
    about: &str,
    file: &nfs_fh3,
    source: &Source,
    window: Range<u64>,
) -> Result<Option<writeverf3>, Fault> {
    let pieces = ranges::pieces(&window, tree.write_bytes.into());
    let writes = stream::iter(pieces.map(|piece| write_piece(tree, about, file, source, piece)));
    let in_flight = tree.connections.saturating_mul(WRITES_PER_CONNECTION);
    let verifiers: Vec<writeverf3> = writes.buffer_unordered(in_flight).try_concat().await?;
    let first = verifiers.first().copied();
    let odd = verifiers.iter().find(|verifier| Some(**verifier) != first);
    // The flipped verifier equals neither of the two. Unflipped, it could equal the COMMIT's and hide the first.
    Ok(odd.map_or(first, |odd| Some(writeverf3(odd.0.map(|byte| !byte)))))
}

async fn write_piece(
    tree: &Tree,
    about: &str,
    file: &nfs_fh3,
    source: &Source,
    piece: Range<u64>,
) -> Result<Vec<writeverf3>, Fault> {
    let bytes = source.piece(piece.start, piece.end - piece.start).await?;
    let mut verifiers = Vec::new();
    let mut client = tree.client(about);
    let mut done = 0;
    while done < bytes.len() {
        let written = client.write(file, piece.start + done as u64, bytes.slice(done..));
        let (count, verifier) = written.await?;
        if count == 0 || count as usize > bytes.len() - done {
            let detail = format!("server accepted {count} bytes of a WRITE");
            return Err(ErrorKind::Unavailable.error(about, detail).into());
        }
        done += count as usize;
        verifiers.push(verifier);
    }
    Ok(verifiers)
}

/// A file under construction, removed when dropped before it has its final name.
struct PartialFile {
    tree: Arc<Tree>,
    directory: nfs_fh3,
    name: Option<String>,
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        let (tree, directory) = (Arc::clone(&self.tree), self.directory.clone());
        clean_up(async move {
            // Long enough for a WRITE that the dropped put had sent to be over.
            tokio::time::sleep(Duration::from_millis(100)).await;
            match tree.client(&name).remove(&directory, &name, false).await {
                Ok(()) | Err(Fault::Status(nfsstat3::NFS3ERR_NOENT)) => {}
                Err(fault) => tracing::warn!("cannot remove a file under construction: {}", fault.about(&name)),
            }
        });
    }
}

/// Removes a file, or an empty folder.
pub(super) async fn delete(tree: &Tree, path: &ObjectPath, is_folder: bool) -> Result<(), StorageError> {
    let about = tree.name(path);
    let mut client = tree.client(&about);
    if !is_folder {
        // Also refuses anything but a file, and refreshes stale handles.
        tree.object(&mut client, path).await?;
    }
    let removed = async {
        let (directory, name) = tree.parent(&mut client, path, false).await?;
        client.remove(&directory, name, is_folder).await
    };
    removed.await.map_err(|fault: Fault| fault.about(&about))
}
