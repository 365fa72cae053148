//! A bucket at an endpoint: requests with time limits, and errors that name bucket, key and endpoint.
//!
//! In: a config. Out: the calls that the tier makes. Credentials stay inside `object_store` and are never printed.

use super::BucketConfig;
use super::hedge::Hedging;
use super::service::{self, Clients, Place, Service};
use super::xml::element;
use crate::deadline;
use crate::error::with_causes;
use crate::retry::Backoff;
use crate::unreported::UnreportedCost;
use crate::{ErrorKind, ObjectPath, StorageError};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path as Key;
use object_store::{GetOptions, ObjectMeta, ObjectStore};
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a key in S3, Google and Azure (the S3 user guide, "Naming Amazon S3 objects").
const MAX_KEY_BYTES: usize = 1024;

/// Text before the status of a reply in errors of `object_store`.
const STATUS: &str = "non-2xx status code: ";

/// Bucket, or prefix in a bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Client for reads; does not retry.
    pub(super) reads: Arc<dyn ObjectStore>,
    pub(super) policy: RetryPolicy,
    pub(super) hedging: Option<Hedging>,
    /// Cost of GETs whose read failed or was cancelled.
    pub(super) unreported: Arc<UnreportedCost>,
    pub(super) place: Place,
    pub(super) endpoint: String,
}

impl Bucket {
    /// Builds the client. Sends nothing.
    pub(super) fn new(config: &BucketConfig) -> Result<Self, StorageError> {
        let place = Place::of(config)?;
        let invalid = |e: anyhow::Error| ErrorKind::Invalid.error(&place, e.to_string());
        let mut config = config.clone();
        config.endpoint = config.endpoint.or_else(|| place.service.endpoint_of_environment());
        let Clients { store, reads } = service::build(&config, &place).map_err(invalid)?;
        Ok(Self {
            store,
            reads,
            policy: RetryPolicy::new(&config),
            hedging: Hedging::new(&place.to_string(), config.hedge_after_quantile, config.hedge_max_share)?,
            unreported: Arc::default(),
            endpoint: config.endpoint.unwrap_or_else(|| place.service.names()[2].to_owned()),
            place,
        })
    }

    /// `s3://bucket/prefix at endpoint`.
    pub(super) fn location(&self) -> String {
        format!("{} at {}", self.place, self.endpoint)
    }

    /// Name of a key in errors.
    pub(super) fn object(&self, key: &Key) -> String {
        format!("{}://{}/{key}", self.place.service.scheme(), self.place.bucket)
    }

    /// Key of a path, byte for byte.
    pub(super) fn key(&self, path: &ObjectPath) -> Result<Key, StorageError> {
        let key = if self.place.prefix.is_empty() {
            path.to_string()
        } else {
            format!("{}/{path}", self.place.prefix)
        };
        let refuse = |why: String| ErrorKind::Invalid.error(path, why);
        if key.len() > MAX_KEY_BYTES {
            let len = key.len();
            let why = format!("key of {len} bytes, including the prefix, exceeds the limit of {MAX_KEY_BYTES}");
            return Err(refuse(why));
        }
        Key::parse(&key).map_err(|e| refuse(e.to_string()))
    }

    /// Path of a key below the prefix; `None` for keys that are not valid paths.
    pub(super) fn path(&self, key: &Key) -> Option<ObjectPath> {
        let below = match self.place.prefix.as_str() {
            "" => key.as_ref(),
            prefix => key.as_ref().strip_prefix(prefix)?.strip_prefix('/')?,
        };
        ObjectPath::new(below).ok()
    }

    /// Key prefix of a listing.
    pub(super) fn list_prefix(&self, prefix: Option<&ObjectPath>) -> Result<Option<Key>, StorageError> {
        match prefix {
            Some(path) => self.key(path).map(Some),
            None if self.place.prefix.is_empty() => Ok(None),
            None => Key::parse(&self.place.prefix)
                .map(Some)
                .map_err(|e| ErrorKind::Invalid.error(&self.place.prefix, e.to_string())),
        }
    }

