//! S3 client: endpoint and style, credentials from the environment or a profile; and the HTTP client of every service.
//! In: the config. Out: a builder of `object_store`, and a client of reqwest. Sends nothing.

use super::BucketConfig;
use anyhow::{Result, anyhow, bail};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Client, Url};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sets endpoint, bucket and credentials of a client.
pub(super) fn addressed(config: &BucketConfig, bucket: &str, endpoint: Option<&Url>) -> Result<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let token = builder.get_config_value(&AmazonS3ConfigKey::ContainerAuthorizationTokenFile);
    let token = token.and_then(|file| std::fs::read_to_string(file).ok());
    // The client would panic: a pod's token is sent as a header.
    if token.is_some_and(|token| token.contains('\n')) {
        bail!("the file of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE has a line break; remove it");
    }
    builder = match &config.credentials_file {
        Some(file) => {
            let name = config.profile.as_deref().unwrap_or("default");
            let profile = Profile::read(file, name)?;
            with_value(with_keys(builder, &profile), AmazonS3ConfigKey::Region, profile.region)
        }
        None if config.profile.is_some() => bail!("`profile` requires `credentials_file`: set both"),
        None => with_environment(builder, config.anonymous),
    };
    builder = with_value(builder, AmazonS3ConfigKey::Region, config.region.clone());
    builder = builder.with_virtual_hosted_style_request(config.virtual_host);
    if let Some(endpoint) = endpoint {
        let endpoint = if config.virtual_host {
            with_bucket(endpoint, bucket)?
        } else {
            text(endpoint)
        };
        // Otherwise the environment's S3 endpoint would override the general endpoint.
        builder = builder
            .with_config(AmazonS3ConfigKey::S3Endpoint, &endpoint)
            .with_endpoint(endpoint);
    }
    Ok(builder.with_skip_signature(config.anonymous))
}

/// Adds values from the AWS profile that the environment lacks.
fn with_environment(builder: AmazonS3Builder, anonymous: bool) -> AmazonS3Builder {
    let missing = |key| builder.get_config_value(&key).is_none();
    let sources = [
        AmazonS3ConfigKey::AccessKeyId,
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ];
    let keyless = !anonymous && sources.into_iter().all(missing);
    let without_region = missing(AmazonS3ConfigKey::Region) && missing(AmazonS3ConfigKey::DefaultRegion);
    let profile = Profile::load();
    let builder = if keyless { with_keys(builder, &profile) } else { builder };
    let region = profile.region.filter(|_| without_region);
    with_value(builder, AmazonS3ConfigKey::Region, region)
}

fn with_keys(builder: AmazonS3Builder, profile: &Profile) -> AmazonS3Builder {
    let (Some(id), Some(secret)) = (&profile.access_key_id, &profile.secret_access_key) else {
        return builder;
    };
    let builder = builder.with_access_key_id(id).with_secret_access_key(secret);
    with_value(builder, AmazonS3ConfigKey::Token, profile.session_token.clone())
}

/// Sets a value, if there is one.
fn with_value(builder: AmazonS3Builder, key: AmazonS3ConfigKey, value: Option<String>) -> AmazonS3Builder {
    match value {
        Some(value) => builder.with_config(key, value),
        None => builder,
    }
}

/// Checks an endpoint. The error omits the endpoint if it may hold a secret.
pub(super) fn checked(endpoint: &str, allow_http: bool) -> Result<Url> {
    let url =
        Url::parse(endpoint).map_err(|error| anyhow!("invalid endpoint URL ({error}); use https:// or http://"))?;
    if !url.username().is_empty() || url.password().is_some() {
        bail!("endpoint contains credentials; use the AWS environment instead");
    }
    if url.query().is_some() || url.fragment().is_some() {
        bail!("endpoint has a query or fragment; remove the part from `?` or `#` on");
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_http => Ok(url),
        "http" => bail!("endpoint `{endpoint}` is plain HTTP; use https:// or set `allow_http = true`"),
        _ => bail!("endpoint is not a server URL; use https:// or http://"),
    }
}

/// Endpoint without a trailing slash: `object_store` adds its own.
pub(super) fn text(endpoint: &Url) -> String {
    endpoint.as_str().trim_end_matches('/').to_owned()
}

