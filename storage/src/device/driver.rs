//! The functions of the CUDA driver that are used here, bound by name. In: a loaded library. Out: a table of functions,
//! and a driver's code in words.

use super::DeviceError;
use crate::error::ErrorKind;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// `CUcontext`, `CUstream` and `CUevent`.
pub(super) type Opaque = *mut c_void;
/// `CUdeviceptr`.
pub(super) type Address = u64;

/// `CU_STREAM_NON_BLOCKING`: no waiting for the default stream.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a waiting thread sleeps.
pub(super) const EVENT_BLOCKING_UNTIMED: c_uint = 1 | 2;
/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context.
pub(super) const REGISTER_PORTABLE: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`.
pub(super) const MEMORY_IS_DEVICE: c_int = 2;
const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const INVALID_DEVICE: c_int = 101;

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
pub(super) struct Copy2d {
    pub(super) from_x: usize,
    pub(super) from_y: usize,
    pub(super) from_kind: c_int,
    pub(super) from_host: *const c_void,
    pub(super) from_device: Address,
    pub(super) from_array: Opaque,
    pub(super) from_pitch: usize,
    pub(super) to_x: usize,
    pub(super) to_y: usize,
    pub(super) to_kind: c_int,
    pub(super) to_host: *mut c_void,
    pub(super) to_device: Address,
    pub(super) to_array: Opaque,
    pub(super) to_pitch: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

macro_rules! driver {
    ($($name:ident: $symbol:literal ($($argument:ty),*);)*) => {
        /// The driver's functions; the library stays loaded for the life of the process.
        pub(super) struct Driver {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Driver {
            /// Binds every function, or names the one that is missing.
            pub(super) fn bind(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of cuda.h, and the library is never unloaded.
                let driver = unsafe { Self { $($name: *library.get($symbol)?,)* } };
                std::mem::forget(library);
                Ok(driver)
            }
        }
    };
}

driver! {
    init: "cuInit" (c_uint);
    device_get: "cuDeviceGet" (*mut c_int, c_int);
    device_name: "cuDeviceGetName" (*mut c_char, c_int, c_int);
    context_retain: "cuDevicePrimaryCtxRetain" (*mut Opaque, c_int);
    context_release: "cuDevicePrimaryCtxRelease_v2" (c_int);
    context_set: "cuCtxSetCurrent" (Opaque);
    alloc: "cuMemAlloc_v2" (*mut Address, usize);
    free: "cuMemFree_v2" (Address);
    pin: "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    unpin: "cuMemHostUnregister" (*mut c_void);
    to_device: "cuMemcpyHtoD_v2" (Address, *const c_void, usize);
    to_host: "cuMemcpyDtoH_v2" (*mut c_void, Address, usize);
    to_device_async: "cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Opaque);
    inside_async: "cuMemcpyDtoDAsync_v2" (Address, Address, usize, Opaque);
    inside_2d_async: "cuMemcpy2DAsync_v2" (*const Copy2d, Opaque);
    stream_create: "cuStreamCreate" (*mut Opaque, c_uint);
    stream_wait: "cuStreamSynchronize" (Opaque);
    stream_destroy: "cuStreamDestroy_v2" (Opaque);
    event_create: "cuEventCreate" (*mut Opaque, c_uint);
    event_record: "cuEventRecord" (Opaque, Opaque);
    event_wait: "cuEventSynchronize" (Opaque);
    event_destroy: "cuEventDestroy_v2" (Opaque);
    error_name: "cuGetErrorName" (c_int, *mut *const c_char);
}

impl Driver {
    /// A code as a result.
    pub(super) fn check(&self, call: &str, code: c_int) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        let kind = match code {
            NO_DEVICE | INVALID_DEVICE => ErrorKind::Unsupported,
            _ => ErrorKind::Unavailable,
        };
        let hint = if code == OUT_OF_MEMORY {
            ": lower `device_memory_bytes`, or read in smaller ranges"
        } else {
            ""
        };
        let name = self.name_of(code);
        Err(DeviceError::new(
            kind,
            format!("{call} failed with {name} ({code}){hint}"),
        ))
    }

    fn name_of(&self, code: c_int) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a local; the text is the driver's own, and lives as long as the driver.
        unsafe {
            if (self.error_name)(code, &raw mut name) == 0 && !name.is_null() {
                return CStr::from_ptr(name).to_string_lossy().into_owned();
            }
        }
        "an unknown CUDA error".to_owned()
    }
}
