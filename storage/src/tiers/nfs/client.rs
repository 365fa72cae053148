//! Procedures of NFSv3 (RFC 1813), one function each. In: handles and names. Out: results, or a [`Fault`]. Knows
//! nothing of paths or objects.

use super::pool::{Pool, Repeat};
use super::rpc::{Call, ReplyBytes, opaque, pack, value, word};
use super::waiting::{Bulk, Landing, Reply};
use crate::retry::{Backoff, Retries};
use crate::{ErrorKind, ReadCost, StorageError};
use bytes::{Bytes, BytesMut};
use nfs3_types::nfs3::NFS_PROGRAM::{
    NFSPROC3_COMMIT, NFSPROC3_CREATE, NFSPROC3_FSINFO, NFSPROC3_GETATTR, NFSPROC3_LOOKUP, NFSPROC3_MKDIR,
    NFSPROC3_READ, NFSPROC3_READDIR, NFSPROC3_READDIRPLUS, NFSPROC3_REMOVE, NFSPROC3_RENAME, NFSPROC3_RMDIR,
    NFSPROC3_SETATTR, NFSPROC3_WRITE,
};
use nfs3_types::nfs3::{
    COMMIT3args, COMMIT3resok, CREATE3args, FSINFO3resok, MKDIR3args, NFS_PROGRAM, Nfs3Option, PROGRAM, RENAME3args,
    SETATTR3args, VERSION, WRITE3resok, cookieverf3, createhow3, diropargs3, fattr3, filename3, nfs_fh3, nfsstat3,
    post_op_attr, sattr3, sattrguard3, stable_how, writeverf3,
};
use nfs3_types::xdr_codec::{Error, Opaque, Pack, Unpack};
use std::io::Cursor;
use std::time::{Duration, Instant};

/// Maximum bytes of a READDIRPLUS reply.
const DIRECTORY_BYTES: u32 = 64 << 10;
/// Waits before a postponed call is retried.
const BACKOFF: Backoff = Backoff::spread(Duration::from_millis(50), Duration::from_secs(2), 1.0, 1.0);
/// Size of a file's attributes.
const ATTRIBUTES_BYTES: usize = 84;

/// Reply of READ.
#[derive(Debug)]
pub(super) struct ReadReply {
    pub(super) attributes: Option<fattr3>,
    /// Bytes of the caller's buffer, followed by the bytes read.
    pub(super) data: BytesMut,
    pub(super) end_of_file: bool,
}

/// Directory entry.
#[derive(Debug)]
pub(super) struct DirectoryEntry {
    cookie: u64,
    pub(super) name: Vec<u8>,
    pub(super) attributes: Option<fattr3>,
    pub(super) handle: Option<nfs_fh3>,
}

/// Page of a directory listing, and the start of the next page; `None` after the last page.
type DirectoryPage = (Vec<DirectoryEntry>, Option<PageStart>);

/// Start of a directory page (default: the first page).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageStart {
    cookie: u64,
    verifier: cookieverf3,
}

