//! Object bytes between files and HTTP bodies, in large chunks and off the async threads.
//!
//! In: an open file and a range, or a request body. Out: a body that reads one chunk ahead, or a staged file.

use super::folder::{Folder, FolderError, Staged, Stored};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use md5::{Digest, Md5};
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3Result, s3_error};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::JoinHandle;

/// Bytes read or written at a time: large enough that the hop to a blocking thread is noise.
pub(super) const CHUNK_BYTES: u64 = 512 << 10;

/// Reads exactly `range`.
pub(super) fn read_exact(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}

/// Reads exactly `range` of the version that was opened; a write in place since then is an error, never a mix.
pub(super) fn read_version(file: &File, range: Range<u64>, stored: &Stored) -> io::Result<Bytes> {
    let bytes = read_exact(file, range)?;
    // The kernel sets the modification time before it copies the bytes of a write.
    if Stored::of(&file.metadata()?) != *stored {
        return Err(io::Error::other("changed in place during the read"));
    }
    Ok(bytes)
}

/// Stream of a file's range: `first` has already been read, and the rest is read one chunk ahead of the network.
pub(super) struct FileStream {
    file: Arc<File>,
    stored: Stored,
    first: Option<Bytes>,
    rest: Range<u64>,
    /// Bytes not yet yielded.
    remaining: u64,
    ahead: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FileStream {
    pub(super) fn new(file: File, stored: Stored, first: Bytes, rest: Range<u64>) -> Self {
        let remaining = first.len() as u64 + (rest.end - rest.start);
        Self {
            file: Arc::new(file),
            stored,
            first: Some(first),
            rest,
            remaining,
            ahead: None,
        }
    }

    fn read_ahead(&mut self) {
        if self.rest.is_empty() {
            return;
        }
        let chunk = self.rest.start..self.rest.end.min(self.rest.start + CHUNK_BYTES);
        self.rest.start = chunk.end;
        let (file, stored) = (Arc::clone(&self.file), self.stored.clone());
        self.ahead = Some(tokio::task::spawn_blocking(move || read_version(&file, chunk, &stored)));
    }
}

impl Stream for FileStream {
    type Item = Result<Bytes, s3s::StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            self.remaining -= first.len() as u64;
            self.read_ahead();
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(ahead) = &mut self.ahead else {
            return Poll::Ready(None);
        };
        let read = ready!(Pin::new(ahead).poll(cx)).map_err(io::Error::other).flatten();
        self.ahead = None;
        if let Ok(bytes) = &read {
            self.remaining -= bytes.len() as u64;
            self.read_ahead();
        }
        Poll::Ready(Some(read.map_err(Into::into)))
    }
}

impl ByteStream for FileStream {
    fn remaining_length(&self) -> RemainingLength {
        usize::try_from(self.remaining).map_or_else(|_| RemainingLength::unknown(), RemainingLength::new_exact)
    }
}

/// Receives a body as a staged file. Checks `content_md5`, in base64, if given.
pub(super) async fn receive(
    folder: &Arc<Folder>,
    body: Option<StreamingBlob>,
    announced: Option<u64>,
    content_md5: Option<&str>,
) -> S3Result<Staged> {
    let mut sink = Sink {
        staged: folder.stage()?,
        buffer: BytesMut::new(),
        written: 0,
        md5: content_md5.map(|_| Md5::new()),
    };
    if let Some(mut body) = body {
        while let Some(bytes) = body.next().await {
            let bytes = bytes.map_err(|e| s3_error!(IncompleteBody, "the body ended early: {e}"))?;
            sink.buffer.extend_from_slice(&bytes);
            if sink.buffer.len() as u64 >= CHUNK_BYTES {
                sink = sink.flush().await?;
            }
        }
    }
    sink = sink.flush().await?;
    if let Some(announced) = announced.filter(|announced| *announced != sink.written) {
        let got = sink.written;
        return Err(s3_error!(
            IncompleteBody,
            "received {got} bytes, but {announced} were announced"
        ));
    }
    let digest = sink.md5.map(|md5| BASE64_STANDARD.encode(md5.finalize()));
    if digest.as_deref() != content_md5 {
        return Err(s3_error!(BadDigest, "the body does not match its Content-MD5"));
    }
    Ok(sink.staged)
}

struct Sink {
    staged: Staged,
    buffer: BytesMut,
    written: u64,
    md5: Option<Md5>,
}

impl Sink {
    async fn flush(mut self) -> Result<Self, FolderError> {
        let flushed = tokio::task::spawn_blocking(move || {
            if let Some(md5) = &mut self.md5 {
                md5.update(&self.buffer);
            }
            self.staged.file.write_all_at(&self.buffer, self.written)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
            Ok(self)
        });
        flushed.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn a_stream_yields_its_range_and_knows_its_length() {
        let mut file = tempfile::tempfile().unwrap();
        let whole: Vec<u8> = (0..3 * CHUNK_BYTES + 77)
            .map(|i| u8::try_from(i % 251).unwrap())
            .collect();
        file.write_all(&whole).unwrap();
        let first = read_exact(&file, 5..10).unwrap();
        let stored = Stored::of(&file.metadata().unwrap());
        let mut stream = FileStream::new(file, stored, first, 10..whole.len() as u64);
        assert_eq!(stream.remaining_length().exact(), Some(whole.len() - 5));
        let mut got = Vec::new();
        while let Some(chunk) = stream.next().await {
            got.extend_from_slice(&chunk.unwrap());
        }
        assert_eq!(got, &whole[5..]);
        assert_eq!(stream.remaining_length().exact(), Some(0));
    }

    #[tokio::test]
    async fn a_file_cut_short_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"short").unwrap();
        let stored = Stored::of(&file.metadata().unwrap());
        let mut stream = FileStream::new(file, stored, Bytes::new(), 0..CHUNK_BYTES);
        let mut last = None;
        while let Some(chunk) = stream.next().await {
            last = Some(chunk);
        }
        assert!(last.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_file_written_to_in_place_breaks_the_stream_off() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 3 * CHUNK_BYTES as usize]).unwrap();
        let stored = Stored::of(&file.metadata().unwrap());
        let first = read_version(&file, 0..10, &stored).unwrap();
        let writer = file.try_clone().unwrap();
        writer.write_all_at(&[2; 100], 2 * CHUNK_BYTES).unwrap();
        // Whatever the state of the file system's clock.
        writer
            .set_modified(stored.modified + std::time::Duration::from_secs(1))
            .unwrap();
        assert!(read_version(&file, 0..10, &stored).is_err());
        let mut stream = FileStream::new(file, stored, first, 10..3 * CHUNK_BYTES);
        let mut broken = false;
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(bytes) => assert!(bytes.iter().all(|byte| *byte == 1)),
                Err(_) => broken = true,
            }
        }
        assert!(broken);
    }
}
