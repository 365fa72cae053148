//! A proxy that knows NFS calls apart: some it answers itself, of others it edits the reply.

use nfs3_types::nfs3::PROGRAM;
use nfs3_types::rpc::fragment_header;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Changes a result in place.
pub(crate) type Edit = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Treatment of a call.
pub(crate) enum Verdict {
    /// The server answers it.
    Pass,
    /// Answers with this result; the server does not see the call.
    Answer(Vec<u8>),
    /// The server answers, and the result is changed on its way.
    Edit(Edit),
}

type Judge = dyn Fn(u32) -> Verdict + Send + Sync;
type Edits = Mutex<HashMap<[u8; 4], Edit>>;

/// Offset of an accepted reply's result, given the empty verifiers of these servers.
const RESULT_AT: usize = 24;

/// Proxy in front of a server; `judge` decides about every NFS call by its procedure number.
pub(crate) async fn proxy(to: SocketAddr, judge: impl Fn(u32) -> Verdict + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let judge: Arc<Judge> = Arc::new(judge);
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let Ok(server) = TcpStream::connect(to).await else {
                continue;
            };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let to_client = Arc::new(tokio::sync::Mutex::new(to_client));
            let edits = Arc::new(Edits::default());
            tokio::spawn(calls(
                from_client,
                to_server,
                Arc::clone(&to_client),
                judge.clone(),
                Arc::clone(&edits),
            ));
            tokio::spawn(replies(from_server, to_client, edits));
        }
    });
    address
}

/// A record with its mark; none at the end of the stream.
async fn record(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    from.read_exact(&mut mark).await.ok()?;
    let mut record = vec![0; fragment_header::from(mark).fragment_length() as usize];
    from.read_exact(&mut record).await.ok()?;
    Some([&mark, &record[..]].concat())
}

async fn calls(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    back: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    judge: Arc<Judge>,
    edits: Arc<Edits>,
) {
    while let Some(call) = record(&mut from).await {
        let word = |i: usize| u32::from_be_bytes(*call[4 * i..].first_chunk().unwrap());
        let xid: [u8; 4] = *call[4..].first_chunk().unwrap();
        let verdict = match word(4) {
            PROGRAM => judge(word(6)),
            _ => Verdict::Pass,
        };
        match verdict {
            Verdict::Pass => {}
            Verdict::Edit(edit) => {
                edits.lock().unwrap().insert(xid, edit);
            }
            Verdict::Answer(result) => {
                let accepted = [1_u32, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
                let reply = [&xid[..], &accepted, &result].concat();
                let mark = fragment_header::new(u32::try_from(reply.len()).unwrap(), true).into_xdr_buf();
                let written = back.lock().await.write_all(&[&mark, &reply[..]].concat()).await;
                if written.is_err() {
                    return;
                }
                continue;
            }
        }
        if to.write_all(&call).await.is_err() {
            return;
        }
    }
}

async fn replies(mut from: OwnedReadHalf, to: Arc<tokio::sync::Mutex<OwnedWriteHalf>>, edits: Arc<Edits>) {
    while let Some(mut reply) = record(&mut from).await {
        let edit = edits.lock().unwrap().remove(&reply[4..8]);
        if let Some(edit) = edit {
            edit(&mut reply[4 + RESULT_AT..]);
        }
        if to.lock().await.write_all(&reply).await.is_err() {
            return;
        }
    }
}
