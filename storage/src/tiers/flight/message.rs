//! Messages on the wire besides rows. In: either side's values. Out: the other's, or an error. No I/O.
//!
//! - Tickets: the JSON inside Flight's opaque field.
//!   ```text
//!   {"table":"ctr"}                             every row of features/ctr.rows
//!   {"table":"ctr","ids":[7,3],"version":"…"}   these rows in this order, of this version
//!   ```
//!   A descriptor is the path `[TABLE]`, or a ticket as its command. Without `version` the newest version is read.
//! - Messages of a reply: their size, their checksum (set by `tierlab-origin`), and their claimed sizes.
//! - Errors of tiers as gRPC statuses, and back.

use crate::error::with_causes;
use crate::{ErrorKind, ObjectPath, StorageError};
use anyhow::{Result, anyhow, bail};
use arrow_flight::error::FlightError;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::{FlightData, FlightDescriptor};
use serde::{Deserialize, Serialize};
use tierlab_formats::arrow;
use tierlab_formats::model::{FEATURES_PREFIX, is_plain_name};
use tierlab_formats::table::EXTENSION;
use tonic::{Code, Status};

/// Rows of a feature table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableTicket {
    /// Name of the table; its object is `features/NAME.rows`.
    pub table: String,
    /// Ids of the requested rows, in reply order; `None` for all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<i64>>,
    /// Required version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl TableTicket {
    /// Reads a ticket, or the command of a descriptor.
    ///
    /// # Errors
    /// Says how to write a ticket.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let ticket = serde_json::from_slice(json)
            .map_err(|e| anyhow!("invalid ticket: {e}; write {{\"table\":NAME}}, with \"ids\":[...] to select rows"))?;
        Self::checked(ticket)
    }

    /// Reads a descriptor: a path with one table's name, or a ticket as its command.
    ///
    /// # Errors
    /// Same as [`TableTicket::parse`].
    pub fn of_descriptor(descriptor: &FlightDescriptor) -> Result<Self> {
        if descriptor.r#type == DescriptorType::Cmd as i32 {
            return Self::parse(&descriptor.cmd);
        }
        let [table] = &descriptor.path[..] else {
            bail!("invalid descriptor: the path must be one table's name");
        };
        Self::checked(Self {
            table: table.clone(),
            ids: None,
            version: None,
        })
    }

    fn checked(ticket: Self) -> Result<Self> {
        match is_plain_name(&ticket.table) {
            true => Ok(ticket),
            false => bail!("invalid table name: {:?}", ticket.table),
        }
    }

    /// Encodes the ticket as bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Never fails: no maps with non-string keys, no fallible implementations.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Path of a table's object.
///
/// # Errors
/// Fails if the name is not valid in an object path.
pub fn table_path(table: &str) -> Result<ObjectPath> {
    Ok(ObjectPath::new(&format!("{FEATURES_PREFIX}/{table}.{EXTENSION}"))?)
}

/// Name of the table of an object; `None` for other objects.
pub fn table_name(path: &ObjectPath) -> Option<&str> {
    let file = path.as_str().strip_prefix(FEATURES_PREFIX)?.strip_prefix('/')?;
    let name = file.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    is_plain_name(name).then_some(name)
}

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
pub fn check(message: &FlightData) -> Result<()> {
    check_sum(message)?;
    // A message may hold only metadata of its application.
    if message.data_header.is_empty() {
        return Ok(());
    }
    arrow::check_message(&message.data_header, &message.data_body, MAX_UNPACKED_BYTES)
        .map_err(|detail| anyhow!("invalid Arrow message: {detail}"))
}

fn check_sum(message: &FlightData) -> Result<()> {
    let Some(expected) = message.app_metadata.strip_prefix(SUM.as_bytes()) else {
        return Ok(());
    };
    let sum = format!("{:08x}", sum(message));
    if expected == sum.as_bytes() {
        return Ok(());
    }
    let expected = String::from_utf8_lossy(expected);
    bail!("message damaged in transit: its checksum is {sum}, expected {expected}")
}

fn sum(message: &FlightData) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&message.data_header), &message.data_body)
}

/// Converts an error of the origin for a client.
pub fn to_status(error: &StorageError) -> Status {
    refusal(error.kind(), format!("{}: {}", error.object(), error.detail()))
}

/// Creates an error of the origin for a client.
pub fn refusal(kind: ErrorKind, message: impl Into<String>) -> Status {
    let code = match kind {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Changed => Code::FailedPrecondition,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::Invalid | ErrorKind::OutOfRange => Code::InvalidArgument,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Unsupported => Code::Unimplemented,
    };
    Status::new(code, message)
}

