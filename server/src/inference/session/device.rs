//! Inputs in device memory: the rows of a batch gathered into one tensor there, which the session binds as it is.
//!
//! In: parts of which at least one lies on the device. Out: a value over device memory. Nothing here passes the host but
//! parts that came from there. **Has not run on a GPU**: the tests run it on a stand-in in which host memory plays the
//! device, bound as the CPU's.
#![allow(unsafe_code)]

use crate::request::{Elements, Part};
use ort::AsPointer;
use ort::memory::Allocator;
use ort::value::{DynTensor, TensorElementType, Value};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
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
        // SAFETY: device memory of `len` bytes, aligned to at least 256 as all of the driver's, written completely, and kept
        // in `bound` until the input is bound again or the binding is gone.
        let value = unsafe { tensor_over(&self.memory, (tensor.address(), len), element, shape) };
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

/// A tensor over `len` bytes at `address`, in the kind of memory that `memory` allocates: it owns nothing and copies nothing. Besides
/// the version this is the only place where ONNX Runtime's C interface is called by hand: what the `ort` crate makes of
/// foreign memory is a borrowed value, and it copies those when they are bound.
///
/// # Safety
/// There is memory of that kind and on that device, as long as stated and aligned for the element, which outlives the value
/// and all that it is bound to, and which nobody writes to while a run may read it.
///
/// # Errors
/// ONNX Runtime's: a shape that needs more bytes than there are.
unsafe fn tensor_over(
    memory: &Allocator,
    (address, len): (u64, usize),
    element: TensorElementType,
    shape: &[i64],
) -> ort::Result<DynTensor> {
    let mut value = std::ptr::null_mut();
    // SAFETY: the first and the last three arguments live through the call, which keeps none of them; what it keeps is the
    // address, and that is the caller's promise.
    let status = unsafe {
        (ort::api().CreateTensorWithDataAsOrtValue)(
            memory.memory_info().ptr(),
            address as *mut c_void,
            len,
            shape.as_ptr(),
            shape.len(),
            element.into(),
            &raw mut value,
        )
    };
    // SAFETY: a status that the call above has just given, looked at once.
    unsafe { ort::Error::result_from_status(status)? };
    let value = NonNull::new(value).ok_or_else(|| ort::Error::new("CreateTensorWithDataAsOrtValue gives nothing"))?;
    // SAFETY: a tensor that was just made and has no other owner. Releasing it leaves its memory alone; the allocator is
    // only kept beside it.
    Ok(unsafe { Value::from_ptr(value, Some(memory)) })
}

#[cfg(test)]
mod tests;
