//! Takes a user's ONNX model, with its external weights, into the repository: read from the graph, summed, swapped in
//! whole.

pub mod independence;

use crate::error::ModelsError;
use crate::onnx::Interface;
use crate::onnx::interface::{decode, external_files};
use crate::repository::{self, HashingWriter, VERSION};
use crate::staged::sync_folder;
use crate::stop::Stop;
use independence::{TestOptions, Verdict, test_rows};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use tierlab_formats::model::{CONFIG_FILE, MODEL_FILE, Manifest, ManifestFile, ModelConfig, is_plain_name};

/// What to import.
#[derive(Debug, Clone)]
pub struct Import {
    /// The `.onnx` file. External weights are looked for beside it, where the graph says.
    pub model: PathBuf,
    /// The name in the repository; the file's own without its ending when left out.
    pub name: Option<String>,
    /// A `config.toml` to go with it.
    pub config: Option<PathBuf>,
    /// How to test whether its rows are independent, so that it can be served in batches; none serves it unbatched.
    pub batching: Option<TestOptions>,
    /// Whether a model of that name may be replaced.
    pub replace: bool,
}

/// What was imported.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// What the model consists of.
    pub manifest: Manifest,
    /// The result of that test, where one was asked for. The config says the same.
    pub batching: Option<Verdict>,
}

/// Copies the model into `repository` and writes its manifest. Readers see the old model or the new one. A model whose
/// rows are not shown to be independent is imported without batching.
///
/// # Errors
/// A name that is taken, a file that is no ONNX model or needs files that are not there, an invalid config; no ONNX
/// Runtime for the test.
pub fn import(repository: &Path, request: &Import, stop: &Stop) -> Result<Imported, ModelsError> {
    let name = name_of(request)?;
    let folder = repository.join(&name);
    if folder.exists() && !request.replace {
        let what = "a model of this name is there already; give `--replace`, or another `--name`";
        return Err(ModelsError::Usage(format!("{}: {what}", folder.display())));
    }
    let (interface, external) = read_graph(&request.model)?;
    let batching = match &request.batching {
        Some(options) => Some(test_rows(&request.model, options, stop)?),
        None => None,
    };
    let config = config_text(request, batching.as_ref())?;

    let staging = Staging::create(repository, &name)?;
    let version = staging.0.join(VERSION);
    let beside = request.model.parent().unwrap_or(Path::new(""));
    let mut files = vec![copy_file(&request.model, &version, MODEL_FILE, stop)?];
    for file in &external {
        files.push(copy_file(&beside.join(file), &version, file, stop)?);
    }
    if let Some(config) = config {
        crate::staged::write_whole(&staging.0.join(CONFIG_FILE), config.as_bytes())?;
    }
    let source = request.model.file_name().unwrap_or_default().to_string_lossy();
    let manifest = Manifest {
        schema_version: Manifest::SCHEMA_VERSION,
        name,
        generator: format!(
            "{} {} import {source}",
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION")
        ),
        seed: None,
        inputs: interface.inputs,
        outputs: interface.outputs,
        files,
    };
    repository::write_manifest(&staging.0, &manifest)?;
    stop.check()?;
    staging.swap_in(repository, &folder)?;
    Ok(Imported { manifest, batching })
}

fn name_of(request: &Import) -> Result<String, ModelsError> {
    let stem = || {
        request
            .model
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
    };
    let name = request.name.clone().or_else(stem).unwrap_or_default();
    if !is_plain_name(&name) {
        let what = "is no plain name (letters, digits, `.`, `_`, `-`); give one with `--name`";
        return Err(ModelsError::Usage(format!("`{name}` {what}")));
    }
    Ok(name)
}

/// The graph's interface and the files of its external weights.
fn read_graph(path: &Path) -> Result<(Interface, Vec<String>), ModelsError> {
    let bytes = fs::read(path).map_err(ModelsError::io("read", path))?;
    let bad = |e| ModelsError::bad(&path.display(), &e);
    let model = decode(bytes.into()).map_err(bad)?;
    let external = external_files(&model).map_err(bad)?;
    if external.iter().any(|file| file == MODEL_FILE) {
        let what = format!("its weights lie in a file named `{MODEL_FILE}`, which is the graph's own name here");
        return Err(ModelsError::bad(&path.display(), &what));
    }
    Ok((Interface::of(&model).map_err(bad)?, external))
}

/// The config to write: the user's, or that of the test's result, or none.
fn config_text(request: &Import, batching: Option<&Verdict>) -> Result<Option<String>, ModelsError> {
    if let Some(path) = &request.config {
        let text = fs::read_to_string(path).map_err(ModelsError::io("read", path))?;
        ModelConfig::parse(&text).map_err(|e| ModelsError::Usage(format!("{}: {e}", path.display())))?;
        return Ok(Some(text));
    }
    let (Some(verdict), Some(options)) = (batching, &request.batching) else {
        return Ok(None);
    };
    // Only what was found out: the other keys keep their defaults.
    Ok(Some(match verdict {
        Verdict::Independent(evidence) => format!(
            "# `tierlab-models import --batching` ran seeded rows together, alone and permuted: {evidence}.\n\
             max_batch_size = {}\n",
            options.max_batch_size
        ),
        Verdict::Refused(why) => format!(
            "# Not batched, as `tierlab-models import --batching` could not prove its rows independent:\n# {}\n\
             max_batch_size = 0\n",
            why.replace(['\n', '\r'], " ")
        ),
    }))
}

/// A model's folder while it is written; removed unless it is swapped in.
struct Staging(PathBuf);

impl Staging {
    fn create(repository: &Path, name: &str) -> Result<Self, ModelsError> {
        let path = repository.join(format!(".{name}.{}.partial", std::process::id()));
        fs::create_dir_all(path.join(VERSION)).map_err(ModelsError::io("make the folder", &path))?;
        Ok(Self(path))
    }

    fn swap_in(self, repository: &Path, folder: &Path) -> Result<(), ModelsError> {
        let old = self.0.with_extension("old");
        if folder.exists() {
            fs::rename(folder, &old).map_err(ModelsError::io("move away", folder))?;
        }
        if let Err(e) = fs::rename(&self.0, folder) {
            // The model that was there stays; without one, there is nothing to move back.
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

impl Drop for Staging {
    fn drop(&mut self) {
        // Gone already when it was swapped in.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a file into the version folder and sums it on the way.
fn copy_file(from: &Path, version: &Path, name: &str, stop: &Stop) -> Result<ManifestFile, ModelsError> {
    let to = version.join(name);
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(ModelsError::io("make the folder", folder))?;
    }
    let mut source = File::open(from).map_err(ModelsError::io("open", from))?;
    let target = File::create(&to).map_err(ModelsError::io("create", &to))?;
    let mut out = HashingWriter::new(&target);
    let mut buffer = vec![0; 4 << 20];
    loop {
        stop.check()?;
        let got = source.read(&mut buffer).map_err(ModelsError::io("read", from))?;
        if got == 0 {
            break;
        }
        out.write_all(&buffer[..got]).map_err(ModelsError::io("write", &to))?;
    }
    let (bytes, sha256) = out.finish();
    target.sync_all().map_err(ModelsError::io("sync", &to))?;
    Ok(ManifestFile {
        path: format!("{VERSION}/{name}"),
        bytes,
        sha256,
    })
}
