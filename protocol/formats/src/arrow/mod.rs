//! Checks Arrow IPC before its reader sees it. In: a file, a stream, or a message. Out: nothing, or the fault and its
//! offset.
//!
//! A message states how many bytes each of its buffers grows to, and readers allocate that much before they unpack: a
//! false number ends the process, because a failed allocation cannot be caught. So the numbers are checked first. The
//! check reads the messages and eight bytes of each compressed buffer, and no data. Source:
//! arrow.apache.org/docs/format/Columnar.html, "IPC streaming format", "IPC file format" and "Compression".

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use arrow_ipc::{
    Block, BodyCompression, Buffer, CompressionType, Message, RecordBatch, root_as_footer, root_as_message,
};
use std::fmt::Display;
use std::io::{self, Read, Seek, SeekFrom};

/// Maximum bytes of a batch in an imported file. A text column cannot be larger than half of it.
pub const MAX_BATCH_BYTES: u64 = 4 << 30;

/// First and last bytes of a file. A stream starts differently.
pub const MAGIC: &[u8; 6] = b"ARROW1";
/// End marker of a stream.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Bytes of a file's trailer: the footer's length and the magic.
const TRAILER_BYTES: u64 = 10;

/// Checks every message; a batch may grow to `limit` bytes. Leaves `file` at an arbitrary position.
///
/// # Errors
/// A file that is cut off or damaged, with the offset; a stream that was cut between two batches, or has bytes after
/// its end; a failed read.
pub fn check(file: &mut (impl Read + Seek), limit: u64) -> Result<()> {
    let size = file.seek(SeekFrom::End(0)).map_err(|e| unreadable(0, &e))?;
    let mut checker = MessageChecker { file, size, limit };
    let head = checker.bytes(0, size.min(MAGIC.len() as u64))?;
    if head == MAGIC {
        checker.blocks()
    } else {
        let end = checker.stream()?;
        checker.check_end(end)
    }
}

struct MessageChecker<'a, R> {
    file: &'a mut R,
    size: u64,
    limit: u64,
}

