//! Arrow IPC before its reader sees it. In: a file, a stream, or a message. Out: nothing, or what is wrong with it and at which offset.
//!
//! A message says of each of its buffers how many bytes it grows to, and readers set that much memory aside before they unpack any: a
//! number that is not true ends the process, for an allocation that fails cannot be caught. So the numbers are looked at first, which reads
//! the messages and eight bytes of each compressed buffer, and no data. Source: arrow.apache.org/docs/format/Columnar.html, "IPC streaming
//! format", "IPC file format" and "Compression".
//!
//! - [`message`]: what one message claims
//! - [`walk`]: every message of a file or stream, and the end of it

pub mod message;
pub mod walk;

/// Maximum bytes of a batch in an imported file. A text column cannot be larger than half of it.
pub const MAX_BATCH_BYTES: u64 = 4 << 30;
