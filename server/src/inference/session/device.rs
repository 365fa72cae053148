//! Inputs in device memory: the rows of a batch are gathered into one tensor, which the session binds directly.
//!
//! In: parts, at least one of them on the device. Out: a value over device memory. Only parts from the host pass the
//! host. The tests run it on a stand-in in which host memory plays the device, bound as the CPU's.
#![allow(unsafe_code)]

use crate::request::{Elements, Part};
use anyhow::{Context as _, Result};
use ort::AsPointer;
use ort::memory::Allocator;
use ort::value::{DynTensor, TensorElementType, Value};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use tierlab_storage::device::{DeviceBytes, DevicePool, Gpu, Stream};

/// Maximum device memory of the input tensors of a session, in bytes.
const TENSOR_BYTES: usize = 4 << 30;

/// Device side of a session's inputs.
#[derive(Debug)]
pub(crate) struct DeviceInputs {
    /// Kind of memory required by the session.
    memory: Allocator,
    /// Set by the first part on the device.
    target: Option<TensorMemory>,
    /// Bindings of the inputs, by name. The previous run has ended when the next input is bound.
    bound: BTreeMap<String, DeviceBytes>,
}

/// Allocator of device tensors, and the stream of copies to them.
#[derive(Debug)]
struct TensorMemory {
    stream: Stream,
    pool: Arc<DevicePool>,
}

impl TensorMemory {
    fn on(gpu: &Arc<Gpu>) -> Result<Self> {
        Ok(Self {
            stream: Stream::new(gpu)?,
            pool: DevicePool::new(gpu, TENSOR_BYTES, false),
        })
    }
}

impl DeviceInputs {
    /// Creates the inputs of a session whose device allocates `memory`.
    pub(super) fn new(memory: Allocator) -> Self {
        Self {
            memory,
            target: None,
            bound: BTreeMap::new(),
        }
    }

    /// Gathers parts in order in device memory. The returned value is valid until the input's next one.
    ///
    /// # Errors
    /// Fails if the parts do not have the shape, if all are on the host, without device memory, or with the driver's
    /// error.
    pub(super) fn tensor<'a>(
        &mut self,
        input: &str,
        element: TensorElementType,
        shape: &[i64],
        parts: impl Iterator<Item = &'a Part> + Clone,
    ) -> Result<DynTensor> {
        let len = parts.clone().map(|part| part.data.len()).sum();
        let target = match &self.target {
            Some(target) => target,
            None => self.target.insert(TensorMemory::on(gpu_of(parts.clone())?)?),
        };
        // Freed first, so that the tensors of two runs never exist together.
        self.bound.remove(input);
        let mut tensor = target.pool.take(len)?;
        let mut at = 0;
        for part in parts {
            let laid = match &part.data {
                Elements::Device(rows) => rows.gather(&mut tensor, at, &target.stream),
                Elements::Host(data) => tensor.fill(at, &data.whole()),
            };
            laid?;
            at += part.data.len();
        }
        target.stream.wait()?;
        // SAFETY: device memory of `len` bytes, aligned to at least 256 as all of the driver's, written completely, and
        // kept in `bound` until the input is bound again or the binding is gone.
        let value = unsafe { tensor_over(&self.memory, (tensor.address(), len), element, shape) };
        self.bound.insert(input.to_owned(), tensor);
        Ok(value?)
    }
}

fn gpu_of<'a>(mut parts: impl Iterator<Item = &'a Part>) -> Result<&'a Arc<Gpu>> {
    let gpu = parts.find_map(|part| match &part.data {
        Elements::Device(rows) => Some(rows.gpu()),
        Elements::Host(_) => None,
    });
    gpu.context("no part is on a device")
}

/// Creates a tensor over `len` bytes at `address`, in the kind of memory that `memory` allocates. It owns and copies
/// nothing. Besides the version this is the only direct call of ONNX Runtime's C interface: the `ort` crate treats
/// foreign memory as a borrowed value, which it copies when it is bound.
///
/// # Safety
/// At `address` there must be `len` bytes of that kind of memory, aligned for the element. They must outlive the value
/// and everything that it is bound to, and nobody may write to them while a run may read them.
///
/// # Errors
/// ONNX Runtime's, for example if the shape needs more than `len` bytes.
unsafe fn tensor_over(
    memory: &Allocator,
    (address, len): (u64, usize),
    element: TensorElementType,
    shape: &[i64],
) -> ort::Result<DynTensor> {
    let mut value = std::ptr::null_mut();
    // SAFETY: the first and the last three arguments live through the call, which does not keep them; it keeps the
    // address, whose validity the caller guarantees.
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
    // SAFETY: the status was just returned by the call above, and is used once.
    unsafe { ort::Error::result_from_status(status)? };
    let value =
        NonNull::new(value).ok_or_else(|| ort::Error::new("CreateTensorWithDataAsOrtValue returned nothing"))?;
    // SAFETY: a tensor that was just created and has no other owner. Releasing it does not free its memory; the
    // allocator is only kept beside it.
    Ok(unsafe { Value::from_ptr(value, Some(memory)) })
}

#[cfg(test)]
mod tests;
