//! ONC RPC (RFC 5531) messages with record marking.
//!
//! In: calls with packed arguments. Out: records to send and, for received records, the offset of the result or a
//! [`CallError`]. Knows nothing of sockets or of NFS.

use bytes::{Bytes, BytesMut};
use nfs3_types::rpc::{
    RPC_VERSION_2, accept_stat_data, call_body, fragment_header, msg_body, opaque_auth, rejected_reply, reply_body,
    rpc_msg,
};
use nfs3_types::xdr_codec::{Error, Opaque, Pack, Unpack};
use std::io::{Cursor, Read};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Transaction ids, unique among the process's calls, so that no server mistakes a call for a retry of another.
static NEXT_XID: LazyLock<AtomicU32> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    AtomicU32::new(now.subsec_nanos() ^ std::process::id().rotate_left(16))
});

pub(super) fn next_xid() -> u32 {
    NEXT_XID.fetch_add(1, Ordering::Relaxed)
}

/// An RPC call: procedure and arguments.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    /// Arguments, packed as XDR.
    pub(super) arguments: Vec<u8>,
    /// Trailing data of the arguments without padding: the data of a WRITE, sent without a copy.
    pub(super) data: Bytes,
}

/// Failure of a call.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum CallError {
    /// The connection failed, or no connection is available.
    #[error("{0}")]
    Broken(String),
    /// The server sent something that is not a reply.
    #[error("server violates the protocol: {0}")]
    Protocol(String),
    /// The server refuses the caller.
    #[error("server rejects the caller's credentials: {0}")]
    Denied(String),
    /// The server does not offer the program or procedure, or failed in it.
    #[error("server cannot run the call: {0}")]
    Unable(String),
    /// No reply within the limit.
    #[error("no answer in time")]
    Late,
}

impl CallError {
    pub(super) fn protocol(what: impl std::fmt::Display) -> Self {
        Self::Protocol(what.to_string())
    }

    /// True if the position in the connection's byte stream is lost, so the connection cannot be used again.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Protocol(_))
    }
}

impl From<std::io::Error> for CallError {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Packs a value as XDR.
pub(super) fn pack(value: &impl Pack) -> Vec<u8> {
    let mut packed = Vec::with_capacity(value.packed_size());
    // Writing to memory fails only for values too large for XDR, and these are short.
    let _ = value.pack(&mut packed);
    packed
}

/// Bytes of a result that are not decoded yet.
pub(super) type ReplyBytes<'a> = Cursor<&'a [u8]>;

pub(super) fn value<T: Unpack>(body: &mut ReplyBytes<'_>) -> Result<T, Error> {
    Ok(T::unpack(body)?.0)
}

/// Decodes bytes that follow their length. The library's own function allocates whatever length is announced.
pub(super) fn opaque(body: &mut ReplyBytes<'_>) -> Result<Opaque<'static>, Error> {
    let len: u32 = value(body)?;
    let (len, padded) = (len as usize, u64::from(len).next_multiple_of(4));
    let mut bytes = Vec::new();
    if body.take(padded).read_to_end(&mut bytes)? as u64 != padded {
        return Err(Error::InvalidLength(len));
    }
    bytes.truncate(len);
    Ok(Opaque::owned(bytes))
}

/// Zeros that pad a length to whole words.
pub(super) fn padding(len: usize) -> &'static [u8] {
    &[0; 3][..len.wrapping_neg() % 4]
}

/// Common head of a caller's records, packed once. Each call patches its own words into a copy.
#[derive(Debug)]
pub(super) struct Head(Vec<u8>);

impl Head {
    pub(super) fn new(credential: &opaque_auth<'static>) -> Self {
        let message = rpc_msg {
            xid: 0,
            body: msg_body::CALL(call_body {
                rpcvers: RPC_VERSION_2,
                prog: 0,
                vers: 0,
                proc: 0,
                cred: credential.borrow(),
                verf: opaque_auth::default(),
            }),
        };
        // The record mark precedes it.
        Self([vec![0; 4], pack(&message)].concat())
    }

