//! An NFSv3 server over a folder, exported as `/export`. MOUNT and NFS share one port; there is no portmapper.
//!
//! In: an address and a root folder. Out: NFSv3 over TCP. Made for tests and for the lab on loopback: every client is
//! served with the rights of this process, and locks are not supported.
//!
//! Metadata is read in place, because it is almost always in the kernel's caches; data and syncs go to blocking
//! threads.

mod nodes;

use nfs3_server::nfs3_types::nfs3::{
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSINFO3resok, Nfs3Option, createverf3, fattr3, filename3, nfspath3, nfsstat3,
    nfstime3, post_op_attr, sattr3, set_atime, set_mtime, stable_how,
};
use nfs3_server::tcp::{NFSTcp, NFSTcpListener};
use nfs3_server::vfs::{DirEntryPlus, NextResult, NfsFileSystem, NfsReadFileSystem, ReadDirPlusIterator};
use nodes::{NodeId, Nodes, attributes, plain, status_of};
use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File, FileTimes, Metadata, OpenOptions, Permissions};
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Path that clients mount.
pub const EXPORT: &str = "/export";

/// A root folder, bound to an address and ready to be served.
pub struct NfsOrigin {
    listener: NFSTcpListener<Export>,
}

impl NfsOrigin {
    /// Opens a root folder, creating it if missing, and binds an address; port 0 picks a free port.
    ///
    /// # Errors
    /// Fails if the folder cannot be opened, or the address cannot be bound.
    pub async fn bind(address: SocketAddrV4, root: &Path) -> io::Result<Self> {
        let export = Export {
            nodes: Arc::new(Nodes::open(root)?),
        };
        let mut listener = NFSTcpListener::bind(&address.to_string(), export).await?;
        listener.with_export_name(EXPORT);
        Ok(Self { listener })
    }

    /// The address in use.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.listener.get_listen_ip(), self.listener.get_listen_port())
    }

    /// URL for clients: `nfs://127.0.0.1:PORT/export`.
    pub fn url(&self) -> String {
        format!("nfs://{}{EXPORT}", self.address())
    }

    /// Serves until `shutdown` resolves. Connections end with the runtime that this ran on.
    ///
    /// # Errors
    /// A permanent failure of the listener.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        tokio::select! {
            () = shutdown => Ok(()),
            ended = self.listener.handle_forever() => ended,
        }
    }
}

/// Maximum size of a READ or WRITE, in bytes.
const MAX_IO_BYTES: u32 = 1 << 20;
/// File mode of a CREATE without a mode.
const DEFAULT_MODE: u32 = 0o644;

/// The exported folder.
#[derive(Debug)]
struct Export {
    nodes: Arc<Nodes>,
}

type Status<T> = Result<T, nfsstat3>;

/// Identity and last change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    id: NodeId,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(meta: &Metadata) -> Self {
        Self {
            id: NodeId::of(meta),
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

thread_local! {
    /// State that `getattr` last returned on this thread. The library reads the attributes of a READ's reply right
    /// before the bytes, without waiting in between. So `read` finds here the attributes of its reply.
    static REPORTED: Cell<Option<FileState>> = const { Cell::new(None) };
}

impl Export {
    /// Runs work on an open file off the async threads, and checks that the file is still that of the handle.
    async fn with_file<T: Send + 'static>(
        &self,
        id: NodeId,
        write: bool,
        work: impl FnOnce(&File, &Metadata) -> io::Result<T> + Send + 'static,
    ) -> Status<T> {
        let nodes = Arc::clone(&self.nodes);
        let done = tokio::task::spawn_blocking(move || {
            let (path, meta) = nodes.resolve(&id)?;
            if !meta.is_file() {
                return Err(if meta.is_dir() {
                    nfsstat3::NFS3ERR_ISDIR
                } else {
                    nfsstat3::NFS3ERR_INVAL
                });
            }
            let opened = OpenOptions::new()
                .read(!write)
                .write(write)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(path)
                .and_then(|file| file.metadata().map(|meta| (file, meta)));
            let (file, meta) = opened.map_err(|e| status_of(&e))?;
            if NodeId::of(&meta) != id {
                return Err(nfsstat3::NFS3ERR_STALE);
            }
            work(&file, &meta).map_err(|e| status_of(&e))
        });
        done.await.map_err(|_| nfsstat3::NFS3ERR_SERVERFAULT)?
    }

    fn change(path: &Path, new: &sattr3) -> io::Result<()> {
        if let Nfs3Option::Some(size) = new.size {
            OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)?
                .set_len(size)?;
        }
        if let Nfs3Option::Some(mode) = new.mode {
            fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
        }
        let owner = |id: &Nfs3Option<u32>| match id {
            Nfs3Option::Some(id) => Some(*id),
            Nfs3Option::None => None,
        };
        if new.uid.is_some() || new.gid.is_some() {
            std::os::unix::fs::lchown(path, owner(&new.uid), owner(&new.gid))?;
        }
        let atime = match &new.atime {
            set_atime::DONT_CHANGE => None,
            set_atime::SET_TO_SERVER_TIME => Some(SystemTime::now()),
            set_atime::SET_TO_CLIENT_TIME(time) => Some(time.into()),
        };
        let mtime = match &new.mtime {
            set_mtime::DONT_CHANGE => None,
            set_mtime::SET_TO_SERVER_TIME => Some(SystemTime::now()),
            set_mtime::SET_TO_CLIENT_TIME(time) => Some(time.into()),
        };
        if atime.is_some() || mtime.is_some() {
            let mut times = FileTimes::new();
            times = atime.map_or(times, |atime| times.set_accessed(atime));
            times = mtime.map_or(times, |mtime| times.set_modified(mtime));
            File::open(path)?.set_times(times)?;
        }
        Ok(())
    }

    fn child(&self, folder: &NodeId, name: &filename3<'_>) -> Status<PathBuf> {
        Ok(self.nodes.folder(folder)?.join(plain(name.as_ref())?))
    }
}

