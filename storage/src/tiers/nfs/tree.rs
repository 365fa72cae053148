//! Paths on an export: resolves object paths to handles, and listed names to paths.
//!
//! In: object paths. Out: handles with attributes, and all files below a path, collected directory by directory.
//! Handles of directories are cached for a short time, handles of files with their version. Stale handles are dropped
//! and looked up again once.

use super::NfsConfig;
use super::client::{Client, Fault, PageStart};
use super::mount::{NfsUrl, Server};
use super::pool::{Limits, Pool};
use crate::limits::Listing;
use crate::tiers::remember;
use crate::{ErrorKind, Object, ObjectPath, ReadCost, StorageError};
use nfs3_types::nfs3::{fattr3, ftype3, nfs_fh3, nfsstat3, nfstime3};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time for which a directory's handle is trusted without a check. A renamed directory is noticed after this time.
const DIRECTORY_TRUST: Duration = Duration::from_secs(3);
/// Maximum cached handles, of directories and of files.
const MAX_HANDLES: usize = 4096;
/// Maximum size of READ and WRITE, even if the server offers more.
const MAX_IO_BYTES: u32 = 1 << 20;
/// Maximum walks of a path if its handles are stale: a server may restart twice.
const LOOKUP_ATTEMPTS: u32 = 3;
/// Name prefix of files under construction, which listings leave out.
pub(super) const PARTIAL: &str = ".tierlab-put-";

/// Mounted export.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) url: NfsUrl,
    pub(super) pool: Pool,
    server: Server,
    root: Mutex<nfs_fh3>,
    directories: Mutex<HashMap<String, (nfs_fh3, Instant)>>,
    files: Mutex<HashMap<ObjectPath, Arc<FileHandle>>>,
    /// Held during a refresh of the handles; counts refreshes.
    refreshed: tokio::sync::Mutex<()>,
    generation: AtomicU64,
    /// Maximum bytes of a READ.
    pub(super) read_bytes: u32,
    /// Maximum bytes of a WRITE.
    pub(super) write_bytes: u32,
    /// Maximum gap between ranges that are read as one.
    pub(super) coalesce_bytes: u64,
    pub(super) connections: usize,
}

/// Looked-up file.
#[derive(Debug)]
pub(super) struct FileHandle {
    pub(super) handle: nfs_fh3,
    pub(super) mark: VersionMark,
    /// Version mark as text.
    pub(super) version: String,
    /// Name of the object in errors.
    pub(super) name: String,
}

/// Identity and last change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VersionMark {
    file: u64,
    size: u64,
    modified: (u32, u32),
    changed: (u32, u32),
}

impl VersionMark {
    pub(super) fn of(attributes: &fattr3) -> Self {
        let time = |t: &nfstime3| (t.seconds, t.nseconds);
        Self {
            file: attributes.fileid,
            size: attributes.size,
            modified: time(&attributes.mtime),
            changed: time(&attributes.ctime),
        }
    }
}

impl fmt::Display for VersionMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, size, modified, changed) = (self.file, self.size, self.modified, self.changed);
        write!(f, "{file:x}-{size:x}-{:x}.{:x}", modified.0, modified.1)?;
        write!(f, "-{:x}.{:x}", changed.0, changed.1)
    }
}

pub(super) fn describe(path: &ObjectPath, attributes: &fattr3) -> Object {
    let (path, size) = (path.clone(), attributes.size);
    let version = VersionMark::of(attributes).to_string();
    Object { path, size, version }
}

impl Tree {
    /// Finds the server, mounts the export and requests its limits.
    pub(super) async fn mount(url: NfsUrl, config: &NfsConfig) -> Result<Self, StorageError> {
        let limit = Duration::from_millis(config.timeout_ms.max(1));
        let server = Server::new(&url, config, limit);
        let connections = config.connections as usize;
        let address = server.nfs().await?;
        let root = server.mount().await?;
        let limits = Limits {
            connections,
            in_flight_bytes: config.in_flight_bytes as usize,
            call: limit,
            privileged: server.privileged,
        };
        let pool = Pool::new(address, &server.credential, &limits);
        let about = url.to_string();
        let mut client = Client {
            pool: &pool,
            about: &about,
            cost: ReadCost::default(),
        };
        let info = client.fsinfo(&root).await.map_err(|fault| fault.about(&about))?;
        // 0 is no limit, and a READ of less than a sector costs more than it brings.
        let bounded = |server: u32| if server < 512 { 8192 } else { server.min(MAX_IO_BYTES) };
        Ok(Self {
            url,
            pool,
            server,
            root: Mutex::new(root),
            directories: Mutex::default(),
            files: Mutex::default(),
            refreshed: tokio::sync::Mutex::default(),
            generation: AtomicU64::new(0),
            read_bytes: bounded(info.rtmax),
            write_bytes: bounded(info.wtmax),
            coalesce_bytes: config.coalesce_bytes,
            connections,
        })
    }

