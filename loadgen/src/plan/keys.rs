//! `[keys]`: distribution of the requested entities. In: TOML, and the file of keys. Out: a validated distribution.
//! Knows nothing of how keys are drawn; [`tierlab_load::keys`] does.

use super::arrivals::RawArrival;
use super::check::Base;
use super::fault::{Fault, fault, missing, only_with, refuse};
use super::{columns, raw};
use tierlab_load::keys::KeyDistribution;
use tierlab_load::recording::Call;

pub(super) fn validate(raw: &raw::RawKeys, base: Base<'_>) -> Result<KeyDistribution, Fault> {
    use raw::RawDistribution as Raw;
    if raw.distribution != Raw::Zipf {
        let given = [("exponent", raw.exponent.is_some())];
        only_with("keys", "`keys.distribution = \"zipf\"`", &given)?;
    }
    if raw.distribution != Raw::File {
        let (file, column) = (raw.file.is_some(), raw.column.is_some());
        let given = [("file", file), ("column", column), ("text", raw.text)];
        only_with("keys", "`keys.distribution = \"file\"`", &given)?;
    }
    match raw.distribution {
        Raw::Uniform => Ok(KeyDistribution::Uniform),
        Raw::Sequential => Ok(KeyDistribution::Sequential),
        Raw::Zipf => {
            let Some(exponent) = raw.exponent else {
                return missing("keys.exponent", "zipf needs one, such as 1.1");
            };
            Ok(KeyDistribution::Zipf { exponent })
        }
        Raw::File => {
            let Some(file) = &raw.file else {
                return missing("keys.file", "a CSV file with a column of entity ids");
            };
            let column = raw.column.as_deref().unwrap_or("entity_id");
            let path = base.request_file(file);
            let (ids, texts) = if raw.text {
                columns::texts(&path, column)?
            } else {
                (columns::ids(&path, column)?, Vec::new())
            };
            if ids.is_empty() {
                refuse!("keys.file", "{} has no ids", path.display());
            }
            Ok(KeyDistribution::File {
                file: file.clone(),
                ids: ids.into(),
                texts: texts.into(),
            })
        }
    }
}

/// Takes the recorded entities of a replay, one a request, unless the plan has other keys.
pub(super) fn replay(keys: &mut KeyDistribution, raw: &RawArrival, calls: &[Call]) -> Result<(), Fault> {
    const KEY: &str = "arrival.file";
    let is_recorded = calls.iter().any(|call| call.values.contains_key("entity_id"));
    if !is_recorded || *keys != KeyDistribution::Uniform {
        return Ok(());
    }
    let ids = calls.iter().map(|call| {
        let Some(id) = call.values.get("entity_id") else {
            refuse!(KEY, "{} has no `entity_id`, and other requests have one", call.place());
        };
        let number = id.parse::<i64>();
        number.map_err(|_| fault!(KEY, "`entity_id` is `{id}`, and a replayed request has one number"))
    });
    *keys = KeyDistribution::File {
        file: raw.file.clone().unwrap_or_default(),
        ids: ids.collect::<Result<Vec<_>, Fault>>()?.into(),
        texts: [].into(),
    };
    Ok(())
}
