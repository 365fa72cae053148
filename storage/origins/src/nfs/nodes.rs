//! File handles: the file of a handle, and its current path.
//!
//! In: names looked up in folders. Out: handles made of inode and birth time. They survive renames, and are stale once
//! their file is gone, even if its inode is used again. Nothing outside the root ever gets a handle: symbolic links are
//! followed only while they stay inside, and every use of a handle checks the inode again.

use nfs3_server::nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, nfstime3, specdata3};
use nfs3_server::vfs::FileHandle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// A handle: inode and birth time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NodeId([u8; 16]);

impl NodeId {
    pub(super) fn of(meta: &Metadata) -> Self {
        // Without birth times in the file system, the inode alone identifies the file.
        let created = meta.created().unwrap_or(UNIX_EPOCH);
        let created = created.duration_since(UNIX_EPOCH).unwrap_or_default();
        let created = u64::try_from(created.as_nanos()).unwrap_or_default();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&meta.ino().to_le_bytes());
        bytes[8..].copy_from_slice(&created.to_le_bytes());
        Self(bytes)
    }
}

impl FileHandle for NodeId {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// Files that have handles. One entry per file that was looked up and still exists.
#[derive(Debug)]
pub(super) struct Nodes {
    root: PathBuf,
    pub(super) root_id: NodeId,
    device: u64,
    /// Absolute paths below the root, free of symbolic links.
    paths: Mutex<HashMap<NodeId, PathBuf>>,
}

impl Nodes {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let root = fs::canonicalize(root)?;
        let meta = fs::symlink_metadata(&root)?;
        if !meta.is_dir() {
            let detail = format!("{} is not a folder", root.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, detail));
        }
        let root_id = NodeId::of(&meta);
        let paths = Mutex::new(HashMap::from([(root_id, root.clone())]));
        Ok(Self {
            root,
            root_id,
            device: meta.dev(),
            paths,
        })
    }

    /// Current path and metadata of a handle's file.
    pub(super) fn resolve(&self, id: &NodeId) -> Result<(PathBuf, Metadata), nfsstat3> {
        let path = self.paths.lock().get(id).cloned().ok_or(nfsstat3::NFS3ERR_STALE)?;
        match fs::symlink_metadata(&path) {
            Ok(meta) if NodeId::of(&meta) == *id => Ok((path, meta)),
            Ok(_) => Err(self.forget(id)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(self.forget(id))
            }
            Err(e) => Err(status_of(&e)),
        }
    }

    /// The folder of a handle; other files are refused.
    pub(super) fn folder(&self, id: &NodeId) -> Result<PathBuf, nfsstat3> {
        let (path, meta) = self.resolve(id)?;
        meta.is_dir().then_some(path).ok_or(nfsstat3::NFS3ERR_NOTDIR)
    }

    fn forget(&self, id: &NodeId) -> nfsstat3 {
        self.paths.lock().remove(id);
        nfsstat3::NFS3ERR_STALE
    }

    /// Looks up a name in a folder.
    pub(super) fn lookup(&self, folder: &NodeId, name: &[u8]) -> Result<(NodeId, Metadata), nfsstat3> {
        let path = self.folder(folder)?;
        match name {
            b"." => return self.adopt(path),
            b".." if path == self.root => return self.adopt(path),
            b".." => return self.adopt(path.parent().unwrap_or(&self.root).to_owned()),
            _ => {}
        }
        self.adopt(path.join(plain(name)?))
    }

    /// Creates a handle for the file at `path`, in a folder below the root.
    pub(super) fn adopt(&self, mut path: PathBuf) -> Result<(NodeId, Metadata), nfsstat3> {
        let mut meta = fs::symlink_metadata(&path).map_err(|e| status_of(&e))?;
        if meta.is_symlink() {
            path = fs::canonicalize(&path).map_err(|e| status_of(&e))?;
            if !path.starts_with(&self.root) {
                return Err(nfsstat3::NFS3ERR_ACCES);
            }
            meta = fs::symlink_metadata(&path).map_err(|e| status_of(&e))?;
        }
        if meta.dev() != self.device {
            // Inodes identify files within one file system only.
            return Err(nfsstat3::NFS3ERR_ACCES);
        }
        let id = NodeId::of(&meta);
        self.paths.lock().insert(id, path);
        Ok((id, meta))
    }

    /// Follows a rename: the file and, for a folder, everything below it.
    pub(super) fn moved(&self, from: &Path, to: &Path) {
        for path in self.paths.lock().values_mut() {
            if let Ok(below) = path.strip_prefix(from) {
                *path = match below.as_os_str().is_empty() {
                    true => to.to_owned(),
                    false => to.join(below),
                };
            }
        }
    }
}

