//! Imports a user's ONNX model, with its external weights, into the repository: reads the graph, tries it as the server
//! would load it, computes checksums, and swaps the folder in atomically.

pub mod independence;
mod runtime;
mod trial;

pub use runtime::{load as load_onnxruntime, value as session_value};

use crate::error::ModelsError;
use crate::onnx::{Interface, ModelProto, external_files};
use crate::repository::{self, VERSION};
use crate::staged::{sync_folder, write_atomically};
use crate::stop::Stop;
use bytes::Bytes;
use clap::Args;
use independence::{Verdict, test_rows};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tierlab_formats::model::{
    CONFIG_FILE, MODEL_FILE, Manifest, ManifestFile, ModelConfig, TRITON_CONFIG_FILE, WARMUP_FOLDER, WarmupData,
    is_plain_name,
};
use tierlab_formats::onnx::{External, ExternalFile, Placeholder, decode};
use tierlab_formats::pbtxt::model::model_config;
use tierlab_storage::ObjectPath;

/// Request of an import: arguments of `import`.
#[derive(Debug, Clone, Default, Args)]
pub struct Import {
    /// ONNX file; its external weights must be beside it
    #[arg(value_name = "FILE")]
    pub model: PathBuf,
    /// Name in the repository [default: the file's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Config of the model, config.toml or Triton's config.pbtxt; warm-up samples are read from warmup/ beside it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve it in batches of at most MAX rows, if a test shows that its rows are independent [default MAX: 32]
    #[arg(
        long, value_name = "MAX", num_args = 0..=1, require_equals = true, default_missing_value = "32",
        conflicts_with = "config", value_parser = clap::value_parser!(u32).range(2..=1_000_000)
    )]
    pub batching: Option<u32>,
    /// ONNX Runtime's library or its folder [default: the library packaged with the program or in its Python
    /// environment, else the one fetched by `scripts/setup onnxruntime`]
    #[arg(long = "onnxruntime", value_name = "PATH", env = "ORT_DYLIB_PATH")]
    pub library: Option<PathBuf>,
    /// Import without trying the model in ONNX Runtime; the server then checks it at its start
    #[arg(long, conflicts_with = "batching")]
    pub unchecked: bool,
    /// Replace a model of that name
    #[arg(long)]
    pub replace: bool,
}

/// Result of an import.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedModel {
    /// Files of the model.
    pub manifest: Manifest,
    /// Result of the row test, if one was requested. The config agrees with it.
    pub batching: Option<Verdict>,
    /// Reason for which a run on zeros failed, if it was tried. The model is served all the same.
    pub zero_run_error: Option<String>,
}

/// Copies the model into `repository` and writes its manifest. Readers see the old model or the new one. A model whose
/// rows are not shown to be independent is imported without batching.
///
/// # Errors
/// A name that is taken, a file that is not an ONNX model or needs files that are missing or too short, an invalid
/// config, a model that the server would refuse; no ONNX Runtime to try it with.
pub fn import(repository: &Path, request: &Import, stop: &Stop) -> Result<ImportedModel, ModelsError> {
    let name = model_name(request)?;
    let folder = repository.join(&name);
    if folder.exists() && !request.replace {
        let what = "a model of this name exists; pass `--replace`, or another `--name`";
        return Err(ModelsError::Usage(format!("{}: {what}", folder.display())));
    }
    let (model, external) = read_graph(&request.model)?;
    let library = request.library.as_deref();
    let test = |max| test_rows(&request.model, max, library, stop);
    let batching = request.batching.map(test).transpose()?;
    let config = match &request.config {
        Some(path) => read_config(path, &name)?,
        None => config_for_verdict(request, batching.as_ref())?,
    };

    let staging = StagingFolder::create(repository, &name)?;
    let version = staging.0.join(VERSION);
    let source_folder = request.model.parent().unwrap_or(Path::new(""));
    let mut files = vec![copy_file(&request.model, &version, MODEL_FILE, stop)?];
    let paths: BTreeSet<&str> = external.files.values().map(|file| file.path.as_str()).collect();
    for file in paths {
        files.push(copy_file(&source_folder.join(file), &version, file, stop)?);
    }
    write_config(&staging.0, &config)?;
    let run_trial = || trial::run(&version, &external, &config, library).map_err(|e| e.in_file(&request.model));
    let trial = (!request.unchecked).then(run_trial).transpose()?;
    let inferred = trial.as_ref().map_or(&[][..], |(signature, _)| &signature.outputs);
    let interface = Interface::with_shapes(&model, inferred);
    let interface = interface.map_err(|e| ModelsError::bad(&request.model.display(), &e))?;
    let source = request.model.file_name().unwrap_or_default().to_string_lossy();
    let manifest = Manifest {
        schema_version: Manifest::SCHEMA_VERSION,
        name,
        generator: repository::generator_line(format_args!("import {source}")),
        seed: None,
        inputs: interface.inputs,
        outputs: interface.outputs,
        files,
    };
    if let Some((signature, _)) = &trial {
        let refused = |what: anyhow::Error| ModelsError::Refused(what.to_string()).in_file(&request.model);
        signature.check_manifest(&manifest).map_err(refused)?;
    }
    repository::write_manifest(&staging.0, &manifest)?;
    stop.check()?;
    staging.swap_in(repository, &folder)?;
    Ok(ImportedModel {
        manifest,
        batching,
        zero_run_error: trial.and_then(|(_, zero_run_error)| zero_run_error),
    })
}

