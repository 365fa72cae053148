//! ONC RPC (RFC 5531) messages with record marking.
//!
//! In: calls with packed arguments. Out: records to send, and from the records that come back the place where a result
//! begins, or a [`CallError`]. Knows nothing of sockets or of NFS.

use bytes::{Bytes, BytesMut};
use nfs3_types::rpc::{
    RPC_VERSION_2, accept_stat_data, call_body, fragment_header, msg_body, opaque_auth, rejected_reply, reply_body,
    rpc_msg,
};
use nfs3_types::xdr_codec::{Pack, Unpack};
use std::io::Cursor;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Arguments above this travel as a segment of their own instead of being copied behind the head.
const COPIED_ARGUMENTS: usize = 16 << 10;

/// Transaction ids, different in every call of the process, so that no server takes a call for a repeat of another.
static NEXT_XID: LazyLock<AtomicU32> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    AtomicU32::new(now.subsec_nanos() ^ std::process::id().rotate_left(16))
});

pub(super) fn next_xid() -> u32 {
    NEXT_XID.fetch_add(1, Ordering::Relaxed)
}

/// What is called.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    /// Packed.
    pub(super) arguments: Bytes,
}

/// Why a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum CallError {
    /// The connection failed, or there is none to be had.
    #[error("{0}")]
    Broken(String),
    /// The server sent what is no reply.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(String),
    /// The server refuses the caller.
    #[error("the server refuses the caller's credentials: {0}")]
    Denied(String),
    /// The server does not offer the program or procedure, or failed in it.
    #[error("the server cannot run the call: {0}")]
    Unable(String),
    /// No reply within the limit.
    #[error("no answer in time")]
    Late,
}

impl CallError {
    pub(super) fn protocol(what: impl std::fmt::Display) -> Self {
        Self::Protocol(what.to_string())
    }

    /// Whether the connection that it happened on is at an unknown place.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Protocol(_))
    }
}

impl From<std::io::Error> for CallError {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Call {
    /// Appends the record to `staging`; arguments that are too large to copy are returned, to be sent right behind it.
    pub(super) fn encode(
        &self,
        xid: u32,
        credential: &opaque_auth<'static>,
        staging: &mut BytesMut,
    ) -> Result<Option<Bytes>, CallError> {
        let head = rpc_msg {
            xid,
            body: msg_body::CALL(call_body {
                rpcvers: RPC_VERSION_2,
                prog: self.program,
                vers: self.version,
                proc: self.procedure,
                cred: credential.borrow(),
                verf: opaque_auth::default(),
            }),
        };
        let len = head.packed_size() + self.arguments.len();
        let len = u32::try_from(len).ok().filter(|len| *len <= fragment_header::MASK);
        let len = len.ok_or_else(|| CallError::protocol("the call is larger than a record can be"))?;
        staging.extend_from_slice(&fragment_header::new(len, true).into_xdr_buf());
        let mut place = bytes::BufMut::writer(&mut *staging);
        head.pack(&mut place).map_err(CallError::protocol)?;
        if self.arguments.len() > COPIED_ARGUMENTS {
            return Ok(Some(self.arguments.clone()));
        }
        staging.extend_from_slice(&self.arguments);
        Ok(None)
    }
}

/// Whose reply a record is: its first word.
pub(super) fn xid_of(record: &[u8]) -> Option<u32> {
    record.first_chunk().copied().map(u32::from_be_bytes)
}

/// Where the result begins in a reply, or what the server says instead. Enough of a long record does.
pub(super) fn result_at(record: &[u8]) -> Result<usize, CallError> {
    let mut cursor = Cursor::new(record);
    let (message, _) = rpc_msg::unpack(&mut cursor).map_err(CallError::protocol)?;
    let accepted = match message.body {
        msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted)) => accepted,
        msg_body::REPLY(reply_body::MSG_DENIED(rejected_reply::AUTH_ERROR(why))) => {
            return Err(CallError::Denied(why.to_string()));
        }
        msg_body::REPLY(reply_body::MSG_DENIED(rejected_reply::RPC_MISMATCH { low, high })) => {
            return Err(CallError::Unable(format!("it speaks RPC versions {low} to {high}")));
        }
        msg_body::CALL(_) => return Err(CallError::protocol("a call instead of a reply")),
    };
    match accepted.reply_data {
        accept_stat_data::SUCCESS => Ok(usize::try_from(cursor.position()).unwrap_or(record.len())),
        accept_stat_data::PROG_MISMATCH { low, high } => Err(CallError::Unable(format!(
            "it offers versions {low} to {high} of the program"
        ))),
        other => Err(CallError::Unable(format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn large_arguments_are_not_copied() {
        let call = |len| Call {
            program: 1,
            version: 2,
            procedure: 3,
            arguments: vec![7; len].into(),
        };
        for (len, copied) in [(8, true), (COPIED_ARGUMENTS, true), (COPIED_ARGUMENTS + 4, false)] {
            let mut staging = BytesMut::new();
            let rest = call(len).encode(5, &opaque_auth::default(), &mut staging).unwrap();
            assert_eq!(rest.is_none(), copied);
            let sent = staging.len() + rest.map_or(0, |rest| rest.len());
            let mark = fragment_header::from(*staging.first_chunk::<4>().unwrap());
            assert!(mark.eof() && mark.fragment_length() as usize == sent - 4);
            assert_eq!(xid_of(&staging[4..]), Some(5));
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (result_at(&bytes), xid_of(&bytes));
        }
    }
}
