//! Functions of the CUDA driver, bound by name. In: a loaded library. Out: a table of functions, and text for the
//! driver's codes. Argument types are cudarc's; returned codes stay numbers.

use super::error::{DeviceError, DeviceErrorKind};
use cudarc::driver::sys::{
    self, CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags,
};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// No waiting for the default stream.
pub(crate) const STREAM_NON_BLOCKING: c_uint = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
/// A waiting thread sleeps.
pub(crate) const EVENT_BLOCKING_UNTIMED: c_uint =
    CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint | CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
const OUT_OF_MEMORY: c_int = CUresult::CUDA_ERROR_OUT_OF_MEMORY as c_int;
const NO_DEVICE: c_int = CUresult::CUDA_ERROR_NO_DEVICE as c_int;
const INVALID_DEVICE: c_int = CUresult::CUDA_ERROR_INVALID_DEVICE as c_int;

/// The code may be missing in `CUresult`; both have the same size.
const _: () = assert!(size_of::<CUresult>() == size_of::<c_int>());

macro_rules! driver {
    ($($name:ident: $symbol:ident ($($argument:ty),*);)*) => {
        /// The driver's functions; the library stays loaded for the life of the process.
        pub(crate) struct CudaDriver {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// `cuGetErrorName`, with a code that may be unknown.
            error_name: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
        }

        // Each takes cudarc's declared arguments, or this does not compile.
        $(const _: unsafe fn($($argument),*) -> CUresult = sys::$symbol;)*

        impl CudaDriver {
            /// Binds every function, or names the missing one.
            pub(crate) fn bind(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are cudarc's of cuda.h, and the library is never unloaded.
                let driver = unsafe {
                    Self {
                        $($name: *library.get(stringify!($symbol))?,)*
                        error_name: *library.get("cuGetErrorName")?,
                    }
                };
                std::mem::forget(library);
                Ok(driver)
            }
        }
    };
}

driver! {
    init: cuInit (c_uint);
    device_get: cuDeviceGet (*mut CUdevice, c_int);
    device_name: cuDeviceGetName (*mut c_char, c_int, CUdevice);
    context_retain: cuDevicePrimaryCtxRetain (*mut CUcontext, CUdevice);
    context_release: cuDevicePrimaryCtxRelease_v2 (CUdevice);
    context_set: cuCtxSetCurrent (CUcontext);
    alloc: cuMemAlloc_v2 (*mut CUdeviceptr, usize);
    free: cuMemFree_v2 (CUdeviceptr);
    pin: cuMemHostRegister_v2 (*mut c_void, usize, c_uint);
    unpin: cuMemHostUnregister (*mut c_void);
    to_device: cuMemcpyHtoD_v2 (CUdeviceptr, *const c_void, usize);
    to_host: cuMemcpyDtoH_v2 (*mut c_void, CUdeviceptr, usize);
    to_device_async: cuMemcpyHtoDAsync_v2 (CUdeviceptr, *const c_void, usize, CUstream);
    inside_async: cuMemcpyDtoDAsync_v2 (CUdeviceptr, CUdeviceptr, usize, CUstream);
    inside_2d_async: cuMemcpy2DAsync_v2 (*const CUDA_MEMCPY2D, CUstream);
    stream_create: cuStreamCreate (*mut CUstream, c_uint);
    stream_wait: cuStreamSynchronize (CUstream);
    stream_destroy: cuStreamDestroy_v2 (CUstream);
    event_create: cuEventCreate (*mut CUevent, c_uint);
    event_record: cuEventRecord (CUevent, CUstream);
    event_wait: cuEventSynchronize (CUevent);
    event_destroy: cuEventDestroy_v2 (CUevent);
}

impl CudaDriver {
    /// A code as a result.
    pub(crate) fn check(&self, call: &str, code: c_int) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        let kind = match code {
            NO_DEVICE | INVALID_DEVICE => DeviceErrorKind::Unsupported,
            _ => DeviceErrorKind::Unavailable,
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
