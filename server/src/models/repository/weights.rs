//! The files of a version's weights: into memory, or to a local disk, from which ONNX Runtime maps them.
//!
//! In: the names that the graph gives. Out: the weights, with the time of each step.

use super::fetch::{local, read_shared, read_to_file};
use crate::error::LoadError;
use crate::inference::runtime::Weights;
use crate::inference::runtime::mapped::MappedWeights;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_formats::model::{MODEL_FILE, ManifestFile};
use tierlab_storage::{Object, Tier};

/// A file of weights on the tier.
pub(super) struct WeightFile<'a> {
    /// Name in the graph.
    pub(super) name: String,
    pub(super) object: &'a Object,
    pub(super) sum: Option<&'a ManifestFile>,
}

/// Weights, and what getting them took.
pub(super) struct ReadWeights {
    pub(super) weights: Weights,
    pub(super) read_time: Duration,
    pub(super) verify_time: Duration,
    pub(super) place_time: Duration,
}

/// Reads every file into memory.
pub(super) async fn in_memory(tier: &dyn Tier, files: &[WeightFile<'_>]) -> Result<ReadWeights, LoadError> {
    let (mut read_time, mut verify_time) = (Duration::ZERO, Duration::ZERO);
    let mut read = Vec::with_capacity(files.len());
    for file in files {
        let shared = read_shared(tier, file.object, file.sum).await?;
        read_time += shared.read_time;
        verify_time += shared.verify_time;
        read.push((file.name.clone(), shared.bytes));
    }
    Ok(ReadWeights {
        weights: Weights::InMemory(read),
        read_time,
        verify_time,
        place_time: Duration::ZERO,
    })
}

/// Reads every file to a folder on a local disk, and puts the graph beside them.
pub(super) async fn placed(
    tier: &dyn Tier,
    files: &[WeightFile<'_>],
    object: &Object,
    graph: &[u8],
    mapped: &MappedWeights,
) -> Result<ReadWeights, LoadError> {
    let began = Instant::now();
    let bytes = files.iter().map(|file| file.object.size).sum::<u64>();
    let placed = mapped.place(bytes.saturating_add(object.size));
    let placed = placed.map_err(|what| LoadError {
        passing: true,
        ..LoadError::at(&object.path, what)
    })?;
    let mut read_time = Duration::ZERO;
    for (name, file) in files
        .iter()
        .map(|file| (file.name.as_str(), Some(file)))
        .chain([(MODEL_FILE, None)])
    {
        let path = placed.file(name).map_err(|e| local(name.as_ref(), &e))?;
        match file {
            Some(file) => read_time += read_to_file(tier, file.object, file.sum, &path).await?.read_time,
            None => std::fs::write(&path, graph).map_err(|e| local(&path, &e))?,
        }
    }
    Ok(ReadWeights {
        weights: Weights::Mapped(Arc::new(placed)),
        read_time,
        verify_time: Duration::ZERO,
        place_time: began.elapsed().saturating_sub(read_time),
    })
}
