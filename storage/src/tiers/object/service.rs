//! Object storage services: AWS and compatible servers, Google Cloud Storage, Azure Blob Storage. In: a config. Out:
//! the bucket that it names, and two clients of `object_store` over one pool of connections: one for reads, which does
//! not retry, and one that retries for all other calls. Credentials come from the config and, for missing keys, from
//! the service's usual environment, files and metadata servers. Sends nothing.

use super::BucketConfig;
use super::attempts::CountingConnector;
use super::client;
use crate::{ErrorKind, StorageError};
use anyhow::Result;
#[cfg(feature = "azure")]
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
#[cfg(feature = "gcp")]
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
#[cfg(any(feature = "azure", feature = "gcp"))]
use reqwest::Url;
use std::sync::Arc;
use std::time::Duration;

/// Service of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    S3,
    Google,
    Azure,
}

impl Service {
    const ALL: [Self; 3] = [Self::S3, Self::Google, Self::Azure];

    /// Kind of tier, scheme of URLs, and default name of the endpoint in messages.
    pub(super) const fn names(self) -> [&'static str; 3] {
        match self {
            Self::S3 => ["s3", "s3", "AWS"],
            Self::Google => ["gcs", "gs", "Google Cloud"],
            Self::Azure => ["azure", "az", "Azure"],
        }
    }

    /// Kind of tier, in results and metrics.
    pub(crate) const fn kind(self) -> &'static str {
        self.names()[0]
    }

    pub(super) const fn scheme(self) -> &'static str {
        self.names()[1]
    }

    /// Endpoint that the environment sets for the service's programs.
    pub(super) fn endpoint_of_environment(self) -> Option<String> {
        let variables: &[&str] = match self {
            Self::S3 => &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
            Self::Google => &["GOOGLE_BASE_URL"],
            Self::Azure => &["AZURE_STORAGE_ENDPOINT"],
        };
        variables.iter().find_map(|name| std::env::var(name).ok())
    }

    /// Error and advice if no credentials are found.
    pub(super) const fn credentials(self) -> &'static str {
        match self {
            Self::S3 => "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `anonymous = true`",
            Self::Google => {
                "no Google credentials: set `credentials_file` or GOOGLE_APPLICATION_CREDENTIALS, or `anonymous = true`"
            }
            Self::Azure => {
                "no Azure credentials: set `credentials_file`, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or a service \
                 principal's variables, or `anonymous = true`"
            }
        }
    }
}

/// Bucket that a config names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) service: Service,
    pub(super) bucket: String,
    /// Key prefix without slashes at its ends; empty for the whole bucket.
    pub(super) prefix: String,
}

impl Place {
    /// Parses `url`, or `bucket` and `prefix`.
    pub(super) fn of(config: &BucketConfig) -> Result<Self, StorageError> {
        let invalid = |detail: String| Err(ErrorKind::Invalid.error("tier", detail));
        let (service, bucket, prefix) = match (&config.url, &config.bucket) {
            (None, Some(bucket)) => (
                Service::S3,
                bucket.as_str(),
                config.prefix.as_deref().unwrap_or_default(),
            ),
            (Some(_), _) if config.bucket.is_some() || config.prefix.is_some() => {
                return invalid("`url` already includes bucket and prefix: remove `bucket` and `prefix`".to_owned());
            }
            (Some(url), _) => {
                let Some((service, rest)) = Service::ALL.into_iter().find_map(|service| {
                    let rest = url.strip_prefix(service.scheme())?.strip_prefix("://")?;
                    Some((service, rest))
                }) else {
                    return invalid(format!("invalid `url`: `{url}`; use s3://, gs:// or az://"));
                };
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                (service, bucket, prefix)
            }
            (None, None) => {
                let detail = "missing bucket: set `url = \"s3://BUCKET/PREFIX\"` (or gs://, az://), or `bucket`";
                return invalid(detail.to_owned());
            }
        };
        let place = Self {
            service,
            bucket: bucket.to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
        };
        if place.bucket.is_empty() {
            return invalid(format!("{place}: missing bucket name"));
        }
        for (key, is_set, only) in [
            ("region", config.region.is_some(), Service::S3),
            ("virtual_host", config.virtual_host, Service::S3),
            ("profile", config.profile.is_some(), Service::S3),
            ("account", config.account.is_some(), Service::Azure),
        ] {
            if is_set && service != only {
                let scheme = only.scheme();
                return invalid(format!("`{key}` is only for {scheme}://, but the bucket is {place}"));
            }
        }
        Ok(place)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "{}://{}{slash}{}", self.service.scheme(), self.bucket, self.prefix)
    }
}

pub(super) struct Clients {
    /// Client for listings, look-ups and writes.
    pub(super) store: Arc<dyn ObjectStore>,
    /// Client for reads, which the tier itself retries.
    pub(super) reads: Arc<dyn ObjectStore>,
}

