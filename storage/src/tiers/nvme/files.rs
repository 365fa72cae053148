//! Files opened for reading, and a bounded set of open files. In: objects. Out: open files of exactly that version.

use super::buffer::BUFFER_ALIGN;
use super::lease::{self, Leased};
use super::root::{FileId, Root, c_path, id_and_links, not_a_file, stat_fd};
use super::signals::Signals;
use super::store;
use crate::tasks::blocking;
use crate::tiers::changed;
use crate::{Body, ErrorKind, Object, ObjectPath, StorageError};
use nix::fcntl::OFlag;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Maximum open files kept. A file removed by another program keeps its disk space until it leaves the set.
const MAX_OPEN: usize = 128;
/// Alignment of direct reads if the file system reports none: enough for every usual device.
const DEFAULT_ALIGN: u32 = 4096;
/// Reason for buffered reads on tmpfs: it has no device.
pub(super) const PAGE_CACHE: &str = "the file system exists only in the page cache (tmpfs)";
/// Maximum alignment of direct reads. Larger alignments over-read so much that buffered reads are better.
const LARGEST_ALIGN: u32 = 64 << 10;

/// Maximum age of a path's check for reads from the page cache, and so the time after which a swapped symbolic link or
/// folder in the path is noticed.
const PATH_CHECK: Duration = Duration::from_millis(5);
/// Same while a lease is held, when only this check notices that the file was removed or replaced by renaming.
const LEASED_PATH_CHECK: Duration = Duration::from_millis(1);
/// Minimum reads between two checks of the path for which a lease is taken.
const LEASED_READS: u32 = 16;

/// File opened for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) fd: OwnedFd,
    pub(crate) path: ObjectPath,
    pub(crate) c_path: CString,
    pub(crate) id: FileId,
    /// Number of names at the opening. A removed or replaced file has fewer, even within one tick of the clock.
    links: u32,
    version: String,
    /// Alignment of direct reads in bytes; `None` for buffered reads.
    pub(crate) direct_align: Option<u32>,
    /// Reason for buffered reads although direct reads were requested.
    pub(crate) refusal: Option<&'static str>,
    /// Index in the file table of the ring that reads it, set by the first read.
    pub(super) registration: OnceLock<Registration>,
    checked: Mutex<Checked>,
}

/// Last check of a file's path.
#[derive(Debug)]
struct Checked {
    /// Time at which the path was known to name this file, unchanged.
    at: Instant,
    /// True if nobody has had the file open for writing since then.
    leased: bool,
    /// True if a writer has waited for a lease, after which no other is taken: a writer that does not wait could never
    /// open the file.
    has_writer: bool,
    /// Number of leases given back.
    given_back: u64,
    /// Number of reads since the last check, counted while there is no lease.
    reads: u32,
}

/// Index of a file in a ring's table of registered files, if any. The kernel holds a registered file open; dropping
/// this tells the ring's thread to remove it.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) index: Option<u32>,
    pub(super) signals: Arc<Signals>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.signals.file_closed(index);
        }
    }
}

impl OpenFile {
    /// Opens the file at a path. Blocks.
    fn open(root: &Root, path: &ObjectPath, direct: bool) -> Result<Self, StorageError> {
        // Checked before opening, because opening a pipe would wait for its writer.
        root.stat_file(path)?;
        let c_path = c_path(path);
        let failed = |e: &io::Error| root.explain(path.as_str(), e);
        let opened = direct.then(|| Self::open_direct(root, &c_path)).transpose();
        let (opened, refusal) = match opened.map_err(|e| failed(&e))? {
            Some(Ok(file)) => (Some(file), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let (fd, direct_align) = match opened {
            Some((fd, align)) => (fd, Some(align)),
            None => (root.open_raw(&*c_path, OFlag::O_RDONLY).map_err(|e| failed(&e))?, None),
        };
        let stat = stat_fd(fd.as_fd()).map_err(|e| failed(&e))?;
        if !stat.is_file {
            return Err(not_a_file(path));
        }
        Ok(Self {
            fd,
            path: path.clone(),
            c_path,
            id: stat.id,
            links: stat.links,
            version: stat.id.version(),
            direct_align,
            refusal,
            registration: OnceLock::new(),
            checked: Mutex::new(Checked {
                at: Instant::now(),
                leased: false,
                has_writer: false,
                given_back: 0,
                reads: 0,
            }),
        })
    }

    /// Opens a file for direct reads. Returns the file and its alignment, or why direct reads are refused.
    fn open_direct(root: &Root, path: &CStr) -> io::Result<Result<(OwnedFd, u32), &'static str>> {
        if root.is_page_cache() {
            return Ok(Err(PAGE_CACHE));
        }
        let fd = match root.open_raw(path, OFlag::O_RDONLY | OFlag::O_DIRECT) {
            Ok(fd) => fd,
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                return Ok(Err("the file system refuses O_DIRECT"));
            }
            Err(e) => return Err(e),
        };
        Ok(match stat_fd(fd.as_fd())?.direct_io {
            None => Ok((fd, DEFAULT_ALIGN)),
            Some((_, 0)) => Err("the file system does not support direct I/O for this file"),
            Some((memory, offset)) if usable(memory, offset) => Ok((fd, offset)),
            Some(_) => Err("the device's alignment is too large"),
        })
    }

