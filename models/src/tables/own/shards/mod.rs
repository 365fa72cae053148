//! Shards of samples as batches: tar archives and TFRecord files. In: a file. Out: batches with a column for each value of a sample. Knows
//! nothing of keys or tables.

mod samples;
mod tfrecord;
mod webdataset;
mod window;

pub(super) use tfrecord::{RecordFile, begins_as_one};
pub(super) use webdataset::TarFile;
