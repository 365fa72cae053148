//! Usual calls for a local file, as a comparison with the tiers: `pread`, with and without `O_DIRECT`, and memory maps.
//! In: a pick. Out: the bytes, checked. Each caller is a thread with its own buffer.

use super::map::Map;
use crate::chance::Pick;
use crate::content::Data;
use crate::drive::Blocking;
use crate::plan::Way;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tierlab_instrument::page_cache::drop_file;

/// Alignment of direct reads, in bytes.
const ALIGNMENT: usize = 4096;

/// One caller.
pub(crate) struct LocalCaller {
    way: Way,
    files: Arc<Vec<PathBuf>>,
    data: Data,
    /// A single file stays open; of many, each is opened for each access, as loaders do.
    open: Option<OpenFile>,
    buffer: Vec<u8>,
}

enum OpenFile {
    File(File),
    Map(Map),
}

impl LocalCaller {
    pub(crate) fn new(way: Way, files: Arc<Vec<PathBuf>>, data: Data, block: usize) -> Result<Self> {
        let open = match files.as_slice() {
            [file] => Some(OpenFile::new(way, file)?),
            _ => None,
        };
        Ok(Self {
            way,
            files,
            data,
            open,
            buffer: vec![0; block + ALIGNMENT],
        })
    }

    /// Aligned part of the buffer.
    fn part(&self, pick: Pick) -> Range<usize> {
        let start = self.buffer.as_ptr().align_offset(ALIGNMENT);
        start..start + pick.len
    }
}

impl Blocking for LocalCaller {
    fn prepare(&mut self, pick: Pick) {
        if pick.write {
            let content = self.data.bytes(pick.file, range(pick));
            let part = self.part(pick);
            self.buffer[part].copy_from_slice(&content);
        }
    }

    fn act(&mut self, pick: Pick) -> Result<Instant> {
        let part = self.part(pick);
        let part = &mut self.buffer[part];
        let path = &self.files[pick.file as usize];
        let done = match &self.open {
            Some(open) => open.act(pick, part),
            None => OpenFile::new(self.way, path)?.act(pick, part),
        };
        let ended = Instant::now();
        done.with_context(|| format!("an access to {} failed", path.display()))?;
        self.data.check(pick.file, &range(pick), part, part.len())?;
        Ok(ended)
    }
}

/// Bytes of an access.
pub(super) fn range(pick: Pick) -> Range<u64> {
    pick.offset..pick.offset + pick.len as u64
}

impl OpenFile {
    fn new(way: Way, path: &Path) -> Result<Self> {
        let flags = if way.is_direct() { libc::O_DIRECT } else { 0 };
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(way != Way::Mmap)
                .custom_flags(flags)
                .open(path)
        };
        let file = open().with_context(|| {
            let direct = if flags == 0 {
                ""
            } else {
                " with O_DIRECT; a file system in memory has none: take another --scratch"
            };
            format!("cannot open {}{direct}", path.display())
        })?;
        Ok(match way {
            Way::Mmap => Self::Map(Map::new(&file).with_context(|| format!("cannot map {}", path.display()))?),
            _ => Self::File(file),
        })
    }

    fn act(&self, pick: Pick, part: &mut [u8]) -> std::io::Result<()> {
        match self {
            Self::File(file) if pick.write => file.write_all_at(part, pick.offset),
            Self::File(file) => file.read_exact_at(part, pick.offset),
            Self::Map(map) => map.copy(pick.offset, part),
        }
    }
}

/// Drops files from the page cache.
pub(crate) fn drop_cache(files: &[PathBuf]) -> Result<()> {
    for path in files {
        drop_file(path).with_context(|| format!("cannot drop {} from the page cache", path.display()))?;
    }
    Ok(())
}

/// Reads files once, so that the page cache holds as much of them as fits.
pub(crate) fn warm(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        std::io::copy(&mut file, &mut std::io::sink()).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(())
}
