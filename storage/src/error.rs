//! Errors of tiers: a kind to act on, the object, and a sentence to read.

use crate::segments;
use std::sync::Arc;
use std::{fmt, io};
use tierlab_gds::{DeviceError, DeviceErrorKind};

/// Kind of an error, for callers to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No such object.
    NotFound,
    /// A range that begins or ends past the object's end.
    OutOfRange,
    /// The object is not the version that was looked up: changed, replaced or truncated in between.
    Changed,
    /// The tier refuses access.
    Denied,
    /// A path or config that is not acceptable.
    Invalid,
    /// Bytes that fail their checksum or format.
    Corrupt,
    /// The tier failed or cannot be reached, after its retries.
    Unavailable,
    /// The tier did not answer in time.
    Timeout,
    /// The tier cannot do this at all (a write on a read-only tier, cuFile without CUDA).
    Unsupported,
}

/// Every kind in the order of the enum, with its name, and with text that anybody may read.
pub(crate) const KINDS: [(ErrorKind, &str, &str); 9] = [
    (ErrorKind::NotFound, "not-found", "no such object"),
    (ErrorKind::OutOfRange, "out-of-range", "a range past the object's end"),
    (ErrorKind::Changed, "changed", "it was replaced while it was read"),
    (ErrorKind::Denied, "denied", "the tier refuses access"),
    (ErrorKind::Invalid, "invalid", "nothing that the tier can read"),
    (ErrorKind::Corrupt, "corrupt", "damaged"),
    (
        ErrorKind::Unavailable,
        "unavailable",
        "the tier failed or cannot be reached, retries included",
    ),
    (ErrorKind::Timeout, "timeout", "the tier did not answer in time"),
    (ErrorKind::Unsupported, "unsupported", "the tier cannot do this"),
];

impl ErrorKind {
    /// The name in metrics and messages.
    pub const fn as_str(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Text that anybody may read: it holds neither text nor addresses of the tier.
    pub const fn words(self) -> &'static str {
        KINDS[self as usize].2
    }

    /// The kind of an error of the operating system.
    pub(crate) const fn of_io(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::UnexpectedEof => Self::Changed,
            io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => Self::Invalid,
            _ => Self::Unavailable,
        }
    }

    /// Creates an error about `object` (a path, an address or a config key); `detail` says what is wrong, and what to
    /// do.
    #[must_use]
    pub fn error(self, object: impl fmt::Display, detail: impl Into<String>) -> StorageError {
        StorageError(Arc::new(Inner {
            kind: self,
            object: object.to_string(),
            detail: detail.into(),
            path: None,
            told: false,
        }))
    }

    /// True if the same read may succeed later without intervention.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Timeout)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error of a tier. Cheap to clone, because one failed read may be shared by many waiters.
#[derive(Debug, Clone)]
pub struct StorageError(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    object: String,
    detail: String,
    /// Path of the object below the tier's root, once set.
    path: Option<String>,
    /// True if the detail holds neither text nor addresses of the tier, so that clients may read it.
    told: bool,
}

impl StorageError {
    /// The same, whose detail clients may read as well: nothing in it is of the tier.
    #[must_use]
    pub fn told_to_clients(self) -> Self {
        self.with(|inner| inner.told = true)
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The error of a call about this object, whatever name the tier has for it.
    #[must_use]
    pub fn about(self, path: &impl fmt::Display) -> Self {
        self.with(|inner| inner.path = Some(path.to_string()))
    }

    /// Text that clients of a server may read: the kind, and the object's path below the tier's root if known.
    /// Everything else is for the operator's log: addresses, folders and text of the tier.
    pub fn for_clients(&self) -> String {
        let kind = self.0.kind;
        let words = if self.0.told {
            self.0.detail.as_str()
        } else {
            kind.words()
        };
        // Many errors name the object by its path.
        let object = self.object();
        let own = (segments::are_plain(object) && !object.contains(':')).then_some(object);
        match self.0.path.as_deref().or(own) {
            Some(path) => format!("{path}: {words} ({kind})"),
            None => format!("{words} ({kind})"),
        }
    }

    /// Converts an error of the operating system; its kind follows from the errno.
    pub fn from_io(object: impl fmt::Display, error: &io::Error) -> Self {
        ErrorKind::of_io(error.kind()).error(object, error.to_string())
    }

    /// A device's error about `object`.
    pub fn of_device(object: impl fmt::Display, error: DeviceError) -> Self {
        let kind = match error.kind {
            DeviceErrorKind::Unsupported => ErrorKind::Unsupported,
            DeviceErrorKind::Unavailable => ErrorKind::Unavailable,
            DeviceErrorKind::Denied => ErrorKind::Denied,
            DeviceErrorKind::Invalid => ErrorKind::Invalid,
            DeviceErrorKind::OutOfRange => ErrorKind::OutOfRange,
            DeviceErrorKind::Changed => ErrorKind::Changed,
            DeviceErrorKind::Io(kind) => ErrorKind::of_io(kind),
        };
        kind.error(object, error.detail)
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The path, address or key that it is about.
    pub fn object(&self) -> &str {
        &self.0.object
    }

    /// Description of the error.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.0.object, self.0.detail, self.0.kind)
    }
}

impl std::error::Error for StorageError {}

/// Adds to an error's text the causes that say more.
pub(crate) fn with_causes(text: String, error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes
        .map(ToString::to_string)
        .fold(text, |text, more| match text.contains(&more) {
            true => text,
            false => format!("{text}: {more}"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::ObjectPath;

    #[test]
    fn clients_read_the_path_and_the_kind_and_no_more() {
        let path = ObjectPath::new("features/t.rows").unwrap();
        let error = ErrorKind::Denied.error("s3://secret-bucket/prefix/features/t.rows", "at 10.0.0.1: <X>");
        assert_eq!(error.for_clients(), "the tier refuses access (denied)");
        let shared = error.clone();
        let error = error.about(&path);
        assert_eq!(error.for_clients(), "features/t.rows: the tier refuses access (denied)");
        assert!(error.to_string().contains("10.0.0.1"));
        assert!(!shared.for_clients().contains("features"));
        let absolute = ErrorKind::NotFound.error("/srv/models/x", "No such file");
        assert_eq!(absolute.for_clients(), "no such object (not-found)");
    }
}