    /// True if the file is the version that was looked up.
    fn is_version_of(&self, object: &Object) -> bool {
        self.id.size == object.size && self.version == object.version
    }

    /// Checks that its path still names this file, unchanged. `found` is the path's identity after the last byte, so
    /// every byte was of this version.
    pub(crate) fn check_current(&self, root: &Root, found: &io::Result<FileId>) -> Result<(), StorageError> {
        match found {
            Ok(id) if *id == self.id => Ok(()),
            Ok(id) => Err(changed(&self.path, &self.version, id.version())),
            Err(e) => Err(root.explain(self.path.as_str(), e)),
        }
    }

    /// Checks that the file was unchanged until `now`, a time after its last byte was read, and, if the last check is
    /// older than [`PATH_CHECK`], that its path still names it. Under a lease nobody can have written, which takes no
    /// system call to know. Without one, a look-up by descriptor notices a file that was written, removed or replaced by
    /// renaming, in 40 % of the time of a read of 4 KiB from the page cache; a look-up by path takes longer still. In a
    /// lower layer of an overlay, or in a network file system, only the path may show a change.
    pub(super) fn check_soon(self: &Arc<Self>, root: &Root, now: Instant) -> Result<(), StorageError> {
        let mut checked = self.checked.lock();
        let (age, given_back) = (now.saturating_duration_since(checked.at), checked.given_back);
        let mut leased = checked.leased;
        if leased && age < LEASED_PATH_CHECK {
            return Ok(());
        }
        checked.reads = checked.reads.saturating_add(1);
        let is_read_often = checked.reads >= LEASED_READS && !checked.has_writer;
        drop(checked);
        if !leased && age < PATH_CHECK && id_and_links(self.fd()).is_ok_and(|found| found == (self.id, self.links)) {
            return Ok(());
        }
        // If no writer waits now, the kernel ends the lease in a second at the earliest.
        leased = (leased || (is_read_often && lease::take(self))) && lease::is_held(self.fd());
        self.check_current(root, &root.identity(&self.c_path))?;
        let mut checked = self.checked.lock();
        (checked.at, checked.reads) = (now, 0);
        checked.leased = leased && checked.given_back == given_back;
        Ok(())
    }
}

impl Leased for OpenFile {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn keeps_lease(&self) -> bool {
        let mut checked = self.checked.lock();
        let is_held = lease::is_held(self.fd());
        let keeps = is_held && checked.at.elapsed() < lease::IDLE;
        if !keeps {
            checked.leased = false;
            checked.has_writer |= !is_held;
            checked.given_back += 1;
            lease::give_back(self.fd());
        }
        keeps
    }
}

impl Drop for OpenFile {
    /// A ring may hold the file open a little longer.
    fn drop(&mut self) {
        lease::give_back(self.fd());
    }
}

#[cfg(feature = "gds")]
impl tierlab_gds::routes::SourceFile for OpenFile {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn direct_align(&self) -> Option<u32> {
        self.direct_align
    }
}

fn usable(memory: u32, offset: u32) -> bool {
    memory as usize <= BUFFER_ALIGN && offset.is_power_of_two() && offset <= LARGEST_ALIGN
}

/// Set of open files; the least recently used is evicted first. The path of an open file may no longer name it: each
/// read checks that after its last byte.
#[derive(Debug, Default)]
struct OpenFiles {
    uses: u64,
    files: HashMap<ObjectPath, (Arc<OpenFile>, u64)>,
}