    /// Name of an object in errors.
    pub(super) fn name(&self, path: &ObjectPath) -> String {
        match self.url.export.as_str() {
            "/" => format!("{}{path}", self.url),
            _ => format!("{}/{path}", self.url),
        }
    }

    pub(super) fn root(&self) -> nfs_fh3 {
        self.root.lock().clone()
    }

    pub(super) fn client<'a>(&'a self, about: &'a str) -> Client<'a> {
        let (pool, cost) = (&self.pool, ReadCost::default());
        Client { pool, about, cost }
    }

    /// Number of refreshes so far, for [`Tree::refresh`].
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Drops all handles, and mounts again if the root's handle is stale too, as after a restart of the server. Runs
    /// once for all callers that found a stale handle of the generation `seen`.
    pub(super) async fn refresh(&self, client: &mut Client<'_>, seen: u64) -> Result<(), StorageError> {
        let _refreshing = self.refreshed.lock().await;
        if self.generation() != seen {
            return Ok(());
        }
        self.directories.lock().clear();
        self.files.lock().clear();
        let known = client.getattr(&self.root()).await;
        if matches!(&known, Err(fault) if fault.is_stale()) {
            let mounted = self.server.mount().await?;
            *self.root.lock() = mounted;
        } else {
            known.map_err(|fault| fault.about(client.about))?;
        }
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn trusted(&self, path: &str) -> Option<nfs_fh3> {
        let mut directories = self.directories.lock();
        if let Some((handle, seen)) = directories.get(path)
            && seen.elapsed() < DIRECTORY_TRUST
        {
            return Some(handle.clone());
        }
        directories.remove(path);
        None
    }

    /// Handle of a directory, given as its segments. If `make` is set, missing directories are created.
    async fn directory(&self, client: &mut Client<'_>, segments: &[&str], make: bool) -> Result<nfs_fh3, Fault> {
        let mut lengths = (1..=segments.len()).rev();
        let known = lengths.find_map(|n| Some((n, self.trusted(&segments[..n].join("/"))?)));
        let (walked, mut handle) = known.unwrap_or_else(|| (0, self.root()));
        for n in walked..segments.len() {
            let found = match client.lookup(&handle, segments[n]).await {
                Err(fault) if make && fault.is(nfsstat3::NFS3ERR_NOENT) => {
                    match client.mkdir(&handle, segments[n]).await {
                        Err(fault) if !fault.is(nfsstat3::NFS3ERR_EXIST) => return Err(fault),
                        _ => client.lookup(&handle, segments[n]).await?,
                    }
                }
                other => other?,
            };
            if found.1.type_ != ftype3::NF3DIR {
                return Err(Fault::Status(nfsstat3::NFS3ERR_NOTDIR));
            }
            handle = found.0;
            let known = (handle.clone(), Instant::now());
            remember(&self.directories, MAX_HANDLES, segments[..=n].join("/"), known);
        }
        Ok(handle)
    }

    /// Directory of a path, and the last name in the path.
    pub(super) async fn parent<'p>(
        &self,
        client: &mut Client<'_>,
        path: &'p ObjectPath,
        make: bool,
    ) -> Result<(nfs_fh3, &'p str), Fault> {
        let segments: Vec<&str> = path.segments().collect();
        let (name, above) = segments.split_last().ok_or(Fault::Status(nfsstat3::NFS3ERR_INVAL))?;
        Ok((self.directory(client, above, make).await?, name))
    }

    /// Looks up a path of any type.
    pub(super) async fn lookup(&self, client: &mut Client<'_>, path: &ObjectPath) -> Result<(nfs_fh3, fattr3), Fault> {
        let (parent, name) = self.parent(client, path, false).await?;
        client.lookup(&parent, name).await
    }

    /// Looks up an object; directories and links are refused. Refreshes stale handles on the way.
    pub(super) async fn object(
        &self,
        client: &mut Client<'_>,
        path: &ObjectPath,
    ) -> Result<(Arc<FileHandle>, fattr3), StorageError> {
        let about = client.about;
        let mut attempts = 0;
        let found = loop {
            attempts += 1;
            let generation = self.generation();
            match self.lookup(client, path).await {
                Err(fault) if fault.is_stale() && attempts < LOOKUP_ATTEMPTS => {
                    self.refresh(client, generation).await?;
                }
                found => break found,
            }
        };
        match found.map_err(|fault| fault.about(about))? {
            (handle, attributes) if attributes.type_ == ftype3::NF3REG => {
                Ok((self.keep(path, handle, &attributes), attributes))
            }
            (_, attributes) => Err(ErrorKind::NotFound.error(about, format!("not a file but {}", attributes.type_))),
        }
    }