impl<R: Read + Seek> MessageChecker<'_, R> {
    /// Checks the messages named in the footer of a file.
    fn blocks(&mut self) -> Result<()> {
        let end = self.size.saturating_sub(TRAILER_BYTES);
        let trailer = self.bytes(end, self.size - end)?;
        let trailer = trailer.first_chunk::<{ TRAILER_BYTES as usize }>();
        let [a, b, c, d, magic @ ..] = trailer.ok_or_else(|| fault(end, "too short for an Arrow IPC file"))?;
        if magic != MAGIC {
            let what = "it does not end with ARROW1: it was cut off, or its writer did not finish it";
            return Err(fault(end, what));
        }
        let len = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
        let start = end.checked_sub(len);
        let start = start.ok_or_else(|| fault(end, format!("footer of {len} bytes exceeds the file")))?;
        let bytes = self.bytes(start, len)?;
        let footer = root_as_footer(&bytes).map_err(|e| fault(start, format!("invalid footer: {e}")))?;
        let blocks = footer.dictionaries().into_iter().chain(footer.recordBatches());
        for block in blocks.flatten() {
            self.block(block, start)?;
        }
        Ok(())
    }

    /// Checks a message of a file; messages must end before `end`.
    fn block(&mut self, block: &Block, end: u64) -> Result<()> {
        let (offset, metadata, body) = (block.offset(), i64::from(block.metaDataLength()), block.bodyLength());
        let outside = || {
            let what =
                format!("the footer names a batch at {offset}, of {metadata} and {body} bytes, outside of the file");
            fault(end, what)
        };
        let (start, len) = range_within(offset, metadata, end).ok_or_else(outside)?;
        let (body_start, body_len) = range_within(offset.saturating_add(metadata), body, end).ok_or_else(outside)?;
        let bytes = self.bytes(start, len)?;
        let bytes = without_prefix(&bytes).map_err(|what| fault(start, what))?;
        self.message(start, bytes, body_start, body_len)
    }

    /// Checks the messages of a stream, one after another, and returns the end of the last.
    fn stream(&mut self) -> Result<u64> {
        let mut offset = 0;
        while offset < self.size {
            let pos = offset;
            let mut length: [u8; 4] = self.array(offset)?;
            offset += 4;
            if length == CONTINUATION {
                length = self.array(offset)?;
                offset += 4;
            }
            let length = i32::from_le_bytes(length);
            let length = u64::try_from(length).map_err(|_| fault(pos, format!("invalid metadata length: {length}")))?;
            if length == 0 {
                return Ok(offset);
            }
            let bytes = self.bytes(offset, length)?;
            offset += length;
            let body = parse(&bytes).map_err(|what| fault(pos, what))?.bodyLength();
            let body = u64::try_from(body).map_err(|_| fault(pos, format!("invalid body length: {body}")))?;
            if body > self.size - offset {
                let left = self.size - offset;
                let what = format!("a body of {body} bytes, but {left} are left: it was cut off");
                return Err(fault(pos, what));
            }
            self.message(pos, &bytes, offset, body)?;
            offset += body;
        }
        Ok(offset)
    }

    /// Checks that a stream ends at `offset`, where its reader stopped. A stream ends at its end marker or at the end of its
    /// file (arrow.apache.org/docs/format/Columnar.html, IPC streaming format), so one that was cut off between two
    /// batches, or is followed by another one, looks complete to a reader.
    fn check_end(&mut self, offset: u64) -> Result<()> {
        if offset < self.size {
            let left = self.size - offset;
            bail!("the stream ends at offset {offset}, but {left} bytes follow: write each stream to its own file");
        }
        let tail = self.size.saturating_sub(END.len() as u64);
        ensure!(
            self.bytes(tail, self.size - tail)? == END,
            "the stream ends at offset {offset} without an end marker: its writer did not finish it"
        );
        Ok(())
    }

    fn message(&mut self, pos: u64, metadata: &[u8], body: u64, body_bytes: u64) -> Result<()> {
        let error = |what: anyhow::Error| fault(pos, what);
        let limit = self.limit;
        let message = parse(metadata).map_err(error)?;
        let mut prefix = |within: u64| self.array(body + within);
        buffers(&message, body_bytes, limit, &mut prefix).map_err(error)
    }

    fn array<const N: usize>(&mut self, offset: u64) -> Result<[u8; N]> {
        let bytes = self.bytes(offset, N as u64)?;
        bytes.try_into().map_err(|_| fault(offset, "it was cut off"))
    }

    /// Reads `len` bytes, after checking that the file has them.
    fn bytes(&mut self, offset: u64, len: u64) -> Result<Vec<u8>> {
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            let what = format!("{len} bytes are missing: it was cut off, or is damaged");
            return Err(fault(offset, what));
        }
        let mut bytes = vec![0; len as usize];
        let found = self.file.seek(SeekFrom::Start(offset));
        let read = found.and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|e| unreadable(offset, &e))?;
        Ok(bytes)
    }
}

fn fault(offset: u64, what: impl Display) -> anyhow::Error {
    anyhow!("offset {offset}: {what}")
}

/// Returns the start and the length of a range that ends at `end` or before.
fn range_within(offset: i64, length: i64, end: u64) -> Option<(u64, u64)> {
    let (start, len) = (u64::try_from(offset).ok()?, u64::try_from(length).ok()?);
    (start.checked_add(len)? <= end).then_some((start, len))
}

fn unreadable(offset: u64, error: &io::Error) -> anyhow::Error {
    fault(offset, format!("cannot be read: {error}"))
}

/// Bytes of the length at the start of a compressed buffer.
const PREFIX_BYTES: u64 = 8;
/// Length of a buffer that is stored uncompressed.
const NOT_COMPRESSED: i64 = -1;
/// Maximum expansion of a byte of LZ4: each byte of a match's length stands for 255 (LZ4 block format, "Match length").
const MAX_LZ4_EXPANSION: u64 = 255;
/// Marker before the length of metadata since version 0.15 of the format; older metadata has the length alone.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Checks a message against its body. `metadata` is bare; `limit` is the maximum total size of the unpacked buffers, in
/// bytes.
///
/// # Errors
/// Invalid metadata; a buffer outside of the body, or one that claims an impossible size; more than `limit`.
pub fn check_message(metadata: &[u8], body: &[u8], limit: u64) -> Result<()> {
    buffers(&parse(metadata)?, body.len() as u64, limit, &mut |at| {
        let at = usize::try_from(at).ok();
        let prefix = at.and_then(|at| body.get(at..)).and_then(<[u8]>::first_chunk);
        prefix.copied().context("outside of the body")
    })
}

