//! Files that are written whole or not at all.

use super::error::StoreError;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// Writes a file so that a reader, or a crash, sees the old text or the new one and nothing between.
pub(crate) fn write_atomically(path: &Path, text: &[u8]) -> Result<(), StoreError> {
    let error = |source| StoreError::Io {
        path: path.to_owned(),
        source,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let mut file = fs::File::create(&part).map_err(error)?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(error)?;
    drop(file);
    fs::rename(&part, path).map_err(error)
}
