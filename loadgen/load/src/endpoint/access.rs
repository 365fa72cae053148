//! Measured servers and access to them: host, headers, token, certificates. In: names of files and of variables, from a
//! plan or the command line. Out: their contents. Only the names are ever sent to a load process, written or printed.

use crate::custom::CustomSpec;
use anyhow::{Result, anyhow, bail, ensure};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use tierlab_agents::tls::Identity;
use tierlab_agents::token::TokenSource;

/// Maximum number of additional headers.
const MAX_HEADERS: usize = 64;
/// Headers that the body determines, or that determine a request's length or connection.
const RESERVED: [&str; 10] = [
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "te",
    "upgrade",
    "content-encoding",
    "accept-encoding",
    "expect",
    "inference-header-content-length",
];

/// Measured server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetSpec {
    /// Server URL; its path is the prefix of every path.
    pub url: String,
    /// URL for gRPC.
    pub grpc_url: Option<String>,
    /// Requested model version; default: the server's choice.
    pub model_version: Option<String>,
    /// Access settings.
    pub access: AccessSpec,
    /// Requests of another protocol than the Open Inference Protocol.
    pub custom: Option<CustomSpec>,
    /// Further equal servers, which take turns with it.
    #[serde(default)]
    pub others: Vec<TargetSpec>,
}

impl TargetSpec {
    /// Creates a server of the Open Inference Protocol at an address, without access settings.
    pub fn plain(url: &str, grpc_url: Option<String>) -> Self {
        Self {
            url: url.to_owned(),
            grpc_url,
            ..Self::default()
        }
    }
}

/// Access settings of a server. Secrets are given by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessSpec {
    /// Host name in requests, instead of the address's host; with TLS the name that the certificate must have.
    pub host: Option<String>,
    /// Headers of every request.
    pub headers: Vec<Header>,
    /// Source of the bearer token.
    pub token: Option<TokenSource>,
    /// PEM file of the certificates to trust; default: the system's.
    pub ca: Option<PathBuf>,
    /// Certificate of the client.
    pub identity: Option<Identity>,
}

/// Header. Its value may be secret, and is not printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Header name.
    pub name: String,
    /// Header value.
    pub value: String,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ***", self.name)
    }
}

/// Access settings with their files read. Prints no value.
#[derive(Debug, Clone, Default)]
pub struct Access {
    pub(super) spec: AccessSpec,
    /// Headers with their values, the token's among them.
    pub(super) headers: HeaderMap,
}

impl AccessSpec {
    /// Reads the named files and variables.
    ///
    /// # Errors
    /// A variable or a file that is missing or holds no token, a header that is invalid or reserved for the load
    /// generator. No value is in the message.
    pub fn open(&self) -> Result<Access> {
        if let Some(host) = &self.host
            && (HeaderValue::from_str(host).is_err() || host.contains(['/', ' ', '@']) || host.is_empty())
        {
            bail!("invalid host `{host}`: give a name, or NAME:PORT (--host-header, `target.host`)");
        }
        Ok(Access {
            spec: self.clone(),
            headers: self.header_map()?,
        })
    }

    fn header_map(&self) -> Result<HeaderMap> {
        ensure!(self.headers.len() <= MAX_HEADERS, "more than {MAX_HEADERS} headers");
        let mut map = HeaderMap::new();
        for Header { name, value } in &self.headers {
            let parsed = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| anyhow!("invalid header name `{name}`: give NAME: VALUE"))?;
            if parsed == HOST {
                bail!("header Host is not allowed: use --host-header or `target.host`");
            }
            if parsed == AUTHORIZATION {
                bail!(
                    "header Authorization is not allowed, because others can read plans and command lines: give a bearer token \
                     by --token-env NAME or --token-file FILE (`target.token_env`, `target.token_file`)"
                );
            }
            if RESERVED.contains(&parsed.as_str()) {
                bail!("header `{name}` is reserved for the load generator");
            }
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| anyhow!("the value of header `{name}` has invalid characters"))?;
            value.set_sensitive(true);
            map.append(parsed, value);
        }
        if let Some(token) = &self.token {
            map.insert(AUTHORIZATION, bearer(token)?);
        }
        Ok(map)
    }
}

/// Returns the header that bears a token.
fn bearer(source: &TokenSource) -> Result<HeaderValue> {
    let keys = "--token-env, --token-file, `target.token_env`, `target.token_file`";
    let token = source.read().map_err(|error| anyhow!("{error} ({keys})"))?;
    let token = token.strip_prefix("Bearer ").unwrap_or(&token);
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| anyhow!("{source}: invalid token: it has characters that headers do not allow"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut AccessSpec)) -> Result<Access> {
        let mut spec = AccessSpec::default();
        change(&mut spec);
        spec.open()
    }

    fn header(name: &str, value: &str) -> Header {
        Header {
            name: name.into(),
            value: value.into(),
        }
    }

    #[test]
    fn a_token_comes_from_a_file_and_is_printed_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "S3CRET\n").unwrap();
        let access = with(|spec| {
            spec.token = Some(TokenSource::File(file.clone()));
            spec.headers = vec![header("X-Api-Key", "S3CRET")];
        })
        .unwrap();
        assert_eq!(access.headers[AUTHORIZATION], "Bearer S3CRET");
        assert!(!format!("{access:?}").contains("S3CRET"), "{access:?}");
        let spec = AccessSpec {
            headers: vec![header("X-Api-Key", "S3CRET")],
            ..AccessSpec::default()
        };
        assert!(!format!("{spec:?}").contains("S3CRET"));
        for bad in ["", "  \n", "a\u{1}S3CRET"] {
            std::fs::write(&file, bad).unwrap();
            let error = with(|spec| spec.token = Some(TokenSource::File(file.clone()))).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("token") && !error.contains("S3CRET"), "{error}");
        }
        let error = with(|spec| spec.token = Some(TokenSource::Env("TIERLAB_NO_SUCH_TOKEN".into()))).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("TIERLAB_NO_SUCH_TOKEN is not set"), "{error}");
        std::fs::remove_file(&file).unwrap();
        let error = with(|spec| spec.token = Some(TokenSource::File(file))).unwrap_err();
        assert!(error.to_string().contains("`target.token_file`"), "{error}");
    }

    #[test]
    fn headers_that_would_change_the_request_are_refused() {
        for (name, message) in [
            ("Host", "--host-header"),
            ("authorization", "--token-env"),
            ("Content-Length", "is reserved"),
            ("content-type", "is reserved"),
            ("a b", "invalid header name"),
        ] {
            let error = with(|spec| spec.headers = vec![header(name, "S3CRET")]).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(message) && !error.contains("S3CRET"), "{error}");
        }
        assert!(with(|spec| spec.headers = vec![header("X", "a\nb")]).is_err());
        assert!(with(|spec| spec.host = Some("h/x".into())).is_err());
    }
}
