//! Names of files and folders in a repository of models, and which names are allowed in it.

/// The name of the graph's file inside a version folder.
pub const MODEL_FILE: &str = "model.onnx";
/// The name of the config file inside a model's folder.
pub const CONFIG_FILE: &str = "config.toml";
/// The name of Triton's config file inside a model's folder.
pub const TRITON_CONFIG_FILE: &str = "config.pbtxt";
/// The folder of a model that holds the files of its warm-up samples.
pub const WARMUP_FOLDER: &str = "warmup";
/// The name of the manifest inside a model's folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The prefix under which the models lie on a tier.
pub const MODELS_PREFIX: &str = "models";
/// The prefix under which the feature tables lie on a tier.
pub const FEATURES_PREFIX: &str = "features";

/// True if a model, table or version name is safe as one path segment: letters, digits, `.`, `_`, `-`, at most 128 of them, not
/// starting with a dot.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}