    /// Limits a call to the caller's remaining time, and names the object in its error.
    pub(super) async fn within<T>(
        &self,
        key: &Key,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StorageError> {
        let limit = deadline::remaining(self.policy.limit);
        match tokio::time::timeout(limit, call).await {
            Ok(done) => done.map_err(|e| self.error(key, &e)),
            Err(_) => {
                let detail = format!(" did not answer within {} ms, including retries", limit.as_millis());
                Err(self.fault(ErrorKind::Timeout, key, &detail))
            }
        }
    }

    /// Creates an error about the endpoint's answer for a key.
    pub(super) fn fault(&self, kind: ErrorKind, key: &Key, detail: &str) -> StorageError {
        kind.error(self.object(key), format!("{}{detail}", self.endpoint))
    }

    /// Version mark of an object: its ETag, or its date and size if the server sends none. Azure's listings omit the
    /// quotes.
    pub(super) fn version_of(&self, meta: &ObjectMeta) -> String {
        match &meta.e_tag {
            Some(tag) if self.place.service == Service::Azure && !tag.starts_with('"') => format!("\"{tag}\""),
            Some(tag) => tag.clone(),
            None => format!("{}-{}", meta.last_modified.timestamp_micros(), meta.size),
        }
    }

    /// Looks up an object.
    pub(super) async fn head(&self, key: &Key) -> Result<ObjectMeta, StorageError> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        self.within(key, async { Ok(self.store.get_opts(key, options).await?.meta) })
            .await
    }

    /// Creates an error with its kind; it names bucket, key and endpoint.
    pub(super) fn error(&self, key: &Key, error: &object_store::Error) -> StorageError {
        use ErrorKind::{Changed, Denied, Invalid, NotFound, Timeout, Unavailable};
        let text = with_causes(error.to_string(), error);
        let status = status(error, &text);
        let reply = code_and_message(&text).map_or_else(String::new, |reply| format!("; the server says {reply}"));
        // Address that serves a cloud machine's own credentials, used if no others are set.
        let of_machine = ["169.254.16", "metadata.google.internal"];
        let (kind, detail) = match status {
            _ if of_machine.iter().any(|at| text.contains(at)) => (Denied, self.place.service.credentials().to_owned()),
            _ if matches!(error, object_store::Error::InvalidPath { .. }) => {
                let hint = "rename the key, or set a prefix without it";
                (Invalid, format!("cannot be listed: {}; {hint}", text.escape_debug()))
            }
            None if text.contains("invalid peer certificate") => {
                let hint = "unknown certificate authority; set `ca_file` to its certificate";
                (Unavailable, format!("{hint}: {}", without_body(&text)))
            }
            Some(status @ 300..=399) => {
                let why = "a redirect to another server, which is not followed because it would leak credentials";
                let hint = "check `endpoint`, `region` and `bucket`";
                (Unavailable, format!("server answered {status}, {why}; {hint}"))
            }
            Some(404) if text.contains("NoSuchBucket") || text.contains("ContainerNotFound") => {
                let bucket = &self.place.bucket;
                (NotFound, format!("no bucket `{bucket}`; check `bucket` and `endpoint`"))
            }
            Some(404) => (NotFound, "no such object".to_owned()),
            Some(412) => (Changed, "the object is no longer the looked-up version".to_owned()),
            Some(416) => (Changed, "the object is shorter than at the look-up".to_owned()),
            Some(401 | 403) => {
                let detail = format!("access denied; check the credentials, or `anonymous`{reply}");
                (Denied, detail)
            }
            None if timed_out(error) => (Timeout, without_body(&text)),
            _ => (Unavailable, format!("{}{reply}", without_body(&text))),
        };
        self.fault(kind, key, &format!(": {detail}"))
    }
}

/// True if the credentials are valid and lack a permission; a wrong key or signature has another code.
pub(super) fn is_access_denied(error: &object_store::Error) -> bool {
    element(&with_causes(error.to_string(), error), "Code") == Some("AccessDenied")
}

/// HTTP status of a failed call. Calls other than GET and PUT report it only in their text.
fn status(error: &object_store::Error, text: &str) -> Option<u16> {
    match error {
        object_store::Error::NotFound { .. } => Some(404),
        object_store::Error::Precondition { .. } => Some(412),
        object_store::Error::PermissionDenied { .. } => Some(403),
        object_store::Error::Unauthenticated { .. } => Some(401),
        _ => text.split_once(STATUS)?.1.get(..3)?.parse().ok(),
    }
}

fn timed_out(error: &(dyn StdError + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&e| e.source());
    let mut http = causes.filter_map(|e| e.downcast_ref::<HttpError>());
    http.any(|e| e.kind() == HttpErrorKind::Timeout)
}

/// Cuts an error's text before the reply's body, which may hold secrets.
fn without_body(text: &str) -> String {
    let status = text.find(STATUS).map(|at| at + STATUS.len() + 3);
    let ends = [text.find('<'), text.find("error response: "), status];
    let ends = ends.into_iter().flatten().filter(|&end| text.is_char_boundary(end));
    let end = ends.min().unwrap_or(text.len());
    text[..end].trim_end_matches([' ', ':']).to_owned()
}

