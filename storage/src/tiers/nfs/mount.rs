//! Finding an export: its URL, its server by name or portmapper (RFC 1833, version 2), the MOUNT protocol (RFC 1813,
//! appendix I), and the caller's identity.
//!
//! In: a URL. Out: the address of the NFS server and the handle of the export's root.

use super::NfsConfig;
use super::pool::{Address, Limits, Pool, Resolve};
use super::rpc::{Call, opaque, pack, value};
use crate::{ErrorKind, StorageError};
use async_trait::async_trait;
use bytes::Bytes;
use nfs3_types::mount::{self, MOUNT_PROGRAM, dirpath, mountstat3};
use nfs3_types::nfs3::{self, nfs_fh3};
use nfs3_types::portmap::{self, IPPROTO_TCP, PMAP_PORT, PMAP_PROG, mapping};
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::{Opaque, Unpack};
use std::fmt;
use std::io::Cursor;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const NFS: Program = Program(nfs3::PROGRAM, nfs3::VERSION, "NFS");
const MOUNT: Program = Program(mount::PROGRAM, mount::VERSION, "MOUNT");

/// Server of an export.
#[derive(Debug, Clone)]
pub(super) struct Server {
    url: NfsUrl,
    mount_port: Option<u16>,
    /// True if a portmapper gives the ports; such servers may trust privileged source ports only.
    pub(super) privileged: bool,
    pub(super) credential: opaque_auth<'static>,
    limit: Duration,
}

impl Server {
    pub(super) fn new(url: &NfsUrl, config: &NfsConfig, limit: Duration) -> Self {
        Self {
            url: url.clone(),
            mount_port: config.mount_port.or(url.port),
            privileged: url.port.is_none(),
            credential: credential(config),
            limit,
        }
    }

    /// Address for NFS calls.
    pub(super) async fn nfs(&self) -> Result<Address, StorageError> {
        self.program(NFS, self.url.port).await
    }

    async fn program(&self, program: Program, port: Option<u16>) -> Result<Address, StorageError> {
        let host = Host {
            url: self.url.clone(),
            port: port.unwrap_or(PMAP_PORT),
        };
        match port {
            Some(_) => Address::resolved(host, self.limit).await,
            None => Address::resolved(Portmapper { host, program }, self.limit).await,
        }
    }

    fn mount_call(procedure: MOUNT_PROGRAM, arguments: Vec<u8>) -> Call {
        Call {
            program: mount::PROGRAM,
            version: mount::VERSION,
            procedure: procedure as u32,
            arguments,
            data: Bytes::new(),
        }
    }

    /// Mounts the export and returns the handle of its root.
    pub(super) async fn mount(&self) -> Result<nfs_fh3, StorageError> {
        let about = self.url.to_string();
        // Requested each time: mounts are rare, and a restarted server may have another port.
        let address = self.program(MOUNT, self.mount_port).await?;
        let server = address.get();
        let pool = Pool::new(address, &self.credential, &Limits::few(self.limit, self.privileged));
        let path = pack(&dirpath(Opaque::borrowed(self.url.export.as_bytes())));
        let call = Self::mount_call(MOUNT_PROGRAM::MOUNTPROC3_MNT, path);
        let reply = pool.ask(&about, &call).await?;
        let mut body = Cursor::new(reply.body.as_ref());
        let garbled = |_| ErrorKind::Unavailable.error(&about, "invalid reply to MOUNT");
        let status: mountstat3 = value(&mut body).map_err(garbled)?;
        let kind = match status {
            mountstat3::MNT3_OK => return opaque(&mut body).map(|data| nfs_fh3 { data }).map_err(garbled),
            mountstat3::MNT3ERR_NOENT | mountstat3::MNT3ERR_NOTDIR => ErrorKind::NotFound,
            mountstat3::MNT3ERR_PERM | mountstat3::MNT3ERR_ACCES => ErrorKind::Denied,
            _ => ErrorKind::Unavailable,
        };
        let offered = match self.exports(&pool).await {
            Some(names) => format!("exports are {}", names.join(", ")),
            None => "its exports are unknown".to_owned(),
        };
        let detail = format!("{server} does not mount `{}` ({status}); {offered}", self.url.export);
        Err(kind.error(about, detail))
    }

    async fn exports(&self, pool: &Pool) -> Option<Vec<String>> {
        let call = Self::mount_call(MOUNT_PROGRAM::MOUNTPROC3_EXPORT, Vec::new());
        let reply = pool.ask("", &call).await.ok()?;
        let (mut body, mut names) = (Cursor::new(reply.body.as_ref()), Vec::new());
        while value::<bool>(&mut body).ok()? {
            names.push(String::from_utf8_lossy(&opaque(&mut body).ok()?).into_owned());
            // Groups that may mount it.
            while value::<bool>(&mut body).ok()? {
                opaque(&mut body).ok()?;
            }
        }
        Some(names)
    }
}

