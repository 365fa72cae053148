//! Finding CUDA and cuFile, and calling cuFile. In: nothing. Out: the functions of the library, or one error that
//! lists everything that was looked for.
//!
//! cuFile is bound here and not through `cudarc`, which panics where the library is missing, never tries the name
//! `libcufile.so.0` (the only one in NVIDIA's wheel), reads error codes that it does not know as a Rust enum, and at
//! this CUDA version lacks the counters. Signatures: cufile.h, as in NVIDIA's cuFile API reference.

use crate::error::{ErrorKind, StorageError};
use libloading::Library;
use std::error::Error;
use std::ffi::c_void;
use std::fmt::Write as _;
use std::path::Path;

/// Names of the CUDA driver.
const CUDA: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
/// Names and usual places of cuFile.
const CUFILE: [&str; 4] = [
    "libcufile.so.0",
    "libcufile.so",
    "/usr/local/cuda/lib64/libcufile.so.0",
    "/usr/local/cuda/lib64/libcufile.so",
];
/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
const HANDLE_IS_FD: i32 = 1;

/// `CUfileHandle_t`.
pub(super) type Handle = *mut c_void;

/// `CUfileError_t`: cuFile's code, 0 for success, and CUDA's.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    code: i32,
    cuda: i32,
}

/// `CUfileDescr_t`.
#[repr(C)]
struct Descriptor {
    kind: i32,
    /// A union of a descriptor and a pointer.
    fd: i64,
    operations: *const c_void,
}

type Plain = unsafe extern "C" fn() -> Status;
type HandleRegister = unsafe extern "C" fn(*mut Handle, *mut Descriptor) -> Status;
type HandleDeregister = unsafe extern "C" fn(Handle);
type BufRegister = unsafe extern "C" fn(*const c_void, usize, i32) -> Status;
type BufDeregister = unsafe extern "C" fn(*const c_void) -> Status;
type Read = unsafe extern "C" fn(Handle, *mut c_void, usize, libc::off_t, libc::off_t) -> isize;
type SetStatsLevel = unsafe extern "C" fn(i32) -> Status;
type GetStats = unsafe extern "C" fn(*mut c_void) -> Status;

/// The functions of cuFile. The library stays loaded for as long as this lives.
pub(super) struct CuFile {
    driver_open: Plain,
    handle_register: HandleRegister,
    handle_deregister: HandleDeregister,
    buf_register: BufRegister,
    buf_deregister: BufDeregister,
    read: Read,
    /// Absent before CUDA 13.
    stats: Option<(SetStatsLevel, Plain, GetStats)>,
    _library: Library,
}

/// A failed call, in words.
fn check(call: &str, status: Status) -> Result<(), String> {
    match status {
        Status { code: 0, .. } => Ok(()),
        Status { code, cuda } => Err(format!("{call} failed with cuFile error {code}, CUDA error {cuda}")),
    }
}

impl CuFile {
    /// Looks for the CUDA driver and cuFile, and loads cuFile. Touches no device.
    pub(super) fn find(device: u32) -> Result<Self, StorageError> {
        let mut looked_for = Vec::new();
        let cuda = first_that_loads(&CUDA, &mut looked_for);
        let cufile = first_that_loads(&CUFILE, &mut looked_for);
        match (cuda, cufile) {
            // The driver stays loaded: `cudarc` opens it again by itself.
            (Some(cuda), Some(cufile)) => {
                std::mem::forget(cuda);
                Self::bind(cufile)
                    .map_err(|e| missing(device, &format!("libcufile lacks a function: {e}"), &looked_for))
            }
            (None, None) => Err(missing(
                device,
                "neither the CUDA driver nor cuFile is here",
                &looked_for,
            )),
            (None, _) => Err(missing(device, "the CUDA driver is not here", &looked_for)),
            (_, None) => Err(missing(device, "cuFile is not here", &looked_for)),
        }
    }

    fn bind(library: Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of cufile.h, and the pointers are not used beyond the library's life.
        unsafe {
            let stats = || -> Result<(SetStatsLevel, Plain, GetStats), libloading::Error> {
                let level = *library.get::<SetStatsLevel>("cuFileSetStatsLevel")?;
                Ok((
                    level,
                    *library.get("cuFileStatsStart")?,
                    *library.get("cuFileGetStatsL3")?,
                ))
            };
            Ok(Self {
                driver_open: *library.get("cuFileDriverOpen")?,
                handle_register: *library.get("cuFileHandleRegister")?,
                handle_deregister: *library.get("cuFileHandleDeregister")?,
                buf_register: *library.get("cuFileBufRegister")?,
                buf_deregister: *library.get("cuFileBufDeregister")?,
                read: *library.get("cuFileRead")?,
                stats: stats().ok(),
                _library: library,
            })
        }
    }

