//! Clients of `object_store` made from a config: endpoint and style, TLS, credentials, timeouts. In: the config and,
//! for keys it leaves out, the usual AWS environment and profile. Out: two clients over one connection pool: one for
//! reads, which does not retry, and one that retries for all other calls. Sends nothing.

use super::attempts::CountingConnector;
use super::config::S3Config;
use super::http;
use super::profile::Profile;
use crate::error::{ErrorKind, StorageError};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use reqwest::Url;
use std::sync::Arc;
use std::time::Duration;

/// The clients of a bucket.
pub(super) struct Clients {
    /// For listings, look-ups, writes.
    pub(super) store: AmazonS3,
    /// For reads, whose retries are not `object_store`'s.
    pub(super) reads: AmazonS3,
}

/// Builds both clients.
pub(super) fn build(config: &S3Config) -> Result<Clients, StorageError> {
    let invalid = |what: String| StorageError::new(ErrorKind::Invalid, format!("s3://{}", config.bucket), what);
    let limit = Duration::from_millis(config.timeout_ms.max(1));
    // The defaults of object_store, 10 retries within 180 s, are far past any request's deadline.
    let retry = RetryConfig {
        max_retries: usize::try_from(config.retries).unwrap_or(usize::MAX),
        retry_timeout: limit,
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(20).min(limit),
            max_backoff: (limit / 4).max(Duration::from_millis(20)),
            base: 2.0,
        },
    };
    let endpoint = config.endpoint.as_deref();
    let endpoint = endpoint.map(|endpoint| checked(endpoint, config.allow_http));
    let endpoint = endpoint.transpose().map_err(invalid)?;
    let builder = addressed(config, endpoint.as_ref()).map_err(invalid)?;
    let local = config.virtual_host && endpoint.as_ref().is_some_and(is_local);
    let client = http::client(config, limit, local).map_err(invalid)?;
    let builder = builder
        .with_client_options(
            ClientOptions::new()
                .with_allow_http(config.allow_http)
                .with_timeout(limit),
        )
        .with_disable_bulk_delete(true)
        .with_http_connector(CountingConnector::new(client));
    let store = builder
        .clone()
        .with_retry(retry.clone())
        .build()
        .map_err(|e| invalid(e.to_string()))?;
    let reads = builder
        .with_credentials(Arc::clone(store.credentials()))
        .with_retry(RetryConfig {
            max_retries: 0,
            ..retry
        })
        .build()
        .map_err(|e| invalid(e.to_string()))?;
    Ok(Clients { store, reads })
}

/// Sets endpoint, bucket and credentials of a client.
fn addressed(config: &S3Config, endpoint: Option<&Url>) -> Result<AmazonS3Builder, String> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(&config.bucket);
    builder = match &config.credentials_file {
        Some(file) => {
            let name = config.profile.as_deref().unwrap_or("default");
            let profile = Profile::read(file, name)?;
            with_region(with_keys(builder, &profile), profile)
        }
        None if config.profile.is_some() => return Err("`profile` names one in `credentials_file`: set both".into()),
        None => with_environment(builder, config.anonymous),
    };
    if let Some(region) = &config.region {
        builder = builder.with_region(region);
    }
    if config.virtual_host {
        builder = builder.with_virtual_hosted_style_request(true);
    }
    if let Some(endpoint) = endpoint {
        let endpoint = if config.virtual_host {
            with_bucket(endpoint, &config.bucket)?
        } else {
            text(endpoint)
        };
        // Otherwise the environment's S3 endpoint would take precedence over the general endpoint.
        builder = builder
            .with_config(AmazonS3ConfigKey::S3Endpoint, &endpoint)
            .with_endpoint(endpoint);
    }
    Ok(builder.with_skip_signature(config.anonymous))
}

/// Adds values of the AWS profile that the environment leaves out.
fn with_environment(builder: AmazonS3Builder, anonymous: bool) -> AmazonS3Builder {
    let missing = |key| builder.get_config_value(&key).is_none();
    let sources = [
        AmazonS3ConfigKey::AccessKeyId,
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ];
    let keyless = !anonymous && sources.into_iter().all(missing);
    let placeless = missing(AmazonS3ConfigKey::Region) && missing(AmazonS3ConfigKey::DefaultRegion);
    let profile = Profile::load();
    let builder = if keyless { with_keys(builder, &profile) } else { builder };
    if placeless {
        with_region(builder, profile)
    } else {
        builder
    }
}

fn with_keys(builder: AmazonS3Builder, profile: &Profile) -> AmazonS3Builder {
    let (Some(id), Some(secret)) = (&profile.access_key_id, &profile.secret_access_key) else {
        return builder;
    };
    let builder = builder.with_access_key_id(id).with_secret_access_key(secret);
    match &profile.session_token {
        Some(token) => builder.with_token(token),
        None => builder,
    }
}

fn with_region(builder: AmazonS3Builder, profile: Profile) -> AmazonS3Builder {
    match profile.region {
        Some(region) => builder.with_region(region),
        None => builder,
    }
}

/// Checks an endpoint. The error does not repeat it where it may hold a secret.
fn checked(endpoint: &str, allow_http: bool) -> Result<Url, String> {
    let url = Url::parse(endpoint)
        .map_err(|error| format!("endpoint is no URL ({error}); it begins with https:// or http://"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("endpoint holds credentials; put them into the AWS environment instead".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("endpoint goes on after its path; leave out what begins with `?` or `#`".to_owned());
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_http => Ok(url),
        "http" => Err(format!(
            "endpoint `{endpoint}` is plain HTTP; set `allow_http = true` if that is meant"
        )),
        _ => Err("endpoint is no URL of a server; it begins with https:// or http://".to_owned()),
    }
}

/// Endpoint without a trailing slash: `object_store` adds its own.
fn text(endpoint: &Url) -> String {
    endpoint.as_str().trim_end_matches('/').to_owned()
}

fn is_local(endpoint: &Url) -> bool {
    let name = endpoint.domain();
    name.is_some_and(|name| name == "localhost" || name.ends_with(".localhost"))
}

/// The endpoint with the bucket before its host.
fn with_bucket(endpoint: &Url, bucket: &str) -> Result<String, String> {
    let Some(name) = endpoint.domain() else {
        return Err(format!(
            "`virtual_host` puts the bucket before the host's name, and endpoint `{endpoint}` has only an address"
        ));
    };
    let mut with_bucket = endpoint.clone();
    with_bucket
        .set_host(Some(&format!("{bucket}.{name}")))
        .map_err(|error| format!("`virtual_host` makes no host's name of bucket `{bucket}` ({error})"))?;
    Ok(text(&with_bucket))
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
            ("127.0.0.1:9000", "no URL"),
            ("localhost:9000", "no URL"),
            ("https://", "empty host"),
            ("https://host:99999", "port"),
            ("https://[::1", "no URL"),
            ("https://host/?x=1", "`?`"),
        ] {
            let error = checked(endpoint, false).unwrap_err();
            assert!(error.contains(word), "{endpoint}: {error}");
        }
        for secret in [
            "https://me:hush@host",
            "http://me:hush@host",
            "http://h/?key=hush",
            "ftp://me:hush@h",
        ] {
            let error = checked(secret, false).unwrap_err();
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
            assert!(put(address).unwrap_err().contains(address));
        }
        assert!(with_bucket(&url("https://host"), "a b").is_err());
        let is_local = |endpoint| is_local(&url(endpoint));
        assert!(is_local("http://localhost:9000") && is_local("http://s3.localhost/x"));
        assert!(!is_local("http://localhost.example.com"));
    }
}