/// Converts a gRPC status to an error about `object`.
pub(super) fn from_status(object: &str, status: &Status) -> StorageError {
    let kind = match status.code() {
        Code::NotFound => ErrorKind::NotFound,
        Code::FailedPrecondition => ErrorKind::Changed,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Denied,
        // The library reports a message above its own limit as OutOfRange.
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::Invalid,
        Code::DataLoss => ErrorKind::Corrupt,
        Code::DeadlineExceeded => ErrorKind::Timeout,
        Code::Unimplemented => ErrorKind::Unsupported,
        // Connections that break inside a reply yield Unknown, Internal or Cancelled.
        _ => ErrorKind::Unavailable,
    };
    let mut detail = status.message().to_owned();
    if detail.is_empty() {
        detail = format!("{:?}", status.code());
    }
    let mut detail = with_causes(detail, status);
    if status.code() == Code::OutOfRange {
        detail.push_str("; raise `max_message_bytes`, or configure the server to send smaller batches");
    }
    kind.error(object, detail)
}

/// Converts a decoder's error to an error about `object`.
pub(super) fn from_flight(object: &str, error: &FlightError) -> StorageError {
    match error {
        FlightError::Tonic(status) => from_status(object, status),
        FlightError::ExternalError(source) => match source.downcast_ref::<StorageError>() {
            Some(error) => error.clone(),
            None => ErrorKind::Unavailable.error(object, source.to_string()),
        },
        other => ErrorKind::Corrupt.error(object, format!("reply is not Arrow: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::KINDS;
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
            check(&packed(codec, 100_000)).unwrap();
            let refused = check(&packed(codec, 1 << 45)).unwrap_err().to_string();
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

    #[test]
    fn tickets_read_as_documented() {
        let ticket = |ids, version| TableTicket {
            table: "ctr".into(),
            ids,
            version,
        };
        for (json, want) in [
            (r#"{"table":"ctr"}"#, ticket(None, None)),
            (
                r#"{"table":"ctr","ids":[7,-3],"version":"v"}"#,
                ticket(Some(vec![7, -3]), Some("v".into())),
            ),
        ] {
            assert_eq!(TableTicket::parse(json.as_bytes()).unwrap(), want);
        }
        let descriptor = FlightDescriptor::new_path(vec!["ctr".into()]);
        assert_eq!(TableTicket::of_descriptor(&descriptor).unwrap(), ticket(None, None));
        let path = table_path("ctr").unwrap();
        assert_eq!((path.as_str(), table_name(&path)), ("features/ctr.rows", Some("ctr")));
        assert_eq!(table_name(&ObjectPath::new("features/a/b.rows").unwrap()), None);
    }

    #[test]
    fn bad_tickets_are_refused() {
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"table":"../x"}"#,
            r#"{"table":"a/b"}"#,
            r#"{"object":"x"}"#,
            r#"{"table":"ctr","id":[1]}"#,
            r#"{"table":"ctr","ids":[0.5]}"#,
        ] {
            assert!(TableTicket::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        for path in [vec![], vec!["a".to_owned(), "b".to_owned()], vec!["..".to_owned()]] {
            assert!(TableTicket::of_descriptor(&FlightDescriptor::new_path(path)).is_err());
        }
    }

    proptest! {
        #[test]
        fn tickets_read_back(
            ids in proptest::option::of(proptest::collection::vec(any::<i64>(), 0..20)),
            version in proptest::option::of(".{0,20}"),
        ) {
            let ticket = TableTicket { table: "ctr".into(), ids, version };
            prop_assert_eq!(TableTicket::parse(&ticket.encode()).unwrap(), ticket);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TableTicket::parse(&bytes);
        }
    }

    #[test]
    fn kinds_survive_the_way() {
        for (kind, ..) in KINDS {
            if kind == ErrorKind::OutOfRange {
                // The library's own code for a message above the limit.
                continue;
            }
            let status = to_status(&kind.error("a/b", "what happened"));
            let error = from_status("grpc://h/a/b", &status);
            assert_eq!((error.kind(), error.object()), (kind, "grpc://h/a/b"));
            assert!(error.detail().contains("what happened"));
        }
    }

    #[test]
    fn other_servers_codes_are_read() {
        for (code, kind) in [
            (Code::Unavailable, ErrorKind::Unavailable),
            (Code::Internal, ErrorKind::Unavailable),
            (Code::Unknown, ErrorKind::Unavailable),
            (Code::Unauthenticated, ErrorKind::Denied),
            (Code::OutOfRange, ErrorKind::Invalid),
            (Code::Unimplemented, ErrorKind::Unsupported),
        ] {
            assert_eq!(from_status("x", &Status::new(code, "m")).kind(), kind);
        }
    }
}
