//! The frame around each record of a `TFRecord` file.
//!
//! ```text
//! 0      8        length of the record, u64 LE
//! 8      4        masked CRC-32C of these eight bytes, u32 LE
//! 12     length   the record
//! …      4        masked CRC-32C of the record, u32 LE
//! ```
//! Source: "`TFRecords` format details" of <https://www.tensorflow.org/tutorials/load_data/tfrecord>.

use super::{MAX_SAMPLE_BYTES, ShardError};

/// Bytes before a record.
pub const HEAD_BYTES: usize = 12;
/// Bytes after a record.
pub const FOOT_BYTES: usize = 4;

/// Returns the checksum as the format stores it: rotated and shifted, so that data with embedded checksums is safe to
/// checksum.
pub fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the length of the record whose frame begins at `offset` of its file.
///
/// # Errors
/// A frame that is cut off, a wrong checksum, or a length above [`MAX_SAMPLE_BYTES`].
pub fn length(head: &[u8], offset: u64) -> Result<u64, ShardError> {
    let fail = |what: String| ShardError::new("TFRecord", offset, what);
    let Some((head, _)) = head.split_first_chunk::<HEAD_BYTES>() else {
        let len = head.len();
        return Err(fail(format!(
            "the file ends {len} bytes into a record's head: it was cut off"
        )));
    };
    let [a, b, c, d, e, f, g, h, crc @ ..] = *head;
    let length = [a, b, c, d, e, f, g, h];
    let (found, wanted) = (u32::from_le_bytes(crc), masked_crc(&length));
    if found != wanted {
        let what = format!(
            "checksum of a length {found:08x} is not {wanted:08x}: damaged, compressed as a whole, or not a TFRecord file"
        );
        return Err(fail(what));
    }
    match u64::from_le_bytes(length) {
        bytes @ ..=MAX_SAMPLE_BYTES => Ok(bytes),
        bytes => Err(fail(format!(
            "a record of {bytes} bytes; the limit is {MAX_SAMPLE_BYTES}"
        ))),
    }
}

/// Returns the record at the start of `bytes`, which is at `offset` of its file, and the bytes of its frame.
///
/// # Errors
/// Same as [`length`]; a record that is cut off or damaged.
pub fn record(bytes: &[u8], offset: u64) -> Result<(&[u8], usize), ShardError> {
    let len = length(bytes, offset)? as usize;
    let end = HEAD_BYTES + len;
    let found = bytes
        .get(end..end + FOOT_BYTES)
        .and_then(|foot| Some((&bytes[HEAD_BYTES..end], u32::from_le_bytes(foot.try_into().ok()?))));
    let Some((record, found)) = found else {
        let what = format!("the file ends inside a record of {len} bytes: it was cut off");
        return Err(ShardError::new("TFRecord", offset, what));
    };
    let wanted = masked_crc(record);
    if found != wanted {
        let what = format!("checksum of a record {found:08x} is not {wanted:08x}: the record is damaged");
        return Err(ShardError::new("TFRecord", offset + HEAD_BYTES as u64, what));
    }
    Ok((record, end + FOOT_BYTES))
}

/// Appends a record in its frame.
pub fn push(record: &[u8], out: &mut Vec<u8>) {
    let length = (record.len() as u64).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked_crc(&length).to_le_bytes());
    out.extend_from_slice(record);
    out.extend_from_slice(&masked_crc(record).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_of_crc32c_is_masked_as_the_format_says() {
        // The check value of CRC-32C is e3069283 for "123456789".
        let crc: u32 = 0xe306_9283;
        let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(masked_crc(b"123456789"), masked);
    }

    #[test]
    fn a_length_that_is_not_believed_is_refused_before_memory_is_asked_for() {
        let length = (MAX_SAMPLE_BYTES + 1).to_le_bytes();
        let mut head = length.to_vec();
        head.extend_from_slice(&masked_crc(&length).to_le_bytes());
        let error = record(&head, 7).unwrap_err();
        assert_eq!(error.offset, 7);
        assert!(error.what.contains("the limit is"), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_damage_is_seen(
            body in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), bit in 0..8_u32,
        ) {
            let mut bytes = Vec::new();
            push(&body, &mut bytes);
            prop_assert_eq!(record(&bytes, 0).unwrap(), (&body[..], bytes.len()));
            let at = at.index(bytes.len());
            prop_assert!(record(&bytes[..at], 0).is_err());
            bytes[at] ^= 1 << bit;
            prop_assert!(record(&bytes, 0).is_err());
        }
    }
}
