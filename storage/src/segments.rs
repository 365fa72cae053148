//! Validity of object paths: plain segments joined by `/`. Shared by the types of paths and of errors.

/// Maximum length of a path in bytes.
pub(crate) const MAX_BYTES: usize = 1024;
/// Maximum length of a segment in bytes: the limit of file systems.
pub(crate) const MAX_SEGMENT_BYTES: usize = 255;

/// True if every segment is plain: not empty, `.` or `..`, without backslash, NUL or control character.
pub(crate) fn are_plain(path: &str) -> bool {
    let plain = |segment: &str| {
        !segment.is_empty()
            && segment.len() <= MAX_SEGMENT_BYTES
            && segment != "."
            && segment != ".."
            && !segment.chars().any(|c| c == '\\' || c.is_control())
    };
    path.len() <= MAX_BYTES && path.split('/').all(plain)
}
