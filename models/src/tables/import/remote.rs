//! Files in an object store. In: a URL (`s3://bucket/prefix`, `gs://`, `az://`), with keys, region and endpoint from the environment.
//! Out: a listing, and files fetched to disk. Called from a thread that may block.

use super::plan::InputFile;
use crate::error::ModelsError;
use crate::stop::Stop;
use futures::TryStreamExt as _;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Handle;
use url::Url;

/// Schemes of stores.
const SCHEMES: [&str; 6] = ["s3", "s3a", "gs", "az", "abfs", "abfss"];
/// Maximum wait for the next bytes of a store.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum objects below a URL.
const MAX_OBJECTS: usize = 1 << 18;
/// Maximum size of a small object read whole, such as a file of a log.
const MAX_SMALL_BYTES: u64 = 64 << 20;

/// Returns the version of an object: its tag, with or without quotes, or else its modification time.
fn version_of(meta: &ObjectMeta) -> String {
    match &meta.e_tag {
        Some(tag) => tag.trim_start_matches("W/").trim_matches('"').to_owned(),
        None => meta.last_modified.to_rfc3339(),
    }
}

/// Location in a store.
#[derive(Debug)]
pub(super) struct Remote {
    url: String,
    store: Box<dyn ObjectStore>,
    prefix: Key,
    runtime: Handle,
    stop: Stop,
    stall_timeout: Duration,
}

/// Objects below a location, by their names there, each with its bytes and its version. The location's own name is empty.
pub(super) type Objects = BTreeMap<String, (u64, String)>;

