//! Files of a stage. In: versions, blocks, records. Out: files that survive a crash, and the state recovered after a
//! crash. Everything here blocks. Does not choose the blocks to keep.
//!
//! Each version has a number, a sparse data file in which every block is at its offset in the object, and a journal
//! ([`super::journal`]). A journal is renamed into place after its data file exists; a block's record is appended after
//! the block is on the disk. Removal uses the opposite order. Files with other names are not touched.

use super::journal::{Header, PAGE_BYTES, Record, Replayed, append_line};
use crate::{ErrorKind, StorageError};
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const LOCK: &str = "stage.lock";
const DATA: &str = "data";
const JOURNAL: &str = "journal";
/// Name prefix of the parts of a shared root, followed by a number.
const PART: &str = "part-";
/// Maximum number of processes that share a root.
const MAX_PARTS: usize = 64;
/// Name suffix of a journal that has not been renamed yet.
const NEW: &str = "new";

/// Folder of a stage, locked against other processes.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    _lock: File,
    /// Errno of simulated write failures in tests.
    #[cfg(test)]
    pub(super) fault: std::sync::Arc<std::sync::atomic::AtomicI32>,
}

/// Files of a version, open for writing.
#[derive(Debug)]
pub(super) struct Files {
    data: File,
    journal: File,
    pub(super) journal_bytes: u64,
}

/// State of a version recovered from the folder.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: u64,
    pub(super) header: Header,
    pub(super) blocks: BTreeMap<u64, Vec<u32>>,
    used: SystemTime,
}

/// Name of a version's data file in the folder.
pub(super) fn data_name(id: u64) -> String {
    format!("{id:016x}.{DATA}")
}

/// Size of the data file: whole pages, so that it can be read directly.
const fn data_bytes(header: &Header) -> u64 {
    header.size.next_multiple_of(PAGE_BYTES)
}

fn numbered(name: &str) -> Option<(u64, &str)> {
    let (number, kind) = name.split_once('.')?;
    let id = u64::from_str_radix(number, 16).ok()?;
    (number == format!("{id:016x}") && [DATA, JOURNAL, NEW].contains(&kind)).then_some((id, kind))
}

/// Number of the version whose journal has this name.
pub(super) fn journal_id(name: &str) -> Option<u64> {
    numbered(name).filter(|(_, kind)| *kind == JOURNAL).map(|(id, _)| id)
}

/// Parts of a shared root, with their names.
pub(super) fn part_folders(root: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && name.starts_with(PART)
        {
            parts.push((name, entry.path()));
        }
    }
    parts.sort();
    Ok(parts)
}

impl Folder {
    /// Opens the folder, creates it if missing, and cleans up after a crash. Returns the staged versions, least
    /// recently written first.
    pub(super) fn open(root: &Path, block_bytes: u64) -> Result<(Self, Vec<Found>), StorageError> {
        Self::open_unless_in_use(root, block_bytes)?.ok_or_else(|| {
            let detail = "folder is used by another tier: give each its own `staged.root`, or set `staged.shared`";
            ErrorKind::Invalid.error(root.display(), detail)
        })
    }

    /// Opens the first unlocked part of a shared root, and returns its name.
    pub(super) fn open_part(root: &Path, block_bytes: u64) -> Result<(Self, Vec<Found>, String), StorageError> {
        for number in 0..MAX_PARTS {
            let part = format!("{PART}{number:02}");
            if let Some((folder, found)) = Self::open_unless_in_use(&root.join(&part), block_bytes)? {
                return Ok((folder, found, part));
            }
        }
        let detail =
            format!("{MAX_PARTS} processes already stage in this folder, the limit; use another `staged.root`");
        Err(ErrorKind::Invalid.error(root.display(), detail))
    }

    fn open_unless_in_use(root: &Path, block_bytes: u64) -> Result<Option<(Self, Vec<Found>)>, StorageError> {
        let failed = |e: &io::Error| {
            let detail = format!("cannot stage in this folder: {e}; make it writable or set `staged.root`");
            (StorageError::from_io("", e).kind()).error(root.display(), detail)
        };
        fs::create_dir_all(root).map_err(|e| failed(&e))?;
        let lock = File::create(root.join(LOCK)).map_err(|e| failed(&e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(failed(&e)),
        }
        let folder = Self {
            root: root.to_owned(),
            _lock: lock,
            #[cfg(test)]
            fault: std::sync::Arc::default(),
        };
        let found = folder.scan(block_bytes).map_err(|e| failed(&e))?;
        Ok(Some((folder, found)))
    }

    fn path(&self, id: u64, kind: &str) -> PathBuf {
        self.root.join(format!("{id:016x}.{kind}"))
    }

    /// Recovers all complete versions; removes the rest.
    fn scan(&self, block_bytes: u64) -> io::Result<Vec<Found>> {
        let mut ids = HashSet::new();
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            match name.to_str().and_then(numbered) {
                Some((id, NEW)) => fs::remove_file(self.path(id, NEW))?,
                Some((id, _)) => {
                    ids.insert(id);
                }
                None => {}
            }
        }
        let mut found = Vec::new();
        for id in ids {
            match self.recover(id, block_bytes)? {
                Some(version) => found.push(version),
                None => self.remove(id),
            }
        }
        found.sort_by_key(|version| (version.used, version.id));
        Ok(found)
    }

