//! Listing, writing and removal of files below a root. Everything here blocks; call it only on blocking threads.

use super::root::{FileId, Root, not_a_file, stat_fd};
use crate::limits::Listing;
use crate::{Body, ErrorKind, Object, ObjectPath, StorageError};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Name prefix of files under construction, which listings leave out.
const PARTIAL: &str = ".tierlab-put-";
/// Size of a copied piece in bytes.
const COPY_BYTES: usize = 1 << 20;
/// Maximum names tried for a file under construction.
const NAME_ATTEMPTS: u32 = 100;
/// Flags that open a folder for reading.
const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);
/// Folder of the file system itself at the top of a mount, which only the superuser reads.
const LOST_AND_FOUND: &str = "lost+found";
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Lists the regular files at and below `prefix`, in order of path, as [`walk`] finds them.
pub(crate) fn list(root: &Root, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
    let mut found = Listing::of(prefix.map_or(".", ObjectPath::as_str));
    let mut push = |path: ObjectPath, id: FileId| found.push(id.describe(&path));
    match prefix.map(|path| (path, root.stat(path))) {
        Some((path, Ok(stat))) if stat.is_file => push(path.clone(), stat.id)?,
        Some((_, Ok(stat))) if !stat.is_dir => {}
        Some((_, Err(e))) if e.kind() == ErrorKind::NotFound => {}
        Some((_, Err(e))) => return Err(e),
        None | Some((_, Ok(_))) => walk(root, prefix, &mut push)?,
    }
    Ok(found.end())
}

/// Visits the regular files below a folder. Links to files inside the root are visited, links to folders are not
/// entered, and names that are no object path are left out with a warning. The length limit of paths bounds the depth.
pub(crate) fn walk(
    root: &Root,
    folder: Option<&ObjectPath>,
    visit: &mut dyn FnMut(ObjectPath, FileId) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let name = folder.map_or(".", ObjectPath::as_str);
    let failed = |e: &io::Error| root.explain(name, e);
    let fd = match root.open_raw(name, OFlag::O_PATH | OFlag::O_DIRECTORY) {
        Ok(fd) => fd,
        // Removed since its parent was read.
        Err(e) if e.kind() == io::ErrorKind::NotFound && folder.is_some() => return Ok(()),
        Err(e) => return Err(failed(&e)),
    };
    // Listed through the descriptor, so that the listed folder is the opened one.
    let entries = match std::fs::read_dir(format!("/proc/self/fd/{}", fd.as_raw_fd())) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && name == LOST_AND_FOUND => return Ok(()),
        entries => entries.map_err(|e| failed(&e))?,
    };
    for entry in entries {
        let entry = entry.map_err(|e| failed(&e))?;
        let kind = entry.file_type().map_err(|e| failed(&e))?;
        let file_name = entry.file_name();
        let below = |name: &str| ObjectPath::below(folder, name).ok();
        let Some(path) = file_name.to_str().and_then(below) else {
            tracing::warn!(folder = name, name = ?file_name, "skipped in listing: not a valid object path");
            continue;
        };
        if file_name.as_encoded_bytes().starts_with(PARTIAL.as_bytes()) {
            continue;
        }
        if kind.is_dir() {
            walk(root, Some(&path), visit)?;
            continue;
        }
        match root.stat_file(&path) {
            Ok(id) => visit(path, id)?,
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) if kind.is_symlink() => tracing::warn!(%path, error = %e, "skipped in listing"),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes a file under construction in the same folder, makes it durable, and renames it into place.
pub(crate) fn put(root: &Root, path: &ObjectPath, body: &Body) -> Result<Object, StorageError> {
    // The source is opened first: if it is missing, nothing is created.
    let (mut source, size): (Box<dyn Read>, u64) = match body {
        Body::Bytes(bytes) => (Box::new(&bytes[..]), bytes.len() as u64),
        Body::File(file) => {
            let failed = |e: io::Error| StorageError::from_io(file.display(), &e);
            let opened = File::open(file).map_err(failed)?;
            let size = opened.metadata().map_err(failed)?.len();
            (Box::new(opened), size)
        }
    };
    put_from(root, path, &mut *source, size)
}

/// Writes the `size` bytes of `source`, like [`put`].
pub(crate) fn put_from(
    root: &Root,
    path: &ObjectPath,
    source: &mut dyn Read,
    size: u64,
) -> Result<Object, StorageError> {
    let (parent, name) = split(path);
    let failed = |e: &io::Error| root.explain(path.as_str(), e);
    let folder = make_folders(root, parent).map_err(|e| failed(&e))?;
    let (mut file, partial) = Partial::create(&folder).map_err(|e| failed(&e))?;
    // In pieces of a size that suits the disk.
    let copied = io::copy(&mut BufReader::with_capacity(COPY_BYTES, source), &mut file).map_err(|e| failed(&e))?;
    if copied != size {
        let detail = format!("{copied} bytes instead of {size}: the file changed while it was read");
        return Err(ErrorKind::Changed.error(path, detail));
    }
    file.sync_all().map_err(|e| failed(&e))?;
    partial.rename_to(&file, name).map_err(|e| failed(&e))?;
    folder.sync_all().map_err(|e| failed(&e))?;
    // Taken after the renaming, which changes the file's change time.
    let id: FileId = stat_fd(file.as_fd()).map_err(|e| failed(&e))?.id;
    Ok(id.describe(path))
}

/// Removes a file. Folders that become empty stay.
pub(crate) fn delete(root: &Root, path: &ObjectPath) -> Result<(), StorageError> {
    if !root.stat(path)?.is_file {
        return Err(not_a_file(path));
    }
    unlink(root, path, UnlinkatFlags::NoRemoveDir)
}

/// Removes a folder; fails if it is not empty.
pub(crate) fn remove_folder(root: &Root, path: &ObjectPath) -> Result<(), StorageError> {
    unlink(root, path, UnlinkatFlags::RemoveDir)
}

fn unlink(root: &Root, path: &ObjectPath, flags: UnlinkatFlags) -> Result<(), StorageError> {
    let failed = |e: &io::Error| root.explain(path.as_str(), e);
    let (parent, name) = split(path);
    let parent = if parent.is_empty() { "." } else { parent };
    let folder = root.open_raw(parent, FOLDER).map_err(|e| failed(&e))?;
    unlinkat(&folder, name, flags).map_err(|e| failed(&e.into()))?;
    File::from(folder).sync_all().map_err(|e| failed(&e))
}

/// Splits a path into its folder and last segment.
fn split(path: &ObjectPath) -> (&str, &str) {
    path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()))
}

