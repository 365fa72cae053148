//! Files with the contents of requests: arrays, columns, lines, recorded requests, and perf_analyzer's input data.
//!
//! In: a path from a plan. Out: records and recorded requests, or the unreadable part of the file. Files are bounded
//! and validated. Knows no model: types are checked once one is known.

#[cfg(feature = "parquet")]
pub mod columns;
pub mod lines;
pub mod numpy;
pub mod perf_data;

#[cfg(not(feature = "parquet"))]
pub use no_columns as columns;

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum size of one file, and of its decoded columns.
pub const MAX_BYTES: usize = 512 << 20;

/// Reads a whole file.
///
/// # Errors
/// A file that cannot be read, or is larger than [`MAX_BYTES`].
fn read(path: &Path) -> Result<Vec<u8>, InputError> {
    let file = File::open(path).map_err(err(path))?;
    let mut bytes = Vec::new();
    let limit = MAX_BYTES as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(err(path))?;
    if bytes.len() > MAX_BYTES {
        let mebibytes = MAX_BYTES >> 20;
        return Err(err(path)(format!("more than {mebibytes} MiB; shorten the file")));
    }
    Ok(bytes)
}

/// Unusable file of inputs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct InputError {
    /// File or folder.
    pub file: PathBuf,
    /// Problem, with its place in the file.
    pub problem: String,
}

/// Creates an error about a file.
fn err<E: Display>(file: &Path) -> impl Fn(E) -> InputError {
    move |problem| InputError {
        file: file.to_owned(),
        problem: problem.to_string(),
    }
}

/// Returns a file's name for results.
pub fn short(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Columns in a build without the feature `parquet`: every file is refused.
#[cfg(any(test, not(feature = "parquet")))]
pub mod no_columns {
    pub use parquet as arrow;

    use super::{InputError, err};
    use std::path::Path;
    use tierlab_load::inputs::Records;

    /// Refuses a file.
    ///
    /// # Errors
    /// Always.
    pub fn parquet(path: &Path, _column: &str) -> Result<Records, InputError> {
        Err(err(path)("this build cannot read Parquet and Arrow: run `make build`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_columns_names_the_file_and_the_remedy() {
        for refuse in [no_columns::parquet, no_columns::arrow] {
            let refused = refuse(Path::new("x.parquet"), "id").unwrap_err().to_string();
            assert!(
                refused.starts_with("x.parquet: ") && refused.contains("`make build`"),
                "{refused}"
            );
        }
    }
}
