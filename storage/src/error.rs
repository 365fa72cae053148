//! What can go wrong with a tier: a kind to act on, the object, and a sentence to read.

use std::fmt;
use std::sync::Arc;

/// What a caller can act on.
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

impl ErrorKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 9] = [
        Self::NotFound,
        Self::OutOfRange,
        Self::Changed,
        Self::Denied,
        Self::Invalid,
        Self::Corrupt,
        Self::Unavailable,
        Self::Timeout,
        Self::Unsupported,
    ];

    /// The name in metrics and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::OutOfRange => "out-of-range",
            Self::Changed => "changed",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Corrupt => "corrupt",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Unsupported => "unsupported",
        }
    }

    /// Whether the same read may succeed later without anybody's doing.
    #[must_use]
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

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    object: String,
    detail: String,
}

impl StorageError {
    /// An error about `object` (a path, an address or a config key); `detail` says what, and what to do.
    #[must_use]
    pub fn new(kind: ErrorKind, object: impl Into<String>, detail: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            object: object.into(),
            detail: detail.into(),
        }))
    }

    /// An error of the operating system, its kind told from the errno.
    #[must_use]
    pub fn from_io(object: impl Into<String>, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match error.kind() {
            Io::NotFound | Io::NotADirectory => ErrorKind::NotFound,
            Io::PermissionDenied => ErrorKind::Denied,
            Io::TimedOut => ErrorKind::Timeout,
            Io::UnexpectedEof => ErrorKind::Changed,
            Io::InvalidInput | Io::IsADirectory => ErrorKind::Invalid,
            _ => ErrorKind::Unavailable,
        };
        Self::new(kind, object, error.to_string())
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The path, address or key that it is about.
    #[must_use]
    pub fn object(&self) -> &str {
        &self.0.object
    }

    /// What happened.
    #[must_use]
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
