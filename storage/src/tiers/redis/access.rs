//! Address, login and TLS of a key-value store. In: its configuration, and the password from the configured source.
//! Out: checked values. Connects to nothing.

use super::RedisConfig;
use crate::tiers::check_not_zero;
use crate::{ErrorKind, StorageError};
use redis::Cmd;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

impl RedisConfig {
    fn invalid(&self, detail: impl Into<String>) -> StorageError {
        ErrorKind::Invalid.error(self.url_without_secrets(), detail)
    }

    /// Address for errors: the part after the last `@`, since a password may precede it.
    fn url_without_secrets(&self) -> &str {
        self.url.rsplit('@').next().unwrap_or_default()
    }

    /// Returns the server's address, and true for TLS. Checks that no key is zero.
    pub(super) fn checked_address(&self) -> Result<(String, bool), StorageError> {
        let keys = [
            ("rows_per_key", u64::from(self.rows_per_key)),
            ("connections", u64::from(self.connections)),
            ("concurrency", u64::from(self.concurrency)),
            ("part_bytes", self.part_bytes),
            ("timeout_ms", self.timeout_ms),
            ("attempt_ms", self.attempt_ms),
        ];
        check_not_zero(self.url_without_secrets(), &keys)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.chars().all(plain) {
            // A brace would place all keys of a cluster on one node.
            return Err(self.invalid("invalid `prefix`: use at most 64 letters, digits, `-`, `_` and `.`"));
        }
        if self.url.contains('@') {
            let detail = "`url` contains a user or password: set `username`, and `password_env` or `password_file`";
            return Err(self.invalid(detail));
        }
        let (rest, is_tls) = match self.url.split_once("://") {
            Some(("redis", rest)) => (rest, false),
            Some(("rediss", rest)) => (rest, true),
            _ => ("", false),
        };
        let authority: Option<http::uri::Authority> = rest.trim_end_matches('/').parse().ok();
        match authority {
            Some(authority) if authority.port().is_some() => Ok((authority.to_string(), is_tls)),
            _ => Err(self.invalid("`url` must be redis://host:port, or rediss://host:port for TLS")),
        }
    }

    /// User and password for each connection.
    pub(super) fn login(&self) -> Result<Option<Cmd>, StorageError> {
        let password = match (&self.password_env, &self.password_file) {
            (Some(_), Some(_)) => return Err(self.invalid("set either `password_env` or `password_file`, not both")),
            (Some(name), None) => Some(std::env::var(name).map_err(|_| {
                let detail = "of `password_env` is not set or not UTF-8: export it";
                self.invalid(format!("environment variable `{name}` {detail}"))
            })?),
            (None, Some(file)) => Some(std::fs::read_to_string(file).map_err(|e| at(file, "`password_file`", &e))?),
            (None, None) if self.username.is_some() => {
                return Err(self.invalid("`username` needs a password: set `password_env` or `password_file`"));
            }
            (None, None) => None,
        };
        Ok(password.map(|password| {
            let mut login = redis::cmd("AUTH");
            login.arg(&self.username).arg(password.trim_end_matches(['\r', '\n']));
            login
        }))
    }

    /// TLS connector that trusts `ca_file`, or the system's roots.
    pub(super) fn tls(&self) -> Result<TlsConnector, StorageError> {
        let mut roots = RootCertStore::empty();
        match &self.ca_file {
            Some(file) => {
                for certificate in CertificateDer::pem_file_iter(file).map_err(|e| at(file, "`ca_file`", &e))? {
                    let certificate = certificate.map_err(|e| at(file, "`ca_file`", &e))?;
                    roots.add(certificate).map_err(|e| at(file, "`ca_file`", &e))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            let detail = "no trusted certificates: set `ca_file` to the certificate of the server's authority";
            return Err(self.invalid(detail));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| self.invalid(format!("cannot set up TLS: {e}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn at(file: &Path, key: &str, error: &dyn std::fmt::Display) -> StorageError {
    let detail = format!("cannot read file of {key}: {error}");
    ErrorKind::Invalid.error(file.display(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> RedisConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn addresses_are_checked_and_hide_passwords() {
        for (url, address, is_tls) in [
            ("redis://127.0.0.1:6379", "127.0.0.1:6379", false),
            ("rediss://cache.example:6380/", "cache.example:6380", true),
            ("redis://[::1]:1", "[::1]:1", false),
        ] {
            let checked = config(&format!("url = \"{url}\"")).checked_address();
            assert_eq!(checked.unwrap(), (address.to_owned(), is_tls));
        }
        for url in [
            "",
            "127.0.0.1:1",
            "http://h:1",
            "redis://",
            "redis://h",
            "redis://h:1/x",
            "redis://u:secret@h:1",
        ] {
            let error = config(&format!("url = \"{url}\"")).checked_address().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for (keys, named) in [("part_bytes = 0", "part_bytes"), ("prefix = \"{a}\"", "prefix")] {
            let error = config(&format!("url = \"redis://h:1\"\n{keys}"))
                .checked_address()
                .unwrap_err();
            assert!(error.detail().contains(named), "{error}");
        }
    }

    #[test]
    fn a_password_comes_from_one_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hunter2\n").unwrap();
        let from_file = format!("url = \"redis://h:1\"\npassword_file = \"{}\"", file.path().display());
        let login = config(&from_file).login().unwrap().unwrap();
        assert_eq!(login.get_packed_command(), b"*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n");
        for text in [
            "username = \"u\"",
            "password_env = \"TIERLAB_NOT_SET\"",
            "password_file = \"/nowhere\"",
        ] {
            let error = config(&format!("url = \"redis://h:1\"\n{text}")).login().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        }
        let both = format!("{from_file}\npassword_env = \"PATH\"");
        assert!(config(&both).login().unwrap_err().detail().contains("not both"));
    }
}
