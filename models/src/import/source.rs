//! Files of a user's model: the graph with its weights, and the config with its warm-up samples.
//!
//! In: paths. Out: their complete contents, or the file that is missing, too short or of another kind, with advice.

use crate::error::ModelsError;
use crate::onnx::ModelProto;
use crate::onnx::interface::external_files;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use tierlab_formats::model::{CONFIG_FILE, MODEL_FILE, ModelConfig, TRITON_CONFIG_FILE, WARMUP_FOLDER, WarmupData};
use tierlab_formats::onnx::{External, ExternalFile, Placeholder, decode};
use tierlab_formats::pbtxt::model::model_config;

/// Bytes of a file from which its kind is detected.
const BEGINNING_BYTES: u64 = 1024;

/// Config with its files.
#[derive(Debug, Default)]
pub(super) struct GivenConfig {
    /// File name in the model's folder.
    pub(super) file: &'static str,
    /// Text as given; `None` without a config.
    pub(super) text: Option<String>,
    pub(super) config: ModelConfig,
    /// Files of the warm-up's samples, by name.
    pub(super) warmup: BTreeMap<String, Bytes>,
}

/// Reads a graph with the files of its weights, which are checked, beside it.
///
/// # Errors
/// Not an ONNX model; a file of weights that is missing, too short, or a placeholder of git-lfs.
pub(super) fn read_graph(path: &Path) -> Result<(ModelProto, External), ModelsError> {
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
    let beside = path.parent().unwrap_or(Path::new(""));
    for wanted in external.files.values() {
        check_weights(path, &beside.join(&wanted.path), wanted)?;
    }
    Ok((model, external))
}

fn check_weights(graph: &Path, path: &Path, wanted: &ExternalFile) -> Result<(), ModelsError> {
    let file = File::open(path).map_err(ModelsError::io("open", path))?;
    let found = file.metadata().map_err(ModelsError::io("look at", path))?.len();
    let mut beginning = Vec::new();
    let read = file.take(BEGINNING_BYTES).read_to_end(&mut beginning);
    read.map_err(ModelsError::io("read", path))?;
    if let Some(placeholder) = Placeholder::of(&beginning) {
        let what = format!(
            "weights of {}: tensor `{}` needs {} bytes, but the file has {found} bytes and is \
             {placeholder}",
            graph.display(),
            wanted.tensor,
            wanted.bytes
        );
        return Err(ModelsError::bad(&path.display(), &what));
    }
    wanted
        .check(&wanted.path, found)
        .map_err(|what| ModelsError::bad(&graph.display(), &what))
}

/// Reads the config of a model: Triton's if the file's name ends in `.pbtxt`.
///
/// # Errors
/// An invalid config; a file of a warm-up sample that is not in `warmup/` beside it.
pub(super) fn read_config(path: &Path, name: &str) -> Result<GivenConfig, ModelsError> {
    let text = fs::read_to_string(path).map_err(ModelsError::io("read", path))?;
    let triton = path.extension().is_some_and(|extension| extension == "pbtxt");
    let config = if triton {
        model_config(&text, name)
    } else {
        ModelConfig::parse(&text)
    };
    let config = config.map_err(|e| ModelsError::Usage(format!("{}: {e}", path.display())))?;
    let folder = path.parent().unwrap_or(Path::new("")).join(WARMUP_FOLDER);
    let mut warmup = BTreeMap::new();
    for input in config.warmup.iter().flat_map(|sample| sample.inputs.values()) {
        if let WarmupData::File(file) = &input.data {
            let path = folder.join(file);
            let bytes = fs::read(&path).map_err(ModelsError::io("read the file of a warm-up sample", &path))?;
            warmup.insert(file.clone(), Bytes::from(bytes));
        }
    }
    Ok(GivenConfig {
        file: if triton { TRITON_CONFIG_FILE } else { CONFIG_FILE },
        text: Some(text),
        config,
        warmup,
    })
}