/// Builds both clients.
pub(super) fn build(config: &BucketConfig, place: &Place) -> Result<Clients> {
    let limit = Duration::from_millis(config.timeout_ms.max(1));
    // The defaults of object_store, 10 retries within 180 s, far exceed any request's deadline.
    let retry = RetryConfig {
        max_retries: config.retries as usize,
        retry_timeout: limit,
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(20).min(limit),
            max_backoff: (limit / 4).max(Duration::from_millis(20)),
            base: 2.0,
        },
    };
    let once = RetryConfig {
        max_retries: 0,
        ..retry.clone()
    };
    let options = ClientOptions::new()
        .with_allow_http(config.allow_http)
        .with_timeout(limit);
    let endpoint = config.endpoint.as_deref();
    let endpoint = endpoint.map(|endpoint| client::checked(endpoint, config.allow_http));
    let endpoint = endpoint.transpose()?;
    let local = endpoint.as_ref().is_some_and(client::is_local);
    let connector = CountingConnector::new(
        client::client(config, limit, local, false)?,
        client::client(config, limit, local, true)?,
    );
    // Both clients of a service's builder, with the same credentials.
    macro_rules! clients {
        ($builder:expr) => {{
            let builder = $builder.with_client_options(options).with_http_connector(connector);
            let store = builder.clone().with_retry(retry).build()?;
            let credentials = Arc::clone(store.credentials());
            let reads = builder.with_credentials(credentials).with_retry(once).build();
            Clients {
                store: Arc::new(store),
                reads: Arc::new(reads?),
            }
        }};
    }
    let endpoint = endpoint.as_ref();
    Ok(match place.service {
        Service::S3 => {
            clients!(client::addressed(config, &place.bucket, endpoint)?.with_disable_bulk_delete(true))
        }
        #[cfg(feature = "gcp")]
        Service::Google => clients!(google(config, place, endpoint)),
        #[cfg(feature = "azure")]
        Service::Azure => clients!(azure(config, place, endpoint)?),
        #[cfg(not(all(feature = "azure", feature = "gcp")))]
        unsupported => {
            let scheme = unsupported.scheme();
            anyhow::bail!("{scheme}:// is not compiled in; run `make build`");
        }
    })
}

#[cfg(feature = "gcp")]
fn google(config: &BucketConfig, place: &Place, endpoint: Option<&Url>) -> GoogleCloudStorageBuilder {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&place.bucket)
        .with_skip_signature(config.anonymous);
    if let Some(file) = &config.credentials_file {
        builder = builder.with_application_credentials(file.to_string_lossy());
    }
    if config.anonymous {
        // Writes require a token even then.
        let bearer = String::new();
        let credential = object_store::StaticCredentialProvider::new(GcpCredential { bearer });
        builder = builder.with_credentials(Arc::new(credential));
    }
    if let Some(endpoint) = endpoint {
        builder = builder.with_base_url(&client::text(endpoint));
    }
    builder
}

#[cfg(feature = "azure")]
fn azure(config: &BucketConfig, place: &Place, endpoint: Option<&Url>) -> Result<MicrosoftAzureBuilder> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(&place.bucket)
        .with_skip_signature(config.anonymous);
    if let Some(account) = &config.account {
        builder = builder.with_account(account);
    }
    if let Some(file) = &config.credentials_file {
        let key =
            std::fs::read_to_string(file).map_err(|e| anyhow::anyhow!("`credentials_file` {}: {e}", file.display()))?;
        builder = builder.with_access_key(key.trim());
    }
    if builder.get_config_value(&AzureConfigKey::AccountName).is_none() {
        anyhow::bail!("missing storage account: set `account`, or AZURE_STORAGE_ACCOUNT_NAME");
    }
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(client::text(endpoint));
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::{HttpConnector, HttpRequestBody};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Metadata servers (IMDS, ECS, EKS pod identity) speak plain HTTP, whatever the bucket's endpoint must.
    #[tokio::test]
    async fn only_sources_of_credentials_may_speak_plain_http() {
        let config: BucketConfig = toml::from_str("bucket = 'b'").unwrap();
        let client = |plain| client::client(&config, Duration::from_secs(10), false, plain).unwrap();
        let connector = CountingConnector::new(client(false), client(true));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/latest", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nrole")
                .unwrap();
        });
        let ask = async |allow_http| {
            let client = connector
                .connect(&ClientOptions::new().with_allow_http(allow_http))
                .unwrap();
            let request = http::Request::get(&url).body(HttpRequestBody::empty()).unwrap();
            client.execute(request).await
        };
        assert!(ask(false).await.is_err());
        assert!(ask(true).await.unwrap().status().is_success());
    }

    fn place(toml: &str) -> Result<Place, StorageError> {
        Place::of(&toml::from_str(toml).unwrap())
    }

    #[test]
    fn a_bucket_is_named_by_url_or_by_keys() {
        let place = |toml| place(toml).unwrap();
        let of = |service, bucket: &str, prefix: &str| Place {
            service,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        };
        assert_eq!(place("bucket = 'b'\nprefix = '/x/'"), of(Service::S3, "b", "x"));
        assert_eq!(place("url = 's3://b'"), of(Service::S3, "b", ""));
        assert_eq!(place("url = 'gs://b/x/y/'"), of(Service::Google, "b", "x/y"));
        assert_eq!(place("url = 'az://b/x'\naccount = 'a'"), of(Service::Azure, "b", "x"));
    }

    #[test]
    fn keys_of_other_services_are_refused_by_name() {
        for (toml, words) in [
            ("", "set `url"),
            ("url = 'http://b'", "s3://, gs:// or az://"),
            ("url = 'gs://'", "missing bucket name"),
            ("url = 's3://b'\nbucket = 'b'", "remove `bucket`"),
            (
                "url = 'gs://b'\nregion = 'eu'",
                "`region` is only for s3://, but the bucket is gs://b",
            ),
            ("url = 'az://b'\nvirtual_host = true", "`virtual_host`"),
            ("bucket = 'b'\naccount = 'a'", "`account` is only for az://"),
        ] {
            let error = place(toml).unwrap_err().to_string();
            assert!(error.contains(words), "{toml}: {error}");
        }
    }
}
