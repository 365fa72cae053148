//! The model repository on the model tier: what models there are, and everything of one model, checked.
//!
//! In: a tier. Out: a model's config and graph, or an error that names the object. Knows nothing of sessions.
//! Layout: `models/NAME/[config.toml]`, `models/NAME/[manifest.json]`, `models/NAME/VERSION/model.onnx`, and beside the
//! graph the files of its external weights.

use crate::runtime::Graph;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::model::{
    CONFIG_FILE, MANIFEST_FILE, MODEL_FILE, MODELS_PREFIX, Manifest, ModelConfig, is_plain_name,
};
use tierlab_storage::{Object, ObjectPath, StorageError, Tier};

/// A model that cannot be loaded; the message names the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LoadError(pub(crate) String);

impl LoadError {
    pub(crate) fn at(object: impl std::fmt::Display, what: impl std::fmt::Display) -> Self {
        Self(format!("{object}: {what}"))
    }
}

impl From<StorageError> for LoadError {
    fn from(error: StorageError) -> Self {
        Self(error.to_string())
    }
}

/// The objects of every model on the tier, by model.
pub(crate) type Listing = BTreeMap<String, Vec<Object>>;

/// Everything of one model, as read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// The version read: the highest there is.
    pub(crate) version: String,
    pub(crate) config: ModelConfig,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) graph: Graph,
    /// The graph's path on the tier.
    pub(crate) object: ObjectPath,
    pub(crate) read_time: Duration,
}

/// Lists the models. Folders whose names are no plain names are passed over with a warning.
pub(crate) async fn list(tier: &dyn Tier) -> Result<Listing, LoadError> {
    let prefix = ObjectPath::new(MODELS_PREFIX)?;
    let mut models = Listing::new();
    for object in tier.list(Some(&prefix)).await? {
        let Some(name) = object
            .path
            .segments()
            .nth(1)
            .filter(|_| object.path.segments().count() > 2)
        else {
            continue;
        };
        if is_plain_name(name) {
            models.entry(name.to_owned()).or_default().push(object);
        } else {
            tracing::warn!(object = %object.path, "passed over: the model's name is no plain name");
        }
    }
    Ok(models)
}

/// Reads the highest version of a model and checks it against its manifest.
pub(crate) async fn read(tier: &dyn Tier, name: &str, objects: &[Object]) -> Result<Found, LoadError> {
    let began = Instant::now();
    let files = Files {
        folder: format!("{MODELS_PREFIX}/{name}"),
        objects,
    };
    let version = files.highest_version()?;
    let manifest = match files.find(MANIFEST_FILE) {
        Some(object) => {
            let manifest = Manifest::parse(&read_whole(tier, object).await?);
            Some(manifest.map_err(|e| LoadError::at(&object.path, e))?)
        }
        None => None,
    };
    if let Some(manifest) = &manifest {
        files.check_manifest(manifest, name, version)?;
    }
    let config = match files.find(CONFIG_FILE) {
        Some(object) => {
            let bytes = read_checked(tier, object, CONFIG_FILE, manifest.as_ref()).await?;
            let text = std::str::from_utf8(&bytes).map_err(|e| LoadError::at(&object.path, e))?;
            ModelConfig::parse(text).map_err(|e| LoadError::at(&object.path, e))?
        }
        None => ModelConfig::default(),
    };
    let mut onnx = None;
    let mut external = Vec::new();
    for object in objects {
        let Some(file) = files.in_version(object, version) else {
            continue;
        };
        let bytes = read_checked(tier, object, &format!("{version}/{file}"), manifest.as_ref()).await?;
        if file == MODEL_FILE {
            onnx = Some((bytes, object.path.clone()));
        } else {
            external.push((file.to_owned(), Arc::from(&bytes[..])));
        }
    }
    let (onnx, object) = onnx.ok_or_else(|| LoadError::at(&files.folder, format!("no {version}/{MODEL_FILE}")))?;
    Ok(Found {
        name: name.to_owned(),
        version: version.to_string(),
        config,
        manifest,
        graph: Graph { onnx, external },
        object,
        read_time: began.elapsed(),
    })
}

/// The objects of one model.
struct Files<'a> {
    /// `models/NAME`.
    folder: String,
    objects: &'a [Object],
}

impl Files<'_> {
    fn relative<'o>(&self, object: &'o Object) -> Option<&'o str> {
        object.path.as_str().strip_prefix(&self.folder)?.strip_prefix('/')
    }

    fn find(&self, file: &str) -> Option<&Object> {
        self.objects.iter().find(|object| self.relative(object) == Some(file))
    }

    /// The path of an object below the folder of a version.
    fn in_version<'o>(&self, object: &'o Object, version: u64) -> Option<&'o str> {
        let (folder, file) = self.relative(object)?.split_once('/')?;
        (folder.parse() == Ok(version)).then_some(file)
    }

    fn highest_version(&self) -> Result<u64, LoadError> {
        let versions = self.objects.iter().filter_map(|object| {
            let (version, file) = self.relative(object)?.split_once('/')?;
            (file == MODEL_FILE && !version.starts_with('0')).then(|| version.parse::<u64>().ok())?
        });
        let highest = versions.max();
        highest.ok_or_else(|| {
            LoadError::at(
                &self.folder,
                format!("no VERSION/{MODEL_FILE} with a number as VERSION"),
            )
        })
    }

    /// Everything that the manifest lists must be there, and the graph must be listed.
    fn check_manifest(&self, manifest: &Manifest, name: &str, version: u64) -> Result<(), LoadError> {
        let at = format!("{}/{MANIFEST_FILE}", self.folder);
        if manifest.name != name {
            return Err(LoadError::at(at, format!("it is the manifest of `{}`", manifest.name)));
        }
        for file in &manifest.files {
            if self.find(&file.path).is_none() {
                return Err(LoadError::at(
                    format!("{}/{}", self.folder, file.path),
                    "listed in the manifest, missing",
                ));
            }
        }
        let graph = format!("{version}/{MODEL_FILE}");
        if !manifest.files.iter().any(|file| file.path == graph) {
            return Err(LoadError::at(at, format!("it does not list {graph}")));
        }
        Ok(())
    }
}

