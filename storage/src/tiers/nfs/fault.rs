//! Failure of an NFSv3 procedure. In: the protocol's status, or the error of the call. Out: an error that names the
//! object. Keeps the status until then, so that callers can handle a stale handle.

use crate::error::{ErrorKind, StorageError};
use nfs3_types::nfs3::nfsstat3;

/// Failure of an NFSv3 procedure.
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