/// Procedures over a pool, for one object: `about` is its name in errors, `cost` the sum of the calls' costs so far.
pub(super) struct Client<'a> {
    pub(super) pool: &'a Pool,
    pub(super) about: &'a str,
    pub(super) cost: ReadCost,
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
    /// Makes a call, and retries it while the server postpones it (`JUKEBOX`: the file is being fetched from slow
    /// storage), within the limit of one call.
    async fn raw(
        &mut self,
        procedure: NFS_PROGRAM,
        arguments: Vec<u8>,
        data: Bytes,
        landing: Option<Landing>,
        repeat: Repeat,
    ) -> Result<Reply, Fault> {
        let call = Call {
            program: PROGRAM,
            version: VERSION,
            procedure: procedure as u32,
            arguments,
            data,
        };
        let again = landing.as_ref().map(Landing::again);
        let (mut landing, mut retries) = (landing, None);
        loop {
            let called = self.pool.call(self.about, &call, landing, repeat, &mut self.cost);
            let reply = called.await?;
            // The first word of a result is its status.
            if word(&reply.body, 0) != Some(nfsstat3::NFS3ERR_JUKEBOX as u32) {
                return Ok(reply);
            }
            let retries =
                retries.get_or_insert_with(|| Retries::new(BACKOFF, Instant::now(), self.pool.limit, u32::MAX));
            let Some(wait) = retries.next(Duration::ZERO) else {
                return Ok(reply);
            };
            self.cost.retries += 1;
            // A wait that the server asked for counts as device time.
            self.cost.device += wait;
            tokio::time::sleep(wait).await;
            landing = again.as_ref().map(Landing::again);
        }
    }

    /// Makes a call. `result` decodes its result on success; on failure, only the status matters.
    async fn call<T>(
        &mut self,
        procedure: NFS_PROGRAM,
        arguments: &(impl Pack + Sync),
        repeat: Repeat,
        result: impl FnOnce(&mut ReplyBytes<'_>) -> Result<T, Error>,
    ) -> Result<T, Fault> {
        let reply = self.raw(procedure, pack(arguments), Bytes::new(), None, repeat).await?;
        self.decode(procedure, &reply, result)
    }

    fn decode<T>(
        &self,
        procedure: NFS_PROGRAM,
        reply: &Reply,
        result: impl FnOnce(&mut ReplyBytes<'_>) -> Result<T, Error>,
    ) -> Result<T, Fault> {
        let mut body = Cursor::new(reply.body.as_ref());
        let garbled = |error: Error| -> Fault {
            let detail = format!("invalid reply to {procedure}: {error}");
            ErrorKind::Unavailable.error(self.about, detail).into()
        };
        match value::<nfsstat3>(&mut body).map_err(garbled)? {
            nfsstat3::NFS3_OK => result(&mut body).map_err(garbled),
            status => Err(Fault::Status(status)),
        }
    }

    pub(super) async fn fsinfo(&mut self, root: &nfs_fh3) -> Result<FSINFO3resok, Fault> {
        self.call(NFSPROC3_FSINFO, root, Repeat::Safe, value).await
    }

    pub(super) async fn getattr(&mut self, file: &nfs_fh3) -> Result<fattr3, Fault> {
        self.call(NFSPROC3_GETATTR, file, Repeat::Safe, value).await
    }

    pub(super) async fn lookup(&mut self, directory: &nfs_fh3, name: &str) -> Result<(nfs_fh3, fattr3), Fault> {
        let place = place(directory, name);
        let found = self.call(NFSPROC3_LOOKUP, &place, Repeat::Safe, |body| {
            Ok((handle(body)?, option::<fattr3>(value(body)?)))
        });
        match found.await? {
            (object, Some(attributes)) => Ok((object, attributes)),
            (object, None) => self.getattr(&object).await.map(|attributes| (object, attributes)),
        }
    }

    /// Reads up to `count` bytes and appends them to `buffer`, which must have capacity for them; allocates a buffer if
    /// none is given.
    pub(super) async fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
        buffer: Option<BytesMut>,
    ) -> Result<ReadReply, Fault> {
        let arguments = [&pack(file)[..], &offset.to_be_bytes(), &count.to_be_bytes()].concat();
        let landing = Landing {
            find: find_read_data,
            room: usize::try_from(count).unwrap_or(usize::MAX),
            buffer,
        };
        let called = self.raw(NFSPROC3_READ, arguments, Bytes::new(), Some(landing), Repeat::Safe);
        let mut reply = called.await?;
        let landed = reply.landed.take();
        self.decode(NFSPROC3_READ, &reply, |body| read_result(body, landed, count))
    }

    /// Creates a file, or truncates an existing one.
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
        let created = self.call(NFSPROC3_CREATE, &arguments, Repeat::Safe, optional_handle);
        match created.await? {
            Some(handle) => Ok(handle),
            None => Ok(self.lookup(directory, name).await?.0),
        }
    }

    /// Writes without waiting for the disk. Returns the number of bytes accepted and the server's write verifier, which
    /// changes when the server restarts.
    pub(super) async fn write(&mut self, file: &nfs_fh3, offset: u64, data: Bytes) -> Result<(u32, writeverf3), Fault> {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes();
        // Without the bytes of the data.
        let stable = pack(&stable_how::UNSTABLE);
        let arguments = [&pack(file)[..], &offset.to_be_bytes(), &count, &stable, &count].concat();
        let reply = self.raw(NFSPROC3_WRITE, arguments, data, None, Repeat::Safe).await?;
        let done = self.decode(NFSPROC3_WRITE, &reply, value::<WRITE3resok>)?;
        Ok((done.count, done.verf))
    }

    /// Makes written data durable.
    pub(super) async fn commit(&mut self, file: &nfs_fh3) -> Result<writeverf3, Fault> {
        let arguments = COMMIT3args {
            file: file.clone(),
            offset: 0,
            count: 0,
        };
        let done: COMMIT3resok = self.call(NFSPROC3_COMMIT, &arguments, Repeat::Safe, value).await?;
        Ok(done.verf)
    }

    pub(super) async fn setattr(&mut self, file: &nfs_fh3, new: sattr3) -> Result<(), Fault> {
        let arguments = SETATTR3args {
            object: file.clone(),
            new_attributes: new,
            guard: sattrguard3::None,
        };
        self.call(NFSPROC3_SETATTR, &arguments, Repeat::Safe, |_| Ok(())).await
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
        // A retry answers EXIST, which the caller accepts as well.
        self.call(NFSPROC3_MKDIR, &arguments, Repeat::Safe, |_| Ok(())).await
    }

    /// Removes a file, or an empty directory.
    pub(super) async fn remove(&mut self, parent: &nfs_fh3, name: &str, is_directory: bool) -> Result<(), Fault> {
        let place = place(parent, name);
        let procedure = if is_directory { NFSPROC3_RMDIR } else { NFSPROC3_REMOVE };
        self.call(procedure, &place, Repeat::Never, |_| Ok(())).await
    }

    pub(super) async fn rename(&mut self, directory: &nfs_fh3, from: &str, to: &str) -> Result<(), Fault> {
        let arguments = RENAME3args {
            from: place(directory, from),
            to: place(directory, to),
        };
        self.call(NFSPROC3_RENAME, &arguments, Repeat::Never, |_| Ok(())).await
    }

    /// Page of a directory, and the start of the next page after its last name. If `plus` is true, with attributes and
    /// handles, as far as the server sends them; not all servers support it.
    pub(super) async fn readdir(
        &mut self,
        directory: &nfs_fh3,
        PageStart { cookie, verifier }: PageStart,
        plus: bool,
    ) -> Result<DirectoryPage, Fault> {
        let (procedure, names) = match plus {
            true => (NFSPROC3_READDIRPLUS, pack(&(DIRECTORY_BYTES / 4))),
            false => (NFSPROC3_READDIR, Vec::new()),
        };
        let start = [pack(directory), pack(&cookie), pack(&verifier)].concat();
        let arguments = [start, names, pack(&DIRECTORY_BYTES)].concat();
        let reply = self.raw(procedure, arguments, Bytes::new(), None, Repeat::Safe).await?;
        let (entries, is_end, verifier) = self.decode(procedure, &reply, |body| entries(body, plus))?;
        let next = match entries.last() {
            _ if is_end => None,
            Some(&DirectoryEntry { cookie, .. }) => Some(PageStart { cookie, verifier }),
            // No position to continue from; taking it as the end would hide files.
            None => {
                let detail = "directory page is empty but not the last";
                return Err(ErrorKind::Unavailable.error(self.about, detail).into());
            }
        };
        Ok((entries, next))
    }
}

