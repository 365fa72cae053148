//! Inputs in device memory: the rows of a batch gathered into one tensor there, which the session binds as it is.
//!
//! In: parts of which at least one lies on the device. Out: a value over device memory. Nothing here passes the host but
//! parts that came from there. **Has not run on a GPU**: the tests run it on a stand-in in which host memory plays the
//! device, bound as the CPU's.
#![allow(unsafe_code)]

use super::foreign::{ForeignMemory, tensor_over};
use crate::request::parts::Elements;
use crate::request::parts::Part;
use ort::memory::Allocator;
use ort::value::{DynTensor, TensorElementType};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierlab_storage::device::{DeviceBytes, DevicePool, Gpu, Stream};

/// Device memory of the input tensors of one session at most.
const TENSOR_BYTES: usize = 4 << 30;

/// The device side of a session's inputs.
#[derive(Debug)]
pub(crate) struct DeviceInputs {
    /// The kind of memory that the session wants.
    memory: Allocator,
    /// With the first part that lies on the device.
    place: Option<TensorMemory>,
    /// Bindings of the inputs, by name. A run has ended when the next one is bound.
    bound: BTreeMap<String, DeviceBytes>,
}

/// Allocator of device tensors, and the stream of copies to them.
#[derive(Debug)]
struct TensorMemory {
    stream: Stream,
    pool: Arc<DevicePool>,
}

impl TensorMemory {
    fn on(gpu: &Arc<Gpu>) -> Result<Self, String> {
        Ok(Self {
            stream: Stream::new(gpu).map_err(|e| e.to_string())?,
            pool: DevicePool::unregistered(gpu, TENSOR_BYTES),
        })
    }
}

impl DeviceInputs {
    /// For a session whose device allocates `memory`.
    pub(super) fn new(memory: Allocator) -> Self {
        Self {
            memory,
            place: None,
            bound: BTreeMap::new(),
        }
    }

    /// Gathers parts behind each other in device memory: a value over it, good until the input's next one.
    ///
    /// # Errors
    /// Parts that are not of the shape, or all on the host; no device memory; the driver's.
    pub(super) fn tensor<'a>(
        &mut self,
        input: &str,
        element: TensorElementType,
        shape: &[i64],
        parts: impl Iterator<Item = &'a Part> + Clone,
    ) -> Result<DynTensor, String> {
        let len = parts.clone().map(|part| part.data.len()).sum();
        let place = match &self.place {
            Some(place) => place,
            None => self.place.insert(TensorMemory::on(gpu_of(parts.clone())?)?),
        };
        // First the last run's, so that the two are never there together.
        self.bound.remove(input);
        let mut tensor = place.pool.take(len).map_err(|e| e.to_string())?;
        let mut at = 0;
        for part in parts {
            let laid = match &part.data {
                Elements::Device(rows) => rows.gather(&mut tensor, at, &place.stream),
                Elements::Host(data) => tensor.fill(at, &data.whole()),
            };
            laid.map_err(|e| e.to_string())?;
            at += part.data.len();
        }
        place.stream.wait().map_err(|e| e.to_string())?;
        let memory = ForeignMemory {
            address: tensor.address(),
            len,
        };
        // SAFETY: device memory of `len` bytes, aligned to at least 256 as all of the driver's, written completely, and kept
        // in `bound` until the input is bound again or the binding is gone.
        let value = unsafe { tensor_over(&self.memory, memory, element, shape) };
        self.bound.insert(input.to_owned(), tensor);
        value.map_err(|e| e.to_string())
    }
}

fn gpu_of<'a>(mut parts: impl Iterator<Item = &'a Part>) -> Result<&'a Arc<Gpu>, String> {
    let gpu = parts.find_map(|part| match &part.data {
        Elements::Device(rows) => Some(rows.gpu()),
        Elements::Host(_) => None,
    });
    gpu.ok_or_else(|| "no part lies on a device".to_owned())
}

#[cfg(test)]
mod tests;