/// AUTH_SYS credential with the configured ids, or those of this process.
fn credential(config: &NfsConfig) -> opaque_auth<'static> {
    let own = std::fs::metadata("/proc/self").map_or((65_534, 65_534), |meta| (meta.uid(), meta.gid()));
    opaque_auth::auth_unix(&auth_unix {
        stamp: 0,
        machinename: Opaque::borrowed(b"tierlab"),
        uid: config.uid.unwrap_or(own.0),
        gid: config.gid.unwrap_or(own.1),
        gids: Vec::new(),
    })
}

/// Program in a portmapper's registry: its number and version, and its name in errors.
#[derive(Debug, Clone, Copy)]
struct Program(u32, u32, &'static str);

/// Host of a URL, with a port.
#[derive(Debug, Clone)]
struct Host {
    url: NfsUrl,
    port: u16,
}

#[async_trait]
impl Resolve for Host {
    /// Asks the system's resolver for all addresses of the name.
    async fn resolve(&self, limit: Duration) -> Result<Vec<SocketAddr>, StorageError> {
        let name = &self.url.host;
        let unresolved = |what: String| {
            ErrorKind::Unavailable.error(self.url.to_string(), format!("cannot resolve `{name}`: {what}"))
        };
        let lookup = tokio::time::timeout(limit, tokio::net::lookup_host((name.as_str(), self.port))).await;
        let found = lookup.map_err(|_| unresolved("no answer in time".to_owned()))?;
        let found: Vec<_> = found.map_err(|e| unresolved(e.to_string()))?.collect();
        match found.is_empty() {
            true => Err(unresolved("name has no address".to_owned())),
            false => Ok(found),
        }
    }
}

/// Portmapper and the program to look up.
#[derive(Debug, Clone)]
struct Portmapper {
    host: Host,
    program: Program,
}

#[async_trait]
impl Resolve for Portmapper {
    /// Asks the portmapper, over a pool, for the program's current port.
    async fn resolve(&self, limit: Duration) -> Result<Vec<SocketAddr>, StorageError> {
        let Program(number, version, name) = self.program;
        let about = self.host.url.to_string();
        let limits = Limits::few(limit, false);
        let address = Address::resolved(self.host.clone(), limit).await?;
        let pool = Pool::new(address, &opaque_auth::default(), &limits);
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
        let asked = pool.ask(&about, &call).await.map_err(|e| {
            let hint = "if the server has no portmapper, set its NFS port in the URL";
            let detail = format!("portmapper: {}; {hint}", e.detail());
            e.kind().error(e.object(), detail)
        })?;
        let mut found = pool.address.known();
        let port = u32::unpack(&mut Cursor::new(asked.body.as_ref())).map_or(0, |(port, _)| port);
        let port = u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
            let (at, hint) = (pool.address.get(), "enable NFSv3 on the server");
            let detail = format!("portmapper at {at} does not list {name} version {version} over TCP; {hint}");
            ErrorKind::Unavailable.error(&about, detail)
        })?;
        found.iter_mut().for_each(|address| address.set_port(port));
        Ok(found)
    }
}

/// An export on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NfsUrl {
    /// Name or address; an IPv6 address without its brackets.
    pub(super) host: String,
    /// Port that serves both NFS and MOUNT; if `None`, the portmapper is asked.
    pub(super) port: Option<u16>,
    /// Path of the export, with its leading slash.
    pub(super) export: String,
}