/// Bytes of a file from which its kind is detected.
const HEAD_BYTES: u64 = 1024;

/// Config with its files.
#[derive(Debug, Default)]
struct ConfigBundle {
    /// File name in the model's folder.
    file: &'static str,
    /// Text as given; `None` without a config.
    text: Option<String>,
    config: ModelConfig,
    /// Files of the warm-up's samples, by name.
    warmup: BTreeMap<String, Bytes>,
    /// Files of the names of classes, by path in the model's folder.
    labels: BTreeMap<String, Bytes>,
}

/// Reads a graph with the files of its weights, which are checked, beside it.
///
/// # Errors
/// Not an ONNX model; a file of weights that is missing, too short, or a placeholder of git-lfs.
fn read_graph(path: &Path) -> Result<(ModelProto, External), ModelsError> {
    let bytes = fs::read(path).map_err(ModelsError::io("read", path))?;
    let bad = |e| ModelsError::bad(&path.display(), &e);
    let model = decode(bytes.into()).map_err(bad)?;
    let external = external_files(&model).map_err(bad)?;
    if external.files.values().any(|file| file.path == MODEL_FILE) {
        let what = format!(
            "its weights are in a file named `{MODEL_FILE}`, which is the graph's name here: save them under another name"
        );
        return Err(ModelsError::bad(&path.display(), &what));
    }
    let source_folder = path.parent().unwrap_or(Path::new(""));
    for expected in external.files.values() {
        check_weights(path, &source_folder.join(&expected.path), expected)?;
    }
    Ok((model, external))
}

fn check_weights(graph: &Path, path: &Path, expected: &ExternalFile) -> Result<(), ModelsError> {
    let file = File::open(path).map_err(ModelsError::io("open", path))?;
    let found = file.metadata().map_err(ModelsError::io("read", path))?.len();
    let mut head = Vec::new();
    let read = file.take(HEAD_BYTES).read_to_end(&mut head);
    read.map_err(ModelsError::io("read", path))?;
    if let Some(placeholder) = Placeholder::of(&head) {
        let (graph, ExternalFile { tensor, bytes, .. }) = (graph.display(), expected);
        let what = format!(
            "weights of {graph}: tensor `{tensor}` needs {bytes} bytes, but the file has {found} bytes and is {placeholder}"
        );
        return Err(ModelsError::bad(&path.display(), &what));
    }
    let checked = expected.check(&expected.path, found);
    checked.map_err(|what| ModelsError::bad(&graph.display(), &what))
}

/// Reads the config of a model: Triton's if the file's name ends in `.pbtxt`.
///
/// # Errors
/// An invalid config; a missing file of a warm-up sample or of labels.
fn read_config(path: &Path, name: &str) -> Result<ConfigBundle, ModelsError> {
    let text = fs::read_to_string(path).map_err(ModelsError::io("read", path))?;
    let (file, config) = match path.extension().is_some_and(|extension| extension == "pbtxt") {
        true => (TRITON_CONFIG_FILE, model_config(&text, name)),
        false => (CONFIG_FILE, ModelConfig::parse(&text)),
    };
    let config = config.map_err(|e| ModelsError::Usage(format!("{}: {e}", path.display())))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let (mut warmup, mut labels) = (BTreeMap::new(), BTreeMap::new());
    for input in config.warmup.iter().flat_map(|sample| sample.inputs.values()) {
        if let WarmupData::File(file) = &input.data {
            let path = folder.join(WARMUP_FOLDER).join(file);
            let bytes = fs::read(&path).map_err(ModelsError::io("read the file of a warm-up sample", &path))?;
            warmup.insert(file.clone(), Bytes::from(bytes));
        }
    }
    for file in config.outputs.iter().filter_map(|output| output.labels.as_ref()) {
        let path = folder.join(file);
        let what = "labels must be in the folder of the config, or below it";
        ObjectPath::new(file).map_err(|_| ModelsError::bad(&path.display(), &what))?;
        let bytes = fs::read(&path).map_err(ModelsError::io("read the labels", &path))?;
        labels.insert(file.clone(), Bytes::from(bytes));
    }
    Ok(ConfigBundle {
        file,
        text: Some(text),
        config,
        warmup,
        labels,
    })
}

