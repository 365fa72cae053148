//! Listing, writing and removing files below a root. Everything here blocks, and is called on blocking threads only.

use super::root::{FileId, Root, c_path, not_a_file, stat_fd};
use crate::error::{ErrorKind, StorageError};
use crate::limits::Listing;
use crate::path::ObjectPath;
use crate::tier::{Body, Object};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files under construction have names that begin so; a listing leaves them out.
const PARTIAL: &str = ".tierlab-put-";
/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// Names tried for a file under construction before giving up.
const NAME_ATTEMPTS: u32 = 100;
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Lists the regular files at and below `prefix`, in order of path. Links to files inside the root are listed, links
/// to folders are not entered, and names that are no object path are left out with a warning.
pub(crate) fn list(root: &Root, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
    let mut found = Listing::of(prefix.map_or(".", ObjectPath::as_str));
    match prefix {
        None => walk(root, None, &mut found)?,
        Some(path) => match root.stat(path) {
            Ok(stat) if stat.is_file => found.push(stat.id.describe(path))?,
            Ok(stat) if stat.is_dir => walk(root, Some(path), &mut found)?,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        },
    }
    Ok(found.end())
}

/// Lists a folder. The length limit of paths bounds the depth.
fn walk(root: &Root, folder: Option<&ObjectPath>, found: &mut Listing) -> Result<(), StorageError> {
    let name = folder.map_or(".", ObjectPath::as_str);
    let failed = |e: &io::Error| root.explain(name, e);
    let c_name = folder.map_or_else(|| c".".to_owned(), c_path);
    let fd = match root.open_raw(&c_name, libc::O_PATH | libc::O_DIRECTORY) {
        Ok(fd) => fd,
        // Removed since its parent was read: it is not there to be listed.
        Err(e) if e.kind() == io::ErrorKind::NotFound && folder.is_some() => return Ok(()),
        Err(e) => return Err(failed(&e)),
    };
    // Listed through the descriptor, so that the folder listed is the folder opened.
    let entries = std::fs::read_dir(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(|e| failed(&e))?;
    for entry in entries {
        let entry = entry.map_err(|e| failed(&e))?;
        let kind = entry.file_type().map_err(|e| failed(&e))?;
        let file_name = entry.file_name();
        let below = file_name.to_str().and_then(|name| match folder {
            Some(folder) => folder.join(name).ok(),
            None => ObjectPath::new(name).ok(),
        });
        let Some(path) = below else {
            tracing::warn!(folder = name, name = ?file_name, "left out of a listing: no object path");
            continue;
        };
        if file_name.as_encoded_bytes().starts_with(PARTIAL.as_bytes()) {
            continue;
        }
        if kind.is_dir() {
            walk(root, Some(&path), found)?;
            continue;
        }
        match root.stat_file(&path) {
            Ok(id) => found.push(id.describe(&path))?,
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) if kind.is_symlink() => tracing::warn!(%path, error = %e, "left out of a listing"),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes a temporary file in the same folder, makes it durable, and renames it into place.
pub(crate) fn put(root: &Root, path: &ObjectPath, body: &Body) -> Result<Object, StorageError> {
    // The source is opened first: when it is missing, nothing is made.
    let mut source: Box<dyn Read> = match body {
        Body::Bytes(bytes) => Box::new(&bytes[..]),
        Body::File(file) => {
            Box::new(File::open(file).map_err(|e| StorageError::from_io(file.display().to_string(), &e))?)
        }
    };
    put_from(root, path, &mut *source)
}

/// Writes the bytes of `source`, like [`put`].
pub(crate) fn put_from(root: &Root, path: &ObjectPath, source: &mut dyn Read) -> Result<Object, StorageError> {
    let (parent, name) = split(path);
    let failed = |e: &io::Error| root.explain(path.as_str(), e);
    let folder = make_folders(root, parent).map_err(|e| failed(&e))?;
    let (mut file, partial) = Partial::create(&folder).map_err(|e| failed(&e))?;
    copy(source, &mut file).map_err(|e| failed(&e))?;
    file.sync_all().map_err(|e| failed(&e))?;
    partial.rename_to(&name).map_err(|e| failed(&e))?;
    folder.sync_all().map_err(|e| failed(&e))?;
    // After renaming, which counts as a change of the file.
    let id: FileId = stat_fd(file.as_fd()).map_err(|e| failed(&e))?.id;
    Ok(id.describe(path))
}

/// In pieces of a size that the disk likes.
fn copy(from: &mut dyn Read, to: &mut File) -> io::Result<()> {
    let mut piece = vec![0; COPY_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&piece[..n])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Removes a file. Folders that become empty stay.
pub(crate) fn delete(root: &Root, path: &ObjectPath) -> Result<(), StorageError> {
    let failed = |e: &io::Error| root.explain(path.as_str(), e);
    if !root.stat(path)?.is_file {
        return Err(not_a_file(path));
    }
    let (parent, name) = split(path);
    let c_parent = CString::new(parent).unwrap_or_default();
    let parent = if parent.is_empty() { c"." } else { &c_parent };
    let folder = root
        .open_raw(parent, libc::O_RDONLY | libc::O_DIRECTORY)
        .map_err(|e| failed(&e))?;
    // SAFETY: the descriptor is open and the name ends in NUL.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }).map_err(|e| failed(&e))?;
    File::from(folder).sync_all().map_err(|e| failed(&e))
}

/// The folder's path and the last segment.
fn split(path: &ObjectPath) -> (&str, CString) {
    let (parent, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
    (parent, CString::new(name).unwrap_or_default())
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Opens the folder at `path`, creating missing folders on the way.
fn make_folders(root: &Root, path: &str) -> io::Result<File> {
    let mut folder = File::from(root.open_raw(c".", libc::O_RDONLY | libc::O_DIRECTORY)?);
    let mut end = 0;
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        end += segment.len() + usize::from(end > 0);
        let so_far = CString::new(&path[..end])?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let below = match root.open_raw(&so_far, flags) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let name = CString::new(segment)?;
                // SAFETY: the descriptor is open and the name ends in NUL.
                match check(unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), 0o777) }) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                    _ => folder.sync_all()?,
                }
                root.open_raw(&so_far, flags)?
            }
            opened => opened?,
        };
        folder = below.into();
    }
    Ok(folder)
}