/// Maximum length of a reported code or message, in characters.
const CODE_CHARS: usize = 64;
const MESSAGE_CHARS: usize = 200;
/// Length from which runs of characters of keys, tokens and signatures are removed. An access key has 20.
const SECRET_CHARS: usize = 16;

/// `Code (message)` of an error's body, as far as present. A body may hold secrets: the access key, the session token,
/// the signed request.
pub(super) fn code_and_message(body: &str) -> Option<String> {
    let code = element(body, "Code")?;
    let plain = code.len() <= CODE_CHARS && !code.is_empty() && code.bytes().all(|b| b.is_ascii_alphanumeric());
    let code = if plain { code } else { "invalid error code" };
    match element(body, "Message").map(without_secrets) {
        Some(message) if !message.is_empty() => Some(format!("{code} ({message})")),
        _ => Some(code.to_owned()),
    }
}

/// Formats a text as one line, shortened, with long runs of key characters replaced.
pub(super) fn without_secrets(text: &str) -> String {
    let of_key =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '%' | '_' | '-' | '.' | ':' | '~');
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = rest.find(|c| of_key(c) != of_key(first)).unwrap_or(rest.len());
        let (run, later) = rest.split_at(len);
        if of_key(first) && run.len() >= SECRET_CHARS {
            out.push('…');
        } else {
            out.extend(run.chars().map(|c| if c.is_control() { ' ' } else { c }));
        }
        rest = later;
        if out.len() > 4 * MESSAGE_CHARS {
            break;
        }
    }
    let mut short: String = out.chars().take(MESSAGE_CHARS).collect();
    if short.len() < out.len() {
        short.push('…');
    }
    short.trim().to_owned()
}

/// Wait before the first retry; it doubles with each.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// Minimum time of an attempt: a shorter one would give up on a merely slow reply.
const MIN_ATTEMPT: Duration = Duration::from_millis(100);

/// Retry policy of a GET: the time limit of an attempt, and the waits between attempts.
#[derive(Debug)]
pub(super) struct RetryPolicy {
    /// Time limit of all attempts together.
    pub(super) limit: Duration,
    /// Time limit of an attempt, excluding the time for its bytes.
    floor: Duration,
    min_bytes_per_s: u64,
    pub(super) retries: u32,
}

impl RetryPolicy {
    pub(super) fn new(config: &BucketConfig) -> Self {
        Self {
            limit: Duration::from_millis(config.timeout_ms.max(1)),
            floor: Duration::from_millis(config.attempt_ms.max(1)),
            min_bytes_per_s: config.min_bytes_per_s.max(1),
            retries: config.retries,
        }
    }

    /// Time limit of an attempt at `bytes`, with `left` remaining of the whole limit and `retries` still possible. The
    /// limit is the time of the bytes plus `attempt_ms`. While a retry may follow, it is at most half of `left`, so
    /// that a stall leaves time for another attempt. It is never less than the time of the bytes, and never more than
    /// `left`.
    pub(super) fn of_attempt(&self, bytes: u64, left: Duration, retries: u32) -> Duration {
        let transfer = Duration::from_secs_f64(bytes as f64 / self.min_bytes_per_s as f64);
        let share = if retries == 0 || left < 2 * MIN_ATTEMPT {
            left
        } else {
            (left / 2).max(transfer)
        };
        self.floor.saturating_add(transfer).min(share).min(left)
    }