async fn read_whole(tier: &dyn Tier, object: &Object) -> Result<Bytes, LoadError> {
    // Listed a moment ago; looked up again because a listing need not carry the version that reads go against.
    let object = tier.stat(&object.path).await?;
    Ok(tier.read(&object, 0..object.size).await?.bytes)
}

/// Reads an object and compares it with what the manifest says of it, where it says anything.
async fn read_checked(
    tier: &dyn Tier,
    object: &Object,
    file: &str,
    manifest: Option<&Manifest>,
) -> Result<Bytes, LoadError> {
    let bytes = read_whole(tier, object).await?;
    let Some(entry) = manifest.and_then(|manifest| manifest.files.iter().find(|entry| entry.path == file)) else {
        return Ok(bytes);
    };
    if entry.bytes != bytes.len() as u64 {
        let what = format!(
            "{} bytes, the manifest says {}: truncated or overwritten",
            bytes.len(),
            entry.bytes
        );
        return Err(LoadError::at(&object.path, what));
    }
    let sum = hex::encode(Sha256::digest(&bytes));
    if sum != entry.sha256 {
        let what = format!(
            "its sha256 is {sum}, the manifest says {}: corrupt or overwritten",
            entry.sha256
        );
        return Err(LoadError::at(&object.path, what));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_protocol::model::ManifestFile;
    use tierlab_storage::TierConfig;

    async fn tier(files: &[(&str, &[u8])]) -> Arc<dyn Tier> {
        let tier = tierlab_storage::open(&TierConfig::Memory { root: None }).await.unwrap();
        for (path, bytes) in files {
            let path = ObjectPath::new(path).unwrap();
            tier.put(&path, Bytes::copy_from_slice(bytes).into()).await.unwrap();
        }
        tier
    }

    async fn read_model(files: &[(&str, &[u8])], name: &str) -> Result<Found, LoadError> {
        let tier = tier(files).await;
        let models = list(&*tier).await.unwrap();
        read(&*tier, name, &models[name]).await
    }

    fn manifest(graph: &[u8]) -> Vec<u8> {
        let file = ManifestFile {
            path: "1/model.onnx".into(),
            bytes: graph.len() as u64,
            sha256: hex::encode(Sha256::digest(graph)),
        };
        let manifest = Manifest {
            schema_version: Manifest::SCHEMA_VERSION,
            name: "m".into(),
            generator: "test".into(),
            seed: None,
            inputs: vec![],
            outputs: vec![],
            files: vec![file],
        };
        serde_json::to_vec(&manifest).unwrap()
    }

    #[tokio::test]
    async fn a_folder_with_only_a_graph_is_enough_and_the_highest_version_is_read() {
        let files: &[(&str, &[u8])] = &[
            ("models/m/2/model.onnx", b"two"),
            ("models/m/10/model.onnx", b"ten"),
            ("models/m/10/weights.data", b"w"),
            ("models/m/11/notes.txt", b"no graph"),
            ("models/stray.txt", b"no model"),
            ("models/bad name/1/model.onnx", b"passed over"),
            ("features/t.rows", b"no model"),
        ];
        let tier = tier(files).await;
        let models = list(&*tier).await.unwrap();
        assert_eq!(models.keys().collect::<Vec<_>>(), ["m"]);
        let found = read(&*tier, "m", &models["m"]).await.unwrap();
        assert_eq!((found.version.as_str(), &found.graph.onnx[..]), ("10", &b"ten"[..]));
        assert_eq!(found.graph.external.len(), 1);
        assert_eq!(found.config, ModelConfig::default());
    }

    #[tokio::test]
    async fn what_is_broken_is_refused_by_object() {
        let whole = manifest(b"graph");
        for (files, named) in [
            (
                vec![("models/m/x/model.onnx", &b"graph"[..])],
                "models/m: no VERSION/model.onnx",
            ),
            (
                vec![("models/m/1/model.onnx", b"graph"), ("models/m/config.toml", b"a = 1")],
                "models/m/config.toml",
            ),
            (
                vec![("models/m/1/model.onnx", b"grap"), ("models/m/manifest.json", &whole)],
                "models/m/1/model.onnx",
            ),
            (
                vec![("models/m/1/model.onnx", b"Graph"), ("models/m/manifest.json", &whole)],
                "sha256",
            ),
            (
                vec![("models/m/1/model.onnx", b"graph"), ("models/m/manifest.json", b"{")],
                "models/m/manifest.json",
            ),
            (
                vec![("models/m/2/model.onnx", b"graph"), ("models/m/manifest.json", &whole)],
                "models/m/1/model.onnx: listed in the manifest, missing",
            ),
        ] {
            let error = read_model(&files, "m").await.unwrap_err().to_string();
            assert!(error.contains(named), "{error}\n should name {named}");
        }
        let good: &[(&str, &[u8])] = &[("models/m/1/model.onnx", b"graph"), ("models/m/manifest.json", &whole)];
        assert_eq!(read_model(good, "m").await.unwrap().version, "1");
    }
}
