//! Messages of a reply: their size, their checksum (set by `tierlab-origin`), and their claimed sizes.

use arrow_flight::FlightData;
use tierlab_formats::arrow;

/// Maximum bytes of a message, except for a single larger row. gRPC's usual limit is 4 MiB.
pub const MESSAGE_BYTES: u64 = 1 << 20;
/// Maximum total size of a message's unpacked buffers, far more than any message of rows needs.
const MAX_UNPACKED_BYTES: u64 = 256 << 20;
/// Prefix of the metadata of a message with a checksum: CRC-32C of its header and body, in hexadecimal.
const SUM: &str = "crc32c=";

/// Adds a checksum to a message.
#[must_use]
pub fn seal(mut message: FlightData) -> FlightData {
    message.app_metadata = format!("{SUM}{:08x}", sum(&message)).into();
    message
}

/// Checks a message's checksum, if present, and the claimed sizes of its buffers, before memory is allocated for them.
///
/// # Errors
/// Fails if the message is damaged or claims more than a valid message holds.
pub fn check(message: &FlightData) -> Result<(), String> {
    check_sum(message)?;
    // A message may hold only metadata of its application.
    if message.data_header.is_empty() {
        return Ok(());
    }
    arrow::check_message(&message.data_header, &message.data_body, MAX_UNPACKED_BYTES)
        .map_err(|what| format!("invalid Arrow message: {what}"))
}

fn check_sum(message: &FlightData) -> Result<(), String> {
    let Some(told) = message.app_metadata.strip_prefix(SUM.as_bytes()) else {
        return Ok(());
    };
    let sum = format!("{:08x}", sum(message));
    if told == sum.as_bytes() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(told);
    Err(format!(
        "message damaged in transit: its checksum is {sum}, expected {told}"
    ))
}

fn sum(message: &FlightData) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&message.data_header), &message.data_body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, RecordBatch, UInt8Array};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// The message of a batch of zeros, with this codec, and these eight bytes instead of the length of its values.
    fn packed(codec: CompressionType, claim: i64) -> FlightData {
        const LENGTH: i64 = 100_000;
        let column: ArrayRef = Arc::new(UInt8Array::from(vec![0; LENGTH as usize]));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
        let (mut seen, mut context) = (DictionaryTracker::new(false), IpcWriteContext::default());
        let encoded = IpcDataGenerator::default().encode(&batch, &mut seen, &options, &mut context);
        let message = FlightData::from(encoded.unwrap().1);
        let mut body = message.data_body.to_vec();
        let at = body
            .windows(8)
            .rposition(|window| window == LENGTH.to_le_bytes())
            .unwrap();
        body[at..at + 8].copy_from_slice(&claim.to_le_bytes());
        FlightData {
            data_body: body.into(),
            ..message
        }
    }

    #[test]
    fn what_claims_more_than_any_memory_is_refused_before_any_is_set_aside() {
        for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            assert_eq!(check(&packed(codec, 100_000)), Ok(()));
            let refused = check(&packed(codec, 1 << 45)).unwrap_err();
            assert!(
                refused.contains("buffer") && refused.contains("35184372088"),
                "{refused}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_damage_to_a_message_is_seen(
            header in proptest::collection::vec(any::<u8>(), 1..50),
            body in proptest::collection::vec(any::<u8>(), 1..50),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..=255,
        ) {
            let sealed = seal(FlightData { data_header: header.into(), data_body: body.into(), ..FlightData::default() });
            prop_assert!(check_sum(&sealed).is_ok());
            let mut damaged = sealed.clone();
            let mut body = sealed.data_body.to_vec();
            let at = at.index(body.len());
            body[at] ^= flip;
            damaged.data_body = body.into();
            prop_assert!(check_sum(&damaged).is_err());
        }
    }
}
