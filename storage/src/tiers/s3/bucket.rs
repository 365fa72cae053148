//! One bucket at one endpoint: requests with a limit each, and errors that name bucket, key and endpoint.
//!
//! In: a config. Out: the calls that the tier is made of. Credentials stay inside `object_store` and are never printed.

use super::attempts::{Attempts, CountingConnector};
use super::profile::Profile;
use crate::config::S3Config;
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use bytes::BytesMut;
use futures::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientOptions, GetOptions, ObjectMeta, ObjectStore, RetryConfig};
use std::error::Error as StdError;
use std::ops::Range;
use std::time::Duration;

/// The longest wait for a TCP and TLS connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// A bucket, or a prefix in it.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) store: AmazonS3,
    name: String,
    endpoint: String,
    /// Without slashes at its ends; empty for the whole bucket.
    prefix: String,
    limit: Duration,
}

/// A GET's bytes, and how often it was sent.
pub(super) struct Got {
    pub(super) bytes: BytesMut,
    pub(super) attempts: u32,
}

impl Bucket {
    /// Builds the client. Sends nothing.
    pub(super) fn new(config: &S3Config) -> Result<Self, StorageError> {
        let invalid = |what: String| StorageError::new(ErrorKind::Invalid, format!("s3://{}", config.bucket), what);
        let limit = Duration::from_millis(config.timeout_ms.max(1));
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&config.bucket);
        builder = with_profile(builder, config.anonymous);
        if let Some(region) = &config.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &config.endpoint {
            check_endpoint(endpoint, config.allow_http).map_err(invalid)?;
            builder = builder.with_endpoint(endpoint);
        }
        if config.anonymous {
            builder = builder.with_skip_signature(true);
        }
        let idle = usize::try_from(config.concurrency).unwrap_or(usize::MAX);
        let options = ClientOptions::new()
            .with_allow_http(config.allow_http)
            .with_timeout(limit)
            .with_connect_timeout(limit.min(CONNECT_LIMIT))
            .with_pool_max_idle_per_host(idle);
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
        let store = builder
            .with_client_options(options)
            .with_retry(retry)
            .with_disable_bulk_delete(true)
            .with_http_connector(CountingConnector)
            .build()
            .map_err(|e| invalid(e.to_string()))?;
        Ok(Self {
            store,
            name: config.bucket.clone(),
            endpoint: config.endpoint.clone().unwrap_or_else(|| "AWS".to_owned()),
            prefix: config
                .prefix
                .as_deref()
                .unwrap_or_default()
                .trim_matches('/')
                .to_owned(),
            limit,
        })
    }

    /// `s3://bucket/prefix at endpoint`.
    pub(super) fn location(&self) -> String {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        format!("s3://{}{slash}{} at {}", self.name, self.prefix, self.endpoint)
    }

    fn object(&self, key: &Key) -> String {
        format!("s3://{}/{key}", self.name)
    }

    /// The key of a path, byte for byte.
    pub(super) fn key(&self, path: &ObjectPath) -> Result<Key, StorageError> {
        let whole = if self.prefix.is_empty() {
            path.to_string()
        } else {
            format!("{}/{path}", self.prefix)
        };
        Key::parse(&whole).map_err(|e| StorageError::new(ErrorKind::Invalid, path.as_str(), e.to_string()))
    }

    /// The path of a key below the prefix; none for keys that no path can name.
    pub(super) fn path(&self, key: &Key) -> Option<ObjectPath> {
        let below = match self.prefix.as_str() {
            "" => key.as_ref(),
            prefix => key.as_ref().strip_prefix(prefix)?.strip_prefix('/')?,
        };
        ObjectPath::new(below).ok()
    }

    /// The key prefix of a listing.
    pub(super) fn list_prefix(&self, prefix: Option<&ObjectPath>) -> Result<Option<Key>, StorageError> {
        match prefix {
            Some(path) => self.key(path).map(Some),
            None if self.prefix.is_empty() => Ok(None),
            None => Key::parse(&self.prefix)
                .map(Some)
                .map_err(|e| StorageError::new(ErrorKind::Invalid, self.prefix.as_str(), e.to_string())),
        }
    }

    /// Gives a call its time, and its error a name.
    pub(super) async fn within<T>(
        &self,
        key: &Key,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StorageError> {
        match tokio::time::timeout(self.limit, call).await {
            Ok(done) => done.map_err(|e| self.error(key, &e)),
            Err(_) => Err(self.late(key)),
        }
    }

    fn late(&self, key: &Key) -> StorageError {
        let limit = self.limit.as_millis();
        let detail = format!("{} did not answer within {limit} ms, retries included", self.endpoint);
        StorageError::new(ErrorKind::Timeout, self.object(key), detail)
    }

    /// Looks an object up.
    pub(super) async fn head(&self, key: &Key) -> Result<ObjectMeta, StorageError> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        self.within(key, async { Ok(self.store.get_opts(key, options).await?.meta) })
            .await
    }

    /// Reads a range of one version into `into`, whose capacity must be the range's length.
    pub(super) async fn get(
        &self,
        key: &Key,
        version: &str,
        range: Range<u64>,
        into: BytesMut,
    ) -> Result<Got, StorageError> {
        match tokio::time::timeout(self.limit, self.get_unbounded(key, version, range, into)).await {
            Ok(got) => got,
            Err(_) => Err(self.late(key)),
        }
    }

    async fn get_unbounded(
        &self,
        key: &Key,
        version: &str,
        range: Range<u64>,
        mut into: BytesMut,
    ) -> Result<Got, StorageError> {
        let wanted = range.end - range.start;
        let attempts = Attempts::default();
        let mut options = GetOptions {
            range: Some(range.into()),
            ..GetOptions::default()
        };
        // A weak tag never matches under If-Match; then the reply's tag below has to do.
        options.if_match = version.starts_with('"').then(|| version.to_owned());
        options.extensions.insert(attempts.clone());
        let result = self
            .store
            .get_opts(key, options)
            .await
            .map_err(|e| self.error(key, &e))?;
        let found = version_of(&result.meta);
        if found != version {
            let detail = format!("{} has version {found}, not {version}", self.endpoint);
            return Err(StorageError::new(ErrorKind::Changed, self.object(key), detail));
        }
        let mut body = result.into_stream();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|e| self.error(key, &e))?;
            if into.len() as u64 + chunk.len() as u64 > wanted {
                let detail = format!("{} sent more than the {wanted} bytes asked for", self.endpoint);
                return Err(StorageError::new(ErrorKind::Unavailable, self.object(key), detail));
            }
            into.extend_from_slice(&chunk);
        }
        if into.len() as u64 != wanted {
            let detail = format!("{} sent {} of {wanted} bytes", self.endpoint, into.len());
            return Err(StorageError::new(ErrorKind::Unavailable, self.object(key), detail));
        }
        Ok(Got {
            bytes: into,
            attempts: attempts.count(),
        })
    }

    /// An error with its kind, naming bucket, key and endpoint.
    pub(super) fn error(&self, key: &Key, error: &object_store::Error) -> StorageError {
        let text = chain(error);
        let (kind, what) = match status(error, &text) {
            // The address of a cloud machine's own credentials, asked when there are no others.
            _ if text.contains("169.254.16") => {
                let hint = "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `anonymous = true`";
                (ErrorKind::Denied, hint.to_owned())
            }
            Some(404) if text.contains("NoSuchBucket") => (
                ErrorKind::NotFound,
                format!("no bucket `{}`; check `bucket` and `endpoint`", self.name),
            ),
            Some(404) => (ErrorKind::NotFound, "no such object".to_owned()),
            Some(412) => (
                ErrorKind::Changed,
                "the object is no longer the version looked up".to_owned(),
            ),
            Some(416) => (
                ErrorKind::Changed,
                "the object is shorter than when it was looked up".to_owned(),
            ),
            Some(401 | 403) => (
                ErrorKind::Denied,
                format!("access denied; check the AWS credentials, or `anonymous`: {text}"),
            ),
            None if timed_out(error) => (ErrorKind::Timeout, text),
            _ => (ErrorKind::Unavailable, text),
        };
        StorageError::new(kind, self.object(key), format!("{}: {what}", self.endpoint))
    }
}

