//! Folder whose boundary no path can cross. In: object paths. Out: open files and their attributes.
//!
//! Every look-up uses `openat2` with `RESOLVE_BENEATH`, so neither `..` nor a symbolic link leads out of the folder,
//! not even a link swapped between a check and its use. Links that stay inside are followed.

use crate::{ErrorKind, Object, ObjectPath, StorageError};
use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// `STATX_DIOALIGN` of linux/stat.h, missing from the libc crate for this target.
const STATX_DIOALIGN: u32 = 0x2000;
/// `RAMFS_MAGIC` of linux/magic.h.
const RAMFS_MAGIC: FsType = FsType(0x8584_58F6);
/// Maximum attempts of `openat2`, which may fail if something is renamed meanwhile.
const OPEN_ATTEMPTS: u32 = 16;

#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    pub(crate) location: PathBuf,
}

/// Identity of a version of a file. Equal identities mean equal bytes, unless a writer changes the file in place twice
/// within one tick of the file system's clock (some milliseconds before Linux 6.13, which made it fine-grained). A file
/// replaced by renaming, as by [`put`](super::store::put), always differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    inode: u64,
    pub(crate) size: u64,
    pub(crate) modified_ns: i128,
    changed_ns: i128,
}

/// Attributes of a file from `statx`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileStat {
    pub(crate) id: FileId,
    /// Number of the file's names (hard links).
    pub(crate) links: u32,
    pub(crate) is_file: bool,
    pub(crate) is_dir: bool,
    /// Alignments of memory and offset for direct reads, in bytes; zeros if the file does not support them, `None` if
    /// the file system reports none.
    pub(crate) direct_io: Option<(u32, u32)>,
}

impl FileId {
    /// Version mark for readers.
    pub(crate) fn version(&self) -> String {
        let (modified, changed) = (self.modified_ns, self.changed_ns);
        format!("{:x}-{:x}-{modified:x}-{changed:x}", self.inode, self.size)
    }

    pub(crate) fn describe(&self, path: &ObjectPath) -> Object {
        let (path, size, version) = (path.clone(), self.size, self.version());
        Object { path, size, version }
    }
}

/// Object path as a C string.
pub(crate) fn c_path(path: &ObjectPath) -> CString {
    // An object path has no control characters, so no NUL: `ObjectPath::new` has checked it.
    CString::new(path.as_str()).unwrap_or_default()
}

impl Root {
    /// Opens the folder. Blocks.
    pub(crate) fn open(location: &Path) -> Result<Self, StorageError> {
        let failed = |e: &io::Error| {
            let what = format!("cannot use folder as a tier's root: {e}; create it or set `root`");
            ErrorKind::of_io(e.kind()).error(location.display(), what)
        };
        let options = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = Self {
            dir: open(location, options, Mode::empty()).map_err(|e| failed(&e.into()))?,
            location: location.to_owned(),
        };
        // This look-up detects a kernel without openat2 at the start, not at the first read.
        root.open_raw(c".", OFlag::O_PATH).map_err(|e| root.explain(".", &e))?;
        Ok(root)
    }

    /// Opens a path below the folder; `.` is the folder.
    pub(crate) fn open_raw<P: ?Sized + NixPath>(&self, path: &P, flags: OFlag) -> io::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let mut attempts = 0;
        loop {
            attempts += 1;
            match openat2(&self.dir, path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) if attempts < OPEN_ATTEMPTS => {}
                opened => return Ok(opened?),
            }
        }
    }

    /// Attributes of the file at a path, following links inside the folder. Blocks.
    pub(crate) fn stat(&self, path: &ObjectPath) -> Result<FileStat, StorageError> {
        let opened = self.open_raw(path.as_str(), OFlag::O_PATH);
        let stat = opened.and_then(|fd| stat_fd(fd.as_fd()));
        stat.map_err(|e| self.explain(path.as_str(), &e))
    }

    /// Identity of the regular file at a path. Blocks.
    pub(crate) fn stat_file(&self, path: &ObjectPath) -> Result<FileId, StorageError> {
        let stat = self.stat(path)?;
        stat.is_file.then_some(stat.id).ok_or_else(|| not_a_file(path))
    }

    /// Identity of the file that the path names now, without opening it: cheap enough for the reading thread. Links are
    /// followed even out of the folder, so only compare the result with a file that [`open_raw`](Self::open_raw)
    /// opened.
    pub(crate) fn identity(&self, path: &CStr) -> io::Result<FileId> {
        statx(self.dir.as_fd(), path, 0).map(|stat| stat.id)
    }

    /// True if files here exist only in the page cache, so that direct reads are meaningless.
    pub(crate) fn is_page_cache(&self) -> bool {
        let kind = fstatfs(&self.dir).map(|stat| stat.filesystem_type());
        matches!(kind, Ok(TMPFS_MAGIC | RAMFS_MAGIC))
    }

    /// Converts a kernel error about a path, and adds advice.
    pub(crate) fn explain(&self, path: &str, error: &io::Error) -> StorageError {
        let text = error.to_string();
        let (kind, what) = match error.raw_os_error() {
            Some(libc::EXDEV) => (ErrorKind::Denied, "a symbolic link leads out of the tier's root"),
            Some(libc::ELOOP) => (ErrorKind::Denied, "too many symbolic links, or a magic one"),
            Some(libc::ENOSYS) => {
                let what = "the kernel has no openat2: use Linux 5.6 or later";
                (ErrorKind::Unsupported, what)
            }
            _ => (ErrorKind::of_io(error.kind()), text.as_str()),
        };
        kind.error(path, format!("{what}, below {}", self.location.display()))
    }
}