/// Opens the folder at `path`; creates missing folders.
fn make_folders(root: &Root, path: &str) -> io::Result<File> {
    let mut folder = File::from(root.open_raw(c".", FOLDER)?);
    let mut end = 0;
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        end += segment.len() + usize::from(end > 0);
        let so_far = &path[..end];
        let below = match root.open_raw(so_far, FOLDER) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&folder, segment, Mode::from_bits_retain(0o777)) {
                    Err(e) if e != Errno::EEXIST => return Err(e.into()),
                    _ => folder.sync_all()?,
                }
                root.open_raw(so_far, FOLDER)?
            }
            opened => opened?,
        };
        folder = below.into();
    }
    Ok(folder)
}

/// Incomplete file: without a name where the file system supports it, so that a killed process leaves nothing; else with
/// a name that is removed unless it is renamed into place.
struct Partial<'a> {
    folder: &'a File,
    name: Option<String>,
}

impl<'a> Partial<'a> {
    fn create(folder: &'a File) -> io::Result<(File, Self)> {
        let (flags, mode) = (OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::from_bits_retain(0o644));
        if let Ok(fd) = openat(folder, ".", flags | OFlag::O_TMPFILE, mode) {
            return Ok((fd.into(), Self { folder, name: None }));
        }
        let flags = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let (fd, name) = with_free_name(|name| openat(folder, name, flags, mode))?;
        let name = Some(name);
        Ok((fd.into(), Self { folder, name }))
    }

    /// Replaces the file at `name`. The file without a name gets one first, because a link does not replace a file.
    fn rename_to(mut self, file: &File, name: &str) -> io::Result<()> {
        let folder = self.folder;
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let give = |name: &str| linkat(folder, link.as_str(), folder, name, AtFlags::AT_SYMLINK_FOLLOW);
        let temporary = match self.name.take() {
            Some(temporary) => temporary,
            None => with_free_name(give)?.1,
        };
        let temporary = self.name.insert(temporary);
        renameat(folder, temporary.as_str(), folder, name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = unlinkat(self.folder, name.as_str(), UnlinkatFlags::NoRemoveDir)
        {
            tracing::warn!(name, %error, "cannot remove a file under construction");
        }
    }
}

/// Makes a file under construction with a name that is free.
fn with_free_name<T>(make: impl Fn(&str) -> nix::Result<T>) -> io::Result<(T, String)> {
    let mut attempts = 0;
    loop {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PARTIAL}{}-{serial}", std::process::id());
        match make(&name) {
            Ok(made) => return Ok((made, name)),
            // Left by an earlier process with the same id, or made by a process on another machine.
            Err(Errno::EEXIST) if attempts < NAME_ATTEMPTS => attempts += 1,
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_source_that_changed_its_length_replaces_nothing() {
        let above = tempfile::tempdir().unwrap();
        let (root, path) = (Root::open(above.path()).unwrap(), ObjectPath::new("x").unwrap());
        put(&root, &path, &Body::Bytes("old".into())).unwrap();
        for size in [2, 4] {
            let refused = put_from(&root, &path, &mut b"new".as_slice(), size).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Changed, "{refused}");
        }
        assert_eq!(std::fs::read(above.path().join("x")).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_killed_put_leaves_no_file_and_a_finished_put_replaces() {
        let above = tempfile::tempdir().unwrap();
        let folder = File::open(above.path()).unwrap();
        let names = || std::fs::read_dir(above.path()).unwrap().count();
        let (file, partial) = Partial::create(&folder).unwrap();
        // Not every file system supports files without a name.
        let named = usize::from(partial.name.is_some());
        std::mem::forget(partial);
        drop(file);
        assert_eq!(names(), named);
        std::fs::write(above.path().join("x"), "old").unwrap();
        for finish in [false, true] {
            let (mut file, partial) = Partial::create(&folder).unwrap();
            file.write_all(b"new").unwrap();
            if finish {
                partial.rename_to(&file, "x").unwrap();
            } else {
                drop(partial);
            }
            let want = if finish { "new" } else { "old" };
            assert_eq!(std::fs::read_to_string(above.path().join("x")).unwrap(), want);
            assert_eq!(names(), named + 1);
        }
    }
}
