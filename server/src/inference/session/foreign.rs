//! Values of ONNX Runtime over memory that is not its own.
//!
//! In: an address, and whose memory it is. Out: a tensor that points there, owns nothing and copies nothing. Besides the
//! version this is the only place where ONNX Runtime's C interface is called by hand: what the `ort` crate makes of foreign
//! memory is a borrowed value, and it copies those when they are bound.
#![allow(unsafe_code)]

use ort::AsPointer;
use ort::memory::Allocator;
use ort::value::{DynTensor, TensorElementType, Value};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Memory of somebody else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForeignMemory {
    pub(crate) address: u64,
    pub(crate) len: usize,
}

/// A tensor over memory at `at`, in the kind of memory that `memory` allocates.
///
/// # Safety
/// `at` is memory of that kind and on that device, as long as it says and aligned for the element, which outlives the value
/// and all that it is bound to, and which nobody writes to while a run may read it.
///
/// # Errors
/// ONNX Runtime's: a shape that needs more bytes than there are.
pub(crate) unsafe fn tensor_over(
    memory: &Allocator,
    at: ForeignMemory,
    element: TensorElementType,
    shape: &[i64],
) -> ort::Result<DynTensor> {
    let mut value = std::ptr::null_mut();
    // SAFETY: the first and the last three arguments live through the call, which keeps none of them; what it keeps is the
    // address, and that is the caller's promise.
    let status = unsafe {
        (ort::api().CreateTensorWithDataAsOrtValue)(
            memory.memory_info().ptr(),
            at.address as *mut c_void,
            at.len,
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
