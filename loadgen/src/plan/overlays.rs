//! Keys of another program's config that a plan sets. In: a TOML table. Out: `KEY=VALUE`, as `--set` takes them.

use std::collections::BTreeMap;

/// TOML values as `KEY=VALUE`, nested tables as dotted keys.
pub(super) fn overlays(at: &str, table: &BTreeMap<String, toml::Value>) -> Result<Vec<String>, String> {
    let mut set = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                let inner = inner.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                let below = overlays(&format!("{at}.{key}"), &inner)?;
                set.extend(below.into_iter().map(|pair| format!("{key}.{pair}")));
            }
            toml::Value::Datetime(_) => return Err(format!("`{at}.{key}`: no key takes a date")),
            toml::Value::String(text) => set.push(format!("{key}={text}")),
            other => set.push(format!("{key}={other}")),
        }
    }
    Ok(set)
}