    /// Appends a call's record to `staging`, without the call's data and its padding.
    pub(super) fn encode(&self, call: &Call, xid: u32, staging: &mut BytesMut) -> Result<(), CallError> {
        let data = call.data.len() + padding(call.data.len()).len();
        let len = u32::try_from(self.0.len() - 4 + call.arguments.len() + data).ok();
        let len = len.filter(|len| *len <= fragment_header::MASK);
        let len = len.ok_or_else(|| CallError::protocol("call exceeds the maximum size of a record"))?;
        let at = staging.len();
        staging.reserve(self.0.len() + call.arguments.len());
        staging.extend_from_slice(&self.0);
        let head = &mut staging[at..];
        head[..4].copy_from_slice(&fragment_header::new(len, true).into_xdr_buf());
        let mut patch = |word: usize, value: u32| head[word * 4..][..4].copy_from_slice(&value.to_be_bytes());
        patch(1, xid);
        patch(4, call.program);
        patch(5, call.version);
        patch(6, call.procedure);
        staging.extend_from_slice(&call.arguments);
        Ok(())
    }
}

/// Big-endian word at an offset, if present.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Transaction id of a record: its first word.
pub(super) fn xid_of(record: &[u8]) -> Option<u32> {
    word(record, 0)
}

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
/// Maximum length of a verifier (RFC 5531, 8.2).
const MAX_VERIFIER_BYTES: u32 = 400;

/// Offset of the result in a reply whose head reports success, found without unpacking: a small READ costs little else.
/// The kind of the verifier does not matter.
fn success_at(record: &[u8]) -> Option<usize> {
    const SUCCESS: u32 = 0;
    let verifier = word(record, 16).filter(|len| *len <= MAX_VERIFIER_BYTES)? as usize;
    let status = 20 + verifier.next_multiple_of(4);
    let is_success = word(record, 4)? == REPLY && word(record, 8)? == ACCEPTED && word(record, status)? == SUCCESS;
    is_success.then_some(status + 4)
}

/// Offset of the result in a reply, or the server's error. The first bytes of a long record suffice.
pub(super) fn result_at(record: &[u8]) -> Result<usize, CallError> {
    if let Some(at) = success_at(record) {
        return Ok(at);
    }
    // Checked here, because unpacking allocates whatever length is announced.
    let is_call = || CallError::protocol("received a call instead of a reply");
    match (word(record, 4), word(record, 8), word(record, 16)) {
        (Some(CALL), ..) => return Err(is_call()),
        (Some(REPLY), Some(ACCEPTED), Some(len)) if len > MAX_VERIFIER_BYTES => {
            let what = format!("verifier of {len} bytes exceeds the limit of {MAX_VERIFIER_BYTES}");
            return Err(CallError::protocol(what));
        }
        _ => {}
    }
    let mut cursor = Cursor::new(record);
    let (message, _) = rpc_msg::unpack(&mut cursor).map_err(CallError::protocol)?;
    let accepted = match message.body {
        msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted)) => accepted,
        msg_body::REPLY(reply_body::MSG_DENIED(rejected_reply::AUTH_ERROR(why))) => {
            return Err(CallError::Denied(why.to_string()));
        }
        msg_body::REPLY(reply_body::MSG_DENIED(rejected_reply::RPC_MISMATCH { low, high })) => {
            let what = format!("server supports RPC versions {low} to {high}");
            return Err(CallError::Unable(what));
        }
        msg_body::CALL(_) => return Err(is_call()),
    };
    match accepted.reply_data {
        accept_stat_data::SUCCESS => Ok(usize::try_from(cursor.position()).unwrap_or(record.len())),
        accept_stat_data::PROG_MISMATCH { low, high } => Err(CallError::Unable(format!(
            "server supports versions {low} to {high} of the program"
        ))),
        other => Err(CallError::Unable(format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs3_types::rpc::{accepted_reply, auth_flavor, auth_unix};
    use proptest::prelude::*;

    #[test]
    fn records_unpack_to_what_was_called() {
        let credential = opaque_auth::auth_unix(&auth_unix {
            uid: 7,
            ..auth_unix::default()
        });
        for data in [0, 1, 4, 99] {
            let call = Call {
                program: 100_003,
                version: 3,
                procedure: 6,
                arguments: vec![1; 20],
                data: vec![2; data].into(),
            };
            let mut staging = BytesMut::from(b"before".as_slice());
            Head::new(&credential).encode(&call, 0x1234_5678, &mut staging).unwrap();
            let record = &staging[6..];
            let mark = fragment_header::from(*record.first_chunk::<4>().unwrap());
            assert!(mark.eof());
            assert_eq!(
                mark.fragment_length() as usize,
                record.len() - 4 + data.next_multiple_of(4)
            );
            let mut cursor = Cursor::new(&record[4..]);
            let (message, _) = rpc_msg::unpack(&mut cursor).unwrap();
            assert_eq!(message.xid, 0x1234_5678);
            let msg_body::CALL(body) = message.body else {
                panic!("a call")
            };
            assert_eq!((body.prog, body.vers, body.proc), (100_003, 3, 6));
            assert_eq!(body.cred.body, credential.body);
            assert_eq!(&record[4 + cursor.position() as usize..], [1; 20]);
        }
    }

    #[test]
    fn results_follow_the_head() {
        for verifier in [0_usize, 1, 8, 400] {
            let accepted = accepted_reply {
                verf: opaque_auth {
                    flavor: auth_flavor::AUTH_NULL,
                    body: Opaque::owned(vec![9; verifier]),
                },
                reply_data: accept_stat_data::SUCCESS,
            };
            let mut reply = pack(&rpc_msg {
                xid: 1,
                body: msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted)),
            });
            assert_eq!(success_at(&reply), Some(reply.len()));
            assert_eq!(result_at(&reply).unwrap(), reply.len());
            let cut = &reply[..reply.len() - 1];
            assert!(result_at(cut).is_err(), "the whole head is needed");
            // A verifier of an unknown kind.
            reply[15] = 6;
            assert_eq!(result_at(&reply).unwrap(), reply.len());
        }
        let failed = accepted_reply {
            verf: opaque_auth::default(),
            reply_data: accept_stat_data::PROC_UNAVAIL,
        };
        let reply = pack(&rpc_msg {
            xid: 1,
            body: msg_body::REPLY(reply_body::MSG_ACCEPTED(failed)),
        });
        assert!(matches!(result_at(&reply), Err(CallError::Unable(_))));
    }

    /// Without the check, decoding would allocate 4 GiB for each.
    #[test]
    fn announced_lengths_are_checked_before_decoding() {
        let call = [1, CALL, RPC_VERSION_2, 100_003, 3, 6, 0, u32::MAX];
        let reply = [1, REPLY, ACCEPTED, 0, u32::MAX, 0, 0, 0];
        for (words, want) in [
            (call, "call instead of a reply"),
            (reply, "verifier of 4294967295 bytes"),
        ] {
            let error = result_at(&words.map(u32::to_be_bytes).concat()).unwrap_err();
            assert!(error.is_fatal() && error.to_string().contains(want), "{error}");
        }
        for len in [9, u32::MAX] {
            let body = [len, 7, 7].map(u32::to_be_bytes).concat();
            let error = opaque(&mut Cursor::new(&body[..])).unwrap_err();
            assert_eq!(error.to_string(), format!("Invalid length: {len}"));
        }
        let body = [5, 7, 7].map(u32::to_be_bytes).concat();
        assert_eq!(*opaque(&mut Cursor::new(&body[..])).unwrap(), body[4..9]);
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (result_at(&bytes), xid_of(&bytes));
        }
    }
}
