//! Model repository on the model tier: its models, and all files of a version, verified.
//!
//! In: a tier. Out: a model's config and a version's graph, or an error that names the object. Runs nothing: the
//! samples of a version's warm-up are passed on with their files. Layout: `models/NAME/[config.toml or config.pbtxt]`,
//! `models/NAME/[manifest.json]`, `models/NAME/VERSION/model.onnx`, and beside the graph the files of its external
//! weights.

mod fetch;

use crate::error::LoadError;
use crate::inference::runtime::{Graph, MappedWeights};
use crate::inference::session::open::Warmup;
use anyhow::{Result, bail};
use bytes::Bytes;
use fetch::{WeightFile, read_bytes, read_text};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use tierlab_formats::model::{
    CONFIG_FILE, MANIFEST_FILE, MODEL_FILE, MODELS_PREFIX, Manifest, ManifestFile, ModelConfig, TRITON_CONFIG_FILE,
    WARMUP_FOLDER, WarmupData, is_plain_name,
};
use tierlab_formats::onnx::messages::{GraphProto, ValueInfoProto};
use tierlab_formats::onnx::{self, External, ExternalFile};
use tierlab_formats::pbtxt::model::model_config;
use tierlab_protocol::metadata::LoadSeconds;
use tierlab_storage::{Object, ObjectPath, Tier};

/// Description of a model, from its folder.
#[derive(Debug)]
pub(crate) struct ModelDescription {
    pub(crate) name: String,
    pub(crate) config: ModelConfig,
    /// Versions to serve, by the config's policy.
    pub(crate) versions: BTreeSet<u64>,
    pub(crate) manifest: Option<Manifest>,
    files: ModelFiles,
}

/// Names of classes in order, by output.
pub(crate) type Labels = BTreeMap<String, Vec<Box<str>>>;

/// Maximum names of an output's classes.
const MAX_LABELS: usize = 1 << 20;

/// All files of a version, as read.
#[derive(Debug)]
pub(crate) struct VersionFiles {
    pub(crate) version: u64,
    /// True if the manifest has an entry of this version.
    pub(crate) verified: bool,
    pub(crate) graph: Graph,
    pub(crate) warmup: Warmup,
    pub(crate) labels: Labels,
    /// Path of the graph on the tier.
    pub(crate) object: ObjectPath,
    /// Time of reading, verifying and placing the files.
    pub(crate) seconds: LoadSeconds,
}

/// Reads a model's config, overlays the server's own keys, reads its manifest, and chooses the versions to serve.
pub(crate) async fn describe(
    tier: &dyn Tier,
    name: &str,
    objects: &[Object],
    overrides: Option<&toml::Table>,
) -> Result<ModelDescription, LoadError> {
    let files = ModelFiles {
        folder: format!("{MODELS_PREFIX}/{name}"),
        objects: objects.to_vec(),
    };
    let available = files.versions()?;
    let manifest = match files.find(MANIFEST_FILE) {
        Some(object) => {
            let manifest = Manifest::parse(&read_text(tier, object, None).await?);
            Some(manifest.map_err(|e| LoadError::at(&object.path, e))?)
        }
        None => None,
    };
    if let Some(manifest) = manifest.as_ref().filter(|manifest| manifest.name != name) {
        let at = format!("{}/{MANIFEST_FILE}", files.folder);
        let message = format!("manifest of another model: `{}`", manifest.name);
        return Err(LoadError::at(at, message));
    }
    let mut config = read_config(tier, &files, manifest.as_ref()).await?;
    if let Some(keys) = overrides {
        let folder = &files.folder;
        let at = format!("{folder}, with `model_config.{name}` of the server over its config");
        config = config.with(keys).map_err(|e| LoadError::at(at, e))?;
    }
    Ok(ModelDescription {
        name: name.to_owned(),
        versions: config.version_policy.choose(&available),
        config,
        manifest,
        files,
    })
}