fn model_name(request: &Import) -> Result<String, ModelsError> {
    let stem = request.model.file_stem().unwrap_or_default();
    let stem = || stem.to_string_lossy().into_owned();
    let name = request.name.clone().unwrap_or_else(stem);
    if !is_plain_name(&name) {
        let what = "is not a valid name: pass `--name` with letters, digits, `.`, `_` and `-`";
        return Err(ModelsError::Usage(format!("`{name}` {what}")));
    }
    Ok(name)
}

/// Returns the config that the result of the test needs; `None` without a test.
fn config_for_verdict(request: &Import, batching: Option<&Verdict>) -> Result<ConfigBundle, ModelsError> {
    let (Some(verdict), Some(max)) = (batching, request.batching) else {
        return Ok(ConfigBundle::default());
    };
    // Only the tested keys: the others keep their defaults.
    let text = match verdict {
        Verdict::Independent(evidence) => format!(
            "# `tierlab-models import --batching` ran seeded rows together, alone and permuted: {evidence}.\n\
             max_batch_size = {max}\n"
        ),
        Verdict::Refused(reason) => format!(
            "# Not batched, as `tierlab-models import --batching` could not prove its rows independent:\n# {}\n\
             max_batch_size = 0\n",
            reason.replace(['\n', '\r'], " ")
        ),
    };
    Ok(ConfigBundle {
        file: CONFIG_FILE,
        config: ModelConfig::parse(&text).map_err(|e| ModelsError::bad(&CONFIG_FILE, &e))?,
        text: Some(text),
        ..ConfigBundle::default()
    })
}

/// Writes a config, and the files of its warm-up samples and labels.
fn write_config(folder: &Path, config: &ConfigBundle) -> Result<(), ModelsError> {
    if let Some(text) = &config.text {
        write_atomically(&folder.join(config.file), text.as_bytes())?;
    }
    for (name, bytes) in &config.warmup {
        write_atomically(&folder.join(WARMUP_FOLDER).join(name), bytes)?;
    }
    for (name, bytes) in &config.labels {
        write_atomically(&folder.join(name), bytes)?;
    }
    Ok(())
}

/// Folder of a model while it is written; removed unless it is swapped in.
struct StagingFolder(PathBuf);

impl StagingFolder {
    fn create(repository: &Path, name: &str) -> Result<Self, ModelsError> {
        let path = repository.join(format!(".{name}.{}.partial", std::process::id()));
        if path.exists() {
            // Left by a killed process of the same id, as each has in a container.
            fs::remove_dir_all(&path).map_err(ModelsError::io("remove", &path))?;
        }
        fs::create_dir_all(path.join(VERSION)).map_err(ModelsError::io("make the folder", &path))?;
        Ok(Self(path))
    }

    fn swap_in(self, repository: &Path, folder: &Path) -> Result<(), ModelsError> {
        let old = self.0.with_extension("old");
        if folder.exists() {
            fs::rename(folder, &old).map_err(ModelsError::io("move away", folder))?;
        }
        if let Err(e) = fs::rename(&self.0, folder) {
            // The existing model stays; without one, there is nothing to move back.
            let _ = fs::rename(&old, folder);
            return Err(ModelsError::io("rename into place", folder)(e));
        }
        sync_folder(repository)?;
        if old.exists() {
            fs::remove_dir_all(&old).map_err(ModelsError::io("remove", &old))?;
        }
        Ok(())
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        // Already gone if it was swapped in.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a file into the version folder and computes its checksum on the way.
fn copy_file(from: &Path, version: &Path, name: &str, stop: &Stop) -> Result<ManifestFile, ModelsError> {
    let to = version.join(name);
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(ModelsError::io("make the folder", folder))?;
    }
    let target = File::create(&to).map_err(ModelsError::io("create", &to))?;
    let (bytes, sha256) = repository::copy_hashed(from, (&target, &to), stop)?;
    target.sync_all().map_err(ModelsError::io("sync", &to))?;
    Ok(ManifestFile {
        path: format!("{VERSION}/{name}"),
        bytes,
        sha256,
    })
}
