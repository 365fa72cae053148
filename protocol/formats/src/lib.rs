//! File formats: feature tables, models, their configs and manifests.
//!
//! In: bytes and text. Out: typed values, or an error that names the field or the offset. Data types and shapes are those of
//! [`tierlab_protocol`]. This crate does no I/O, has no async code and is independent of tiers, sessions and load.
//!
//! - `arrow`, a feature: checks of Arrow IPC before its reader sees it
//! - [`model`]: a model's `config.toml` and its manifest
//! - [`mounts`]: the kernel's list of mounts
//! - [`npy`]: NumPy arrays
//! - [`onnx`]: the messages of a model's graph
//! - [`pbtxt`]: the text format of protocol buffers, and Triton's `config.pbtxt` in it
//! - [`shards`]: tar archives and TFRecord files of samples, and their index
//! - [`table`]: the feature-table file format
//! - [`toml_error`]: the wording of errors about TOML files

#[cfg(feature = "arrow")]
pub mod arrow;
pub mod model;
pub mod mounts;
pub mod npy;
pub mod onnx;
pub mod pbtxt;
pub mod shards;
pub mod table;
pub mod toml_error;

/// Names of the layouts of a feature table in configuration, plans and manifests.
pub const LAYOUTS: [&str; 11] = [
    "rows",
    "files",
    "tar",
    "tfrecord",
    "parquet",
    "parquet-snappy",
    "parquet-lz4",
    "parquet-zstd",
    "arrow",
    "arrow-lz4",
    "arrow-zstd",
];