fn handle(body: &mut ReplyBytes<'_>) -> Result<nfs_fh3, Error> {
    Ok(nfs_fh3 { data: opaque(body)? })
}

fn optional_handle(body: &mut ReplyBytes<'_>) -> Result<Option<nfs_fh3>, Error> {
    match value::<bool>(body)? {
        true => handle(body).map(Some),
        false => Ok(None),
    }
}

/// Decodes the result of READDIR, or of READDIRPLUS if `plus` is true: the entries of a page, true if it is the last, and
/// the directory's verifier.
fn entries(body: &mut ReplyBytes<'_>, plus: bool) -> Result<(Vec<DirectoryEntry>, bool, cookieverf3), Error> {
    let _: post_op_attr = value(body)?;
    let verifier = value(body)?;
    let mut entries = Vec::new();
    while value::<bool>(body)? {
        let _file_id: u64 = value(body)?;
        let (name, cookie) = (opaque(body)?.into_owned(), value(body)?);
        let (attributes, handle) = match plus {
            true => (option(value(body)?), optional_handle(body)?),
            false => (None, None),
        };
        entries.push(DirectoryEntry {
            cookie,
            name,
            attributes,
            handle,
        });
    }
    Ok((entries, value(body)?, verifier))
}

/// Finds the data in READ3res, after status, attributes, count, end-of-file flag and the data's own length.
fn find_read_data(result: &[u8]) -> Option<Bulk> {
    if word(result, 0)? != nfsstat3::NFS3_OK as u32 {
        return None;
    }
    let attributes = if word(result, 4)? == 0 { 0 } else { ATTRIBUTES_BYTES };
    let at = 8 + attributes + 12;
    let len = usize::try_from(word(result, at - 4)?).ok()?;
    Some(Bulk { at, len })
}

