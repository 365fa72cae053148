//! Blocks staged by other processes of this machine in a shared root. In: blocks. Out: bytes of the blocks that a
//! neighbour has whole, and claims, by which one process at a time fetches a block. Only reads files of other
//! processes.
//!
//! Each process writes a part of the root, its own folder ([`super::folder`]), and reads the journals of the others.
//! Every page is checked against its checksum, so a block that its owner evicts meanwhile counts as missing. A claim is
//! a lock on a byte of a file, one byte per block of each version. The kernel releases the claims of a process that
//! dies.

use super::folder::{data_name, journal_id, part_folders};
use super::journal::{Header, Replayed, checks_of};
use crate::ranges;
use bytes::Bytes;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CLAIMS: &str = "claims.lock";
/// Blocks of a version with their own byte; further blocks share bytes.
const CLAIMED_BLOCKS: u64 = 1 << 22;
/// Versions with their own bytes.
const CLAIMED_VERSIONS: u64 = 1 << 40;
/// Wait between two checks of a claim.
const FIRST_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_millis(20);
/// Wait after which a claim is given up: a process that is stopped holds its claims and fetches nothing.
const WAIT_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of known damaged blocks; above it neighbours are not asked.
const MAX_DISTRUSTED: usize = 4096;

/// Other parts of a root.
pub(super) struct Neighbours {
    root: PathBuf,
    /// Name of this process's part.
    own_part: String,
    claims: Arc<File>,
    journals: Mutex<HashMap<PathBuf, Journal>>,
    distrusted: Mutex<HashSet<(Header, u64)>>,
}

/// A neighbour's journal, as far as it was read.
struct Journal {
    inode: u64,
    replayed: Replayed,
    data: Arc<File>,
}

/// A neighbour's data file, and blocks in it with the checksums of their pages.
type NeighbourBlocks = (Arc<File>, Vec<(u64, Vec<u32>)>);

/// Blocks that no other process fetches until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    file: Arc<File>,
    held: Vec<Range<u64>>,
}

