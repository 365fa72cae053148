//! `[keys]`: which entities are asked for. In: TOML, and the file that keys come from. Out: a validated distribution.
//! Knows nothing of how keys are drawn; [`tierlab_load::keys`] does.

use super::check::{Base, within};
use super::{columns, raw};
use tierlab_load::keys::KeyDistribution;

pub(super) fn validate(raw: raw::RawKeys, base: Base<'_>) -> Result<KeyDistribution, String> {
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
    if raw.distribution != Raw::File && raw.text {
        return foreign("text", "file");
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
            let path = base.path(&file);
            let (ids, texts) = if raw.text {
                columns::texts(&path, &column)?
            } else {
                (columns::ids(&path, &column)?, Vec::new())
            };
            if ids.is_empty() {
                return Err(format!("`keys.file`: {} has no ids", path.display()));
            }
            Ok(KeyDistribution::File {
                file,
                ids: ids.into(),
                texts: texts.into(),
            })
        }
    }
}
