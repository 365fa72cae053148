//! Files of a configuration: `server.toml` and every `tiers/NAME.toml` beside it, as TOML tables; the feature cache
//! that results from them and from the settings over them; tokens and certificates. Tokens come only from files or the
//! environment: everybody on the machine can read a command line, and config files are often shared.

use super::Sources;
use super::raw::RawAccess;
use crate::error::{ConfigError, fail};
use crate::front::access::{Access, Hosts, Secret};
use crate::front::connections::{Bounds, ListenerConfig, TlsFiles};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tierlab_formats::toml_error::plain;
use tierlab_storage::TierConfig;
use tierlab_storage::wrappers::CacheConfig;

pub(super) fn read_table(path: &Path, advice: &str) -> Result<toml::Table, ConfigError> {
    let file = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| ConfigError(format!("{file}: cannot read: {e}; {advice}")))?;
    text.parse()
        .map_err(|e: toml::de::Error| ConfigError(format!("{file}: {}", e.to_string().trim_end())))
}

/// Reads every `tiers/NAME.toml` beside the config. Returns them by name.
pub(super) fn read_tiers(config: &Path) -> Result<toml::Table, ConfigError> {
    let folder = config.with_file_name("tiers");
    let mut tiers = toml::Table::new();
    let error = |e: std::io::Error| ConfigError(format!("{}: {e}", folder.display()));
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(tiers),
        Err(e) => return Err(error(e)),
    };
    for entry in entries {
        let path = entry.map_err(error)?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        // Editors keep hidden files beside those that they edit.
        let name = name.filter(|name| !name.starts_with('.'));
        if let (Some(name), true) = (name, path.extension().is_some_and(|extension| extension == "toml")) {
            let table = read_table(&path, "make it readable, or remove it")?;
            tiers.insert(name.to_owned(), toml::Value::Table(table));
        }
    }
    Ok(tiers)
}

/// Path of a tier's file.
pub(super) fn tier_file(config: &Path, name: &str) -> PathBuf {
    config.with_file_name("tiers").join(format!("{name}.toml"))
}

pub(super) fn parse_tiers(config: &Path, tiers: toml::Table) -> Result<BTreeMap<String, TierConfig>, ConfigError> {
    let parse = |(name, value): (String, toml::Value)| {
        let tier = TierConfig::deserialize(value).map_err(|e| {
            let (file, reason) = (tier_file(config, &name), plain(&e.to_string()));
            ConfigError(format!("{} (`tiers.{name}`): {reason}", file.display()))
        })?;
        Ok((name, tier))
    };
    tiers.into_iter().map(parse).collect()
}

/// Returns the feature cache over a tier, key by key: the tier's own `[cache]` overrides the server's. Settings from
/// the environment or flags override both, later ones first. `layers` are the files, then each setting.
pub(super) fn cache_of(tier: &str, layers: &[toml::Table]) -> Result<CacheConfig, toml::de::Error> {
    let mut keys = toml::Table::new();
    for layer in layers {
        let specific = layer.get("tiers").and_then(|tiers| tiers.get(tier)?.get("cache"));
        for table in [layer.get("cache"), specific].into_iter().flatten() {
            keys.extend(table.as_table().cloned().unwrap_or_default());
        }
    }
    keys.try_into()
}

/// Environment variable with the token.
pub(super) const TOKEN: &str = "TIERLAB_ACCESS__TOKEN";
/// Environment variable with the token for managing models.
pub(super) const ADMIN_TOKEN: &str = "TIERLAB_ACCESS__ADMIN_TOKEN";

pub(super) fn listener_config(
    tls: &TlsFiles,
    bounds: Bounds,
    access: RawAccess,
    sources: &Sources,
    listen: &[SocketAddr],
) -> Result<ListenerConfig, ConfigError> {
    let secret = |variable: &str, file: Option<PathBuf>, key: &str| {
        let value = sources.environment.iter().find(|(name, _)| name == variable);
        let (secret, source) = match (value, file) {
            (Some(_), Some(_)) => return fail(format!("set either {variable} or `access.{key}`, not both")),
            (Some((_, value)), None) => (Secret::new(value), variable.to_owned()),
            (None, Some(path)) => (Secret::read(&path), format!("`access.{key}`")),
            (None, None) => return Ok(None),
        };
        secret.map(Some).map_err(|e| ConfigError(format!("{source}: {e}")))
    };
    let addresses = listen.iter().map(SocketAddr::ip);
    let specific = addresses.filter(|address| !address.is_unspecified());
    let hosts = specific.map(|address| address.to_string()).chain(access.allowed_hosts);
    let hosts = Hosts::new(hosts).map_err(|e| ConfigError(format!("`access.allowed_hosts`: {e}")))?;
    let access = Access {
        hosts,
        token: secret(TOKEN, access.token_file, "token_file")?,
        admin: secret(ADMIN_TOKEN, access.admin_token_file, "admin_token_file")?,
    };
    let tls = tls.open().map_err(|e| ConfigError(format!("`tls`: {e}")))?;
    Ok(ListenerConfig { bounds, access, tls })
}
