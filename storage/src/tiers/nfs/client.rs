//! NFSv3's procedures (RFC 1813), one function each. In: handles and names. Out: results, or a [`Fault`] that keeps the
//! protocol's status, so that callers can act on a stale handle. Knows nothing of paths or objects.

use super::connection::Call;
use super::pool::{Pool, Repeat};
use crate::error::{ErrorKind, StorageError};
use crate::tier::ReadCost;
use bytes::Bytes;
use nfs3_types::nfs3::{
    COMMIT3args, COMMIT3resfail, COMMIT3resok, CREATE3args, CREATE3resfail, CREATE3resok, FSINFO3args, FSINFO3resfail,
    FSINFO3resok, GETATTR3args, GETATTR3resok, LOOKUP3args, LOOKUP3resfail, LOOKUP3resok, MKDIR3args, MKDIR3resfail,
    MKDIR3resok, NFS_PROGRAM, Nfs3Option, Nfs3Result, PROGRAM, READ3args, READDIR3args, READDIR3resfail, READDIR3resok,
    READDIRPLUS3args, READDIRPLUS3resfail, READDIRPLUS3resok, REMOVE3args, REMOVE3resfail, REMOVE3resok, RENAME3args,
    RENAME3resfail, RENAME3resok, SETATTR3args, SETATTR3resfail, SETATTR3resok, VERSION, WRITE3args, WRITE3resfail,
    WRITE3resok, cookieverf3, createhow3, diropargs3, fattr3, filename3, nfs_fh3, nfsstat3, post_op_attr, sattr3,
    sattrguard3, stable_how, writeverf3,
};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack, Void};
use std::io::Cursor;

/// The bytes of one READDIRPLUS reply at most.
const DIRECTORY_BYTES: u32 = 64 << 10;

/// Why a procedure has no result.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server ran it and said this.
    Status(nfsstat3),
    /// It could not be called.
    Call(StorageError),
}

impl From<StorageError> for Fault {
    fn from(error: StorageError) -> Self {
        Self::Call(error)
    }
}

impl Fault {
    /// Whether the handle used is one of an earlier life of the file or the server.
    pub(super) fn is_stale(&self) -> bool {
        matches!(
            self,
            Self::Status(nfsstat3::NFS3ERR_STALE | nfsstat3::NFS3ERR_BADHANDLE)
        )
    }

    pub(super) fn is(&self, status: nfsstat3) -> bool {
        matches!(self, Self::Status(found) if *found == status)
    }

    /// The error that names `about`.
    pub(super) fn about(self, about: &str) -> StorageError {
        let status = match self {
            Self::Call(error) => return error,
            Self::Status(status) => status,
        };
        let kind = match status {
            nfsstat3::NFS3ERR_NOENT | nfsstat3::NFS3ERR_NOTDIR => ErrorKind::NotFound,
            nfsstat3::NFS3ERR_ACCES | nfsstat3::NFS3ERR_PERM | nfsstat3::NFS3ERR_ROFS => ErrorKind::Denied,
            nfsstat3::NFS3ERR_STALE | nfsstat3::NFS3ERR_BADHANDLE => ErrorKind::Changed,
            nfsstat3::NFS3ERR_INVAL
            | nfsstat3::NFS3ERR_ISDIR
            | nfsstat3::NFS3ERR_EXIST
            | nfsstat3::NFS3ERR_NOTEMPTY
            | nfsstat3::NFS3ERR_NAMETOOLONG => ErrorKind::Invalid,
            nfsstat3::NFS3ERR_NOTSUPP => ErrorKind::Unsupported,
            _ => ErrorKind::Unavailable,
        };
        StorageError::new(kind, about, format!("the NFS server says {status}"))
    }
}

/// What READ brings.
#[derive(Debug)]
pub(super) struct ReadReply {
    pub(super) attributes: Option<fattr3>,
    pub(super) data: Bytes,
    pub(super) end_of_file: bool,
}

/// One name of a directory.
#[derive(Debug)]
pub(super) struct DirectoryEntry {
    pub(super) name: Vec<u8>,
    pub(super) attributes: Option<fattr3>,
    pub(super) handle: Option<nfs_fh3>,
}

