//! One TCP connection that speaks ONC RPC (RFC 5531) with record marking: one call outstanding at a time.
//!
//! In: packed arguments. Out: the bytes of the result, or a [`CallError`] that says whether the connection may be used
//! again. A call takes the connection by value and gives it back with the reply: one that was dropped half-way is gone
//! and never answers a later call with an earlier call's bytes. Knows nothing of NFS.

use bytes::{Bytes, BytesMut};
use nfs3_types::rpc::{
    RPC_VERSION_2, accept_stat_data, call_body, fragment_header, msg_body, opaque_auth, rejected_reply, reply_body,
    rpc_msg,
};
use nfs3_types::xdr_codec::{Pack, Unpack};
use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

/// The largest reply taken: the largest READ asked for, and room for its head.
const MAX_REPLY_BYTES: usize = (1 << 20) + (64 << 10);
/// Arguments above this go out in a write of their own instead of being copied behind the head.
const COPIED_ARGUMENTS: usize = 16 << 10;
/// Source ports that servers trust with the `secure` option.
const PRIVILEGED_PORTS: std::ops::RangeInclusive<u16> = 600..=1023;

/// Transaction ids, different in every call of the process, so that no server takes a call for a repeat of another.
static NEXT_XID: LazyLock<AtomicU32> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    AtomicU32::new(now.subsec_nanos() ^ std::process::id().rotate_left(16))
});

/// What is called.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    /// Packed.
    pub(super) arguments: Vec<u8>,
}

/// A result's bytes, and what came over the wire for them.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: Bytes,
    pub(super) wire_bytes: u64,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The connection failed.
    #[error("{0}")]
    Broken(#[from] io::Error),
    /// The server sent what is no reply to this call.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(String),
    /// The server refuses the caller.
    #[error("the server refuses the caller's credentials: {0}")]
    Denied(String),
    /// The server does not offer the program or procedure, or failed in it.
    #[error("the server cannot run the call: {0}")]
    Unable(String),
}

impl CallError {
    fn protocol(what: impl std::fmt::Display) -> Self {
        Self::Protocol(what.to_string())
    }
}

