//! Validated object paths: a name from a client or a config can never leave a tier's root.

use crate::error::{self, ErrorKind, StorageError};
use std::fmt;
use std::sync::Arc;

/// A relative path of plain segments joined by `/`, such as `models/ctr/1/model.onnx`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectPath(Arc<str>);

impl ObjectPath {
    /// Maximum length of a path in bytes.
    pub const MAX_BYTES: usize = error::MAX_PATH_BYTES;
    /// Maximum length of a segment in bytes: the limit of file systems.
    pub const MAX_SEGMENT_BYTES: usize = error::MAX_SEGMENT_BYTES;

    /// Checks a path. Segments must not be empty, `.` or `..`, nor contain a backslash, NUL or control character.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; names the path.
    pub fn new(path: &str) -> Result<Self, StorageError> {
        if error::is_plain_path(path) {
            return Ok(Self(path.into()));
        }
        let detail = "invalid path: use relative segments without `..`, backslashes or control characters";
        Err(ErrorKind::Invalid.error(format!("{path:?}"), detail))
    }

    /// Returns the path with `below` appended.
    ///
    /// # Errors
    /// Same as [`ObjectPath::new`].
    pub fn join(&self, below: &str) -> Result<Self, StorageError> {
        Self::new(&format!("{}/{below}", self.0))
    }

    /// Path of a name in a folder; without a folder, in the tier's root.
    pub(crate) fn below(folder: Option<&Self>, name: &str) -> Result<Self, StorageError> {
        folder.map_or_else(|| Self::new(name), |folder| folder.join(name))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the path begins with all segments of `prefix`: it is below that folder, or is that object itself.
    pub fn is_below(&self, prefix: &Self) -> bool {
        self.0
            .strip_prefix(&*prefix.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The segments, first to last.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_are_refused() {
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a/./b",
            "a//b",
            "a/",
            "a\\b",
            "a\0b",
            "a\nb",
        ] {
            assert_eq!(ObjectPath::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
        assert!(ObjectPath::new("models/ctr/1/model.onnx").is_ok());
        assert!(ObjectPath::new("a..b/...").is_ok());
    }

    #[test]
    fn below_goes_by_whole_segments() {
        let path = |text| ObjectPath::new(text).unwrap();
        assert!(path("models/ctr/1").is_below(&path("models/ctr")));
        assert!(path("models/ctr").is_below(&path("models/ctr")));
        assert!(!path("models/ctr2").is_below(&path("models/ctr")));
        assert!(!path("models").is_below(&path("models/ctr")));
    }

    proptest! {
        #[test]
        fn an_accepted_path_stays_below_its_root(path in ".{0,60}") {
            if let Ok(path) = ObjectPath::new(&path) {
                let joined = std::path::Path::new("/root").join(path.as_str());
                prop_assert!(joined.starts_with("/root"));
                prop_assert!(joined.components().all(|c| !matches!(c, std::path::Component::ParentDir)));
            }
        }
    }
}
