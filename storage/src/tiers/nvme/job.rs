//! Input and output of the reading engine: its options, the reads of a call, and their results.

use super::buffer::{Arena, Buffer};
use super::config::Driver;
use super::files::OpenFile;
use super::plan::Segment;
use crate::error::StorageError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Options of an engine.
#[derive(Debug)]
pub(super) struct EngineOptions {
    /// Suffix of the thread's name.
    pub(super) name: &'static str,
    /// Maximum reads in flight.
    pub(super) depth: u32,
    /// Maximum bytes per read: longer segments are read in chunks of this size, several at once.
    pub(super) chunk_bytes: usize,
    /// Memory to register.
    pub(super) arena: Option<Arc<Arena>>,
    /// Task that runs the engine.
    pub(super) driver: Driver,
}

/// Reads of a call.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Arc<OpenFile>,
    /// Segments to read, each with a buffer of the same length.
    pub(super) segments: Vec<(Segment, Buffer)>,
    pub(super) started: Instant,
    pub(super) reply: oneshot::Sender<Result<Done, StorageError>>,
    /// Slot in the backlog, released with the job.
    pub(super) _place: OwnedSemaphorePermit,
}

/// A finished job.
#[derive(Debug)]
pub(super) struct Done {
    /// The segments and their filled buffers.
    pub(super) segments: Vec<(Segment, Buffer)>,
    /// From the call to its first read's submission.
    pub(super) queue: Duration,
    /// From there to the last completion and the check of the version.
    pub(super) device: Duration,
    pub(super) wire_bytes: u64,
    pub(super) requests: u32,
    pub(super) retries: u32,
}