impl NfsReadFileSystem for Export {
    type Handle = NodeId;

    fn root_dir(&self) -> NodeId {
        self.nodes.root_id
    }

    async fn lookup(&self, folder: &NodeId, name: &filename3<'_>) -> Status<NodeId> {
        Ok(self.nodes.lookup(folder, name.as_ref())?.0)
    }

    async fn getattr(&self, id: &NodeId) -> Status<fattr3> {
        REPORTED.take();
        let (_, meta) = self.nodes.resolve(id)?;
        REPORTED.set(Some(FileState::of(&meta)));
        Ok(attributes(&meta))
    }

    async fn read(&self, id: &NodeId, offset: u64, count: u32) -> Status<(Vec<u8>, bool)> {
        let reported = REPORTED.take().filter(|state| state.id == *id);
        let read = self.with_file(*id, false, move |file, meta| {
            let reported = reported.unwrap_or_else(|| FileState::of(meta));
            let left = meta.len().saturating_sub(offset);
            let len = left.min(u64::from(count.min(MAX_IO_BYTES)));
            let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                    Ok(0) => break, // cut short since
                    Ok(n) => filled += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            bytes.truncate(filled);
            // The kernel sets the modification time before it copies the bytes of a write. So these bytes belong to the
            // state in the reply's attributes.
            let is_same = FileState::of(&file.metadata()?) == reported;
            Ok(is_same.then(|| (bytes, offset + filled as u64 >= meta.len())))
        });
        // Changed meanwhile: the reply to the retried READ describes the new state.
        read.await?.ok_or(nfsstat3::NFS3ERR_JUKEBOX)
    }

    async fn readdirplus(&self, folder: &NodeId, cookie: u64) -> Status<impl ReadDirPlusIterator<NodeId>> {
        let path = self.nodes.folder(folder)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(|e| status_of(&e))? {
            let name = entry.map_err(|e| status_of(&e))?.file_name();
            names.push((cookie_of(name.as_bytes()), name));
        }
        names.sort();
        names.retain(|(of_name, _)| *of_name > cookie);
        Ok(Entries {
            nodes: Arc::clone(&self.nodes),
            path,
            names: names.into_iter(),
        })
    }

    async fn readlink(&self, _: &NodeId) -> Status<nfspath3<'_>> {
        // Links appear as their targets.
        Err(nfsstat3::NFS3ERR_INVAL)
    }

    async fn fsinfo(&self, root: &NodeId) -> Status<FSINFO3resok> {
        Ok(FSINFO3resok {
            obj_attributes: post_op_attr::Some(self.getattr(root).await?),
            rtmax: MAX_IO_BYTES,
            rtpref: MAX_IO_BYTES,
            rtmult: 4096,
            wtmax: MAX_IO_BYTES,
            wtpref: MAX_IO_BYTES,
            wtmult: 4096,
            dtpref: 64 << 10,
            maxfilesize: i64::MAX.cast_unsigned(),
            time_delta: nfstime3 {
                seconds: 0,
                nseconds: 1,
            },
            properties: FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
        })
    }
}