/// Adds what the environment leaves out and the AWS profile has.
fn with_profile(mut builder: AmazonS3Builder, anonymous: bool) -> AmazonS3Builder {
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
    if let (true, Some(region)) = (placeless, profile.region) {
        builder = builder.with_region(region);
    }
    if let (true, Some(id), Some(secret)) = (keyless, profile.access_key_id, profile.secret_access_key) {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        if let Some(token) = profile.session_token {
            builder = builder.with_token(token);
        }
    }
    builder
}

/// The version mark of an object: its ETag, or where a server has none, its date and size.
pub(super) fn version_of(meta: &ObjectMeta) -> String {
    let dated = || format!("{}-{}", meta.last_modified.timestamp_micros(), meta.size);
    meta.e_tag.clone().unwrap_or_else(dated)
}

/// The HTTP status that a call failed with. Calls other than GET and PUT say it only in their text.
fn status(error: &object_store::Error, text: &str) -> Option<u16> {
    match error {
        object_store::Error::NotFound { .. } => Some(404),
        object_store::Error::Precondition { .. } => Some(412),
        object_store::Error::PermissionDenied { .. } => Some(403),
        object_store::Error::Unauthenticated { .. } => Some(401),
        _ => text.split_once("non-2xx status code: ")?.1.get(..3)?.parse().ok(),
    }
}

fn timed_out(error: &(dyn StdError + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&e| e.source());
    let mut http = causes.filter_map(|e| e.downcast_ref::<HttpError>());
    http.any(|e| e.kind() == HttpErrorKind::Timeout)
}

/// The error and those causes that add something.
fn chain(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = e.source();
    }
    text
}

fn check_endpoint(endpoint: &str, allow_http: bool) -> Result<(), String> {
    let rest = match endpoint.split_once("://") {
        Some(("https", rest)) => rest,
        Some(("http", rest)) if allow_http => rest,
        Some(("http", _)) => {
            return Err(format!(
                "endpoint `{endpoint}` is plain HTTP; set `allow_http = true` if that is meant"
            ));
        }
        _ => return Err("endpoint is no URL; it begins with https:// or http://".to_owned()),
    };
    if rest.contains('@') {
        return Err("endpoint holds credentials; put them into the AWS environment instead".to_owned());
    }
    if rest.is_empty() || rest.starts_with('/') {
        Err("endpoint names no host".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_checked() {
        assert!(check_endpoint("http://127.0.0.1:9000", true).is_ok());
        assert!(check_endpoint("https://s3.example.com", false).is_ok());
        for (endpoint, word) in [
            ("http://127.0.0.1:9000", "allow_http"),
            ("127.0.0.1:9000", "no URL"),
            ("https://", "no host"),
        ] {
            assert!(
                check_endpoint(endpoint, false).unwrap_err().contains(word),
                "{endpoint}"
            );
        }
        let secret = check_endpoint("https://me:hush@host", false).unwrap_err();
        assert!(!secret.contains("hush"), "{secret}");
    }
}
