//! Address of a server. In: a URL. Out: host and port, the server's name, and the prefix of every path.

use crate::redact;
use reqwest::Url;

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// True for TLS.
    pub secure: bool,
    /// Name or IP address, without brackets.
    pub host: String,
    /// Port number.
    pub port: u16,
    /// Authority in requests: HOST, with the port unless it is the scheme's default.
    pub authority: String,
    /// Prefix of every path, such as `/prefix`; may be empty.
    pub prefix: String,
}

impl Address {
    /// Parses `http://HOST:PORT/PREFIX` or `https://…`.
    ///
    /// # Errors
    /// An invalid address, or one with more parts. The extra parts are not quoted, since they may be secret.
    pub fn parse(url: &str) -> Result<Self, String> {
        let shown = redact::urls(url);
        let parsed: Url = url.parse().map_err(|_| {
            format!("{shown}: invalid URL; give one such as http://127.0.0.1:8000 or https://host:8443/prefix")
        })?;
        let (secure, usual) = match parsed.scheme() {
            "http" => (false, 80),
            "https" => (true, 443),
            other => {
                return Err(format!(
                    "{shown}: `{other}://` is not supported; give the address as http://HOST:PORT or https://HOST:PORT/PREFIX"
                ));
            }
        };
        let has_user = !parsed.username().is_empty() || parsed.password().is_some();
        if has_user || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(format!(
                "{shown}: give the server's address without a name, a password or a token, and without `?` and `#`: it is stored in the \
                 result; give a bearer token by --token-env NAME or --token-file FILE"
            ));
        }
        let (Some(named), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
            return Err(format!("{shown}: host is missing"));
        };
        let authority = if port == usual {
            named.to_owned()
        } else {
            format!("{named}:{port}")
        };
        Ok(Self {
            secure,
            host: named.trim_matches(['[', ']']).to_owned(),
            port,
            authority,
            prefix: parsed.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Scheme of its URL.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// URL with the prefix, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority, self.prefix)
    }

    /// True if another address belongs to the same server, judged by the URLs.
    #[must_use]
    pub fn is_same_origin(&self, other: &Self) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_taken_apart() {
        for (url, authority, prefix, again) in [
            ("http://localhost", "localhost", "", "http://localhost"),
            ("http://localhost:80/", "localhost", "", "http://localhost"),
            ("http://[::1]:8000/a/b/", "[::1]:8000", "/a/b", "http://[::1]:8000/a/b"),
            ("https://h", "h", "", "https://h"),
            ("https://h:8443/models", "h:8443", "/models", "https://h:8443/models"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(
                (address.authority.as_str(), address.prefix.as_str()),
                (authority, prefix)
            );
            assert_eq!(address.url(), again);
        }
        assert_eq!(Address::parse("http://[::1]:8000").unwrap().host, "::1");
        assert_eq!(Address::parse("https://h").unwrap().port, 443);
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_secrets() {
        for bad in [
            "127.0.0.1:8000",
            "grpc://h:1",
            "nonsense",
            "",
            "http://user:S3CRET@h:1",
            "http://h:1/?token=S3CRET",
            "http://h:1/#S3CRET",
            "http://u:S3CRET@h:x",
        ] {
            let error = Address::parse(bad).unwrap_err();
            assert!(!error.contains("S3CRET"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z:/@?#\\[\\].0-9]{0,40}") {
            if let Ok(address) = Address::parse(&text) {
                prop_assert_eq!(Address::parse(&address.url()).unwrap(), address);
            }
        }
    }
}
