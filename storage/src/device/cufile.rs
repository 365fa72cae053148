//! The functions of cuFile, bound by name. In: a loaded library. Out: calls with Rust's types, and cuFile's codes as
//! errors. Signatures and codes: cufile.h, as in NVIDIA's cuFile API reference and in cudarc's generated bindings.

use super::DeviceError;
use super::counters::{Reads, WORDS};
use crate::error::{ErrorKind, StorageError};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
const HANDLE_IS_FD: c_int = 1;
/// `CUFILE_PARAM_FORCE_COMPAT_MODE`.
const FORCE_COMPAT_MODE: c_int = 2;

/// `CUfileHandle_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(*mut c_void);

// SAFETY: an opaque number to us; cuFile's calls may be made from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// `CUfileError_t`: cuFile's code, 0 for success, and CUDA's.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    code: c_int,
    cuda: c_int,
}

/// `CUfileDescr_t`.
#[repr(C)]
struct Descriptor {
    kind: c_int,
    /// A union of a descriptor and a pointer.
    fd: i64,
    operations: *const c_void,
}

type Plain = unsafe extern "C" fn() -> Status;
type SetBool = unsafe extern "C" fn(c_int, bool) -> Status;
type SetStatsLevel = unsafe extern "C" fn(c_int) -> Status;
type GetStats = unsafe extern "C" fn(*mut c_void) -> Status;

/// The functions of cuFile; the library stays loaded for the life of the process.
pub(super) struct CuFile {
    driver_open: Plain,
    driver_close: Plain,
    /// Absent before cuFile 1.14.
    set_bool: Option<SetBool>,
    handle_register: unsafe extern "C" fn(*mut *mut c_void, *mut Descriptor) -> Status,
    handle_deregister: unsafe extern "C" fn(*mut c_void),
    buf_register: unsafe extern "C" fn(*const c_void, usize, c_int) -> Status,
    buf_deregister: unsafe extern "C" fn(*const c_void) -> Status,
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, libc::off_t, libc::off_t) -> isize,
    /// Absent before CUDA 13.
    stats: Option<(SetStatsLevel, Plain, GetStats)>,
    counts: AtomicBool,
}

/// cuFile's name of a code, and what a caller can act on. Codes that are not here are a failure of the device.
fn meaning(code: c_int) -> (&'static str, ErrorKind) {
    use ErrorKind::{Denied, Invalid, Unavailable, Unsupported};
    match code {
        5001 => ("driver not initialised", Unavailable),
        5004 | 5005 => ("driver version mismatch", Unsupported),
        5006 => ("driver closing", Unavailable),
        5007 => ("platform not supported", Unsupported),
        5008 => ("I/O not supported on this file", Unsupported),
        5009 => ("device not supported", Unsupported),
        5010 | 5033 | 5048 => ("nvidia-fs failed", Unavailable),
        5011 => ("CUDA driver error", Unavailable),
        5012 => ("CUDA pointer invalid", Unavailable),
        5013 => ("CUDA memory type invalid", Unavailable),
        5014 => ("CUDA pointer range error", Unavailable),
        5015 | 5047 => ("CUDA context mismatch", Unavailable),
        5018 => ("file type not supported", Unsupported),
        5019 => ("file open flags not supported", Unsupported),
        5020 => ("file is not open for direct I/O", Unsupported),
        5022 => ("invalid value", Invalid),
        5023 => ("memory already registered", Unavailable),
        5024 => ("memory not registered", Unavailable),
        5025 => ("permission denied", Denied),
        5027 => ("file handle not registered", Unavailable),
        5028 => ("file handle already registered", Unavailable),
        5029 => ("device not found", Unsupported),
        5034 => ("I/O disabled", Unsupported),
        5036 => ("device memory could not be pinned", Unavailable),
        5043 => ("out of memory", Unavailable),
        5044 => ("I/O error", Unavailable),
        5045 => ("buffer registration failed", Unavailable),
        _ => ("an error that this build has no words for", Unavailable),
    }
}

fn failed(call: &str, code: c_int, cuda: c_int) -> DeviceError {
    let (name, kind) = meaning(code);
    let cuda = if cuda == 0 {
        String::new()
    } else {
        format!(", CUDA error {cuda}")
    };
    DeviceError::new(kind, format!("{call} failed: {name} (cuFile error {code}{cuda})"))
}

fn check(call: &str, status: Status) -> Result<(), DeviceError> {
    match status {
        Status { code: 0, .. } => Ok(()),
        Status { code, cuda } => Err(failed(call, code, cuda)),
    }
}

impl CuFile {
    /// Binds what is there; names the function that is missing.
    pub(super) fn bind(library: Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of cufile.h, and the library is never unloaded.
        let cufile = unsafe {
            let stats = || -> Result<(SetStatsLevel, Plain, GetStats), libloading::Error> {
                let level = *library.get::<SetStatsLevel>("cuFileSetStatsLevel")?;
                Ok((
                    level,
                    *library.get("cuFileStatsStart")?,
                    *library.get("cuFileGetStatsL3")?,
                ))
            };
            Self {
                driver_open: *library.get("cuFileDriverOpen")?,
                driver_close: *library.get("cuFileDriverClose")?,
                set_bool: library.get::<SetBool>("cuFileSetParameterBool").ok().map(|f| *f),
                handle_register: *library.get("cuFileHandleRegister")?,
                handle_deregister: *library.get("cuFileHandleDeregister")?,
                buf_register: *library.get("cuFileBufRegister")?,
                buf_deregister: *library.get("cuFileBufDeregister")?,
                read: *library.get("cuFileRead")?,
                stats: stats().ok(),
                counts: AtomicBool::new(false),
            }
        };
        std::mem::forget(library);
        Ok(cufile)
    }

