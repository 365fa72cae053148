//! Access and connection settings: tokens, certificates and connection bounds, from keys, files and the environment.
//!
//! In: the raw keys. Out: [`ListenerConfig`], or an error that names the key or the file. Tokens come from files or the
//! environment only: everybody on the machine can read a command line, and config files are often shared.

use super::Sources;
use super::raw::RawAccess;
use crate::error::{ConfigError, fail};
use crate::front::access::{Access, Hosts, Secret};
use crate::front::connections::{Bounds, ListenerConfig, TlsFiles};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The variable that holds the token.
pub(super) const TOKEN: &str = "TIERLAB_ACCESS__TOKEN";
/// The variable that holds the token for managing models.
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
        match (value, file) {
            (Some(_), Some(_)) => fail(format!("both {variable} and `access.{key}` are set: give one of them")),
            (Some((_, value)), None) => Secret::new(value)
                .map(Some)
                .map_err(|e| ConfigError(format!("{variable}: {e}"))),
            (None, Some(path)) => Secret::read(&path)
                .map(Some)
                .map_err(|e| ConfigError(format!("`access.{key}`: {e}"))),
            (None, None) => Ok(None),
        }
    };
    let own = listen
        .iter()
        .map(SocketAddr::ip)
        .filter(|address| !address.is_unspecified());
    let hosts = own.map(|address| address.to_string()).chain(access.allowed_hosts);
    let hosts = Hosts::new(hosts).map_err(|e| ConfigError(format!("`access.allowed_hosts`: {e}")))?;
    let access = Access {
        hosts,
        token: secret(TOKEN, access.token_file, "token_file")?,
        admin: secret(ADMIN_TOKEN, access.admin_token_file, "admin_token_file")?,
    };
    let tls = tls.open().map_err(|e| ConfigError(format!("`tls`: {e}")))?;
    Ok(ListenerConfig { bounds, access, tls })
}