impl Remote {
    /// Opens a location without sending a request.
    ///
    /// # Errors
    /// A URL of an unknown store.
    pub(super) fn open(url: &str, stop: &Stop) -> Result<Self, ModelsError> {
        let usage = |what: &dyn std::fmt::Display| ModelsError::Usage(format!("{url}: {what}"));
        let parsed = Url::parse(url).map_err(|e| usage(&e))?;
        if !SCHEMES.contains(&parsed.scheme()) {
            return Err(usage(&"tables are imported from disk, file://, s3://, gs:// and az://"));
        }
        // Keys, region, endpoint and `AWS_ALLOW_HTTP` come from the environment, as for a tier without them.
        let environment_options = std::env::vars_os().filter_map(|(key, value)| {
            let key = key.into_string().ok()?;
            let mut prefixes = ["AWS_", "GOOGLE_", "AZURE_"].into_iter();
            let is_store = prefixes.any(|prefix| key.starts_with(prefix));
            is_store.then_some((key.to_ascii_lowercase(), value.into_string().ok()?))
        });
        // Large objects take long: only the wait for the next bytes is limited.
        let wait = format!("{}s", STALL_TIMEOUT.as_secs());
        let limits = [("timeout", "1 day"), ("read_timeout", wait.as_str())];
        let limits = limits.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let opened = object_store::parse_url_opts(&parsed, environment_options.chain(limits));
        let advice = "endpoint, region, account and keys come from the environment";
        let (store, prefix) = opened.map_err(|e| usage(&format!("{e}; {advice}")))?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            store,
            prefix,
            runtime: Handle::current(),
            stop: stop.clone(),
            stall_timeout: STALL_TIMEOUT,
        })
    }

    /// Waits for a reply of the store, or for a stop.
    async fn wait<T>(
        &self,
        name: &str,
        action: &str,
        response: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, ModelsError> {
        let bad = |what: &dyn std::fmt::Display| ModelsError::bad(&name, &format!("cannot be {action}: {what}"));
        let bounded = async {
            let response = tokio::time::timeout(self.stall_timeout, response).await;
            let response = response.map_err(|_| bad(&format!("no byte came for {:?}", self.stall_timeout)))?;
            response.map_err(|e| bad(&e))
        };
        self.stop.race(bounded).await
    }

    /// Returns the name of an object in messages.
    pub(super) fn display_name(&self, path: &str) -> String {
        match path {
            "" => self.url.clone(),
            path => format!("{}/{path}", self.url),
        }
    }

    fn key(&self, path: &str) -> Key {
        match path {
            "" => self.prefix.clone(),
            path => Key::parse(format!("{}/{path}", self.prefix.as_ref())).unwrap_or_else(|_| Key::from(path)),
        }
    }

    /// Lists all objects.
    pub(super) fn list(&self) -> Result<Objects, ModelsError> {
        let mut objects = Objects::new();
        self.runtime.block_on(async {
            let mut listed = self.store.list(Some(&self.prefix));
            while let Some(meta) = self.wait(&self.url, "listed", listed.try_next()).await? {
                if objects.len() == MAX_OBJECTS {
                    let what = format!("more than {MAX_OBJECTS} objects: name a folder below it");
                    return Err(ModelsError::bad(&self.url, &what));
                }
                let path = meta.location.as_ref().strip_prefix(self.prefix.as_ref());
                let path = path.unwrap_or_default().trim_start_matches('/');
                objects.insert(path.to_owned(), (meta.size, version_of(&meta)));
            }
            if objects.is_empty() {
                let meta = self.wait(&self.url, "listed", self.store.head(&self.prefix)).await?;
                objects.insert(String::new(), (meta.size, version_of(&meta)));
            }
            Ok(())
        })?;
        Ok(objects)
    }

    /// Reads a small object completely.
    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, ModelsError> {
        let name = self.display_name(path);
        self.runtime.block_on(async {
            let object = self.wait(&name, "read", self.store.get(&self.key(path))).await?;
            if object.meta.size > MAX_SMALL_BYTES {
                return Err(ModelsError::bad(&name, &"it is larger than 64 MiB"));
            }
            Ok(self.wait(&name, "read", object.bytes()).await?.to_vec())
        })
    }

    /// Writes an object to a file, piece by piece.
    ///
    /// # Errors
    /// An object that differs from the listed one, an error of the store, a full disk.
    pub(super) fn fetch(&self, path: &str, to: &Path, listed: &InputFile) -> Result<(), ModelsError> {
        let name = self.display_name(path);
        let mut file = File::create(to).map_err(ModelsError::io("create", to))?;
        self.runtime.block_on(async {
            let object = self.wait(&name, "read", self.store.get(&self.key(path))).await?;
            if (object.meta.size, version_of(&object.meta)) != (listed.bytes, listed.version.clone()) {
                let what = "the object changed after it was listed: start over with --restart once it is complete";
                return Err(ModelsError::bad(&name, &what));
            }
            let mut pieces = object.into_stream();
            while let Some(piece) = self.wait(&name, "read", pieces.try_next()).await? {
                file.write_all(&piece).map_err(ModelsError::io("write", to))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::aws::AmazonS3Builder;
    use std::io::{BufRead as _, BufReader};
    use std::net::{TcpListener, TcpStream};

    /// Starts a store that answers every request by a function of the request's number.
    fn store(response: impl Fn(usize, TcpStream) + Send + 'static) -> Box<dyn ObjectStore> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let stream = stream.unwrap();
                let mut lines = BufReader::new(&stream).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                response(number, stream);
            }
        });
        let builder = AmazonS3Builder::new()
            .with_bucket_name("b")
            .with_endpoint(endpoint)
            .with_skip_signature(true)
            .with_allow_http(true);
        Box::new(builder.build().unwrap())
    }

    fn remote(store: Box<dyn ObjectStore>, runtime: &tokio::runtime::Runtime, stop: Stop) -> Remote {
        Remote {
            url: "s3://b/p".to_owned(),
            store,
            prefix: Key::from("p"),
            runtime: runtime.handle().clone(),
            stop,
            stall_timeout: Duration::from_millis(300),
        }
    }

    #[test]
    fn a_listing_without_end_is_refused() {
        let page = |number: usize| {
            let key = |at: usize| {
                format!(
                    "<Contents><Key>p/{number}-{at}</Key><LastModified>2024-01-01T00:00:00Z</LastModified><Size>1</Size></Contents>"
                )
            };
            let keys: String = (0..20_000).map(key).collect();
            format!(
                "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{number}</NextContinuationToken>{keys}</ListBucketResult>"
            )
        };
        let store = store(move |number, mut stream| {
            let page = page(number);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                page.len()
            );
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(page.as_bytes()));
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut remote = remote(store, &runtime, Stop::never());
        remote.stall_timeout = STALL_TIMEOUT;
        let error = remote.list().unwrap_err().to_string();
        assert!(error.contains("more than 262144 objects"), "{error}");
    }

    #[test]
    fn a_body_that_stalls_is_named_and_a_stop_ends_the_wait() {
        let store = || {
            store(|_, mut stream| {
                let head =
                    "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nlast-modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\nabc";
                let _ = stream.write_all(head.as_bytes());
                // The connection stays open.
                std::mem::forget(stream);
            })
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let error = remote(store(), &runtime, Stop::never())
            .read("x")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("s3://b/p/x") && error.contains("no byte came for"),
            "{error}"
        );
        let stop = Stop::default();
        stop.stop();
        let mut stopped = remote(store(), &runtime, stop);
        stopped.stall_timeout = Duration::from_secs(3600);
        assert!(matches!(stopped.read("x"), Err(ModelsError::Interrupted)));
    }
}
