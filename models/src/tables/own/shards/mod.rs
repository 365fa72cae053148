//! Shards of samples as batches: tar archives and TFRecord files. In: a file. Out: batches with a column for each value of a sample. Knows
//! nothing of keys or tables.

mod file;
mod samples;
mod tfrecord;
mod webdataset;
mod window;

pub(super) use file::{ShardFile, ShardFormat};
pub(super) use tfrecord::begins_as_one;