impl Neighbours {
    /// Opens a root for the process that writes the part `own_part`. Blocks.
    pub(super) fn open(root: &Path, own_part: &str) -> io::Result<Self> {
        let claims = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join(CLAIMS))?;
        Ok(Self {
            root: root.to_owned(),
            own_part: own_part.to_owned(),
            claims: Arc::new(claims),
            journals: Mutex::default(),
            distrusted: Mutex::default(),
        })
    }

    /// Reads the blocks that neighbours have staged.
    pub(super) async fn read(self: &Arc<Self>, header: &Header, blocks: &[u64]) -> Vec<(u64, Bytes)> {
        let (neighbours, wanted, version) = (self.clone(), blocks.to_vec(), header.clone());
        let read = tokio::task::spawn_blocking(move || neighbours.read_now(&version, wanted));
        read.await.unwrap_or_default()
    }

    fn read_now(&self, header: &Header, mut wanted: Vec<u64>) -> Vec<(u64, Bytes)> {
        {
            let distrusted = self.distrusted.lock();
            if distrusted.len() >= MAX_DISTRUSTED {
                return Vec::new();
            }
            wanted.retain(|block| distrusted.is_empty() || !distrusted.contains(&(header.clone(), *block)));
        }
        if let Err(error) = self.read_journals() {
            tracing::warn!(root = %self.root.display(), %error, "cannot read blocks staged by other processes");
        }
        let mut read = Vec::new();
        for (data, blocks) in self.staged_blocks(header, &wanted) {
            for (block, checks) in blocks {
                if wanted.contains(&block)
                    && let Some(bytes) = whole_block(&data, header, block, &checks)
                {
                    read.push((block, bytes));
                    wanted.retain(|wanted| *wanted != block);
                }
            }
        }
        read
    }

    /// Blocks of a version that each neighbour has, among the wanted ones.
    fn staged_blocks(&self, header: &Header, wanted: &[u64]) -> Vec<NeighbourBlocks> {
        let journals = self.journals.lock();
        let of_version = journals.values().filter(|journal| journal.replayed.header == *header);
        let blocks_of = |journal: &Journal| -> NeighbourBlocks {
            let staged = &journal.replayed.blocks;
            let blocks = wanted
                .iter()
                .filter_map(|block| Some((*block, staged.get(block)?.clone())));
            (Arc::clone(&journal.data), blocks.collect())
        };
        of_version.map(blocks_of).collect()
    }

    /// Reads the records that neighbours have written since the last call.
    fn read_journals(&self) -> io::Result<()> {
        let mut present = HashSet::new();
        for (part, folder) in part_folders(&self.root)? {
            if part == self.own_part {
                continue;
            }
            for entry in std::fs::read_dir(&folder)? {
                let entry = entry?;
                let Some(id) = entry.file_name().to_str().and_then(journal_id) else {
                    continue;
                };
                let path = entry.path();
                // Renamed or removed meanwhile: a later call will find the current state.
                if self.follow(&path, &folder.join(data_name(id))).is_ok() {
                    present.insert(path);
                }
            }
        }
        self.journals.lock().retain(|path, _| present.contains(path));
        Ok(())
    }

    /// Reads the new records of a journal.
    fn follow(&self, path: &Path, data: &Path) -> io::Result<()> {
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        let mut journals = self.journals.lock();
        if let Some(journal) = journals.get_mut(path).filter(|journal| journal.inode == meta.ino()) {
            let read_bytes = journal.replayed.valid_bytes as u64;
            if meta.len() > read_bytes {
                file.seek(SeekFrom::Start(read_bytes))?;
                let mut more = Vec::new();
                file.read_to_end(&mut more)?;
                journal.replayed.extend(&more);
            }
            return Ok(());
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let Some(replayed) = Replayed::of(&bytes) else {
            return Ok(());
        };
        let journal = Journal {
            inode: meta.ino(),
            replayed,
            data: Arc::new(File::open(data)?),
        };
        journals.insert(path.to_owned(), journal);
        Ok(())
    }

    /// Waits until no other process fetches any of these blocks, which are in order, at most for [`WAIT_LIMIT`]. On
    /// file systems without such locks, blocks are not claimed.
    pub(super) async fn claim(&self, header: &Header, blocks: &[u64]) -> Claim {
        let mut claim = Claim {
            file: self.claims.clone(),
            held: Vec::new(),
        };
        let bytes = blocks.iter().map(|block| byte_of(header, *block));
        let bytes: Vec<_> = bytes.map(|at| at..at + 1).collect();
        let mut waited = Duration::ZERO;
        // In the order of the file, so that no two wait for each other.
        for run in ranges::merged(&bytes) {
            let mut wait = FIRST_WAIT;
            loop {
                match lock_bytes(&self.claims, &run, libc::F_WRLCK) {
                    Ok(()) => {
                        claim.held.push(run);
                        break;
                    }
                    Err(Errno::EAGAIN | Errno::EACCES) if waited < WAIT_LIMIT => {
                        tokio::time::sleep(wait).await;
                        waited += wait;
                        wait = (2 * wait).min(MAX_WAIT);
                    }
                    Err(error) => {
                        tracing::warn!(root = %self.root.display(), %error, "cannot claim blocks: other processes may fetch them too");
                        return claim;
                    }
                }
            }
        }
        claim
    }

    /// Stops asking neighbours for these blocks: the fetched bytes are damaged, and neighbours may have the same bytes.
    pub(super) fn distrust(&self, header: &Header, blocks: &[u64]) {
        let mut distrusted = self.distrusted.lock();
        for block in blocks {
            if distrusted.len() < MAX_DISTRUSTED {
                distrusted.insert((header.clone(), *block));
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for run in &self.held {
            if let Err(error) = lock_bytes(&self.file, run, libc::F_UNLCK) {
                tracing::warn!(%error, "cannot release a claim");
            }
        }
    }
}

/// Lock byte of a block.
fn byte_of(header: &Header, block: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    header.hash(&mut hasher);
    (hasher.finish() % CLAIMED_VERSIONS) * CLAIMED_BLOCKS + block % CLAIMED_BLOCKS
}

fn lock_bytes(file: &File, run: &Range<u64>, kind: i32) -> Result<(), Errno> {
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: run.start.cast_signed(),
        l_len: (run.end - run.start).cast_signed(),
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(|_| ())
}

/// A block, if it fits its checksums.
fn whole_block(data: &File, header: &Header, block: u64, checks: &[u32]) -> Option<Bytes> {
    let mut bytes = vec![0; header.len_of(block) as usize];
    data.read_exact_at(&mut bytes, block * header.block_bytes).ok()?;
    (checks_of(&bytes) == checks).then(|| bytes.into())
}
