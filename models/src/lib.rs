//! Models and feature tables: generated from seeds, imported, checked, and published to a tier.
//!
//! In: requests with a seed, or a user's ONNX file. Out: a Triton-style repository and `features/TABLE.rows`, on disk
//! and on any writable tier. This crate is independent of servers and load.
//!
//! - [`onnx`]: the format; [`generators`]: the graphs; [`weights`]: their seeded weights
//! - [`repository`] and [`mod@import`]: models on disk; [`import::independence`]: test for rows that may share a batch
//! - [`tables`]: feature tables on disk, and any row of them by seed and id
//! - [`mod@inspect`] and [`mod@publish`]: description, and publishing to a tier; `lay_out`: publishing of tables in
//!   another layout
//! - [`cli`]: the command line; [`progress`] of long work, its [`stop`] on request, and [`staged`] files, which appear
//!   atomically

pub mod cli;
pub mod error;
pub mod generators;
pub mod import;
pub mod inspect;
#[cfg(feature = "tables")]
pub mod lay_out;
pub mod onnx;
pub mod progress;
pub mod publish;
pub mod repository;
pub mod staged;
pub mod stop;
pub mod tables;
pub mod weights;

pub use error::ModelsError;