/// Reads a model's config: `config.toml`, Triton's `config.pbtxt`, or the defaults.
async fn read_config(tier: &dyn Tier, files: &ModelFiles, listed: Option<&Manifest>) -> Result<ModelConfig, LoadError> {
    let (object, triton) = match (files.find(CONFIG_FILE), files.find(TRITON_CONFIG_FILE)) {
        (None, None) => return Ok(ModelConfig::default()),
        (Some(object), None) => (object, false),
        (None, Some(object)) => (object, true),
        (Some(_), Some(object)) => {
            let message = format!("{CONFIG_FILE} exists too: keep only one of them");
            return Err(LoadError::at(&object.path, message));
        }
    };
    let sum = listed.and_then(|manifest| entry(manifest, if triton { TRITON_CONFIG_FILE } else { CONFIG_FILE }));
    let bytes = read_text(tier, object, sum).await?;
    let text = std::str::from_utf8(&bytes).map_err(|e| LoadError::at(&object.path, e))?;
    let config = if triton {
        let folder = object.path.segments().nth(1).unwrap_or_default();
        model_config(text, folder)
    } else {
        ModelConfig::parse(text)
    };
    config.map_err(|e| LoadError::at(&object.path, e))
}

/// Returns the files of large weights that a graph refers to, each a path that stays in the version's folder. Weights in the
/// graph are not copied.
///
/// # Errors
/// Fails if the bytes are not an ONNX model, if an input has no shape, or if a path leaves the folder.
pub(crate) fn external(onnx: Bytes) -> Result<External> {
    let model = onnx::decode(onnx)?;
    model.graph.as_ref().map_or(Ok(()), check_inputs)?;
    onnx::external(onnx::inference_tensors(&model), |path| ObjectPath::new(path).is_ok())
}

/// Refuses an input of unknown rank: ONNX Runtime reports it as a scalar, and would be sent nothing else.
fn check_inputs(graph: &GraphProto) -> Result<()> {
    let is_weight = |name: &str| graph.initializer.iter().any(|tensor| tensor.name == name);
    let is_shapeless = |input: &&ValueInfoProto| {
        let tensor = input.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
        tensor.is_some_and(|tensor| tensor.shape.is_none()) && !is_weight(&input.name)
    };
    if let Some(ValueInfoProto { name, .. }) = graph.input.iter().find(is_shapeless) {
        bail!("input `{name}` has no shape in the file: export the model with the number of its dimensions");
    }
    Ok(())
}

fn entry<'a>(manifest: &'a Manifest, file: &str) -> Option<&'a ManifestFile> {
    manifest.files.iter().find(|entry| entry.path == file)
}

impl ModelDescription {
    /// Fingerprint of a version's files: if it is equal, loading again would give the same result.
    pub(crate) fn fingerprint(&self, version: u64) -> String {
        let mut sum = Sha256::new();
        for object in &self.files.objects {
            let file = self.files.relative(object).unwrap_or_default();
            let other = version_of(file).is_some_and(|number| number != version);
            if !other && file != MANIFEST_FILE {
                sum.update(format!("{file}\n{}\n{}\n", object.size, object.version));
            }
        }
        for listed in self.listed(version) {
            sum.update(format!("{}\n{}\n", listed.path, listed.sha256));
        }
        hex::encode(sum.finalize())
    }

    /// Files that the manifest lists below a version's folder.
    fn listed(&self, version: u64) -> impl Iterator<Item = &ManifestFile> {
        let files = self.manifest.iter().flat_map(|manifest| &manifest.files);
        files.filter(move |file| version_of(&file.path) == Some(version))
    }

