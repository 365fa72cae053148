//! Files with the contents of requests: arrays, columns, lines, recorded requests, and perf_analyzer's input data.
//!
//! In: a path from a plan. Out: records and recorded requests, or the unreadable part of the file. Files are bounded
//! and validated. Knows no model: types are checked once one is known.

pub mod columns;
pub mod lines;
pub mod numpy;
pub mod perf_data;

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum size of one file, and of its decoded columns.
pub const FILE_BYTES: usize = 512 << 20;

/// Reads a whole file.
///
/// # Errors
/// A file that cannot be read, or is larger than [`FILE_BYTES`].
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let says = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let file = File::open(path).map_err(|error| says(&error))?;
    let mut bytes = Vec::new();
    let limit = FILE_BYTES as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| says(&error))?;
    if bytes.len() > FILE_BYTES {
        return Err(says(&format_args!("more than {} MiB; cut it", FILE_BYTES >> 20)));
    }
    Ok(bytes)
}

/// Returns a file's name for results.
#[must_use]
pub fn short(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