/// Decodes the result of a READ whose data has been received separately.
fn read_result(body: &mut ReplyBytes<'_>, landed: Option<BytesMut>, asked: u32) -> Result<ReadReply, Error> {
    let attributes = option(value(body)?);
    let (count, end_of_file, len): (u32, bool, u32) = (value(body)?, value(body)?, value(body)?);
    match landed {
        Some(data) if count == len && len <= asked => Ok(ReadReply {
            attributes,
            data,
            end_of_file,
        }),
        _ => Err(Error::InvalidLength(len as usize)),
    }
}

/// Failure of an NFSv3 procedure. Keeps the status until the object is named, so that callers can handle a stale handle.
#[derive(Debug)]
pub(super) enum Fault {
    /// Status returned by the server.
    Status(nfsstat3),
    /// Error of the call itself.
    Call(StorageError),
}

impl From<StorageError> for Fault {
    fn from(error: StorageError) -> Self {
        Self::Call(error)
    }
}

impl Fault {
    /// True if the server no longer accepts the handle.
    pub(super) fn is_stale(&self) -> bool {
        self.is(nfsstat3::NFS3ERR_STALE) || self.is(nfsstat3::NFS3ERR_BADHANDLE)
    }

    pub(super) fn is(&self, status: nfsstat3) -> bool {
        matches!(self, Self::Status(found) if *found == status)
    }

    /// Converts the fault to an error that names `about`.
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
        kind.error(about, format!("NFS server returned {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs3_types::nfs3::{Nfs3Result, READ3resok};
    use nfs3_types::xdr_codec::Void;
    use proptest::prelude::*;

    fn packed(attributes: post_op_attr, count: u32, data: &[u8]) -> Vec<u8> {
        let done = READ3resok {
            file_attributes: attributes,
            count,
            eof: true,
            data: Opaque::borrowed(data),
        };
        let mut bytes = Vec::new();
        Nfs3Result::<_, Void>::Ok(done).pack(&mut bytes).unwrap();
        bytes
    }

    fn file() -> fattr3 {
        let zeros = [0, 0, 0, 1]
            .into_iter()
            .chain([0; ATTRIBUTES_BYTES])
            .collect::<Vec<u8>>();
        fattr3::unpack(&mut Cursor::new(zeros)).unwrap().0
    }

    #[test]
    fn the_data_of_a_read_is_found() {
        for attributes in [post_op_attr::None, post_op_attr::Some(file())] {
            let bytes = packed(attributes, 5, b"hello");
            let Bulk { at, len } = find_read_data(&bytes).unwrap();
            assert_eq!(&bytes[at..at + len], b"hello");
            assert_eq!(
                find_read_data(&bytes[..at]),
                Some(Bulk { at, len }),
                "the head is enough"
            );
            assert_eq!(find_read_data(&bytes[..at - 1]), None);
            let decode = |count, asked| {
                let mut body = bytes[..at].to_vec();
                body[at - 12..at - 8].copy_from_slice(&u32::to_be_bytes(count));
                read_result(&mut Cursor::new(&body[4..]), Some(BytesMut::from("hello")), asked)
            };
            let read = decode(5, 10).unwrap();
            assert_eq!((read.data.as_ref(), read.end_of_file), (b"hello".as_slice(), true));
            assert!(decode(4, 10).is_err(), "count and data disagree");
            assert!(decode(5, 4).is_err(), "more than was asked for");
        }
    }

    #[test]
    fn lengths_of_names_and_handles_are_checked_before_decoding() {
        // No attributes, a verifier, a first entry with its file id, and the length of its name.
        let page = [0, 0, 0, 1, 0, 9, u32::MAX, 7].map(u32::to_be_bytes).concat();
        let body = || Cursor::new(&page[..]);
        for plus in [false, true] {
            assert!(matches!(entries(&mut body(), plus), Err(Error::InvalidLength(_))));
        }
        let handle = [1, u32::MAX, 7].map(u32::to_be_bytes).concat();
        let decoded = optional_handle(&mut Cursor::new(&handle[..]));
        assert!(matches!(decoded, Err(Error::InvalidLength(_))));
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (entries(&mut Cursor::new(&bytes[..]), true), optional_handle(&mut Cursor::new(&bytes[..])));
            let _ = find_read_data(&bytes);
            let _ = read_result(&mut Cursor::new(&bytes[..]), Some(BytesMut::new()), 100);
        }
    }
}
