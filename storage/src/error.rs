//! Errors of tiers: a kind for callers to act on, the object, and a description.

use std::sync::Arc;
use std::{fmt, io};
use tierlab_gds::{DeviceError, DeviceErrorKind};

/// Maximum length of an object's path in bytes.
pub(crate) const MAX_PATH_BYTES: usize = 1024;
/// Maximum length of a path's segment in bytes: the limit of file systems.
pub(crate) const MAX_SEGMENT_BYTES: usize = 255;

/// True if a path consists of plain segments joined by `/`: not empty, `.` or `..`, without backslash, NUL or control
/// character.
pub(crate) fn is_plain_path(path: &str) -> bool {
    let plain = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment.len() <= MAX_SEGMENT_BYTES
            && !segment.chars().any(|c| c == '\\' || c.is_control())
    };
    path.len() <= MAX_PATH_BYTES && path.split('/').all(plain)
}

/// Kind of an error, for callers to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The object does not exist.
    NotFound,
    /// Range that begins or ends past the object's end.
    OutOfRange,
    /// The object is not the version that was looked up: it was changed, replaced or truncated.
    Changed,
    /// The tier refuses access.
    Denied,
    /// Unacceptable path or config.
    Invalid,
    /// Bytes that do not match their checksum or format.
    Corrupt,
    /// The tier failed or cannot be reached, even after retries.
    Unavailable,
    /// The tier did not answer in time.
    Timeout,
    /// The tier cannot do this at all (a write on a read-only tier, cuFile without CUDA).
    Unsupported,
}

/// All kinds in the order of the enum, each with its name and a text that is safe to publish.
pub(crate) const KINDS: [(ErrorKind, &str, &str); 9] = [
    (ErrorKind::NotFound, "not-found", "no such object"),
    (ErrorKind::OutOfRange, "out-of-range", "range past the object's end"),
    (ErrorKind::Changed, "changed", "replaced while it was read"),
    (ErrorKind::Denied, "denied", "the tier refuses access"),
    (ErrorKind::Invalid, "invalid", "the tier cannot read this"),
    (ErrorKind::Corrupt, "corrupt", "damaged"),
    (
        ErrorKind::Unavailable,
        "unavailable",
        "the tier failed or cannot be reached, even after retries",
    ),
    (ErrorKind::Timeout, "timeout", "the tier did not answer in time"),
    (ErrorKind::Unsupported, "unsupported", "the tier cannot do this"),
];

impl ErrorKind {
    /// Name in metrics and messages.
    pub const fn as_str(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Text that is safe to publish: no text or addresses of the tier.
    pub const fn public_text(self) -> &'static str {
        KINDS[self as usize].2
    }

    /// Kind of an operating system error.
    pub(crate) const fn of_io(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Denied,
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
            is_public: false,
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
    /// True if the detail holds no text or addresses of the tier, so that clients may read it.
    is_public: bool,
}

impl StorageError {
    /// Marks the detail as safe for clients: it holds nothing of the tier.
    #[must_use]
    pub fn with_public_detail(mut self) -> Self {
        Arc::make_mut(&mut self.0).is_public = true;
        self
    }

    /// Sets the path of the object, regardless of the tier's own name for it.
    #[must_use]
    pub fn about(mut self, path: &impl fmt::Display) -> Self {
        Arc::make_mut(&mut self.0).path = Some(path.to_string());
        self
    }

    /// Text for clients of a server: the kind, and the object's path below the tier's root if known. Addresses, folders
    /// and text of the tier are only for the operator's log.
    pub fn for_clients(&self) -> String {
        let kind = self.0.kind;
        let text = match self.0.is_public {
            true => self.0.detail.as_str(),
            false => kind.public_text(),
        };
        // Many errors name the object by its path.
        let object = self.object();
        let plain_path = (is_plain_path(object) && !object.contains(':')).then_some(object);
        match self.0.path.as_deref().or(plain_path) {
            Some(path) => format!("{path}: {text} ({kind})"),
            None => format!("{text} ({kind})"),
        }
    }

    /// Converts an operating system error; its kind follows from the errno.
    pub fn from_io(object: impl fmt::Display, error: &io::Error) -> Self {
        ErrorKind::of_io(error.kind()).error(object, error.to_string())
    }

    /// Converts a device's error about `object`.
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

    /// Path, address or key that the error is about.
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
        write!(f, "{}: {}", self.0.object, self.0.detail)?;
        match self.0.kind {
            // The detail says what to change.
            ErrorKind::Invalid => Ok(()),
            kind => write!(f, " ({kind})"),
        }
    }
}

impl std::error::Error for StorageError {}

/// Appends the error's causes to `text` if they add information.
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
        assert_eq!(absolute.to_string(), "/srv/models/x: No such file (not-found)");
        let usage = ErrorKind::Invalid.error("--block", "must be at least one byte");
        assert_eq!(usage.to_string(), "--block: must be at least one byte");
    }

    #[test]
    fn a_read_only_file_system_is_a_refusal_and_not_retried() {
        let kind = ErrorKind::of_io(io::Error::from_raw_os_error(30).kind());
        assert!(kind == ErrorKind::Denied && !kind.is_transient());
    }
}
