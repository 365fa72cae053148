//! Portmappers (RFC 1833, version 2). In: a portmapper's address, and a program. Out: the program's address. Knows
//! nothing of the program.

use super::address::Resolve;
use super::pool::{Limits, Pool, Repeat};
use super::rpc::{Call, pack};
use crate::error::{ErrorKind, StorageError};
use crate::tier::ReadCost;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use nfs3_types::portmap::{self, IPPROTO_TCP, PMAP_PROG, mapping};
use nfs3_types::rpc::opaque_auth;
use nfs3_types::xdr_codec::Unpack;
use std::io::Cursor;
use std::net::SocketAddr;
use std::time::Duration;

/// A program, as portmappers know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub(super) number: u32,
    pub(super) version: u32,
    /// For errors.
    pub(super) name: &'static str,
}

/// Portmapper and the program to look up.
#[derive(Debug, Clone)]
pub(super) struct Portmapper {
    pub(super) address: SocketAddr,
    pub(super) program: Program,
    /// Object named in errors.
    pub(super) about: String,
}

impl Resolve for Portmapper {
    /// Asks the portmapper, over a pool, for the program's current address.
    fn resolve(&self, limit: Duration) -> BoxFuture<'_, Result<SocketAddr, StorageError>> {
        async move {
            let Program { number, version, name } = self.program;
            let limits = Limits {
                connections: 1,
                in_flight_bytes: 0,
                call: limit,
                privileged: false,
            };
            let pool = Pool::new(self.address.into(), &opaque_auth::default(), &limits);
            let wanted = mapping {
                prog: number,
                vers: version,
                prot: IPPROTO_TCP,
                port: 0,
            };
            let call = Call {
                program: portmap::PROGRAM,
                version: portmap::VERSION,
                procedure: PMAP_PROG::PMAPPROC_GETPORT as u32,
                arguments: pack(&wanted),
                data: Bytes::new(),
            };
            let asked = pool
                .call(&self.about, &call, None, Repeat::Safe, &mut ReadCost::default())
                .await
                .map_err(|e| {
                    let hint = "if the server has no portmapper, give its NFS port in the URL";
                    StorageError::new(e.kind(), e.object(), format!("portmapper: {}; {hint}", e.detail()))
                })?;
            let port = u32::unpack(&mut Cursor::new(asked.body.as_ref())).map_or(0, |(port, _)| port);
            let port = u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
                let detail = format!(
                    "the portmapper at {} knows no {name} version {version} over TCP; is NFSv3 enabled?",
                    self.address
                );
                StorageError::new(ErrorKind::Unavailable, self.about.as_str(), detail)
            })?;
            let mut found = self.address;
            found.set_port(port);
            Ok(found)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::Address;
    use super::*;
    use nfs3_types::rpc::fragment_header;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    const SOME: Program = Program {
        number: 100_003,
        version: 3,
        name: "NFS",
    };

    /// Answers every call of every connection with one word; ends, with its connections, when it is aborted.
    async fn server(word: impl Fn() -> u32 + Clone + Send + Sync + 'static) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, word.clone()));
            }
        });
        (address, task)
    }

    async fn answer(mut stream: TcpStream, word: impl Fn() -> u32) {
        let mut mark = [0; 4];
        while stream.read_exact(&mut mark).await.is_ok() {
            let mut call = vec![0; fragment_header::from(mark).fragment_length() as usize];
            stream.read_exact(&mut call).await.unwrap();
            let words = [1_u32, 0, 0, 0, 0, word()];
            let reply = [&call[..4], &words.map(u32::to_be_bytes).concat()].concat();
            let mark = fragment_header::new(u32::try_from(reply.len()).unwrap(), true).into_xdr_buf();
            stream.write_all(&[&mark, &reply[..]].concat()).await.unwrap();
        }
    }

    async fn call(pool: &Pool) -> Result<u32, StorageError> {
        let call = Call {
            program: SOME.number,
            version: SOME.version,
            procedure: 0,
            arguments: Vec::new(),
            data: Bytes::new(),
        };
        let reply = pool
            .call("test", &call, None, Repeat::Safe, &mut ReadCost::default())
            .await?;
        Ok(u32::from_be_bytes(*reply.body.first_chunk().unwrap()))
    }

    #[tokio::test]
    async fn a_program_that_moved_is_found_again() {
        let port = Arc::new(AtomicU16::new(0));
        let told = Arc::clone(&port);
        let (portmapper, _portmapper) = server(move || told.load(Ordering::Relaxed).into()).await;
        let portmapper = Portmapper {
            address: portmapper,
            program: SOME,
            about: "nfs://test/export".to_owned(),
        };
        let limit = Duration::from_secs(10);
        let unknown = Address::resolved(portmapper.clone(), limit).await.unwrap_err();
        assert!(unknown.to_string().contains("knows no NFS"), "{unknown}");
        let (first, task) = server(|| 1).await;
        port.store(first.port(), Ordering::Relaxed);
        let address = Address::resolved(portmapper, limit).await.unwrap();
        assert_eq!(address.get(), first);
        let limits = Limits {
            connections: 2,
            in_flight_bytes: 0,
            call: limit,
            privileged: false,
        };
        let pool = Pool::new(address, &opaque_auth::default(), &limits);
        assert_eq!(call(&pool).await.unwrap(), 1);
        task.abort();
        let _ = task.await;
        let (second, _task) = server(|| 2).await;
        port.store(second.port(), Ordering::Relaxed);
        for _ in 0..4 {
            assert_eq!(call(&pool).await.unwrap(), 2);
        }
    }

    #[tokio::test]
    async fn a_given_port_stays() {
        let (gone, task) = server(|| 1).await;
        task.abort();
        let _ = task.await;
        assert_eq!(Address::from(gone).instead_of(gone).await, None);
    }
}
