//! A device: the functions of the CUDA driver, bound by name, the primary context, and cuFile if the path needs it. In:
//! a device's number. Out: a handle that threads make current before they call. Dropping the last handle releases
//! everything.

use super::cufile::{CuFile, Reads};
use super::find::{CUDA, CUFILE, Search};
use super::path::DevicePath;
use super::{DeviceError, DeviceErrorKind};
use cudarc::driver::sys::{
    self, CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags,
};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::Arc;

/// A CUDA device.
pub struct Gpu {
    pub(crate) driver: CudaDriver,
    pub(crate) cufile: Option<CuFile>,
    device: CUdevice,
    context: CUcontext,
    /// Number of the device.
    pub ordinal: u32,
    /// Name reported by the driver.
    pub name: String,
}

// SAFETY: a primary context may be used from any thread that makes it current, and the driver's calls are thread-safe.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu")
            .field("ordinal", &self.ordinal)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Gpu {
    /// Finds the driver, and cuFile if `path` needs it, and opens a device.
    ///
    /// # Errors
    /// Names the missing library, with every file that was tried; also fails if cuFile does not open.
    pub fn open(mut search: Search, ordinal: u32, path: DevicePath) -> Result<Arc<Self>, DeviceError> {
        let cuda = search.load(&CUDA);
        let cufile = path.uses_cufile().then(|| search.load(&CUFILE));
        let lacks = |detail: &str| search.missing(ordinal, detail);
        let (cuda, cufile) = match (cuda, cufile) {
            (Some(cuda), None) => (cuda, None),
            (Some(cuda), Some(Some(cufile))) => (cuda, Some(cufile)),
            (None, Some(None)) => return Err(lacks("neither the CUDA driver nor cuFile was found")),
            (None, _) => return Err(lacks("the CUDA driver was not found")),
            (Some(_), Some(None)) => return Err(lacks("cuFile was not found")),
        };
        let driver = CudaDriver::bind(cuda)
            .map_err(|e| lacks(&format!("the CUDA driver is too old and lacks a function: {e}")))?;
        let cufile = cufile.map(CuFile::bind).transpose();
        let cufile = cufile.map_err(|e| lacks(&format!("libcufile lacks a function: {e}")))?;
        let refused = |e: DeviceError| search.missing(ordinal, &e.detail);
        let mut gpu = Self::retain(driver, ordinal).map_err(refused)?;
        if let Some(mut cufile) = cufile {
            gpu.make_current().map_err(refused)?;
            cufile.open_driver(path == DevicePath::Compat).map_err(refused)?;
            gpu.cufile = Some(cufile);
        }
        Ok(Arc::new(gpu))
    }

    /// Retains the device's primary context, which ONNX Runtime uses as well.
    fn retain(driver: CudaDriver, ordinal: u32) -> Result<Self, DeviceError> {
        let wanted = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let (mut device, mut context) = (0, std::ptr::null_mut());
        let mut name = [0; 128];
        // SAFETY: each pointer is to a local of the right type and length, which the driver does not keep.
        unsafe {
            driver.check("cuInit", (driver.init)(0))?;
            driver.check("cuDeviceGet", (driver.device_get)(&raw mut device, wanted))?;
            let length = c_int::try_from(name.len()).unwrap_or(0);
            let named = (driver.device_name)(name.as_mut_ptr(), length, device);
            driver.check("cuDeviceGetName", named)?;
            let retained = (driver.context_retain)(&raw mut context, device);
            driver.check("cuDevicePrimaryCtxRetain", retained)?;
        }
        name[127] = 0;
        // SAFETY: the array ends in a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Self {
            driver,
            cufile: None,
            device,
            context,
            ordinal,
            name,
        })
    }

    /// Makes the device current on the calling thread.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn make_current(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained for as long as this lives.
        self.driver
            .check("cuCtxSetCurrent", unsafe { (self.driver.context_set)(self.context) })
    }

    /// True if cuFile reports the path of each read.
    pub fn counts_reads(&self) -> bool {
        self.cufile.as_ref().is_some_and(|cufile| cufile.counts)
    }

    /// Reads that cuFile has counted so far, over the whole process; `None` if it does not count, or not in a known
    /// layout.
    pub fn reads_so_far(&self) -> Option<Reads> {
        self.cufile.as_ref()?.reads()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Err(error) = self.make_current() {
            tracing::warn!(%error, "the device could not be released");
            return;
        }
        if let Some(cufile) = &self.cufile {
            cufile.close_driver();
        }
        // SAFETY: retained once, and everything made in it holds this alive.
        let released = unsafe {
            (self.driver.context_set)(std::ptr::null_mut());
            (self.driver.context_release)(self.device)
        };
        if let Err(error) = self.driver.check("cuDevicePrimaryCtxRelease", released) {
            tracing::warn!(%error, "the device could not be released");
        }
    }
}

/// Flag of streams that do not wait for the default stream.
pub(crate) const STREAM_NON_BLOCKING: c_uint = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
/// Flags of events: a waiting thread sleeps, and no time is recorded.
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
    /// Converts a code to a result.
    pub(crate) fn check(&self, call: &str, code: c_int) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        let kind = match code {
            NO_DEVICE | INVALID_DEVICE => DeviceErrorKind::Unsupported,
            _ => DeviceErrorKind::Unavailable,
        };
        let hint = match code {
            OUT_OF_MEMORY => ": lower `device_memory_bytes`, or read in smaller ranges",
            _ => "",
        };
        let detail = format!("{call} failed with {} ({code}){hint}", self.name_of(code));
        Err(DeviceError::new(kind, detail))
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