pub(crate) fn not_a_file(path: &ObjectPath) -> StorageError {
    ErrorKind::NotFound.error(path, "not an object but a folder or special file")
}

/// Identity of an open file and the number of its names, by `fstat`, which takes less time than `statx`.
pub(crate) fn id_and_links(fd: BorrowedFd<'_>) -> io::Result<(FileId, u32)> {
    let stat = fstat(fd)?;
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let id = FileId {
        inode: stat.st_ino,
        size: stat.st_size.cast_unsigned(),
        modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    };
    Ok((id, u32::try_from(stat.st_nlink).unwrap_or(u32::MAX)))
}

/// Attributes of an open file.
pub(crate) fn stat_fd(fd: BorrowedFd<'_>) -> io::Result<FileStat> {
    statx(fd, c"", libc::AT_EMPTY_PATH)
}

fn statx(dir: BorrowedFd<'_>, path: &CStr, flags: i32) -> io::Result<FileStat> {
    let mut buffer = MaybeUninit::<libc::statx>::zeroed();
    let mask = libc::STATX_BASIC_STATS | STATX_DIOALIGN;
    // SAFETY: the descriptor is open, the path ends in NUL, and the buffer is writable and of the right type.
    let result = unsafe { libc::statx(dir.as_raw_fd(), path.as_ptr(), flags, mask, buffer.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled it, and it holds only integers.
    let stat = unsafe { buffer.assume_init() };
    let nanoseconds = |t: libc::statx_timestamp| i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec);
    let format = u32::from(stat.stx_mode) & libc::S_IFMT;
    let has_alignment = stat.stx_mask & STATX_DIOALIGN != 0;
    Ok(FileStat {
        id: FileId {
            inode: stat.stx_ino,
            size: stat.stx_size,
            modified_ns: nanoseconds(stat.stx_mtime),
            changed_ns: nanoseconds(stat.stx_ctime),
        },
        links: stat.stx_nlink,
        is_file: format == libc::S_IFREG,
        is_dir: format == libc::S_IFDIR,
        direct_io: has_alignment.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_may_stay_inside_but_not_leave() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::fs::create_dir(inside.path().join("d")).unwrap();
        std::fs::write(inside.path().join("d/plain"), "yy").unwrap();
        symlink("d/plain", inside.path().join("good")).unwrap();
        symlink("d", inside.path().join("folder")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("absolute")).unwrap();
        symlink("../../../../../../etc", inside.path().join("up")).unwrap();
        symlink("/proc/self/root", inside.path().join("magic")).unwrap();
        symlink("loop", inside.path().join("loop")).unwrap();
        let root = Root::open(inside.path()).unwrap();
        let stat = |path| root.stat_file(&ObjectPath::new(path).unwrap());
        assert_eq!(stat("good").unwrap().size, 2);
        assert_eq!(stat("folder/plain").unwrap().size, 2);
        for (path, kind) in [
            ("absolute", ErrorKind::Denied),
            ("up/passwd", ErrorKind::Denied),
            ("magic/etc/passwd", ErrorKind::Denied),
            ("loop", ErrorKind::Denied),
            ("d", ErrorKind::NotFound),
            ("good/below", ErrorKind::NotFound),
        ] {
            let error = stat(path).unwrap_err();
            assert_eq!((error.kind(), error.object()), (kind, path), "{error}");
        }
    }

    #[test]
    fn a_root_must_be_a_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Root::open(file.path()).is_err());
        let error = Root::open(Path::new("/no/such/folder")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
    }
}
