//! Sizes claimed by one message. In: its metadata, the range of its body, and a limit. Out: nothing, or the buffer that cannot
//! be valid.

use arrow_ipc::{BodyCompression, Buffer, CompressionType, Message, RecordBatch, root_as_message};

/// The length that a compressed buffer begins with, in bytes.
const PREFIX_BYTES: u64 = 8;
/// The length of a buffer that its writer left as it is.
const NOT_COMPRESSED: i64 = -1;
/// Bytes that one of LZ4 grows to at most: each byte of a match's length stands for 255 (LZ4 block format, "Match length").
const LZ4_MOST: u64 = 255;
/// Begins what stands before metadata since version 0.15 of the format: it, and a length. Before there was a length alone.
pub(super) const MARK: [u8; 4] = [0xff; 4];

/// Holds a message against its body. `metadata` is bare, and `limit` the bytes that its buffers may grow to in all.
///
/// # Errors
/// Metadata that is none; a buffer outside of the body, or one that claims what it cannot grow to; more than `limit`.
pub fn check(metadata: &[u8], body: &[u8], limit: u64) -> Result<(), String> {
    buffers(&parse(metadata)?, body.len() as u64, limit, &mut |at| {
        let at = usize::try_from(at).ok();
        let prefix = at.and_then(|at| body.get(at..)).and_then(<[u8]>::first_chunk);
        prefix.copied().ok_or_else(|| "it lies outside of the body".to_owned())
    })
}

/// The metadata of a message of a file, without what stands before it: exactly what a reader skips, or it would read another message than
/// was looked at.
///
/// # Errors
/// Fewer bytes than that.
pub fn bare(encapsulated: &[u8]) -> Result<&[u8], String> {
    let skipped = if encapsulated.starts_with(&MARK) { 8 } else { 4 };
    let bare = encapsulated.get(skipped..);
    bare.ok_or_else(|| format!("metadata of {} bytes: too few", encapsulated.len()))
}

pub(super) fn parse(metadata: &[u8]) -> Result<Message<'_>, String> {
    root_as_message(metadata).map_err(|e| format!("no message: {e}"))
}

/// Holds the buffers of a message against a body of so many bytes; `prefix` reads eight of them.
pub(super) fn buffers(
    message: &Message<'_>,
    body_bytes: u64,
    limit: u64,
    prefix: &mut dyn FnMut(u64) -> Result<[u8; PREFIX_BYTES as usize], String>,
) -> Result<(), String> {
    let dictionary = message.header_as_dictionary_batch().and_then(|batch| batch.data());
    let Some(batch) = message.header_as_record_batch().or(dictionary) else {
        return Ok(());
    };
    let mut total = 0_u64;
    for (at, buffer) in batch.buffers().into_iter().flatten().enumerate() {
        let says = |what: String| format!("buffer {at}: {what}");
        total = total.saturating_add(grown(&batch, buffer, body_bytes, prefix).map_err(says)?);
        if total > limit {
            return Err(format!(
                "its first {} buffers grow to {total} bytes, and a batch has {limit} at most: write smaller batches, or it is damaged",
                at + 1
            ));
        }
    }
    Ok(())
}

/// The bytes that a buffer grows to.
fn grown(
    batch: &RecordBatch<'_>,
    buffer: &Buffer,
    body_bytes: u64,
    prefix: &mut dyn FnMut(u64) -> Result<[u8; PREFIX_BYTES as usize], String>,
) -> Result<u64, String> {
    let place = u64::try_from(buffer.offset())
        .ok()
        .zip(u64::try_from(buffer.length()).ok());
    let place = place.filter(|(start, len)| start.checked_add(*len).is_some_and(|end| end <= body_bytes));
    let (start, len) = place.ok_or_else(|| {
        let (offset, length) = (buffer.offset(), buffer.length());
        format!("offset {offset}, {length} bytes: outside of a body of {body_bytes}")
    })?;
    let Some(codec) = batch.compression().as_ref().map(BodyCompression::codec) else {
        return Ok(len);
    };
    let Some(packed) = len.checked_sub(PREFIX_BYTES) else {
        // An empty one has no length either.
        return if len == 0 {
            Ok(0)
        } else {
            Err(format!("{len} bytes: too few to be compressed"))
        };
    };
    let claimed = i64::from_le_bytes(prefix(start)?);
    if claimed == NOT_COMPRESSED {
        return Ok(packed);
    }
    let claimed = u64::try_from(claimed).map_err(|_| format!("it claims {claimed} bytes"))?;
    if codec == CompressionType::LZ4_FRAME && claimed > packed.saturating_mul(LZ4_MOST) {
        return Err(format!(
            "it claims {claimed} bytes, and {packed} of LZ4 cannot grow to them"
        ));
    }
    Ok(claimed)
}
