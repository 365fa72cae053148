//! The files of a version's weights: into memory, or to a local disk from where ONNX Runtime maps them.
//!
//! In: the names that the graph gives. Out: the weights, with the time of each step.

use super::fetch::{local, read_shared, read_to_file};
use super::{Described, LoadError};
use crate::inference::runtime::Weights;
use crate::inference::runtime::mapped::MappedWeights;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::model::{MODEL_FILE, ManifestFile};
use tierlab_storage::{Object, Tier};

/// A file of weights on the tier.
pub(super) struct WeightFile<'a> {
    /// As the graph names it.
    name: String,
    object: &'a Object,
    sum: Option<&'a ManifestFile>,
}

/// Weights, and what getting them took.
pub(super) struct Read {
    pub(super) weights: Weights,
    pub(super) read_time: Duration,
    pub(super) verify_time: Duration,
    pub(super) place_time: Duration,
}

impl Described {
    /// Finds the files that a graph names, with their sums.
    pub(super) fn weight_files(
        &self,
        graph: &Object,
        version: u64,
        names: BTreeSet<String>,
        verified: bool,
    ) -> Result<Vec<WeightFile<'_>>, LoadError> {
        let find = |name: String| {
            let path = format!("{version}/{name}");
            let missing = || {
                let what = format!("its weights `{name}` are missing from the version's folder");
                LoadError::at(&graph.path, what)
            };
            Ok(WeightFile {
                object: self.files.find(&path).ok_or_else(missing)?,
                sum: self.sum_of(&path, verified)?,
                name,
            })
        };
        names.into_iter().map(find).collect()
    }
}

/// Reads every file into memory.
pub(super) async fn in_memory(tier: &dyn Tier, files: &[WeightFile<'_>]) -> Result<Read, LoadError> {
    let (mut read_time, mut verify_time) = (Duration::ZERO, Duration::ZERO);
    let mut read = Vec::with_capacity(files.len());
    for file in files {
        let shared = read_shared(tier, file.object, file.sum).await?;
        read_time += shared.read_time;
        verify_time += shared.verify_time;
        read.push((file.name.clone(), shared.bytes));
    }
    Ok(Read {
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
) -> Result<Read, LoadError> {
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
    Ok(Read {
        weights: Weights::Mapped(Arc::new(placed)),
        read_time,
        verify_time: Duration::ZERO,
        place_time: began.elapsed().saturating_sub(read_time),
    })
}