    /// Caches the handle of a version of a file.
    pub(super) fn keep(&self, path: &ObjectPath, handle: nfs_fh3, attributes: &fattr3) -> Arc<FileHandle> {
        let mark = VersionMark::of(attributes);
        let known = Arc::new(FileHandle {
            handle,
            mark,
            version: mark.to_string(),
            name: self.name(path),
        });
        remember(&self.files, MAX_HANDLES, path.clone(), Arc::clone(&known));
        known
    }

    /// Drops the handle of a file.
    pub(super) fn forget(&self, path: &ObjectPath) {
        self.files.lock().remove(path);
    }

    /// Cached handle of exactly this version.
    pub(super) fn cached(&self, object: &Object) -> Option<Arc<FileHandle>> {
        let files = self.files.lock();
        let known = files.get(&object.path);
        known.filter(|known| known.version == object.version).cloned()
    }
}

/// Maximum attempts to read a directory that changes during the listing.
const LISTING_ATTEMPTS: u32 = 3;

/// Bytes counted for an entry besides its name, for the limit of a listing: its parent path and its version.
const ENTRY_BYTES: usize = 128;

impl Tree {
    /// Lists every file at and below a path, in order of path.
    pub(super) async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let about = prefix.map_or_else(|| self.url.to_string(), |path| self.name(path));
        let mut client = self.client(&about);
        let generation = self.generation();
        let mut listed = self.list_once(&mut client, prefix).await;
        if matches!(&listed, Err(fault) if fault.is_stale()) {
            self.refresh(&mut client, generation).await?;
            listed = self.list_once(&mut client, prefix).await;
        }
        listed.map_err(|fault| fault.about(&about))
    }

    async fn list_once(&self, client: &mut Client<'_>, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, Fault> {
        let mut listing = Listing::of(client.about);
        let mut directories = Vec::new();
        match prefix {
            None => directories.push((None, self.root())),
            Some(path) => match self.lookup(client, path).await {
                Ok((handle, attributes)) => match attributes.type_ {
                    ftype3::NF3REG => listing.push(describe(path, &attributes))?,
                    ftype3::NF3DIR => directories.push((Some(path.clone()), handle)),
                    _ => {}
                },
                Err(fault) if fault.is(nfsstat3::NFS3ERR_NOENT) || fault.is(nfsstat3::NFS3ERR_NOTDIR) => {}
                Err(fault) => return Err(fault),
            },
        }
        while let Some((path, handle)) = directories.pop() {
            for (name, handle, attributes) in self.entries(client, &handle, &mut listing).await? {
                let Ok(below) = ObjectPath::below(path.as_ref(), &name) else {
                    tracing::warn!(name, "skipped in listing: not a valid object path");
                    continue;
                };
                match attributes.type_ {
                    ftype3::NF3REG => listing.keep(describe(&below, &attributes)),
                    ftype3::NF3DIR => directories.push((Some(below), handle)),
                    _ => {}
                }
            }
        }
        Ok(listing.end())
    }

    /// Entries of a directory. Leaves out names that are not UTF-8, and files under construction.
    async fn entries(
        &self,
        client: &mut Client<'_>,
        directory: &nfs_fh3,
        listing: &mut Listing,
    ) -> Result<Vec<(String, nfs_fh3, fattr3)>, Fault> {
        let (mut plus, mut attempts) = (true, 1);
        let mut from = PageStart::default();
        let mut found = Vec::new();
        loop {
            let (entries, next) = match client.readdir(directory, from, plus).await {
                Err(fault) if plus && fault.is(nfsstat3::NFS3ERR_NOTSUPP) => {
                    plus = false;
                    continue;
                }
                Err(fault) if fault.is(nfsstat3::NFS3ERR_BAD_COOKIE) && attempts < LISTING_ATTEMPTS => {
                    attempts += 1;
                    from = PageStart::default();
                    found.clear();
                    continue;
                }
                other => other?,
            };
            // Pages without entries count too: a server may send them endlessly.
            listing.named(0)?;
            for entry in entries {
                // The name includes the parent folders and the version's text.
                listing.named(entry.name.len() + ENTRY_BYTES)?;
                let Ok(name) = String::from_utf8(entry.name) else {
                    tracing::warn!(folder = client.about, "skipped in listing: a name is not UTF-8");
                    continue;
                };
                if name == "." || name == ".." || name.starts_with(PARTIAL) {
                    continue;
                }
                let (handle, attributes) = match (entry.handle, entry.attributes) {
                    (Some(handle), Some(attributes)) => (handle, attributes),
                    // The server sent only the name.
                    _ => match client.lookup(directory, &name).await {
                        Err(fault) if fault.is(nfsstat3::NFS3ERR_NOENT) => continue,
                        other => other?,
                    },
                };
                found.push((name, handle, attributes));
            }
            match next {
                Some(next) => from = next,
                None => return Ok(found),
            }
        }
    }
}