    /// Reads one version and checks it against the manifest.
    pub(crate) async fn read(
        &self,
        tier: &dyn Tier,
        version: u64,
        mapped: &MappedWeights,
    ) -> Result<VersionFiles, LoadError> {
        let files = &self.files;
        let graph_file = format!("{version}/{MODEL_FILE}");
        let object = files
            .find(&graph_file)
            .ok_or_else(|| LoadError::at(&files.folder, format!("missing {graph_file}")))?;
        for listed in self.listed(version) {
            if files.find(&listed.path).is_none() {
                let at = format!("{}/{}", files.folder, listed.path);
                return Err(LoadError::at(at, "listed in the manifest, but missing"));
            }
        }
        let verified = self.listed(version).next().is_some();
        if self.manifest.is_some() && !verified {
            tracing::warn!(model = %self.name, version, "version not in the manifest: serving it unverified");
        }
        let mut seconds = LoadSeconds::default();
        let sum = self.sum_of(&graph_file, verified)?;
        let onnx = read_bytes(tier, object, sum, &mut seconds).await?;
        let wanted = external(onnx.clone()).map_err(|message| LoadError::at(&object.path, message))?;
        let files = self.weight_files(object, version, &wanted.files, verified)?;
        let weights = match mapped.applies_to(wanted.largest_tensor) {
            true => fetch::to_disk(tier, &files, object, &onnx, mapped, &mut seconds).await?,
            false => fetch::to_memory(tier, &files, &mut seconds).await?,
        };
        Ok(VersionFiles {
            warmup: self.read_warmup(tier, &mut seconds).await?,
            labels: self.read_labels(tier).await?,
            version,
            verified,
            graph: Graph {
                name: format!("{}/{version}", self.name).into(),
                onnx,
                weights,
            },
            object: object.path.clone(),
            seconds,
        })
    }

    /// Finds the files that a graph refers to, with their checksums. Files that are too short are refused before any is
    /// read.
    fn weight_files<'a>(
        &'a self,
        graph: &Object,
        version: u64,
        wanted: &BTreeMap<String, ExternalFile>,
        verified: bool,
    ) -> Result<Vec<WeightFile<'a>>, LoadError> {
        let find = |(name, file): (&String, &ExternalFile)| {
            let path = format!("{version}/{}", file.path);
            let missing = || {
                let message = format!("its weights `{name}` are missing from the version's folder");
                LoadError::at(&graph.path, message)
            };
            let object = self.files.find(&path).ok_or_else(missing)?;
            let sum = self.sum_of(&path, verified)?;
            // The manifest's checksum is verified when the file is read, and covers more.
            if sum.is_none() {
                file.check(&file.path, object.size)
                    .map_err(|message| LoadError::at(&graph.path, message))?;
            }
            Ok(WeightFile {
                object,
                sum,
                name: name.clone(),
            })
        };
        wanted.iter().map(find).collect()
    }

    /// Reads the warm-up samples, with their files.
    async fn read_warmup(&self, tier: &dyn Tier, seconds: &mut LoadSeconds) -> Result<Warmup, LoadError> {
        let mut warmup = Warmup {
            samples: self.config.graph_warmup(),
            files: BTreeMap::new(),
        };
        let inputs = self.config.warmup.iter().flat_map(|sample| sample.inputs.values());
        for input in inputs {
            if let WarmupData::File(name) = &input.data
                && !warmup.files.contains_key(name)
            {
                let (object, sum) = self.file(&format!("{WARMUP_FOLDER}/{name}"), "a warm-up sample")?;
                let bytes = read_bytes(tier, object, sum, seconds).await?;
                warmup.files.insert(name.clone(), bytes);
            }
        }
        Ok(warmup)
    }

    /// Reads the names of classes of all outputs that have a file of them.
    async fn read_labels(&self, tier: &dyn Tier) -> Result<Labels, LoadError> {
        let mut labels = Labels::new();
        for output in &self.config.outputs {
            let Some(file) = &output.labels else { continue };
            let named_by = format!("`labels` (`label_filename`) of output `{}`", output.name);
            let (object, sum) = self.file(file, &named_by)?;
            let bytes = read_text(tier, object, sum).await?;
            let text = std::str::from_utf8(&bytes).map_err(|e| LoadError::at(&object.path, e))?;
            // A mark of the byte order is not part of the first name.
            let lines = text.trim_start_matches('\u{feff}').lines();
            let lines: Vec<Box<str>> = lines.take(MAX_LABELS + 1).map(Box::from).collect();
            if lines.len() > MAX_LABELS {
                let message = format!("{named_by} exceeds {MAX_LABELS} lines");
                return Err(LoadError::at(&object.path, message));
            }
            labels.insert(output.name.clone(), lines);
        }
        Ok(labels)
    }

    /// Finds a file that the config names, and its checksum if the manifest lists it.
    fn file(&self, path: &str, named_by: &str) -> Result<(&Object, Option<&ManifestFile>), LoadError> {
        let missing = || {
            let at = format!("{}/{path}", self.files.folder);
            LoadError::at(at, format!("{named_by} requires it, but it is missing"))
        };
        let object = self.files.find(path).ok_or_else(missing)?;
        Ok((object, self.listing(path)))
    }

    /// Manifest entry of a file.
    fn listing(&self, file: &str) -> Option<&ManifestFile> {
        self.manifest.as_ref().and_then(|manifest| entry(manifest, file))
    }

    /// Checksum of a file. If the manifest has the version, every file that is used must be listed.
    fn sum_of(&self, file: &str, verified: bool) -> Result<Option<&ManifestFile>, LoadError> {
        let sum = self.listing(file);
        if verified && sum.is_none() {
            let at = format!("{}/{MANIFEST_FILE}", self.files.folder);
            return Err(LoadError::at(at, format!("missing entry for {file}")));
        }
        Ok(sum)
    }
}

