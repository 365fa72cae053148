//! Which feature cache is in force. In: the files and the settings laid over them, as tables. Out: the cache over one tier.

use tierlab_storage::wrappers::CacheConfig;

/// The feature cache over one tier: key by key, the tier's own `[cache]` over the server's, and what was set from the
/// environment or by flag for either over both, the later over the earlier. `layers` are the files, then each setting.
pub(super) fn cache_of(tier: &str, layers: &[toml::Table]) -> Result<CacheConfig, toml::de::Error> {
    let mut keys = toml::Table::new();
    for layer in layers {
        let own = layer.get("tiers").and_then(|tiers| tiers.get(tier)?.get("cache"));
        for table in [layer.get("cache"), own].into_iter().flatten() {
            keys.extend(table.as_table().cloned().unwrap_or_default());
        }
    }
    keys.try_into()
}