/// A connection between calls.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects; from a privileged port when asked and allowed, as servers with the `secure` option want.
    pub(super) async fn open(address: SocketAddr, privileged: bool) -> io::Result<Self> {
        let stream = match privileged {
            true => match from_privileged_port(address).await? {
                Some(stream) => stream,
                None => TcpStream::connect(address).await?,
            },
            false => TcpStream::connect(address).await?,
        };
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(16 << 10, stream),
        })
    }

    /// Whether the server has neither closed the connection nor sent anything unasked.
    pub(super) fn is_usable(&self) -> bool {
        let mut byte = [0];
        self.stream.buffer().is_empty()
            && matches!(self.stream.get_ref().try_read(&mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// Makes one call. The connection comes back with everything but a broken stream.
    pub(super) async fn call(
        mut self,
        call: &Call,
        credential: &opaque_auth<'static>,
    ) -> (Option<Self>, Result<Reply, CallError>) {
        let xid = NEXT_XID.fetch_add(1, Ordering::Relaxed);
        if let Err(e) = self.send(xid, call, credential).await {
            return (None, Err(e));
        }
        match self.receive().await {
            Err(e) => (None, Err(e)),
            Ok(record) => match unwrap_reply(xid, &record) {
                Err(e @ (CallError::Broken(_) | CallError::Protocol(_))) => (None, Err(e)),
                result => (Some(self), result),
            },
        }
    }

    async fn send(&mut self, xid: u32, call: &Call, credential: &opaque_auth<'static>) -> Result<(), CallError> {
        let head = rpc_msg {
            xid,
            body: msg_body::CALL(call_body {
                rpcvers: RPC_VERSION_2,
                prog: call.program,
                vers: call.version,
                proc: call.procedure,
                cred: credential.borrow(),
                verf: opaque_auth::default(),
            }),
        };
        let len = head.packed_size() + call.arguments.len();
        let len = u32::try_from(len).ok().filter(|len| *len <= fragment_header::MASK);
        let len = len.ok_or_else(|| CallError::protocol("the call is larger than a record can be"))?;
        let mut record = Vec::with_capacity(4 + head.packed_size() + call.arguments.len().min(COPIED_ARGUMENTS));
        record.extend_from_slice(&fragment_header::new(len, true).into_xdr_buf());
        head.pack(&mut record).map_err(CallError::protocol)?;
        let copied = call.arguments.len() <= COPIED_ARGUMENTS;
        if copied {
            record.extend_from_slice(&call.arguments);
        }
        self.stream.write_all(&record).await?;
        if !copied {
            self.stream.write_all(&call.arguments).await?;
        }
        Ok(())
    }

    /// One record: its fragments, joined.
    async fn receive(&mut self) -> Result<Bytes, CallError> {
        let mut record = BytesMut::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark).await?;
            let mark = fragment_header::from(mark);
            let len = mark.fragment_length() as usize;
            if record.len() + len > MAX_REPLY_BYTES {
                return Err(CallError::protocol(format!(
                    "a reply of more than {MAX_REPLY_BYTES} bytes"
                )));
            }
            record.reserve(len);
            let mut fragment = (&mut self.stream).take(len as u64);
            while fragment.limit() > 0 {
                if fragment.read_buf(&mut record).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            if mark.eof() {
                return Ok(record.freeze());
            }
        }
    }
}

async fn from_privileged_port(address: SocketAddr) -> io::Result<Option<TcpStream>> {
    let xid = NEXT_XID.load(Ordering::Relaxed);
    let count = u32::from(PRIVILEGED_PORTS.end() - PRIVILEGED_PORTS.start()) + 1;
    for i in 0..count {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        let any: std::net::IpAddr = if address.is_ipv4() {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let port = PRIVILEGED_PORTS.start() + u16::try_from((xid.wrapping_add(i)) % count).unwrap_or_default();
        match socket.bind(SocketAddr::new(any, port)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(_) => continue, // taken
        }
        match socket.connect(address).await {
            Err(e) if matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}

/// Takes the head off a reply.
fn unwrap_reply(xid: u32, record: &Bytes) -> Result<Reply, CallError> {
    let mut cursor = Cursor::new(record.as_ref());
    let (message, _) = rpc_msg::unpack(&mut cursor).map_err(CallError::protocol)?;
    if message.xid != xid {
        return Err(CallError::protocol("a reply to another call"));
    }
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
        accept_stat_data::SUCCESS => {
            let at = usize::try_from(cursor.position()).unwrap_or(record.len());
            Ok(Reply {
                body: record.slice(at..),
                wire_bytes: record.len() as u64 + 4,
            })
        }
        accept_stat_data::PROG_MISMATCH { low, high } => Err(CallError::Unable(format!(
            "it offers versions {low} to {high} of the program"
        ))),
        other => Err(CallError::Unable(format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs3_types::rpc::accepted_reply;
    use proptest::prelude::*;
    use tokio::net::TcpListener;

    fn call() -> Call {
        Call {
            program: 1,
            version: 1,
            procedure: 1,
            arguments: vec![0; 8],
        }
    }

    /// A server that reads one call and answers with `fragments`, whose `XID!` becomes the call's xid.
    async fn serve(fragments: Vec<Vec<u8>>) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 8];
            stream.read_exact(&mut head).await.unwrap();
            for fragment in fragments {
                let patched = match fragment.strip_prefix(b"XID!") {
                    Some(rest) => [&head[4..], rest].concat(),
                    None => fragment,
                };
                stream.write_all(&patched).await.unwrap();
            }
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        Connection::open(address, false).await.unwrap()
    }

    fn success(body: &[u8]) -> Vec<u8> {
        let accepted = accepted_reply {
            verf: opaque_auth::default(),
            reply_data: accept_stat_data::SUCCESS,
        };
        let mut packed = Vec::new();
        msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted))
            .pack(&mut packed)
            .unwrap();
        [packed.as_slice(), body].concat()
    }

    fn mark(len: usize, last: bool) -> Vec<u8> {
        fragment_header::new(u32::try_from(len).unwrap(), last)
            .into_xdr_buf()
            .to_vec()
    }

    #[tokio::test]
    async fn fragments_are_joined() {
        let reply = success(b"result!!");
        let (first, second) = reply.split_at(10);
        let fragments = vec![
            mark(4, false),
            b"XID!".to_vec(),
            mark(10, false),
            first.to_vec(),
            mark(second.len(), true),
            second.to_vec(),
        ];
        let (connection, result) = serve(fragments).await.call(&call(), &opaque_auth::default()).await;
        assert_eq!(result.unwrap().body, b"result!!".as_slice());
        assert!(connection.is_some());
    }

    #[tokio::test]
    async fn what_is_no_reply_ends_the_connection() {
        let reply = success(b"");
        let cut = vec![mark(4 + reply.len(), true), b"XID!".to_vec(), reply[..8].to_vec()];
        let foreign = vec![mark(4 + reply.len(), true), vec![0; 4], reply];
        let huge = vec![mark(1 << 30, true)];
        for fragments in [cut, foreign, huge, vec![]] {
            let ended = async { serve(fragments).await.call(&call(), &opaque_auth::default()).await };
            let (connection, result) = tokio::time::timeout(std::time::Duration::from_secs(10), ended)
                .await
                .unwrap();
            assert!(result.is_err() && connection.is_none());
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = unwrap_reply(1, &Bytes::from(bytes));
        }
    }
}