pub(super) fn is_local(endpoint: &Url) -> bool {
    let host = endpoint.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.ends_with(".localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Endpoint with the bucket prepended to its host.
fn with_bucket(endpoint: &Url, bucket: &str) -> Result<String> {
    let Some(name) = endpoint.domain() else {
        bail!("`virtual_host` requires a host name, but endpoint `{endpoint}` has an IP address");
    };
    let mut with_bucket = endpoint.clone();
    let set = with_bucket.set_host(Some(&format!("{bucket}.{name}")));
    set.map_err(|e| anyhow!("bucket `{bucket}` is not valid in a host name, as `virtual_host` requires ({e})"))?;
    Ok(text(&with_bucket))
}

/// Time limit of a TCP and TLS connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Idle connections kept besides `concurrency`, for hedges and for calls other than reads.
const SPARE_CONNECTIONS: usize = 4;
/// Maximum redirects followed, within the endpoint.
const REDIRECTS: usize = 4;

/// Builds a client; each call may take `limit`. A `local` client resolves every bucket's name to this machine, and uses no
/// proxy of the environment. A `plain` client may use plain HTTP, like sources of credentials that only this machine
/// reaches.
pub(super) fn client(config: &BucketConfig, limit: Duration, local: bool, plain: bool) -> Result<Client> {
    let builder = Client::builder()
        .user_agent(concat!("tierlab/", env!("CARGO_PKG_VERSION")))
        .http1_only()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .https_only(!config.allow_http && !plain)
        .timeout(limit)
        .connect_timeout(limit.min(CONNECT_LIMIT))
        .pool_max_idle_per_host(config.concurrency as usize + SPARE_CONNECTIONS)
        .redirect(Policy::custom(within_the_endpoint))
        .dns_resolver(Resolver(local && config.virtual_host))
        .tls_certs_merge(certificates(config)?);
    let builder = if local { builder.no_proxy() } else { builder };
    Ok(builder.build()?)
}

fn certificates(config: &BucketConfig) -> Result<Vec<Certificate>> {
    let Some(file) = &config.ca_file else {
        return Ok(Vec::new());
    };
    let shown = file.display();
    let pem = std::fs::read(file).map_err(|e| anyhow!("`ca_file` {shown}: {e}"))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|e| anyhow!("`ca_file` {shown}: {e}"))?;
    if certificates.is_empty() {
        bail!("`ca_file` {shown}: contains no PEM certificate");
    }
    Ok(certificates)
}

/// Follows a redirect only to the same scheme, host and port, because a request's headers hold its session token and
/// signature.
fn within_the_endpoint(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let first = attempt.previous().first().map(Url::origin);
    if first == Some(attempt.url().origin()) && attempt.previous().len() <= REDIRECTS {
        attempt.follow()
    } else {
        // The redirect becomes the reply, and then an error that names it.
        attempt.stop()
    }
}

/// Resolves names with the system's resolver, in random order, so that connections spread over a name's addresses. If
/// true, resolves every name to this machine: names below `localhost` are reserved for it (RFC 6761), but few resolvers
/// know them.
#[derive(Debug)]
struct Resolver(bool);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let local = self.0;
        Box::pin(async move {
            if local {
                let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
                return Ok(Box::new(std::iter::once(here)) as Addrs);
            }
            let mut addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let seed = RandomState::new();
            addresses.sort_by_cached_key(|address| seed.hash_one(address));
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Settings of an AWS profile, which `object_store` does not read. Only static keys: single sign-on, assumed roles and
/// credential processes are supported only through the environment variables that they can set. Not printable,
/// because it holds secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) access_key_id: Option<String>,
    pub(super) secret_access_key: Option<String>,
    pub(super) session_token: Option<String>,
    pub(super) region: Option<String>,
}

impl Profile {
    /// Loads the profile named in the environment, or `default`. Missing files and profiles count as empty.
    pub(super) fn load() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let name = variable("AWS_PROFILE").and_then(|name| name.into_string().ok());
        let home = variable("HOME").map(|home| PathBuf::from(home).join(".aws"));
        let text = |named: &str, file: &str| {
            let path = variable(named)
                .map(PathBuf::from)
                .or_else(|| Some(home.as_ref()?.join(file)))?;
            std::fs::read_to_string(path).ok()
        };
        let credentials = text("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
        let config = text("AWS_CONFIG_FILE", "config").unwrap_or_default();
        Self::parse(&credentials, &config, name.as_deref().unwrap_or("default"))
    }

    /// Reads a profile of a credentials file, which must have its keys.
    pub(super) fn read(file: &Path, name: &str) -> Result<Self> {
        let shown = file.display();
        let text = std::fs::read_to_string(file).map_err(|e| anyhow!("`credentials_file` {shown}: {e}"))?;
        let profile = Self::parse(&text, "", name);
        if profile.access_key_id.is_none() || profile.secret_access_key.is_none() {
            bail!("`credentials_file` {shown} has no keys for profile `{name}`");
        }
        Ok(profile)
    }

    /// Reads a profile from both files; the credentials file takes precedence.
    fn parse(credentials: &str, config: &str, name: &str) -> Self {
        // In the config file, the sections of all profiles but `default` are named `profile NAME`.
        let mut keys = section(config, &format!("profile {name}"));
        keys.extend(section(config, name));
        keys.extend(section(credentials, name));
        let mut take = |key: &str| keys.remove(key).filter(|value| !value.is_empty()).map(str::to_owned);
        Self {
            access_key_id: take("aws_access_key_id"),
            secret_access_key: take("aws_secret_access_key"),
            session_token: take("aws_session_token"),
            region: take("region"),
        }
    }
}

/// Keys of section `[name]`. Lines that are not `key = value` are skipped.
fn section<'t>(text: &'t str, name: &str) -> HashMap<&'t str, &'t str> {
    let mut inside = false;
    let mut keys = HashMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            inside = title.0.trim() == name;
        } else if inside
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            keys.insert(key.trim(), value.trim());
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_checked() {
        assert!(checked("http://127.0.0.1:9000", true).is_ok());
        assert!(checked("https://s3.example.com", false).is_ok());
        for (endpoint, word) in [
            ("http://127.0.0.1:9000", "allow_http"),
            ("127.0.0.1:9000", "URL"),
            ("localhost:9000", "URL"),
            ("https://", "empty host"),
            ("https://host:99999", "port"),
            ("https://[::1", "URL"),
            ("https://host/?x=1", "`?`"),
        ] {
            let error = checked(endpoint, false).unwrap_err().to_string();
            assert!(error.contains(word), "{endpoint}: {error}");
        }
        for secret in [
            "https://me:hush@host",
            "http://me:hush@host",
            "http://h/?key=hush",
            "ftp://me:hush@h",
        ] {
            let error = checked(secret, false).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
        for same in ["https://s3.example.com", "https://[::1]:9000", "https://h:9/x/y"] {
            assert_eq!(text(&checked(same, false).unwrap()), same);
        }
    }

    #[test]
    fn the_bucket_goes_before_a_name_and_not_before_an_address() {
        let url = |endpoint| checked(endpoint, true).unwrap();
        let put = |endpoint| with_bucket(&url(endpoint), "b");
        assert_eq!(
            put("https://s3.example.com:9/x").unwrap(),
            "https://b.s3.example.com:9/x"
        );
        assert_eq!(put("http://localhost:9000").unwrap(), "http://b.localhost:9000");
        for address in ["http://127.0.0.1:9000", "http://127.0.0.1", "https://[::1]:9000"] {
            assert!(put(address).unwrap_err().to_string().contains(address));
        }
        assert!(with_bucket(&url("https://host"), "a b").is_err());
        let is_local = |endpoint| is_local(&url(endpoint));
        for here in [
            "http://localhost:9000",
            "http://s3.localhost/x",
            "http://127.0.0.1",
            "http://[::1]:9000",
        ] {
            assert!(is_local(here), "{here}");
        }
        assert!(!is_local("http://localhost.example.com") && !is_local("http://10.0.0.1:9000"));
    }
}

#[cfg(test)]
mod profile_tests {
    use super::*;
    use proptest::prelude::*;

    const CREDENTIALS: &str = "\
# mine
[default]
aws_access_key_id = AK1
aws_secret_access_key=hush/one==
[ work ]
aws_access_key_id = AK2
aws_secret_access_key = hush2
aws_session_token = token2
";
    const CONFIG: &str = "[default]\nregion = eu-central-1\n[profile work]\nregion = us-west-2\noutput = json\n";

    #[test]
    fn profiles_are_told_apart() {
        let default = Profile::parse(CREDENTIALS, CONFIG, "default");
        assert_eq!(default.access_key_id.as_deref(), Some("AK1"));
        assert_eq!(default.secret_access_key.as_deref(), Some("hush/one=="));
        assert_eq!(
            (default.session_token, default.region.as_deref()),
            (None, Some("eu-central-1"))
        );
        let work = Profile::parse(CREDENTIALS, CONFIG, "work");
        assert_eq!(work.session_token.as_deref(), Some("token2"));
        assert_eq!(work.region.as_deref(), Some("us-west-2"));
        assert!(Profile::parse(CREDENTIALS, CONFIG, "other") == Profile::default());
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "[\\[\\]=a-z #;\n]{0,100}") {
            let _ = Profile::parse(&text, &text, "a");
        }
    }
}