impl OpenFiles {
    /// Open file of this version.
    fn get(&mut self, object: &Object) -> Option<Arc<OpenFile>> {
        self.uses += 1;
        let (file, used) = self.files.get_mut(&object.path)?;
        *used = self.uses;
        file.is_version_of(object).then(|| file.clone())
    }

    /// Adds a file to the set.
    fn add(&mut self, file: Arc<OpenFile>) {
        self.uses += 1;
        self.files.insert(file.path.clone(), (file, self.uses));
        if self.files.len() > MAX_OPEN {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(path, _)| path.clone()) {
                self.files.remove(&oldest);
            }
        }
    }
}

/// Files of a folder, some of them kept open.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    pub(crate) root: Arc<Root>,
    /// If true, files are opened for direct reads where possible.
    direct: bool,
    open: Mutex<OpenFiles>,
}

impl LocalFiles {
    pub(crate) fn new(root: Arc<Root>, direct: bool) -> Self {
        let open = Mutex::default();
        Self { root, direct, open }
    }

    /// Returns a file of the looked-up version; opens it on a blocking thread if it is not in the set.
    pub(crate) async fn open(&self, object: &Object) -> Result<Arc<OpenFile>, StorageError> {
        let known = self.open.lock().get(object);
        if let Some(file) = known {
            return Ok(file);
        }
        let (of, direct) = (object.path.clone(), self.direct);
        let open = move |root: &Root| OpenFile::open(root, &of, direct);
        let file = self.run(object.path.as_str(), open).await?;
        if !file.is_version_of(object) {
            return Err(changed(&object.path, &object.version, &file.version));
        }
        let file = Arc::new(file);
        self.open.lock().add(file.clone());
        Ok(file)
    }

    /// Closes a file that is no longer the looked-up version.
    pub(crate) fn noticed<T>(&self, object: &Object, read: Result<T, StorageError>) -> Result<T, StorageError> {
        read.inspect_err(|e| {
            if matches!(e.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
                self.open.lock().files.remove(&object.path);
            }
        })
    }

    /// Runs work on the folder on a blocking thread.
    async fn run<T: Send + 'static>(
        &self,
        about: &str,
        work: impl FnOnce(&Root) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let root = self.root.clone();
        blocking(about, move || work(&root)).await
    }

    pub(crate) async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        let of = path.clone();
        let stat = move |root: &Root| root.stat_file(&of).map(|id| id.describe(&of));
        self.run(path.as_str(), stat).await
    }

    pub(crate) async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let (prefix, location) = (prefix.cloned(), self.root.location.display().to_string());
        self.run(&location, move |root| store::list(root, prefix.as_ref()))
            .await
    }

    pub(crate) async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        let of = path.clone();
        self.run(path.as_str(), move |root| store::put(root, &of, &body)).await
    }

    pub(crate) async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        let of = path.clone();
        let deleted = self.run(path.as_str(), move |root| store::delete(root, &of)).await;
        // The disk space is freed once the ring has released the file, too: soon, but possibly after this returns.
        self.open.lock().files.remove(path);
        deleted
    }

    /// Removes an empty folder.
    pub(crate) async fn remove_folder(&self, path: &ObjectPath) -> Result<(), StorageError> {
        let of = path.clone();
        self.run(path.as_str(), move |root| store::remove_folder(root, &of))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_file_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let mut files = OpenFiles::default();
        let mut objects = Vec::new();
        for i in 0..=MAX_OPEN {
            let path = ObjectPath::new(&format!("f{i}")).unwrap();
            std::fs::write(folder.path().join(path.as_str()), [0; 3]).unwrap();
            let file = OpenFile::open(&root, &path, true).unwrap();
            objects.push(file.id.describe(&path));
            files.add(Arc::new(file));
            assert!(files.get(&objects[0]).is_some(), "used all the time");
        }
        assert!(files.get(&objects[1]).is_none(), "longest unused");
        assert!(files.get(&objects[MAX_OPEN]).is_some());
        let other = Object {
            version: "other".to_owned(),
            ..objects[0].clone()
        };
        assert!(files.get(&other).is_none());
        files.files.remove(&objects[0].path);
        assert!(files.get(&objects[0]).is_none());
    }
}