/// Returns the metadata of a file's message without its prefix. Skips exactly what a reader skips, or the reader would
/// see another message than was checked.
///
/// # Errors
/// Too few bytes.
pub fn without_prefix(encapsulated: &[u8]) -> Result<&[u8]> {
    let skipped = if encapsulated.starts_with(&CONTINUATION) { 8 } else { 4 };
    let without_prefix = encapsulated.get(skipped..);
    without_prefix.with_context(|| format!("metadata of {} bytes: too few", encapsulated.len()))
}

fn parse(metadata: &[u8]) -> Result<Message<'_>> {
    root_as_message(metadata).map_err(|e| anyhow!("invalid message: {e}"))
}

/// Checks the buffers of a message against a body of `body_bytes` bytes; `prefix` reads eight bytes at an offset in the
/// body.
fn buffers(
    message: &Message<'_>,
    body_bytes: u64,
    limit: u64,
    prefix: &mut dyn FnMut(u64) -> Result<[u8; PREFIX_BYTES as usize]>,
) -> Result<()> {
    let dictionary = message.header_as_dictionary_batch().and_then(|batch| batch.data());
    let Some(batch) = message.header_as_record_batch().or(dictionary) else {
        return Ok(());
    };
    let mut total = 0_u64;
    for (at, buffer) in batch.buffers().into_iter().flatten().enumerate() {
        let describe = |what: anyhow::Error| anyhow!("buffer {at}: {what}");
        total = total.saturating_add(unpacked_bytes(&batch, buffer, body_bytes, prefix).map_err(describe)?);
        ensure!(
            total <= limit,
            "the first {} buffers grow to {total} bytes; the limit of a batch is {limit}: write smaller batches, unless \
             the file is damaged",
            at + 1
        );
    }
    Ok(())
}