/// One page of a directory.
#[derive(Debug)]
pub(super) struct DirectoryPage {
    pub(super) entries: Vec<DirectoryEntry>,
    /// Where the next page starts; none after the last.
    pub(super) next: Option<(u64, cookieverf3)>,
}

/// The procedures over a pool, on behalf of one object: `about` is what errors name, `cost` what the calls add up to.
pub(super) struct Client<'a> {
    pub(super) pool: &'a Pool,
    pub(super) about: &'a str,
    pub(super) cost: &'a mut ReadCost,
}

fn option<T: Pack + Unpack>(value: Nfs3Option<T>) -> Option<T> {
    match value {
        Nfs3Option::Some(value) => Some(value),
        Nfs3Option::None => None,
    }
}

fn place<'a>(directory: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 {
        dir: directory.clone(),
        name: filename3(Opaque::borrowed(name.as_bytes())),
    }
}

impl Client<'_> {
    async fn raw(
        &mut self,
        procedure: NFS_PROGRAM,
        arguments: &(impl Pack + Sync),
        repeat: Repeat,
    ) -> Result<Bytes, Fault> {
        let mut packed = Vec::with_capacity(arguments.packed_size());
        let fits = arguments.pack(&mut packed);
        fits.map_err(|e| StorageError::new(ErrorKind::Invalid, self.about, e.to_string()))?;
        let call = Call {
            program: PROGRAM,
            version: VERSION,
            procedure: procedure as u32,
            arguments: packed,
        };
        Ok(self.pool.call(self.about, &call, repeat, self.cost).await?)
    }

    /// Calls; `T` is what success brings, `E` what failure brings, which is decoded and not looked at.
    async fn call<T: Unpack, E: Unpack>(
        &mut self,
        procedure: NFS_PROGRAM,
        arguments: &(impl Pack + Sync),
        repeat: Repeat,
    ) -> Result<T, Fault> {
        let reply = self.raw(procedure, arguments, repeat).await?;
        match Nfs3Result::<T, E>::unpack(&mut Cursor::new(reply.as_ref())) {
            Ok((Nfs3Result::Ok(done), _)) => Ok(done),
            Ok((Nfs3Result::Err((status, _)), _)) => Err(Fault::Status(status)),
            Err(e) => Err(self.garbled(procedure, &e)),
        }
    }

    fn garbled(&self, procedure: NFS_PROGRAM, error: &nfs3_types::xdr_codec::Error) -> Fault {
        let detail = format!("the reply to {procedure} is garbled: {error}");
        StorageError::new(ErrorKind::Unavailable, self.about, detail).into()
    }

    pub(super) async fn fsinfo(&mut self, root: &nfs_fh3) -> Result<FSINFO3resok, Fault> {
        let arguments = FSINFO3args { fsroot: root.clone() };
        self.call::<FSINFO3resok, FSINFO3resfail>(NFS_PROGRAM::NFSPROC3_FSINFO, &arguments, Repeat::Safe)
            .await
    }

    pub(super) async fn getattr(&mut self, file: &nfs_fh3) -> Result<fattr3, Fault> {
        let arguments = GETATTR3args { object: file.clone() };
        let done = self
            .call::<GETATTR3resok, Void>(NFS_PROGRAM::NFSPROC3_GETATTR, &arguments, Repeat::Safe)
            .await?;
        Ok(done.obj_attributes)
    }

    pub(super) async fn lookup(&mut self, directory: &nfs_fh3, name: &str) -> Result<(nfs_fh3, fattr3), Fault> {
        let arguments = LOOKUP3args {
            what: place(directory, name),
        };
        let done = self
            .call::<LOOKUP3resok, LOOKUP3resfail>(NFS_PROGRAM::NFSPROC3_LOOKUP, &arguments, Repeat::Safe)
            .await?;
        let attributes = match option(done.obj_attributes) {
            Some(attributes) => attributes,
            None => self.getattr(&done.object).await?,
        };
        Ok((done.object, attributes))
    }

    /// Reads up to `count` bytes; the data is a slice of the reply, not a copy.
    pub(super) async fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> Result<ReadReply, Fault> {
        let procedure = NFS_PROGRAM::NFSPROC3_READ;
        let arguments = READ3args {
            file: file.clone(),
            offset,
            count,
        };
        let reply = self.raw(procedure, &arguments, Repeat::Safe).await?;
        decode_read(&reply, count).map_err(|e| self.garbled(procedure, &e))?
    }

    /// Makes a file, or takes one that is there, and empties it.
    pub(super) async fn create(&mut self, directory: &nfs_fh3, name: &str) -> Result<nfs_fh3, Fault> {
        let empty = sattr3 {
            mode: Nfs3Option::Some(0o644),
            size: Nfs3Option::Some(0),
            ..sattr3::default()
        };
        let arguments = CREATE3args {
            where_: place(directory, name),
            how: createhow3::UNCHECKED(empty),
        };
        let done = self
            .call::<CREATE3resok, CREATE3resfail>(NFS_PROGRAM::NFSPROC3_CREATE, &arguments, Repeat::Safe)
            .await?;
        match option(done.obj) {
            Some(handle) => Ok(handle),
            None => Ok(self.lookup(directory, name).await?.0),
        }
    }

    /// Writes without waiting for the disk; returns how much was taken, and the mark of the server's life.
    pub(super) async fn write(&mut self, file: &nfs_fh3, offset: u64, data: &[u8]) -> Result<(u32, writeverf3), Fault> {
        let arguments = WRITE3args {
            file: file.clone(),
            offset,
            count: u32::try_from(data.len()).unwrap_or(u32::MAX),
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(data),
        };
        let done = self
            .call::<WRITE3resok, WRITE3resfail>(NFS_PROGRAM::NFSPROC3_WRITE, &arguments, Repeat::Safe)
            .await?;
        Ok((done.count, done.verf))
    }

    /// Brings what was written to the disk.
    pub(super) async fn commit(&mut self, file: &nfs_fh3) -> Result<writeverf3, Fault> {
        let arguments = COMMIT3args {
            file: file.clone(),
            offset: 0,
            count: 0,
        };
        let done = self
            .call::<COMMIT3resok, COMMIT3resfail>(NFS_PROGRAM::NFSPROC3_COMMIT, &arguments, Repeat::Safe)
            .await?;
        Ok(done.verf)
    }

    pub(super) async fn setattr(&mut self, file: &nfs_fh3, new: sattr3) -> Result<(), Fault> {
        let arguments = SETATTR3args {
            object: file.clone(),
            new_attributes: new,
            guard: sattrguard3::None,
        };
        self.call::<SETATTR3resok, SETATTR3resfail>(NFS_PROGRAM::NFSPROC3_SETATTR, &arguments, Repeat::Safe)
            .await?;
        Ok(())
    }

    pub(super) async fn mkdir(&mut self, directory: &nfs_fh3, name: &str) -> Result<(), Fault> {
        let attributes = sattr3 {
            mode: Nfs3Option::Some(0o755),
            ..sattr3::default()
        };
        let arguments = MKDIR3args {
            where_: place(directory, name),
            attributes,
        };
        // A repeat answers EXIST, which the caller takes as well.
        self.call::<MKDIR3resok, MKDIR3resfail>(NFS_PROGRAM::NFSPROC3_MKDIR, &arguments, Repeat::Safe)
            .await?;
        Ok(())
    }

    pub(super) async fn remove(&mut self, directory: &nfs_fh3, name: &str) -> Result<(), Fault> {
        let arguments = REMOVE3args {
            object: place(directory, name),
        };
        self.call::<REMOVE3resok, REMOVE3resfail>(NFS_PROGRAM::NFSPROC3_REMOVE, &arguments, Repeat::Never)
            .await?;
        Ok(())
    }

    pub(super) async fn rename(&mut self, directory: &nfs_fh3, from: &str, to: &str) -> Result<(), Fault> {
        let arguments = RENAME3args {
            from: place(directory, from),
            to: place(directory, to),
        };
        self.call::<RENAME3resok, RENAME3resfail>(NFS_PROGRAM::NFSPROC3_RENAME, &arguments, Repeat::Never)
            .await?;
        Ok(())
    }

    /// A page of a directory with attributes and handles, as far as the server sends them.
    pub(super) async fn readdirplus(
        &mut self,
        directory: &nfs_fh3,
        from: (u64, cookieverf3),
    ) -> Result<DirectoryPage, Fault> {
        let arguments = READDIRPLUS3args {
            dir: directory.clone(),
            cookie: from.0,
            cookieverf: from.1,
            dircount: DIRECTORY_BYTES / 4,
            maxcount: DIRECTORY_BYTES,
        };
        let procedure = NFS_PROGRAM::NFSPROC3_READDIRPLUS;
        let done = self
            .call::<READDIRPLUS3resok<'static>, READDIRPLUS3resfail>(procedure, &arguments, Repeat::Safe)
            .await?;
        let last = done.reply.entries.0.last().map(|entry| entry.cookie);
        let entry = |entry: nfs3_types::nfs3::entryplus3<'static>| DirectoryEntry {
            name: entry.name.0.into_owned(),
            attributes: option(entry.name_attributes),
            handle: option(entry.name_handle),
        };
        let next = last.filter(|_| !done.reply.eof).map(|cookie| (cookie, done.cookieverf));
        Ok(DirectoryPage {
            entries: done.reply.entries.0.into_iter().map(entry).collect(),
            next,
        })
    }

    /// A page of a directory's names, for servers without READDIRPLUS.
    pub(super) async fn readdir(
        &mut self,
        directory: &nfs_fh3,
        from: (u64, cookieverf3),
    ) -> Result<DirectoryPage, Fault> {
        let arguments = READDIR3args {
            dir: directory.clone(),
            cookie: from.0,
            cookieverf: from.1,
            count: DIRECTORY_BYTES,
        };
        let procedure = NFS_PROGRAM::NFSPROC3_READDIR;
        let done = self
            .call::<READDIR3resok<'static>, READDIR3resfail>(procedure, &arguments, Repeat::Safe)
            .await?;
        let last = done.reply.entries.0.last().map(|entry| entry.cookie);
        let entry = |entry: nfs3_types::nfs3::entry3<'static>| DirectoryEntry {
            name: entry.name.0.into_owned(),
            attributes: None,
            handle: None,
        };
        let next = last.filter(|_| !done.reply.eof).map(|cookie| (cookie, done.cookieverf));
        Ok(DirectoryPage {
            entries: done.reply.entries.0.into_iter().map(entry).collect(),
            next,
        })
    }
}