    /// Opens cuFile's driver, with its counters on where it has them. Needs a current context.
    pub(super) fn open_driver(&self, force_compat: bool) -> Result<(), DeviceError> {
        if force_compat {
            self.force_compat()?;
        }
        // SAFETY: takes nothing.
        check("cuFileDriverOpen", unsafe { (self.driver_open)() })?;
        if let Some((set_level, start, _)) = self.stats {
            // SAFETY: take no pointers.
            let counting =
                unsafe { check("cuFileSetStatsLevel", set_level(3)).and_then(|()| check("cuFileStatsStart", start())) };
            match counting {
                Ok(()) => self.counts.store(true, Ordering::Relaxed),
                Err(error) => {
                    tracing::warn!(%error, "cuFile does not count its reads: none of them will be called gds");
                }
            }
        }
        Ok(())
    }

    /// Before the driver is opened: all reads through POSIX.
    fn force_compat(&self) -> Result<(), DeviceError> {
        match self.set_bool {
            // SAFETY: takes no pointers.
            Some(set) => check("cuFileSetParameterBool", unsafe { set(FORCE_COMPAT_MODE, true) }),
            None if std::env::var("CUFILE_FORCE_COMPAT_MODE").is_ok_and(|value| value == "true") => Ok(()),
            None => Err(DeviceError::new(
                ErrorKind::Unsupported,
                "this cuFile is older than 1.14 and cannot be told its mode: set CUFILE_FORCE_COMPAT_MODE=true in the \
                 environment",
            )),
        }
    }

    /// Closes the driver, once for each [`open_driver`](Self::open_driver), after everything is deregistered.
    pub(super) fn close_driver(&self) {
        // SAFETY: takes nothing.
        if let Err(error) = check("cuFileDriverClose", unsafe { (self.driver_close)() }) {
            tracing::warn!(%error, "cuFile could not be closed");
        }
    }

    /// Registers an open file, which must stay open until [`deregister`](Self::deregister).
    pub(super) fn register(&self, fd: i32) -> Result<Handle, DeviceError> {
        let mut handle = std::ptr::null_mut();
        let mut descriptor = Descriptor {
            kind: HANDLE_IS_FD,
            fd: i64::from(fd),
            operations: std::ptr::null(),
        };
        // SAFETY: both point to locals of the right type, which the call does not keep.
        check("cuFileHandleRegister", unsafe {
            (self.handle_register)(&raw mut handle, &raw mut descriptor)
        })?;
        Ok(Handle(handle))
    }

    /// # Safety
    /// The handle is registered, and not used any more.
    pub(super) unsafe fn deregister(&self, handle: Handle) {
        // SAFETY: the caller's promise.
        unsafe { (self.handle_deregister)(handle.0) }
    }

    /// # Safety
    /// `at` is device memory of `len` bytes that outlives the registration.
    pub(super) unsafe fn register_buffer(&self, at: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        check("cuFileBufRegister", unsafe {
            (self.buf_register)(at as *const c_void, len, 0)
        })
    }

    /// # Safety
    /// `at` is registered, and no read into it is under way.
    pub(super) unsafe fn deregister_buffer(&self, at: u64) {
        // SAFETY: the caller's promise.
        if let Err(error) = check("cuFileBufDeregister", unsafe {
            (self.buf_deregister)(at as *const c_void)
        }) {
            tracing::warn!(%error, "device memory could not be deregistered");
        }
    }

    /// Reads `len` bytes at `offset` of a file to `into` bytes behind the start of a buffer; tells how many came.
    ///
    /// # Safety
    /// The handle is registered, `base` is the start of an allocation of device memory that holds `into + len` bytes.
    pub(super) unsafe fn read(
        &self,
        handle: Handle,
        (base, into): (u64, usize),
        len: usize,
        offset: u64,
    ) -> Result<usize, DeviceError> {
        let far = |_| DeviceError::new(ErrorKind::OutOfRange, "an offset past what files have");
        let offset = libc::off_t::try_from(offset).map_err(far)?;
        let into = libc::off_t::try_from(into).map_err(far)?;
        // SAFETY: the caller's promise.
        match unsafe { (self.read)(handle.0, base as *mut c_void, len, offset, into) } {
            -1 => {
                let error = StorageError::from_io("cuFileRead", &std::io::Error::last_os_error());
                Err(DeviceError::new(
                    error.kind(),
                    format!("cuFileRead failed: {}", error.detail()),
                ))
            }
            came => {
                usize::try_from(came).map_err(|_| failed("cuFileRead", c_int::try_from(-came).unwrap_or(c_int::MAX), 0))
            }
        }
    }

    /// Whether it counts its reads by the way that they took.
    pub(super) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// The reads so far; `None` where they are not counted, or not in a layout that is known.
    pub(super) fn reads(&self, words: &mut [u64; WORDS]) -> Option<Reads> {
        words.fill(0);
        let (.., get) = self.stats.filter(|_| self.counts())?;
        // SAFETY: the words are several times what any known version of the structure takes.
        check("cuFileGetStatsL3", unsafe { get(words.as_mut_ptr().cast()) }).ok()?;
        Reads::parse(&words[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_an_error_with_its_number() {
        for (code, kind) in [
            (5025, ErrorKind::Denied),
            (5018, ErrorKind::Unsupported),
            (5022, ErrorKind::Invalid),
            (5044, ErrorKind::Unavailable),
            (5999, ErrorKind::Unavailable),
        ] {
            let error = failed("cuFileRead", code, 700);
            assert_eq!(error.kind, kind, "{code}");
            assert!(error.detail.contains(&code.to_string()) && error.detail.contains("700"));
        }
        assert!(check("x", Status { code: 0, cuda: 0 }).is_ok());
    }
}
