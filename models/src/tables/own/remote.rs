//! Files in an object store. In: a URL (`s3://bucket/prefix`), and what the environment has of keys, region and endpoint. Out: what lies there, and
//! files fetched to disk. Called from a thread that may wait.

use super::plan::InputFile;
use crate::error::ModelsError;
use futures::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use tokio::runtime::Handle;

/// A small object read whole at most: a file of a log.
const MAX_SMALL_BYTES: u64 = 64 << 20;

/// The version of an object: its tag, which listings and replies may quote or not, or else when it was written.
fn version_of(meta: &ObjectMeta) -> String {
    match &meta.e_tag {
        Some(tag) => tag.trim_start_matches("W/").trim_matches('"').to_owned(),
        None => meta.last_modified.to_rfc3339(),
    }
}

/// A place in a store.
#[derive(Debug)]
pub(super) struct Remote {
    url: String,
    store: Box<dyn ObjectStore>,
    prefix: Key,
    runtime: Handle,
}

/// An object below it.
#[derive(Debug, Clone)]
pub(super) struct RemoteObject {
    /// Its name below the URL; empty for the object that the URL names.
    pub(super) below: String,
    pub(super) bytes: u64,
    pub(super) version: String,
}

impl Remote {
    /// Sends nothing.
    ///
    /// # Errors
    /// A URL of a store that is not known here.
    pub(super) fn open(url: &str) -> Result<Self, ModelsError> {
        let rest = url.strip_prefix("s3://").or_else(|| url.strip_prefix("s3a://"));
        let Some((bucket, prefix)) = rest.map(|rest| rest.split_once('/').unwrap_or((rest, ""))) else {
            let what = "tables are imported from disk, file:// and s3://; other stores are read through an S3-compatible endpoint";
            return Err(ModelsError::Usage(format!("{url}: {what} (AWS_ENDPOINT)")));
        };
        // Keys, region, endpoint and `AWS_ALLOW_HTTP` are the environment's, as with an S3 tier without them.
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .build()
            .map_err(|e| {
                ModelsError::Usage(format!(
                    "{url}: {e}; AWS_ENDPOINT, AWS_REGION and keys come from the environment"
                ))
            })?;
        let prefix = Key::parse(prefix.trim_end_matches('/')).map_err(|e| ModelsError::Usage(format!("{url}: {e}")))?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            store: Box::new(store),
            prefix,
            runtime: Handle::current(),
        })
    }

    /// As an object is named in messages.
    pub(super) fn name_of(&self, below: &str) -> String {
        match below {
            "" => self.url.clone(),
            below => format!("{}/{below}", self.url),
        }
    }

    fn key(&self, below: &str) -> Key {
        match below {
            "" => self.prefix.clone(),
            below => Key::parse(format!("{}/{below}", self.prefix.as_ref())).unwrap_or_else(|_| Key::from(below)),
        }
    }

    /// All objects there, by name.
    pub(super) fn list(&self) -> Result<Vec<RemoteObject>, ModelsError> {
        let bad = |e: object_store::Error| ModelsError::bad(&self.url, &format!("cannot be listed: {e}"));
        let mut objects: Vec<RemoteObject> = self.runtime.block_on(async {
            let below = self.store.list(Some(&self.prefix)).map_ok(|meta| RemoteObject {
                below: meta
                    .location
                    .as_ref()
                    .strip_prefix(self.prefix.as_ref())
                    .unwrap_or_default()
                    .trim_start_matches('/')
                    .to_owned(),
                bytes: meta.size,
                version: version_of(&meta),
            });
            below.try_collect().await.map_err(bad)
        })?;
        if objects.is_empty() {
            let meta = self.runtime.block_on(self.store.head(&self.prefix)).map_err(bad)?;
            objects.push(RemoteObject {
                below: String::new(),
                bytes: meta.size,
                version: version_of(&meta),
            });
        }
        objects.sort_by(|a, b| a.below.cmp(&b.below));
        Ok(objects)
    }

    /// A small object whole.
    pub(super) fn read(&self, below: &str) -> Result<Vec<u8>, ModelsError> {
        let name = self.name_of(below);
        let bad = |e: object_store::Error| ModelsError::bad(&name, &format!("cannot be read: {e}"));
        self.runtime.block_on(async {
            let got = self.store.get(&self.key(below)).await.map_err(bad)?;
            if got.meta.size > MAX_SMALL_BYTES {
                return Err(ModelsError::bad(&name, &"it is larger than 64 MiB"));
            }
            Ok(got.bytes().await.map_err(bad)?.to_vec())
        })
    }

    /// Writes an object to a file, piece by piece.
    ///
    /// # Errors
    /// An object that is not the one that was listed, whatever the store says, a full disk.
    pub(super) fn fetch(&self, below: &str, to: &Path, listed: &InputFile) -> Result<(), ModelsError> {
        let name = self.name_of(below);
        let bad = |e: object_store::Error| ModelsError::bad(&name, &format!("cannot be read: {e}"));
        let mut file = File::create(to).map_err(ModelsError::io("create", to))?;
        self.runtime.block_on(async {
            let got = self.store.get(&self.key(below)).await.map_err(bad)?;
            if (got.meta.size, version_of(&got.meta)) != (listed.bytes, listed.version.clone()) {
                let what = "it was written since it was listed: begin anew with --restart once it is whole";
                return Err(ModelsError::bad(&name, &what));
            }
            let mut pieces = got.into_stream();
            while let Some(piece) = pieces.try_next().await.map_err(bad)? {
                file.write_all(&piece).map_err(ModelsError::io("write", to))?;
            }
            Ok(())
        })
    }
}