/// Incomplete file; removed unless it was renamed into place.
struct Partial<'a> {
    folder: &'a File,
    name: CString,
    placed: bool,
}

impl<'a> Partial<'a> {
    fn create(folder: &'a File) -> io::Result<(File, Self)> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let mut attempts = 0;
        loop {
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            let name = CString::new(format!("{PARTIAL}{}-{serial}", std::process::id()))?;
            match create_at(folder, &name, flags) {
                Ok(fd) => {
                    return Ok((
                        fd.into(),
                        Self {
                            folder,
                            name,
                            placed: false,
                        },
                    ));
                }
                // Left by an earlier process with the same id, or made by a process on another machine.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempts < NAME_ATTEMPTS => attempts += 1,
                Err(e) => return Err(e),
            }
        }
    }

    fn rename_to(mut self, name: &CStr) -> io::Result<()> {
        let folder = self.folder.as_raw_fd();
        // SAFETY: the descriptor is open and both names end in NUL.
        check(unsafe { libc::renameat(folder, self.name.as_ptr(), folder, name.as_ptr()) })?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // SAFETY: the descriptor is open and the name ends in NUL.
            if let Err(error) = check(unsafe { libc::unlinkat(self.folder.as_raw_fd(), self.name.as_ptr(), 0) }) {
                tracing::warn!(name = ?self.name, %error, "a file under construction could not be removed");
            }
        }
    }
}

fn create_at(folder: &File, name: &CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open and the name ends in NUL.
    let fd = unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, 0o644) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
