//! Common calls for a local file, to compare with the tiers: `pread`, with and without `O_DIRECT`, and memory maps.
//! In: a pick. Out: the bytes, checked. Each caller is a thread with its own buffer.

use super::map::Map;
use crate::content::{CHECKED_BYTES, Data};
use crate::drive::BlockingCaller;
use crate::plan::{Operation, Point, Way, WriteSync};
use crate::random::Pick;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tierlab_instrument::host::drop_cached;

/// Alignment of direct reads, in bytes.
const ALIGNMENT: usize = 4096;

/// One caller.
pub(crate) struct LocalCaller {
    point: Point,
    files: Arc<Vec<PathBuf>>,
    data: Data,
    /// A single file stays open; with many, each access opens its file, like a loader.
    open: Option<OpenFile>,
    /// Memory of reads and writes. Filled before the first write: generating content takes longer than writing it.
    buffer: Vec<u8>,
}

enum OpenFile {
    File(File),
    Map(Map),
}

impl LocalCaller {
    pub(crate) fn new(point: &Point, files: Arc<Vec<PathBuf>>, data: Data, caller: u32) -> Result<Self> {
        let open = match files.as_slice() {
            [file] => Some(OpenFile::new(point, file)?),
            _ => None,
        };
        let block = usize::try_from(point.block_bytes)?;
        let mut own = Self {
            point: point.clone(),
            files,
            open,
            buffer: vec![0; block + ALIGNMENT],
            data,
        };
        if point.operation != Operation::Read {
            let content = own.data.bytes(caller, 0..point.block_bytes);
            let part = own.part(block);
            own.buffer[part].copy_from_slice(&content);
        }
        Ok(own)
    }

    /// Aligned part of the buffer.
    fn part(&self, len: usize) -> Range<usize> {
        let start = self.buffer.as_ptr().align_offset(ALIGNMENT);
        start..start + len
    }
}

impl BlockingCaller for LocalCaller {
    fn prepare(&mut self, pick: Pick) {
        if pick.write {
            // Expected bytes of a read of this block.
            let checked = pick.len.min(CHECKED_BYTES);
            let content = self.data.bytes(pick.file, pick.offset..pick.offset + checked as u64);
            let part = self.part(checked);
            self.buffer[part].copy_from_slice(&content);
        }
    }

    fn act(&mut self, pick: Pick) -> Result<Instant> {
        let part = self.part(pick.len);
        let part = &mut self.buffer[part];
        let path = &self.files[pick.file as usize];
        let done = match &self.open {
            Some(open) => open.act(pick, part),
            None => OpenFile::new(&self.point, path)?.act(pick, part),
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
    fn new(Point { way, sync, .. }: &Point, path: &Path) -> Result<Self> {
        let direct = if way.is_direct() { libc::O_DIRECT } else { 0 };
        let each = if *sync == WriteSync::Each { libc::O_DSYNC } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(*way != Way::Mmap).custom_flags(direct | each);
        let file = options.open(path).with_context(|| {
            let advice = match way.is_direct() {
                true => " with O_DIRECT; file systems in memory do not support it: choose another --scratch",
                false => "",
            };
            format!("cannot open {}{advice}", path.display())
        })?;
        Ok(match way {
            Way::Mmap => Self::Map(Map::new(&file).with_context(|| format!("cannot map {}", path.display()))?),
            _ => Self::File(file),
        })
    }

    fn act(&self, pick: Pick, part: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) if pick.write => file.write_all_at(part, pick.offset),
            Self::File(file) => file.read_exact_at(part, pick.offset),
            Self::Map(map) => map.copy(pick.offset, part),
        }
    }
}

/// Makes files durable.
pub(crate) fn sync(files: &[PathBuf]) -> Result<()> {
    each(files, "sync", |path| File::open(path)?.sync_all())
}

/// Drops files from the page cache.
pub(crate) fn drop_cache(files: &[PathBuf]) -> Result<()> {
    each(files, "drop from the page cache", |path| drop_cached(path).map(drop))
}

/// Reads files once, so that the page cache contains as much of them as fits.
pub(crate) fn warm(files: &[PathBuf]) -> Result<()> {
    let read = |path: &Path| io::copy(&mut File::open(path)?, &mut io::sink()).map(drop);
    each(files, "read", read)
}

fn each(files: &[PathBuf], what: &str, act: impl Fn(&Path) -> io::Result<()>) -> Result<()> {
    let one = |path: &PathBuf| act(path).with_context(|| format!("cannot {what}: {}", path.display()));
    files.iter().try_for_each(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn each_write_is_durable_if_its_point_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let flags = |sync| {
            let point = Point {
                way: Way::Pread,
                sync,
                ..Point::reads("t", 4096)
            };
            let OpenFile::File(open) = OpenFile::new(&point, file.path()).unwrap() else {
                panic!("a map instead of a file");
            };
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", open.as_raw_fd())).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            i32::from_str_radix(flags.trim(), 8).unwrap()
        };
        let is_durable = |sync| flags(sync) & libc::O_DSYNC != 0;
        let all = [WriteSync::None, WriteSync::Each, WriteSync::End];
        assert_eq!(all.map(is_durable), [false, true, false]);
    }
}
