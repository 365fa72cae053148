//! Source of a put: bytes in memory, or a local file in pieces. In: a [`Body`]. Out: its size and its pieces. Knows
//! nothing of their destination.

use crate::tasks::blocking;
use crate::{Body, ErrorKind, StorageError};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// An opened body.
pub(super) struct Source {
    bytes: Bytes,
    /// File and its name, if the bytes are not in memory.
    file: Option<(Arc<File>, String)>,
    /// Length in bytes.
    pub(super) size: u64,
}

impl Source {
    /// Opens a body. If the file shrinks afterwards, pieces fail; if it grows, the added bytes are not read.
    pub(super) async fn open(body: Body) -> Result<Self, StorageError> {
        match body {
            Body::Bytes(bytes) => Ok(Self {
                size: bytes.len() as u64,
                bytes,
                file: None,
            }),
            Body::File(path) => {
                let name = path.display().to_string();
                let open = move || open_file(&path).map_err(|e| StorageError::from_io(path.display(), &e));
                let (file, size) = blocking(&name, open).await?;
                Ok(Self {
                    bytes: Bytes::new(),
                    file: Some((Arc::new(file), name)),
                    size,
                })
            }
        }
    }

    /// Fills the front of `into` with bytes from `at`, which must be before the end. Blocks.
    pub(super) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let Some((file, _)) = &self.file else {
            let from = at as usize;
            into.copy_from_slice(&self.bytes[from..from + into.len()]);
            return Ok(into.len());
        };
        file.read_at(into, at)
    }

    /// Piece at `at`: at most `len` bytes, not past the end.
    pub(super) async fn piece(&self, at: u64, len: u64) -> Result<Bytes, StorageError> {
        let len = len.min(self.size.saturating_sub(at));
        let Some((file, name)) = &self.file else {
            let index = |offset: u64| self.bytes.len().min(offset as usize);
            return Ok(self.bytes.slice(index(at)..index(at + len)));
        };
        let (file, of) = (Arc::clone(file), name.clone());
        let read = move || {
            let mut buffer = vec![0; len as usize];
            match file.read_exact_at(&mut buffer, at) {
                Ok(()) => Ok(buffer.into()),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(ErrorKind::Changed.error(of, "the file was truncated while it was read"))
                }
                Err(e) => Err(StorageError::from_io(of, &e)),
            }
        };
        blocking(name, read).await
    }
}

fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok((file, meta.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_are_the_same_from_memory_and_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"0123456789").unwrap();
        let memory = Body::Bytes(Bytes::from_static(b"0123456789"));
        for body in [memory, Body::File(file.path().to_owned())] {
            let source = Source::open(body).await.unwrap();
            assert_eq!(source.size, 10);
            assert_eq!(source.piece(2, 3).await.unwrap(), "234");
            assert_eq!(source.piece(8, 100).await.unwrap(), "89");
            assert_eq!(source.piece(10, 1).await.unwrap(), "");
        }
    }

    #[tokio::test]
    async fn a_file_that_shrinks_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"0123456789").unwrap();
        let source = Source::open(Body::File(file.path().to_owned())).await.unwrap();
        file.as_file().set_len(3).unwrap();
        assert_eq!(source.piece(0, 10).await.unwrap_err().kind(), ErrorKind::Changed);
    }
}