    /// Opens cuFile's driver, with its counters on where it has them. Needs a current CUDA context.
    pub(super) fn open_driver(&mut self) -> Result<(), String> {
        // SAFETY: takes nothing.
        check("cuFileDriverOpen", unsafe { (self.driver_open)() })?;
        if let Some((set_level, start, _)) = self.stats {
            // SAFETY: take no pointers.
            let counting =
                unsafe { check("cuFileSetStatsLevel", set_level(3)).and_then(|()| check("cuFileStatsStart", start())) };
            if let Err(error) = counting {
                tracing::warn!(%error, "cuFile does not count its reads: none of them will be called gds");
                self.stats = None;
            }
        }
        Ok(())
    }

    /// Registers an open file, which must stay open until [`deregister`](Self::deregister).
    pub(super) fn register(&self, fd: i32) -> Result<Handle, String> {
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
        Ok(handle)
    }

    /// # Safety
    /// The handle is registered, and not used any more.
    pub(super) unsafe fn deregister(&self, handle: Handle) {
        // SAFETY: the caller's promise.
        unsafe { (self.handle_deregister)(handle) }
    }

    /// # Safety
    /// `at` is device memory of `len` bytes that outlives the registration.
    pub(super) unsafe fn register_buffer(&self, at: u64, len: usize) -> Result<(), String> {
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

    /// Reads `len` bytes at `offset` of a file to device memory; tells how many came.
    ///
    /// # Safety
    /// The handle is registered, and `into` is device memory of at least `len` bytes.
    pub(super) unsafe fn read(&self, handle: Handle, into: u64, len: usize, offset: u64) -> Result<usize, String> {
        let offset = libc::off_t::try_from(offset).map_err(|_| "an offset past what files have".to_owned())?;
        // SAFETY: the caller's promise.
        match unsafe { (self.read)(handle, into as *mut c_void, len, offset, 0) } {
            -1 => Err(format!("cuFileRead failed: {}", std::io::Error::last_os_error())),
            n => usize::try_from(n).map_err(|_| format!("cuFileRead failed with cuFile error {}", -n)),
        }
    }

    /// Fills `words` with the counters; false where there are none.
    pub(super) fn counters(&self, words: &mut [u64; super::counters::WORDS]) -> bool {
        words.fill(0);
        self.stats.is_some_and(|(.., get)| {
            // SAFETY: the words are several times what any known version of the structure takes.
            check("cuFileGetStatsL3", unsafe { get(words.as_mut_ptr().cast()) }).is_ok()
        })
    }
}

fn first_that_loads(names: &[&str], looked_for: &mut Vec<String>) -> Option<Library> {
    for name in names {
        // SAFETY: loading runs the library's initialisers; these names are NVIDIA's, and loading them is the purpose.
        match unsafe { Library::new(*name) } {
            Ok(library) => {
                looked_for.push(format!("{name}: found"));
                return Some(library);
            }
            Err(error) => {
                // The loader's own words begin with the name.
                looked_for.push(
                    error
                        .source()
                        .map_or_else(|| format!("{name}: {error}"), ToString::to_string),
                );
            }
        }
    }
    None
}

/// The one error: what is missing, everything that was looked for, and what to do.
pub(super) fn missing(device: u32, what: &str, looked_for: &[String]) -> StorageError {
    let mut text = format!("GPUDirect Storage cannot be used: {what}. Looked for:");
    for line in looked_for {
        let _ = write!(text, "\n  {line}");
    }
    let nodes = [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        &format!("/dev/nvidia{device}"),
        "/dev/nvidia-fs0",
    ]
    .map(|node| {
        let there = if Path::new(node).exists() { "there" } else { "not there" };
        format!("{node}: {there}")
    });
    for node in nodes {
        let _ = write!(text, "\n  {node}");
    }
    match std::env::var("LD_LIBRARY_PATH") {
        Ok(path) => {
            let _ = write!(text, "\n  LD_LIBRARY_PATH={path}");
        }
        Err(_) => text.push_str("\n  LD_LIBRARY_PATH: not set"),
    }
    text.push_str(
        "\nInstall NVIDIA's driver (libcuda) and the CUDA toolkit's cuFile (package `libcufile`, or the PyPI wheel \
         `nvidia-cufile`), put the folder of libcufile on LD_LIBRARY_PATH, and see that the process may open the \
         /dev/nvidia* nodes; /dev/nvidia-fs0 is only there with the nvidia-fs module. Without a GPU, choose another \
         tier: `--tier nvme` reads the same files.",
    );
    StorageError::new(ErrorKind::Unsupported, "gds", text)
}