/// Version in whose folder a file of a model is.
fn version_of(file: &str) -> Option<u64> {
    file.split_once('/')?.0.parse().ok()
}

/// Objects of a model.
#[derive(Debug)]
struct ModelFiles {
    /// `models/NAME`.
    folder: String,
    objects: Vec<Object>,
}

impl ModelFiles {
    fn relative<'o>(&self, object: &'o Object) -> Option<&'o str> {
        object.path.as_str().strip_prefix(&self.folder)?.strip_prefix('/')
    }

    fn find(&self, file: &str) -> Option<&Object> {
        self.objects.iter().find(|object| self.relative(object) == Some(file))
    }

    /// Versions that have a graph.
    fn versions(&self) -> Result<BTreeSet<u64>, LoadError> {
        let versions = self.objects.iter().filter_map(|object| {
            let (version, file) = self.relative(object)?.split_once('/')?;
            (file == MODEL_FILE && !version.starts_with(['0', '+'])).then(|| version.parse::<u64>().ok())?
        });
        let versions: BTreeSet<u64> = versions.collect();
        if versions.is_empty() {
            let message = format!("missing VERSION/{MODEL_FILE} with a number from 1 as VERSION");
            return Err(LoadError::at(&self.folder, message));
        }
        Ok(versions)
    }
}

/// Objects of every model on the tier, by model.
pub(crate) type Listing = BTreeMap<String, Vec<Object>>;

/// Lists the models, or one of them; an unknown name gives an empty listing. Folders with invalid names are skipped
/// with a warning.
pub(crate) async fn list(tier: &dyn Tier, model: Option<&str>) -> Result<Listing, LoadError> {
    let prefix = match model {
        None => ObjectPath::new(MODELS_PREFIX)?,
        Some(name) if is_plain_name(name) => ObjectPath::new(&format!("{MODELS_PREFIX}/{name}"))?,
        Some(_) => return Ok(Listing::new()),
    };
    let mut models = Listing::new();
    for object in tier.list(Some(&prefix)).await? {
        let [Some(name), Some(_)] = [1, 2].map(|at| object.path.segments().nth(at)) else {
            continue;
        };
        if is_plain_name(name) {
            models.entry(name.to_owned()).or_default().push(object);
        } else {
            tracing::warn!(object = %object.path, "skipped: invalid model name");
        }
    }
    Ok(models)
}

#[cfg(test)]
mod tests;