    /// Recovers the complete blocks of a version; `None` if the version cannot be used.
    fn recover(&self, id: u64, block_bytes: u64) -> io::Result<Option<Found>> {
        let path = self.path(id, JOURNAL);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let Some(replayed) = Replayed::of(&bytes) else {
            return Ok(None);
        };
        let (header, blocks) = (replayed.header, replayed.blocks);
        let data = match OpenOptions::new().write(true).open(self.path(id, DATA)) {
            Ok(data) => data,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let meta = data.metadata()?;
        if blocks.is_empty() || header.block_bytes != block_bytes || meta.len() != data_bytes(&header) {
            return Ok(None);
        }
        if replayed.valid_bytes < bytes.len() {
            OpenOptions::new()
                .write(true)
                .open(&path)?
                .set_len(replayed.valid_bytes as u64)?;
        }
        // Blocks written but never recorded occupy untracked disk space.
        let staged: u64 = blocks.keys().map(|block| header.len_of(*block)).sum();
        if meta.blocks() * 512 > staged + header.block_bytes / 2 && punch_gaps(&data, &header, &blocks).is_err() {
            return Ok(None);
        }
        let used = fs::metadata(&path)?.modified()?;
        Ok(Some(Found {
            id,
            header,
            blocks,
            used,
        }))
    }

    /// Creates the files of a new version.
    pub(super) fn create(&self, id: u64, header: &Header) -> io::Result<Files> {
        #[cfg(test)]
        self.check_fault()?;
        let data = File::create(self.path(id, DATA))?;
        data.set_len(data_bytes(header))?;
        self.write_journal(id, header, &[])?;
        self.reopen(id)
    }

    /// Writes a complete journal to a temporary file, and renames it.
    pub(super) fn write_journal(&self, id: u64, header: &Header, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        append_line(header, &mut bytes)?;
        for record in records {
            append_line(record, &mut bytes)?;
        }
        let new = self.path(id, NEW);
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.path(id, JOURNAL))?;
        File::open(&self.root)?.sync_all()
    }

    /// Opens the files of a version.
    pub(super) fn reopen(&self, id: u64) -> io::Result<Files> {
        let data = OpenOptions::new().write(true).open(self.path(id, DATA))?;
        let journal = OpenOptions::new().append(true).open(self.path(id, JOURNAL))?;
        let journal_bytes = journal.metadata()?.len();
        Ok(Files {
            data,
            journal,
            journal_bytes,
        })
    }

    /// Removes the files of a version, the journal first: data without a journal is ignored.
    pub(super) fn remove(&self, id: u64) {
        for kind in [JOURNAL, DATA] {
            match fs::remove_file(self.path(id, kind)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(file = %self.path(id, kind).display(), error = %e, "cannot remove a staged file");
                }
                _ => {}
            }
        }
    }

    /// Writes a block at its offset. Not durable before [`Files::sync`].
    pub(super) fn write_block(&self, files: &Files, at: u64, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        self.check_fault()?;
        files.data.write_all_at(bytes, at)
    }

    #[cfg(test)]
    fn check_fault(&self) -> io::Result<()> {
        match self.fault.load(std::sync::atomic::Ordering::SeqCst) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Frees the disk space of a part of a file.
fn punch(file: &File, at: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(file, flags, at.cast_signed(), len.cast_signed()).map_err(io::Error::from)
}

/// Frees the disk space of everything but these blocks.
fn punch_gaps(data: &File, header: &Header, blocks: &BTreeMap<u64, Vec<u32>>) -> io::Result<()> {
    let mut at = 0;
    let starts = blocks.keys().map(|block| block * header.block_bytes);
    for start in starts.chain([data_bytes(header)]) {
        if start > at {
            punch(data, at, start - at)?;
        }
        at = start + header.block_bytes;
    }
    Ok(())
}

impl Files {
    /// Makes all blocks written so far durable, and drops them from the page cache, which reads bypass.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.data.sync_data()?;
        // Only saves memory, so failure does not matter.
        let _ = posix_fadvise(&self.data, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        Ok(())
    }

    /// Frees a block's disk space.
    pub(super) fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        punch(&self.data, at, len)
    }

    /// Appends records. A partial write is truncated, so that later records are not lost behind it.
    pub(super) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            append_line(record, &mut bytes)?;
        }
        let written = self.journal.write_all(&bytes);
        match written {
            Ok(()) => self.journal_bytes += bytes.len() as u64,
            Err(_) => self.journal.set_len(self.journal_bytes)?,
        }
        written
    }
}