/// A name as one plain path segment.
pub(super) fn plain(name: &[u8]) -> Result<&OsStr, nfsstat3> {
    if name.len() > 255 {
        return Err(nfsstat3::NFS3ERR_NAMETOOLONG);
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|b| matches!(b, b'/' | 0)) {
        return Err(nfsstat3::NFS3ERR_INVAL);
    }
    Ok(OsStr::from_bytes(name))
}

/// Returns attributes in the protocol's form.
pub(super) fn attributes(meta: &Metadata) -> fattr3 {
    let type_ = match meta.mode() & libc::S_IFMT {
        libc::S_IFDIR => ftype3::NF3DIR,
        libc::S_IFLNK => ftype3::NF3LNK,
        libc::S_IFBLK => ftype3::NF3BLK,
        libc::S_IFCHR => ftype3::NF3CHR,
        libc::S_IFIFO => ftype3::NF3FIFO,
        libc::S_IFSOCK => ftype3::NF3SOCK,
        _ => ftype3::NF3REG,
    };
    fattr3 {
        type_,
        mode: meta.mode() & 0o7777,
        nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
        uid: meta.uid(),
        gid: meta.gid(),
        size: meta.size(),
        used: meta.blocks() * 512,
        rdev: specdata3::default(),
        fsid: meta.dev(),
        fileid: meta.ino(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
    }
}

fn time(seconds: i64, nanos: i64) -> nfstime3 {
    nfstime3 {
        seconds: u32::try_from(seconds).unwrap_or_default(),
        nseconds: u32::try_from(nanos).unwrap_or_default(),
    }
}

/// Returns the protocol's status for an error of the operating system.
pub(super) fn status_of(error: &io::Error) -> nfsstat3 {
    match error.raw_os_error() {
        Some(libc::EPERM) => nfsstat3::NFS3ERR_PERM,
        Some(libc::ENOENT) => nfsstat3::NFS3ERR_NOENT,
        Some(libc::EACCES) => nfsstat3::NFS3ERR_ACCES,
        Some(libc::EEXIST) => nfsstat3::NFS3ERR_EXIST,
        Some(libc::EXDEV) => nfsstat3::NFS3ERR_XDEV,
        Some(libc::ENOTDIR) => nfsstat3::NFS3ERR_NOTDIR,
        Some(libc::EISDIR) => nfsstat3::NFS3ERR_ISDIR,
        Some(libc::EINVAL | libc::ELOOP | libc::ENXIO) => nfsstat3::NFS3ERR_INVAL,
        Some(libc::EFBIG) => nfsstat3::NFS3ERR_FBIG,
        Some(libc::ENOSPC) => nfsstat3::NFS3ERR_NOSPC,
        Some(libc::EROFS) => nfsstat3::NFS3ERR_ROFS,
        Some(libc::ENAMETOOLONG) => nfsstat3::NFS3ERR_NAMETOOLONG,
        Some(libc::ENOTEMPTY) => nfsstat3::NFS3ERR_NOTEMPTY,
        Some(libc::EDQUOT) => nfsstat3::NFS3ERR_DQUOT,
        _ => {
            tracing::error!("NFS origin: {error}");
            nfsstat3::NFS3ERR_IO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_follow_renames_and_go_stale() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/f"), b"1").unwrap();
        let nodes = Nodes::open(dir.path()).unwrap();
        let (a, _) = nodes.lookup(&nodes.root_id, b"a").unwrap();
        let (f, _) = nodes.lookup(&a, b"f").unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::rename(root.join("a"), root.join("b")).unwrap();
        nodes.moved(&root.join("a"), &root.join("b"));
        assert_eq!(nodes.resolve(&f).unwrap().0, root.join("b/f"));
        fs::write(root.join("new"), b"2").unwrap();
        fs::rename(root.join("new"), root.join("b/f")).unwrap();
        assert_eq!(nodes.resolve(&f).unwrap_err(), nfsstat3::NFS3ERR_STALE);
        assert_eq!(nodes.resolve(&f).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    }

    #[test]
    fn nothing_outside_gets_a_handle() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), b"s").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        link(&outside.path().join("secret"), "file");
        link(outside.path(), "folder");
        fs::write(dir.path().join("inside"), b"i").unwrap();
        link(Path::new("inside"), "ok");
        let nodes = Nodes::open(dir.path()).unwrap();
        let root = nodes.root_id;
        for name in ["file", "folder"] {
            assert_eq!(
                nodes.lookup(&root, name.as_bytes()).unwrap_err(),
                nfsstat3::NFS3ERR_ACCES,
                "{name}"
            );
        }
        for name in ["../etc", "a/b", "", "nul\0"] {
            assert_eq!(
                nodes.lookup(&root, name.as_bytes()).unwrap_err(),
                nfsstat3::NFS3ERR_INVAL,
                "{name}"
            );
        }
        assert_eq!(nodes.lookup(&root, b"..").unwrap().0, root);
        assert_eq!(
            nodes.lookup(&root, b"ok").unwrap().0,
            nodes.lookup(&root, b"inside").unwrap().0
        );
    }
}