/// READ3res by hand, so that the data stays where it arrived.
fn decode_read(reply: &Bytes, asked: u32) -> Result<Result<ReadReply, Fault>, nfs3_types::xdr_codec::Error> {
    let mut cursor = Cursor::new(reply.as_ref());
    let (status, _) = nfsstat3::unpack(&mut cursor)?;
    let (attributes, _) = post_op_attr::unpack(&mut cursor)?;
    if status != nfsstat3::NFS3_OK {
        return Ok(Err(Fault::Status(status)));
    }
    let (count, _) = u32::unpack(&mut cursor)?;
    let (end_of_file, _) = bool::unpack(&mut cursor)?;
    let (len, _) = u32::unpack(&mut cursor)?;
    let at = usize::try_from(cursor.position()).unwrap_or(reply.len());
    let end = at.saturating_add(len as usize);
    if count != len || len > asked || end > reply.len() {
        return Err(nfs3_types::xdr_codec::Error::InvalidLength(len as usize));
    }
    Ok(Ok(ReadReply {
        attributes: option(attributes),
        data: reply.slice(at..end),
        end_of_file,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs3_types::nfs3::READ3resok;
    use proptest::prelude::*;

    #[test]
    fn a_read_is_sliced_out_of_its_reply() {
        let packed = |count: u32, data: &[u8]| {
            let data = Opaque::borrowed(data);
            let done = READ3resok {
                file_attributes: post_op_attr::None,
                count,
                eof: true,
                data,
            };
            let mut bytes = Vec::new();
            Nfs3Result::<_, Void>::Ok(done).pack(&mut bytes).unwrap();
            Bytes::from(bytes)
        };
        let read = decode_read(&packed(5, b"hello"), 10).unwrap().unwrap();
        assert_eq!((read.data.as_ref(), read.end_of_file), (b"hello".as_slice(), true));
        assert!(
            decode_read(&packed(4, b"hello"), 10).is_err(),
            "count and data disagree"
        );
        assert!(decode_read(&packed(5, b"hello"), 4).is_err(), "more than was asked for");
        assert!(decode_read(&packed(5, b"hello").slice(..18), 10).is_err(), "cut off");
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_read(&Bytes::from(bytes), 100);
        }
    }
}