/// Position of a name in its folder's listing: by hash, so that it stays while other names come and go.
fn cookie_of(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish().max(1)
}

struct Entries {
    nodes: Arc<Nodes>,
    path: PathBuf,
    names: std::vec::IntoIter<(u64, std::ffi::OsString)>,
}

impl ReadDirPlusIterator<NodeId> for Entries {
    async fn next(&mut self) -> NextResult<DirEntryPlus<NodeId>> {
        for (cookie, name) in self.names.by_ref() {
            // Entries that were removed since, or lead outside, are not listed.
            let Ok((id, meta)) = self.nodes.adopt(self.path.join(&name)) else {
                continue;
            };
            let attributes = attributes(&meta);
            return NextResult::Ok(DirEntryPlus {
                fileid: attributes.fileid,
                name: name.as_bytes().to_vec().into(),
                cookie,
                name_attributes: Some(attributes),
                name_handle: Some(id),
            });
        }
        NextResult::Eof
    }
}

impl NfsFileSystem for Export {
    async fn setattr(&self, id: &NodeId, new: sattr3) -> Status<fattr3> {
        let (path, _) = self.nodes.resolve(id)?;
        Self::change(&path, &new).map_err(|e| status_of(&e))?;
        self.getattr(id).await
    }

    async fn write(&self, id: &NodeId, offset: u64, data: &[u8], stable: stable_how) -> Status<(fattr3, stable_how)> {
        let data = data.to_vec();
        let meta = self.with_file(*id, true, move |file, _| {
            file.write_all_at(&data, offset)?;
            match stable {
                stable_how::UNSTABLE => {}
                stable_how::DATA_SYNC => file.sync_data()?,
                stable_how::FILE_SYNC => file.sync_all()?,
            }
            file.metadata()
        });
        Ok((attributes(&meta.await?), stable))
    }

    async fn create(&self, folder: &NodeId, name: &filename3<'_>, mut new: sattr3) -> Status<(NodeId, fattr3)> {
        let path = self.child(folder, name)?;
        let mode = match new.mode {
            Nfs3Option::Some(mode) => mode & 0o7777,
            Nfs3Option::None => DEFAULT_MODE,
        };
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path);
        opened.map_err(|e| status_of(&e))?;
        new.mode = Nfs3Option::None;
        Self::change(&path, &new).map_err(|e| status_of(&e))?;
        let (id, meta) = self.nodes.adopt(path)?;
        Ok((id, attributes(&meta)))
    }

    async fn create_exclusive(&self, _: &NodeId, _: &filename3<'_>, _: createverf3) -> Status<NodeId> {
        // The verifier would have to survive a crash; clients fall back to GUARDED.
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn mkdir(&self, folder: &NodeId, name: &filename3<'_>) -> Status<(NodeId, fattr3)> {
        let path = self.child(folder, name)?;
        fs::create_dir(&path).map_err(|e| status_of(&e))?;
        let (id, meta) = self.nodes.adopt(path)?;
        Ok((id, attributes(&meta)))
    }

    async fn remove(&self, folder: &NodeId, name: &filename3<'_>) -> Status<()> {
        let path = self.child(folder, name)?;
        let meta = fs::symlink_metadata(&path).map_err(|e| status_of(&e))?;
        let removed = if meta.is_dir() {
            fs::remove_dir(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(|e| status_of(&e))
    }

    async fn rename<'a>(
        &self,
        from_folder: &NodeId,
        from_name: &filename3<'a>,
        to_folder: &NodeId,
        to_name: &filename3<'a>,
    ) -> Status<()> {
        let (from, to) = (self.child(from_folder, from_name)?, self.child(to_folder, to_name)?);
        let nodes = Arc::clone(&self.nodes);
        let renamed = tokio::task::spawn_blocking(move || {
            fs::rename(&from, &to)?;
            nodes.moved(&from, &to);
            // The protocol requires a durable change before the reply.
            to.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        });
        let renamed = renamed.await.map_err(|_| nfsstat3::NFS3ERR_SERVERFAULT)?;
        renamed.map_err(|e| status_of(&e))
    }

    async fn symlink<'a>(
        &self,
        _: &NodeId,
        _: &filename3<'a>,
        _: &nfspath3<'a>,
        _: &sattr3,
    ) -> Status<(NodeId, fattr3)> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn commit(&self, id: &NodeId, _: u64, _: u32) -> Status<()> {
        self.with_file(*id, true, |file, _| file.sync_all()).await
    }
}
