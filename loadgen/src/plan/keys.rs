//! `[keys]`: which entities are asked for. In: TOML, and the file that keys come from. Out: a validated distribution.
//! Knows nothing of how keys are drawn; [`crate::keys`] does.

use super::columns;
use super::{below, raw, within};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which entities are asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyDistribution {
    /// Each as often as any other.
    Uniform,
    /// The entity of rank r with a frequency proportional to r^-exponent.
    Zipf {
        /// The exponent, above 0.
        exponent: f64,
    },
    /// One after the other through the table, over and over.
    Sequential,
    /// Those of a file, in its order, over and over.
    File {
        /// As the plan names it.
        file: PathBuf,
        /// At least one.
        ids: Arc<[i64]>,
    },
}

impl fmt::Display for KeyDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf({exponent:.2})"),
            Self::Sequential => f.write_str("sequential"),
            Self::File { file, .. } => write!(f, "file({})", file.file_name().unwrap_or_default().to_string_lossy()),
        }
    }
}

pub(super) fn validate(raw: raw::RawKeys, base: &Path) -> Result<KeyDistribution, String> {
    use raw::RawDistribution as Raw;
    let foreign = |key: &str, owner: &str| Err(format!("`keys.{key}` belongs to `keys.distribution = \"{owner}\"`"));
    if raw.distribution != Raw::Zipf && raw.exponent.is_some() {
        return foreign("exponent", "zipf");
    }
    if raw.distribution != Raw::File && raw.file.is_some() {
        return foreign("file", "file");
    }
    if raw.distribution != Raw::File && raw.column.is_some() {
        return foreign("column", "file");
    }
    match raw.distribution {
        Raw::Uniform => Ok(KeyDistribution::Uniform),
        Raw::Sequential => Ok(KeyDistribution::Sequential),
        Raw::Zipf => {
            let Some(exponent) = raw.exponent else {
                return Err("`keys.exponent` is missing: zipf needs one, as 1.1".into());
            };
            within("keys.exponent", exponent, 0.01, 10.0)?;
            Ok(KeyDistribution::Zipf { exponent })
        }
        Raw::File => {
            let Some(file) = raw.file else {
                return Err("`keys.file` is missing: a CSV file with a column of entity ids".into());
            };
            let column = columns::Column {
                key: "keys.file",
                name: raw.column.unwrap_or_else(|| "entity_id".into()),
            };
            let path = below(base, &file);
            let ids = columns::ids(&path, &column)?;
            if ids.is_empty() {
                return Err(format!("`keys.file`: {} has no ids", path.display()));
            }
            Ok(KeyDistribution::File { file, ids: ids.into() })
        }
    }
}