impl NfsUrl {
    pub(super) fn parse(url: &str) -> Result<Self, StorageError> {
        let bad = |what: &str| ErrorKind::Invalid.error(url, format!("{what}; use nfs://host[:port]/export"));
        let rest = url.strip_prefix("nfs://");
        let rest = rest.ok_or_else(|| bad("URL does not start with nfs://"))?;
        let (authority, export) = rest.split_once('/').ok_or_else(|| bad("missing export"))?;
        let export = export.trim_end_matches('/');
        if export.contains(['?', '#']) || export.chars().any(char::is_control) {
            return Err(bad("export has options or control characters"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or_else(|| bad("unclosed bracket"))?;
                (host, after.strip_prefix(':').or((!after.is_empty()).then_some("")))
            }
            None => authority
                .split_once(':')
                .map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let colons = authority.starts_with('[');
        let plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') || colons && matches!(c, ':' | '%');
        if host.is_empty() || !host.chars().all(plain) {
            return Err(bad("missing or invalid host"));
        }
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let port = port.map(|text| number(text).ok_or_else(|| bad("port is not a number from 1 to 65535")));
        Ok(Self {
            host: host.to_owned(),
            port: port.transpose()?,
            export: format!("/{export}"),
        })
    }

    /// `host:port`, or only the host if the port is unknown.
    pub(super) fn server(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        self.port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
    }
}

impl fmt::Display for NfsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nfs://{}{}", self.server(), self.export)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::{Address, Repeat};
    use super::*;
    use crate::ReadCost;
    use nfs3_types::rpc::fragment_header;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    const SOME: Program = Program(100_003, 3, "NFS");

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
            program: SOME.0,
            version: SOME.1,
            procedure: 0,
            arguments: Vec::new(),
            data: Bytes::new(),
        };
        let reply = pool.ask("test", &call).await?;
        Ok(u32::from_be_bytes(*reply.body.first_chunk().unwrap()))
    }

    #[tokio::test]
    async fn a_program_that_moved_is_found_again() {
        let port = Arc::new(AtomicU16::new(0));
        let told = Arc::clone(&port);
        let (portmapper, _portmapper) = server(move || told.load(Ordering::Relaxed).into()).await;
        let portmapper = Portmapper {
            host: Host {
                url: NfsUrl::parse("nfs://127.0.0.1/export").unwrap(),
                port: portmapper.port(),
            },
            program: SOME,
        };
        let limit = Duration::from_secs(10);
        let unknown = Address::resolved(portmapper.clone(), limit).await.unwrap_err();
        assert!(unknown.to_string().contains("does not list NFS"), "{unknown}");
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
    async fn times_of_calls_that_follow_each_other_add_up() {
        let (limit, pause) = (Duration::from_secs(10), Duration::from_millis(20));
        let (address, _server) = server(move || {
            std::thread::sleep(pause);
            1
        })
        .await;
        let address = Address::resolved(Known(vec![address]), limit).await.unwrap();
        let pool = Pool::new(address, &opaque_auth::default(), &Limits::few(limit, false));
        let call = Call {
            program: SOME.0,
            version: SOME.1,
            procedure: 0,
            arguments: Vec::new(),
            data: Bytes::new(),
        };
        let mut cost = ReadCost::default();
        for _ in 0..2 {
            let called = pool.call("test", &call, None, Repeat::Safe, &mut cost).await;
            called.unwrap();
        }
        assert!(cost.requests == 2 && cost.device >= 2 * pause, "{cost:?}");
    }

    #[derive(Debug)]
    struct Known(Vec<SocketAddr>);

    #[async_trait]
    impl Resolve for Known {
        async fn resolve(&self, _: Duration) -> Result<Vec<SocketAddr>, StorageError> {
            Ok(self.0.clone())
        }
    }

    #[tokio::test]
    async fn a_name_is_dialled_at_all_its_addresses() {
        let limit = Duration::from_secs(10);
        let (gone, task) = server(|| 1).await;
        task.abort();
        let _ = task.await;
        let ((second, task), (third, _third)) = (server(|| 2).await, server(|| 3).await);
        let address = Address::resolved(Known(vec![gone, second, third]), limit)
            .await
            .unwrap();
        let pool = Pool::new(address, &opaque_auth::default(), &Limits::few(limit, false));
        assert_eq!(call(&pool).await.unwrap(), 2);
        assert_eq!(pool.address.get(), second, "the next connection begins there");
        task.abort();
        let _ = task.await;
        assert_eq!(call(&pool).await.unwrap(), 3);
        let nowhere = Address::resolved(Known(vec![gone]), limit).await.unwrap();
        assert!(nowhere.dial(false).await.is_err());
    }
}

#[cfg(test)]
mod url_tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_read_back() {
        for url in [
            "nfs://host/export",
            "nfs://127.0.0.1:2049/a/b",
            "nfs://[::1]:2049/export",
            "nfs://[fe80::1]/x",
            "nfs://host/",
        ] {
            assert_eq!(NfsUrl::parse(url).unwrap().to_string(), url);
        }
        assert_eq!(NfsUrl::parse("nfs://h/export/").unwrap().export, "/export");
    }

    #[test]
    fn nonsense_is_refused() {
        for url in [
            "",
            "http://host/export",
            "nfs://host",
            "nfs://?/x",
            "nfs:///export",
            "nfs://host:/x",
            "nfs://host:0/x",
            "nfs://host:70000/x",
            "nfs://[::1/x",
            "nfs://[::1]x/x",
            "nfs://u@host/x",
            "nfs://host/x?version=4",
        ] {
            assert_eq!(NfsUrl::parse(url).unwrap_err().kind(), ErrorKind::Invalid, "{url}");
        }
    }

    proptest! {
        #[test]
        fn whatever_parses_reads_back(text in "(nfs://)?[a-z\\[\\]:/@0-9.?]{0,30}") {
            if let Ok(url) = NfsUrl::parse(&text) {
                prop_assert_eq!(NfsUrl::parse(&url.to_string()).unwrap(), url);
            }
        }
    }
}
