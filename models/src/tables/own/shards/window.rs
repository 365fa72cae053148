//! Sequential reader of a file in large pieces, by offset. In: a range. Out: its bytes, as many as there are.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;

/// File with the piece that was read last.
pub(super) struct Window {
    file: File,
    len: u64,
    start: u64,
    piece: Vec<u8>,
}

impl Window {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|e| format!("cannot open it: {e}"))?;
        let len = file.metadata().map_err(|e| format!("cannot look at it: {e}"))?.len();
        Ok(Self {
            file,
            len,
            start: 0,
            piece: Vec::new(),
        })
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the bytes of a range, fewer at the end of the file. The caller limits its length.
    pub(super) fn get(&mut self, range: Range<u64>) -> Result<&[u8], String> {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        let wanted = (end - start) as usize;
        let held = self.start..self.start + self.piece.len() as u64;
        if start < held.start || end > held.end {
            let rest = usize::try_from(self.len - start).unwrap_or(usize::MAX);
            self.piece.resize(wanted.max(PIECE_BYTES.min(rest)), 0);
            self.start = start;
            let read = self.file.read_exact_at(&mut self.piece, start);
            if let Err(e) = read {
                self.piece.clear();
                return Err(format!("offset {start}: it cannot be read: {e}"));
            }
        }
        let from = (start - self.start) as usize;
        Ok(&self.piece[from..from + wanted])
    }
}
