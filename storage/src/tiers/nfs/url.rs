//! URL of an export. In: `nfs://host[:port]/export`. Out: its parts, or why it is invalid.

use crate::error::{ErrorKind, StorageError};
use std::fmt;

/// An export on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NfsUrl {
    /// Name or address; an IPv6 address without its brackets.
    pub(super) host: String,
    /// Port that serves both NFS and MOUNT; if `None`, the portmapper is asked.
    pub(super) port: Option<u16>,
    /// The path that is mounted, with its leading slash.
    pub(super) export: String,
}

impl NfsUrl {
    pub(super) fn parse(url: &str) -> Result<Self, StorageError> {
        let bad = |what: &str| {
            StorageError::new(
                ErrorKind::Invalid,
                url,
                format!("{what}; an NFS URL is nfs://host[:port]/export"),
            )
        };
        let rest = url
            .strip_prefix("nfs://")
            .ok_or_else(|| bad("it does not begin with nfs://"))?;
        let (authority, export) = rest.split_once('/').ok_or_else(|| bad("it names no export"))?;
        let export = export.trim_end_matches('/');
        if export.contains(['?', '#']) || export.chars().any(char::is_control) {
            return Err(bad("its export has options or control characters"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed
                    .split_once(']')
                    .ok_or_else(|| bad("a bracket is not closed"))?;
                (host, after.strip_prefix(':').or((!after.is_empty()).then_some("")))
            }
            None => authority
                .split_once(':')
                .map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let colons = authority.starts_with('[');
        let plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') || colons && matches!(c, ':' | '%');
        if host.is_empty() || !host.chars().all(plain) {
            return Err(bad("it names no host"));
        }
        let port = match port {
            None => None,
            Some(text) => match text.parse() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err(bad("its port is no number from 1 to 65535")),
            },
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            export: format!("/{export}"),
        })
    }

    /// `host:port`, as far as known.
    pub(super) fn server(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        self.port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
    }
}

impl fmt::Display for NfsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nfs://{}{}", self.server(), self.export)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_read_back() {
        for url in [
            "nfs://host/export",
            "nfs://127.0.0.1:2049/a/b",
            "nfs://[::1]:2049/export",
            "nfs://[fe80::1]/x",
            "nfs://host/",
        ] {
            assert_eq!(NfsUrl::parse(url).unwrap().to_string(), url);
        }
        assert_eq!(NfsUrl::parse("nfs://h/export/").unwrap().export, "/export");
    }

    #[test]
    fn nonsense_is_refused() {
        for url in [
            "",
            "http://host/export",
            "nfs://host",
            "nfs://?/x",
            "nfs:///export",
            "nfs://host:/x",
            "nfs://host:0/x",
            "nfs://host:70000/x",
            "nfs://[::1/x",
            "nfs://[::1]x/x",
            "nfs://u@host/x",
            "nfs://host/x?version=4",
        ] {
            assert_eq!(NfsUrl::parse(url).unwrap_err().kind(), ErrorKind::Invalid, "{url}");
        }
    }

    proptest! {
        #[test]
        fn whatever_parses_reads_back(text in "(nfs://)?[a-z\\[\\]:/@0-9.?]{0,30}") {
            if let Ok(url) = NfsUrl::parse(&text) {
                prop_assert_eq!(NfsUrl::parse(&url.to_string()).unwrap(), url);
            }
        }
    }
}
