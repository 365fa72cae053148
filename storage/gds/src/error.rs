//! Failed call of a device library.

use std::io;

/// Kind of a failed call, for callers to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// Not possible with this machine, this build or this file.
    Unsupported,
    /// The device failed, or has no memory left.
    Unavailable,
    /// Access is refused.
    Denied,
    /// A value that the library refuses.
    Invalid,
    /// Bytes outside of the memory or the file.
    OutOfRange,
    /// The file is shorter than it was.
    Changed,
    /// The operating system refused a read.
    Io(io::ErrorKind),
}

/// Failed call of a device library: a kind to act on, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DeviceError {
    /// Kind of the error, for callers to act on.
    pub kind: DeviceErrorKind,
    /// The call, the code and its name.
    pub detail: String,
}

impl DeviceError {
    /// Creates an error with these words.
    pub fn new(kind: DeviceErrorKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }

    pub(crate) fn of_io(call: &str, error: &io::Error) -> Self {
        let detail = if call.is_empty() {
            error.to_string()
        } else {
            format!("{call} failed: {error}")
        };
        Self::new(DeviceErrorKind::Io(error.kind()), detail)
    }
}