    /// Waits before retries: at most a quarter of the limit, of which a random share of at least half is used.
    pub(super) fn backoff(&self) -> Backoff {
        Backoff::spread(FIRST_BACKOFF, self.limit / 4, 0.5, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Calls itself in a process of its own, with the variables.
    #[test]
    fn an_endpoint_of_the_environment_is_named() {
        let (variables, endpoint) = (["AWS_ENDPOINT_URL_S3", "GOOGLE_BASE_URL"], "http://127.0.0.1:9");
        if variables
            .iter()
            .all(|name| std::env::var(name).as_deref() == Ok(endpoint))
        {
            let urls = ["s3://b", "gs://b"];
            for url in &urls[..1 + usize::from(cfg!(feature = "gcp"))] {
                let keys = format!("url = '{url}'\nanonymous = true\n");
                let bucket = |keys: &str| Bucket::new(&toml::from_str(keys).unwrap());
                let refused = bucket(&keys).unwrap_err();
                assert!(refused.detail().contains("allow_http"), "{refused}");
                let named = bucket(&(keys + "allow_http = true")).unwrap().location();
                assert_eq!(named, format!("{url} at {endpoint}"));
            }
            return;
        }
        let name = "tiers::object::bucket::tests::an_endpoint_of_the_environment_is_named";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child
            .args(["--exact", name])
            .envs(variables.map(|name| (name, endpoint)));
        assert!(child.status().unwrap().success());
    }

    #[test]
    fn missing_credentials_are_named_with_their_variables() {
        for (url, address, variable) in [
            ("s3://b", "169.254.169.254/latest/api/token", "AWS_ACCESS_KEY_ID"),
            (
                "gs://b",
                "metadata.google.internal/token",
                "GOOGLE_APPLICATION_CREDENTIALS",
            ),
        ] {
            let keys = format!("url = '{url}'\nanonymous = true\nallow_http = true\n");
            let bucket = Bucket::new(&toml::from_str(&keys).unwrap()).unwrap();
            let source = format!("error sending request for url (http://{address})").into();
            let failure = object_store::Error::Generic { store: "store", source };
            let error = bucket.error(&Key::from("k"), &failure);
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(error.detail().contains(variable), "{error}");
        }
    }

    #[test]
    fn the_code_is_told_and_no_secret() {
        let body = "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>The request signature we \
            calculated with AKIAIOSFODNN7EXAMPLE does not match</Message><AWSAccessKeyId>AKIAIOSFODNN7EXAMPLE\
            </AWSAccessKeyId><CanonicalRequest>GET\n/b/k\nx-amz-security-token:FwoGZXIvYXdzEXAMPLETOKEN</CanonicalRequest>";
        let text = code_and_message(body).unwrap();
        assert_eq!(
            text,
            "SignatureDoesNotMatch (The request signature we calculated with … does not match)"
        );
        assert_eq!(code_and_message("<html>busy</html>"), None);
        assert_eq!(
            code_and_message("<Code>a b</Code>").as_deref(),
            Some("invalid error code")
        );
    }

    proptest! {
        #[test]
        fn what_is_told_is_short_and_holds_no_long_run(body in ".{0,400}", secret in "[A-Za-z0-9+/=]{16,80}") {
            let body = format!("<Code>X</Code><Message>{body} {secret} </Message>");
            let text = code_and_message(&body).unwrap();
            prop_assert!(text.chars().count() <= CODE_CHARS + MESSAGE_CHARS + 4);
            prop_assert!(!text.contains(&secret));
        }
    }

    fn policy(limit_ms: u64) -> RetryPolicy {
        RetryPolicy {
            limit: Duration::from_millis(limit_ms),
            floor: Duration::from_millis(500),
            min_bytes_per_s: 1_000_000,
            retries: 3,
        }
    }

    fn limit_ms(bytes: u64, left_ms: u64, retries: u32) -> u128 {
        let left = Duration::from_millis(left_ms);
        policy(5000).of_attempt(bytes, left, retries).as_millis()
    }

    #[test]
    fn an_attempt_has_time_for_its_bytes() {
        assert_eq!(limit_ms(0, 5000, 3), 500);
        assert_eq!(limit_ms(2_000_000, 5000, 3), 2500);
        assert_eq!(limit_ms(2_000_000, 3000, 3), 2000);
        assert_eq!(limit_ms(2_000_000, 1000, 3), 1000);
        assert_eq!(limit_ms(u64::MAX, 5000, 3), 5000);
    }

    #[test]
    fn a_short_deadline_is_shared_between_attempts() {
        assert_eq!(limit_ms(512, 600, 3), 300);
        assert_eq!(limit_ms(512, 200, 3), 100);
        // The last attempt may use everything, and the remaining time can be too short to divide.
        assert_eq!(limit_ms(512, 200, 0), 200);
        assert_eq!(limit_ms(512, 150, 3), 150);
        assert_eq!(limit_ms(512, 60, 3), 60);
        assert_eq!(limit_ms(512, 0, 3), 0);
    }

    proptest! {
        #[test]
        fn backoff_grows_and_is_bounded(limit_ms in 1_u64..100_000, nth in 1_u32..40, random: u64) {
            let policy = policy(limit_ms);
            let wait = policy.backoff().wait(nth, random);
            prop_assert!(wait <= policy.limit / 4);
            prop_assert!(wait >= policy.backoff().wait(nth, 0));
            prop_assert!(policy.backoff().wait(nth, u64::MAX) <= policy.backoff().wait(nth + 1, 0).max(policy.limit / 4) * 2);
        }
    }
}
