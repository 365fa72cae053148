//! `[keys]`: distribution of the requested entities. In: TOML, and the file of keys. Out: a validated distribution.
//! Knows nothing of how keys are drawn; [`tierlab_load::keys`] does.

use super::check::Base;
use super::fault::Fault;
use super::{columns, raw};
use tierlab_load::keys::KeyDistribution;

pub(super) fn validate(raw: raw::RawKeys, base: Base<'_>) -> Result<KeyDistribution, Fault> {
    use raw::RawDistribution as Raw;
    for (key, is_given, owner) in [
        ("exponent", raw.exponent.is_some(), Raw::Zipf),
        ("file", raw.file.is_some(), Raw::File),
        ("column", raw.column.is_some(), Raw::File),
        ("text", raw.text, Raw::File),
    ] {
        if is_given && raw.distribution != owner {
            let name = if owner == Raw::Zipf { "zipf" } else { "file" };
            return Err(Fault::misplaced(
                format!("keys.{key}"),
                format!("`keys.distribution = \"{name}\"`"),
            ));
        }
    }
    match raw.distribution {
        Raw::Uniform => Ok(KeyDistribution::Uniform),
        Raw::Sequential => Ok(KeyDistribution::Sequential),
        Raw::Zipf => {
            let Some(exponent) = raw.exponent else {
                return Err(Fault::missing("keys.exponent", "zipf needs one, such as 1.1"));
            };
            Ok(KeyDistribution::Zipf { exponent })
        }
        Raw::File => {
            let Some(file) = raw.file else {
                return Err(Fault::missing("keys.file", "a CSV file with a column of entity ids"));
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
                return Err(Fault::new("keys.file", format!("{} has no ids", path.display())));
            }
            Ok(KeyDistribution::File {
                file,
                ids: ids.into(),
                texts: texts.into(),
            })
        }
    }
}