/// Returns the size that a buffer grows to, in bytes.
fn unpacked_bytes(
    batch: &RecordBatch<'_>,
    buffer: &Buffer,
    body_bytes: u64,
    prefix: &mut dyn FnMut(u64) -> Result<[u8; PREFIX_BYTES as usize]>,
) -> Result<u64> {
    let (offset, length) = (buffer.offset(), buffer.length());
    let (start, len) = range_within(offset, length, body_bytes)
        .with_context(|| format!("offset {offset}, {length} bytes: outside of a body of {body_bytes}"))?;
    let Some(codec) = batch.compression().as_ref().map(BodyCompression::codec) else {
        return Ok(len);
    };
    let packed = match len.checked_sub(PREFIX_BYTES) {
        Some(packed) => packed,
        // An empty buffer does not have a length either.
        None if len == 0 => return Ok(0),
        None => bail!("{len} bytes: too few for a compressed buffer"),
    };
    let claimed = i64::from_le_bytes(prefix(start)?);
    if claimed == NOT_COMPRESSED {
        return Ok(packed);
    }
    let claimed = u64::try_from(claimed).map_err(|_| anyhow!("claims {claimed} bytes"))?;
    if codec == CompressionType::LZ4_FRAME && claimed > packed.saturating_mul(MAX_LZ4_EXPANSION) {
        bail!("claims {claimed} bytes, but {packed} bytes of LZ4 cannot grow to that");
    }
    Ok(claimed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow_ipc::CompressionType;
    use arrow_ipc::reader::{FileReader, StreamReader};
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    use proptest::prelude::*;
    use std::io::Cursor;
    use std::sync::Arc;

    const LIMIT: u64 = 1 << 20;

    fn ends_at(bytes: &[u8], offset: u64) -> Result<()> {
        let (file, size) = (&mut Cursor::new(bytes), bytes.len() as u64);
        let mut checker = MessageChecker {
            file,
            size,
            limit: LIMIT,
        };
        checker.check_end(offset)
    }

    #[test]
    fn only_the_mark_at_the_end_is_an_end() {
        let whole = [&b"batches"[..], &END].concat();
        let at = whole.len() as u64;
        ends_at(&whole, at).unwrap();
        let cut = ends_at(&whole[..7], 7).unwrap_err().to_string();
        assert!(cut.contains("ends at offset 7 without an end marker"), "{cut}");
        let joined = ends_at(&[&whole[..], b"more"].concat(), at).unwrap_err().to_string();
        assert!(joined.contains("ends at offset 15, but 4 bytes follow"), "{joined}");
        assert!(ends_at(&[], 0).is_err());
    }

    fn batch() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..1000).map(|row| row / 100)));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
            (0..1000).map(|row| format!("text {}", row % 7)),
        ));
        RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap()
    }

    /// A file and a stream of two batches.
    fn written(codec: Option<CompressionType>) -> [Vec<u8>; 2] {
        let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
        let batch = batch();
        let mut file = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options.clone()).unwrap();
        let mut stream = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        for _ in 0..2 {
            file.write(&batch).unwrap();
            stream.write(&batch).unwrap();
        }
        [file.into_inner().unwrap(), stream.into_inner().unwrap()]
    }

    fn refusal(bytes: &[u8]) -> String {
        check(&mut Cursor::new(bytes), LIMIT).unwrap_err().to_string()
    }

    /// Reads a file as its users do.
    fn read(bytes: &[u8]) {
        if let Ok(reader) = FileReader::try_new(Cursor::new(bytes), None) {
            reader.for_each(drop);
        }
        if let Ok(reader) = StreamReader::try_new(bytes, None) {
            reader.for_each(drop);
        }
    }

    const CODECS: [Option<CompressionType>; 3] = [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];

    #[test]
    fn what_arrow_writes_is_in_order() {
        for bytes in CODECS.into_iter().flat_map(written) {
            check(&mut Cursor::new(&bytes), LIMIT).unwrap();
            let refused = check(&mut Cursor::new(&bytes), 9999).unwrap_err().to_string();
            assert!(refused.contains("the limit of a batch is 9999"), "{refused}");
        }
    }

    #[test]
    fn a_buffer_that_claims_more_than_memory_is_refused() {
        let plain = 8000_i64.to_le_bytes();
        for (codec, what) in [
            (CompressionType::LZ4_FRAME, "of LZ4 cannot grow to that"),
            (CompressionType::ZSTD, "grow to"),
        ] {
            for mut bytes in written(Some(codec)) {
                let at = bytes.windows(8).position(|window| window == plain).unwrap();
                bytes[at..at + 8].copy_from_slice(&(1_i64 << 60).to_le_bytes());
                let refused = refusal(&bytes);
                assert!(refused.starts_with("offset ") && refused.contains(what), "{refused}");
                bytes[at..at + 8].copy_from_slice(&(-2_i64).to_le_bytes());
                assert!(refusal(&bytes).contains("claims -2 bytes"));
            }
        }
    }

    #[test]
    fn what_was_cut_off_is_named_by_its_offset() {
        for bytes in CODECS.into_iter().flat_map(written) {
            for len in 0..bytes.len() {
                let refused = refusal(&bytes[..len]);
                assert!(refused.contains("offset "), "{len} of {} bytes: {refused}", bytes.len());
            }
        }
    }

    proptest! {
        /// Accepted files can be read: the reader may return an error, but the process survives.
        #[test]
        fn damage_is_found_or_does_no_harm(codec in 0..3_usize, which in 0..2_usize, at in any::<prop::sample::Index>(), eight: [u8; 8], one: bool) {
            let mut bytes = written(CODECS[codec])[which].clone();
            let at = at.index(bytes.len());
            let end = bytes.len().min(at + if one { 1 } else { 8 });
            bytes[at..end].copy_from_slice(&eight[..end - at]);
            if check(&mut Cursor::new(&bytes), LIMIT).is_ok() {
                let _ = std::panic::catch_unwind(|| read(&bytes));
            }
        }
    }
}
