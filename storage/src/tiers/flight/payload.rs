//! Plain bytes as Arrow batches: one column of binary values, whose concatenation is the payload. In: pieces. Out:
//! batches and their messages, each with a checksum; and back. Knows nothing of objects.

use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_flight::FlightData;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use tierlab_formats::arrow;

/// Maximum bytes of a message, except for a single larger row. The usual limit of gRPC is 4 MiB.
pub const MESSAGE_BYTES: u64 = 1 << 20;
/// Largest size of a message's unpacked buffers, in bytes: far more than any message of rows or of part of an object.
const MAX_UNPACKED_BYTES: u64 = 256 << 20;
/// Begins the metadata of a message that has a checksum: CRC-32C of its header and body, in hexadecimal.
const SUM: &str = "crc32c=";

/// Schema of a single column of binary values. All values are `width` bytes long if `width` is given.
pub fn schema(column: &str, width: Option<i32>, metadata: HashMap<String, String>) -> SchemaRef {
    let arrow = width.map_or(DataType::Binary, DataType::FixedSizeBinary);
    Arc::new(Schema::new_with_metadata(
        vec![Field::new(column, arrow, false)],
        metadata,
    ))
}

/// Builds a batch with one value per part.
///
/// # Errors
/// Fails if the parts do not fit the schema.
pub fn batch(schema: &SchemaRef, parts: &[Bytes]) -> Result<RecordBatch, ArrowError> {
    let values = match parts {
        [part] => Buffer::from(part.clone()),
        parts => Buffer::from(parts.concat()),
    };
    let column: Arc<dyn Array> = match schema.field(0).data_type() {
        DataType::FixedSizeBinary(width) => Arc::new(FixedSizeBinaryArray::try_new(*width, values, None)?),
        _ => {
            let offsets = OffsetBuffer::from_lengths(parts.iter().map(Bytes::len));
            Arc::new(BinaryArray::try_new(offsets, values, None)?)
        }
    };
    RecordBatch::try_new(Arc::clone(schema), vec![column])
}

/// Checks that batches of a schema hold plain bytes, before any batch is decoded.
///
/// # Errors
/// Returns a sentence that names the columns found.
pub fn check_schema(schema: &Schema) -> Result<(), String> {
    let arrow = match &schema.fields()[..] {
        [field] => field.data_type(),
        _ => return Err("plain bytes come in one column".into()),
    };
    match arrow {
        DataType::Binary => Ok(()),
        DataType::FixedSizeBinary(width) if *width > 0 => Ok(()),
        _ => Err(format!("plain bytes come in a binary column, not in one of {arrow}")),
    }
}

/// Values of a batch, in order.
///
/// # Errors
/// Fails unless the batch is a single binary column.
pub fn values(batch: &RecordBatch) -> Result<&[u8], String> {
    let column = match batch.columns() {
        [column] if column.null_count() == 0 => column.as_any(),
        _ => return Err("a reply of bytes has one column, and no nulls".into()),
    };
    if let Some(fixed) = column.downcast_ref::<FixedSizeBinaryArray>() {
        return Ok(&fixed.value_data()[..fixed.len() * fixed.value_size()]);
    }
    let Some(binary) = column.downcast_ref::<BinaryArray>() else {
        return Err("a reply of bytes has a binary column".into());
    };
    let offsets = binary.value_offsets();
    // The offsets of an array are never empty, and stay inside its values.
    let place = |offset: Option<&i32>| offset.map_or(0, |&offset| usize::try_from(offset).unwrap_or(0));
    Ok(&binary.value_data()[place(offsets.first())..place(offsets.last())])
}

/// Gives a message its checksum.
#[must_use]
pub fn seal(mut message: FlightData) -> FlightData {
    message.app_metadata = format!("{SUM}{:08x}", sum(&message)).into();
    message
}

/// Checks a message's checksum, if present, and the claimed sizes of its buffers, before allocating memory for them.
///
/// # Errors
/// Fails if the message was damaged on the way, or claims more than any valid message holds.
pub fn check(message: &FlightData) -> Result<(), String> {
    check_sum(message)?;
    // A message may hold metadata of its application alone.
    if message.data_header.is_empty() {
        return Ok(());
    }
    arrow::check_message(&message.data_header, &message.data_body, MAX_UNPACKED_BYTES)
        .map_err(|what| format!("a message of Arrow: {what}"))
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
        "a message was damaged on the way: its checksum is {sum}, not {told}"
    ))
}

fn sum(message: &FlightData) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&message.data_header), &message.data_body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
    use proptest::prelude::*;

    /// The message of a batch of zeros, with this codec, and these eight bytes instead of the length of its values.
    fn packed(codec: CompressionType, claim: i64) -> FlightData {
        const LENGTH: i64 = 100_000;
        let schema = schema("bytes", None, HashMap::new());
        let batch = batch(&schema, &[Bytes::from(vec![0; LENGTH as usize])]).unwrap();
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
        fn bytes_read_back(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..9)) {
            let parts: Vec<Bytes> = parts.into_iter().map(Bytes::from).collect();
            let batch = batch(&schema("bytes", None, HashMap::new()), &parts).unwrap();
            prop_assert_eq!(values(&batch).unwrap(), parts.concat());
        }

        #[test]
        fn equal_lengths_read_back(parts in proptest::collection::vec(any::<[u8; 7]>(), 1..9)) {
            let parts: Vec<Bytes> = parts.into_iter().map(Bytes::from_owner).collect();
            let batch = batch(&schema("bytes", Some(7), HashMap::new()), &parts).unwrap();
            prop_assert_eq!(batch.num_rows(), parts.len());
            prop_assert_eq!(values(&batch).unwrap(), parts.concat());
        }

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
