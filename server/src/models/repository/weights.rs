//! The files of a version's weights: into memory, or to a local disk, from which ONNX Runtime maps them.
//!
//! In: the names that the graph gives. Out: the weights; the time of each step is added to the load's.

use super::fetch::{local, read_shared, read_to_file};
use crate::error::LoadError;
use crate::inference::runtime::Weights;
use crate::inference::runtime::mapped::MappedWeights;
use std::sync::Arc;
use std::time::Instant;
use tierlab_formats::model::{MODEL_FILE, ManifestFile};
use tierlab_protocol::metadata::LoadSeconds;
use tierlab_storage::{Object, Tier};

/// A file of weights on the tier.
pub(super) struct WeightFile<'a> {
    /// Name in the graph.
    pub(super) name: String,
    pub(super) object: &'a Object,
    pub(super) sum: Option<&'a ManifestFile>,
}

/// Reads every file into memory.
pub(super) async fn in_memory(
    tier: &dyn Tier,
    files: &[WeightFile<'_>],
    seconds: &mut LoadSeconds,
) -> Result<Weights, LoadError> {
    let mut read = Vec::with_capacity(files.len());
    for file in files {
        let shared = read_shared(tier, file.object, file.sum, seconds).await?;
        read.push((file.name.clone(), shared));
    }
    Ok(Weights::InMemory(read))
}

/// Reads every file to a folder on a local disk, and puts the graph beside them.
pub(super) async fn placed(
    tier: &dyn Tier,
    files: &[WeightFile<'_>],
    object: &Object,
    graph: &[u8],
    mapped: &MappedWeights,
    seconds: &mut LoadSeconds,
) -> Result<Weights, LoadError> {
    let began = Instant::now();
    let bytes = files.iter().map(|file| file.object.size).sum::<u64>();
    let placed = mapped.place(bytes.saturating_add(object.size));
    let placed = placed.map_err(|what| LoadError::at(&object.path, what).passing())?;
    let mut reading = LoadSeconds::default();
    for file in files {
        let path = placed.file(&file.name).map_err(|e| local(file.name.as_ref(), &e))?;
        read_to_file(tier, file.object, file.sum, &path, &mut reading).await?;
    }
    let path = placed.file(MODEL_FILE).map_err(|e| local(MODEL_FILE.as_ref(), &e))?;
    std::fs::write(&path, graph).map_err(|e| local(&path, &e))?;
    seconds.read += reading.read;
    seconds.place += (began.elapsed().as_secs_f64() - reading.read).max(0.0);
    Ok(Weights::Mapped(Arc::new(placed)))
}
