//! Functions of cuFile, bound by name, and the proof from its counters that reads went to GPU memory directly. In: a
//! loaded library. Out: calls with Rust's types, and cuFile's codes as errors. Argument types are cudarc's; returned codes stay numbers.

use super::{DeviceError, DeviceErrorKind};
use cudarc::cufile::sys::{
    self, CUFileBoolConfigParameter_t, CUfileDescr_t, CUfileDescr_t__bindgen_ty_1, CUfileError_t, CUfileFileHandleType,
    CUfileHandle_t, CUfileOpError, CUfilePerGpuStats_t as PerGpu, CUfileStatsLevel3_t, CUfileStatsLevel3_t as Level3,
    off_t,
};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A registered file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(CUfileHandle_t);

// SAFETY: an opaque number to us; cuFile's calls may be made from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// `CUfileError_t` as numbers: cuFile's code (0 for success) and CUDA's code. Either may be missing in cudarc's enums.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    code: c_int,
    cuda: c_int,
}

const _: () = assert!(
    size_of::<Status>() == size_of::<CUfileError_t>()
        && align_of::<Status>() == align_of::<CUfileError_t>()
        && offset_of!(Status, code) == offset_of!(CUfileError_t, err)
        && offset_of!(Status, cuda) == offset_of!(CUfileError_t, cu_err)
);

/// Function types. Each takes cudarc's declared arguments, or this does not compile.
macro_rules! functions {
    ($($name:ident: $symbol:ident ($($argument:ty),*) -> $ours:ty as $declared:ty;)*) => {$(
        type $name = unsafe extern "C" fn($($argument),*) -> $ours;
        const _: unsafe fn($($argument),*) -> $declared = sys::$symbol;
    )*};
}

functions! {
    DriverOpen: cuFileDriverOpen () -> Status as CUfileError_t;
    DriverClose: cuFileDriverClose () -> Status as CUfileError_t;
    SetBool: cuFileSetParameterBool (CUFileBoolConfigParameter_t, bool) -> Status as CUfileError_t;
    HandleRegister: cuFileHandleRegister (*mut CUfileHandle_t, *mut CUfileDescr_t) -> Status as CUfileError_t;
    HandleDeregister: cuFileHandleDeregister (CUfileHandle_t) -> () as ();
    BufRegister: cuFileBufRegister (*const c_void, usize, c_int) -> Status as CUfileError_t;
    BufDeregister: cuFileBufDeregister (*const c_void) -> Status as CUfileError_t;
    Read: cuFileRead (CUfileHandle_t, *mut c_void, usize, off_t, off_t) -> isize as isize;
    SetStatsLevel: cuFileSetStatsLevel (c_int) -> Status as CUfileError_t;
    StatsStart: cuFileStatsStart () -> Status as CUfileError_t;
    GetStats: cuFileGetStatsL3 (*mut CUfileStatsLevel3_t) -> Status as CUfileError_t;
}

/// The functions of cuFile; the library stays loaded for the life of the process.
pub(crate) struct CuFile {
    driver_open: DriverOpen,
    driver_close: DriverClose,
    /// Absent before cuFile 1.14.
    set_bool: Option<SetBool>,
    handle_register: HandleRegister,
    handle_deregister: HandleDeregister,
    buf_register: BufRegister,
    buf_deregister: BufDeregister,
    read: Read,
    /// Absent before CUDA 13.
    stats: Option<(SetStatsLevel, StatsStart, GetStats)>,
    /// True if the library counts its reads by path.
    pub(crate) counts: bool,
}

/// cuFile's codes for things that this machine, build or file cannot do, with their names.
const UNSUPPORTED: [(CUfileOpError, &str); 10] = {
    use CUfileOpError as E;
    [
        (E::CU_FILE_DRIVER_VERSION_MISMATCH, "driver version mismatch"),
        (E::CU_FILE_DRIVER_VERSION_READ_ERROR, "driver version mismatch"),
        (E::CU_FILE_PLATFORM_NOT_SUPPORTED, "platform not supported"),
        (E::CU_FILE_IO_NOT_SUPPORTED, "I/O not supported on this file"),
        (E::CU_FILE_DEVICE_NOT_SUPPORTED, "device not supported"),
        (E::CU_FILE_INVALID_FILE_TYPE, "file type not supported"),
        (E::CU_FILE_INVALID_FILE_OPEN_FLAG, "file open flags not supported"),
        (E::CU_FILE_DIO_NOT_SET, "file is not open for direct I/O"),
        (E::CU_FILE_DEVICE_NOT_FOUND, "device not found"),
        (E::CU_FILE_IO_DISABLED, "I/O disabled"),
    ]
};

/// The other codes: failures of the device, except for two.
const OTHERS: [(CUfileOpError, &str); 21] = {
    use CUfileOpError as E;
    [
        (E::CU_FILE_PERMISSION_DENIED, "permission denied"),
        (E::CU_FILE_INVALID_VALUE, "invalid value"),
        (E::CU_FILE_DRIVER_NOT_INITIALIZED, "driver not initialised"),
        (E::CU_FILE_DRIVER_CLOSING, "driver closing"),
        (E::CU_FILE_NVFS_DRIVER_ERROR, "nvidia-fs failed"),
        (E::CU_FILE_NVFS_SETUP_ERROR, "nvidia-fs failed"),
        (E::CU_FILE_NVFS_INTERNAL_DRIVER_ERROR, "nvidia-fs failed"),
        (E::CU_FILE_CUDA_DRIVER_ERROR, "CUDA driver error"),
        (E::CU_FILE_CUDA_POINTER_INVALID, "CUDA pointer invalid"),
        (E::CU_FILE_CUDA_MEMORY_TYPE_INVALID, "CUDA memory type invalid"),
        (E::CU_FILE_CUDA_POINTER_RANGE_ERROR, "CUDA pointer range error"),
        (E::CU_FILE_CUDA_CONTEXT_MISMATCH, "CUDA context mismatch"),
        (E::CU_FILE_INVALID_CONTEXT_ERROR, "CUDA context mismatch"),
        (E::CU_FILE_MEMORY_ALREADY_REGISTERED, "memory already registered"),
        (E::CU_FILE_MEMORY_NOT_REGISTERED, "memory not registered"),
        (E::CU_FILE_HANDLE_NOT_REGISTERED, "file handle not registered"),
        (E::CU_FILE_HANDLE_ALREADY_REGISTERED, "file handle already registered"),
        (E::CU_FILE_GPU_MEMORY_PINNING_FAILED, "device memory cannot be pinned"),
        (E::CU_FILE_NOMEM_ERROR, "out of memory"),
        (E::CU_FILE_IO_ERROR, "I/O error"),
        (E::CU_FILE_INTERNAL_BUF_REGISTER_ERROR, "buffer registration failed"),
    ]
};

fn meaning(code: c_int) -> (&'static str, DeviceErrorKind) {
    let named = |names: &[(CUfileOpError, &'static str)]| {
        let found = names.iter().find(|(known, _)| *known as c_int == code);
        found.map(|(_, name)| *name)
    };
    if let Some(name) = named(&UNSUPPORTED) {
        return (name, DeviceErrorKind::Unsupported);
    }
    let kind = match named(&OTHERS) {
        Some("permission denied") => DeviceErrorKind::Denied,
        Some("invalid value") => DeviceErrorKind::Invalid,
        _ => DeviceErrorKind::Unavailable,
    };
    (named(&OTHERS).unwrap_or("unknown error"), kind)
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

/// Says why cuFile does not know the volume of a file, if it does not. It takes volumes from udev's database, which
/// virtual file systems are not in and most containers lack, and then refuses files in its compatibility mode too.
fn unknown_volume(fd: i32) -> Option<String> {
    let device = std::fs::metadata(format!("/proc/self/fd/{fd}")).ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    if major == 0 {
        return Some("the file system has no block device, as tmpfs or an overlay; cuFile knows few of these".into());
    }
    let entry = format!("/run/udev/data/b{major}:{minor}");
    let advice = "in a container, mount the host's /run/udev; or use `path = \"bounce\"`";
    (!Path::new(&entry).exists()).then(|| format!("cuFile found no volume of this file: {entry} is missing ({advice})"))
}

impl CuFile {
    /// Binds the functions; names a missing function.
    pub(crate) fn bind(library: Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are cudarc's of cufile.h, and the library is never unloaded.
        let cufile = unsafe {
            let stats = || -> Result<(SetStatsLevel, StatsStart, GetStats), libloading::Error> {
                let level = *library.get::<SetStatsLevel>("cuFileSetStatsLevel")?;
                let start = *library.get::<StatsStart>("cuFileStatsStart")?;
                Ok((level, start, *library.get("cuFileGetStatsL3")?))
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
                counts: false,
            }
        };
        std::mem::forget(library);
        Ok(cufile)
    }

    /// Opens cuFile's driver, with its counters on if it has them. Needs a current context.
    pub(crate) fn open_driver(&mut self, force_compat: bool) -> Result<(), DeviceError> {
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
                Ok(()) => self.counts = true,
                Err(error) => tracing::warn!(%error, "cuFile does not count its reads: none will be reported as gds"),
            }
        }
        Ok(())
    }

    /// Sends all reads through POSIX. Must be called before the driver is opened.
    fn force_compat(&self) -> Result<(), DeviceError> {
        let mode = CUFileBoolConfigParameter_t::CUFILE_PARAM_FORCE_COMPAT_MODE;
        match self.set_bool {
            // SAFETY: takes no pointers.
            Some(set) => check("cuFileSetParameterBool", unsafe { set(mode, true) }),
            None if std::env::var("CUFILE_FORCE_COMPAT_MODE").is_ok_and(|value| value == "true") => Ok(()),
            None => {
                let detail = "cuFile is older than 1.14 and only takes its mode from the environment";
                let detail = format!("{detail}: set CUFILE_FORCE_COMPAT_MODE=true there");
                Err(DeviceError::new(DeviceErrorKind::Unsupported, detail))
            }
        }
    }

    /// Closes the driver, once for each [`open_driver`](Self::open_driver), after everything is deregistered.
    pub(crate) fn close_driver(&self) {
        // SAFETY: takes nothing.
        if let Err(error) = check("cuFileDriverClose", unsafe { (self.driver_close)() }) {
            tracing::warn!(%error, "cuFile could not be closed");
        }
    }

    /// Registers an open file, which must stay open until [`deregister`](Self::deregister).
    pub(crate) fn register(&self, fd: i32) -> Result<Handle, DeviceError> {
        let mut handle = std::ptr::null_mut();
        let mut descriptor = CUfileDescr_t {
            type_: CUfileFileHandleType::CU_FILE_HANDLE_TYPE_OPAQUE_FD,
            handle: CUfileDescr_t__bindgen_ty_1 { fd },
            fs_ops: std::ptr::null(),
        };
        // SAFETY: both point to locals of the right type, which the call does not keep.
        let status = unsafe { (self.handle_register)(&raw mut handle, &raw mut descriptor) };
        check("cuFileHandleRegister", status).map_err(|error| match unknown_volume(fd) {
            Some(reason) => DeviceError::new(DeviceErrorKind::Unsupported, format!("{}: {reason}", error.detail)),
            None => error,
        })?;
        Ok(Handle(handle))
    }

    /// # Safety
    /// The handle is registered, and not used any more.
    pub(crate) unsafe fn deregister(&self, handle: Handle) {
        // SAFETY: the caller's promise.
        unsafe { (self.handle_deregister)(handle.0) }
    }

    /// # Safety
    /// `at` is device memory of `len` bytes that outlives the registration.
    pub(crate) unsafe fn register_buffer(&self, at: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.buf_register)(at as *const c_void, len, 0) };
        check("cuFileBufRegister", status)
    }

    /// # Safety
    /// `at` is registered, and no read into it is under way.
    pub(crate) unsafe fn deregister_buffer(&self, at: u64) {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.buf_deregister)(at as *const c_void) };
        if let Err(error) = check("cuFileBufDeregister", status) {
            tracing::warn!(%error, "device memory could not be deregistered");
        }
    }

    /// Reads `len` bytes at `offset` of a file into the allocation at `base`, and returns the number of bytes read.
    ///
    /// # Safety
    /// The handle is registered, and the allocation holds `into + len` bytes.
    pub(crate) unsafe fn read(
        &self,
        handle: Handle,
        (base, into): (u64, usize),
        len: usize,
        offset: u64,
    ) -> Result<usize, DeviceError> {
        let far = |_| DeviceError::new(DeviceErrorKind::OutOfRange, "file offset too large");
        let offset = off_t::try_from(offset).map_err(far)?;
        let into = off_t::try_from(into).map_err(far)?;
        // SAFETY: the caller's promise.
        match unsafe { (self.read)(handle.0, base as *mut c_void, len, offset, into) } {
            -1 => {
                let error = std::io::Error::last_os_error();
                let detail = format!("cuFileRead failed: {error}");
                Err(DeviceError::new(DeviceErrorKind::Io(error.kind()), detail))
            }
            count => usize::try_from(count)
                .map_err(|_| failed("cuFileRead", c_int::try_from(-count).unwrap_or(c_int::MAX), 0)),
        }
    }

    /// Reads so far; `None` if they are not counted, or not in a known layout.
    pub(crate) fn reads(&self) -> Option<Reads> {
        let (.., get) = self.stats.filter(|_| self.counts)?;
        let mut words = vec![0_u64; WORDS];
        // SAFETY: the words are several times what any known version of the structure takes.
        check("cuFileGetStatsL3", unsafe { get(words.as_mut_ptr().cast()) }).ok()?;
        Reads::parse(&words)
    }
}

// Counters of reads by path. `cuFileGetStatsL3` fills a `CUfileStatsLevel3_t`. It is read as 64-bit words at the offsets
// of CUDA 13.0 to 13.3, not as that structure, because a later cuFile fills a larger structure, which must fit. The words
// of such a cuFile do not add up, and then nothing is proven.

/// Words handed to cuFile: more than three times the size of the known layout.
const WORDS: usize = 2048;
const GPUS_AT: usize = words_in(offset_of!(Level3, num_gpus));
const FIRST_GPU_AT: usize = words_in(offset_of!(Level3, per_gpu_stats));
const GPU_WORDS: usize = words_in(size_of::<PerGpu>());
const MAX_GPUS: usize = (words_in(size_of::<Level3>()) - FIRST_GPU_AT) / GPU_WORDS;
const BYTES: usize = words_in(offset_of!(PerGpu, read_bytes));
const TOTAL: usize = words_in(offset_of!(PerGpu, n_total_reads));
const PEER_TO_PEER: usize = words_in(offset_of!(PerGpu, n_p2p_reads));
const NVIDIA_FS: usize = words_in(offset_of!(PerGpu, n_nvfs_reads));
const POSIX: usize = words_in(offset_of!(PerGpu, n_posix_reads));

const _: () = assert!(size_of::<Level3>() * 3 < WORDS * 8);

const fn words_in(bytes: usize) -> usize {
    assert!(bytes.is_multiple_of(8));
    bytes / 8
}

/// Reads counted by cuFile over all GPUs: since its counters were started, or between two snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Bytes of all reads.
    pub bytes: u64,
    /// Number of all reads.
    pub total: u64,
    /// Reads from the device over the bus, by the kernel's peer-to-peer.
    pub peer_to_peer: u64,
    /// Reads from the device over the bus, by the nvidia-fs module.
    pub nvidia_fs: u64,
    /// Reads through the host's memory.
    pub posix: u64,
}

impl Reads {
    /// Reads the counters; `None` if they are inconsistent.
    pub(crate) fn parse(words: &[u64]) -> Option<Self> {
        let gpus = usize::try_from(*words.get(GPUS_AT)?).ok();
        let gpus = gpus.filter(|gpus| (1..=MAX_GPUS).contains(gpus))?;
        let mut reads = Self::default();
        for gpu in words.get(FIRST_GPU_AT..)?.chunks_exact(GPU_WORDS).take(gpus) {
            reads.bytes = reads.bytes.checked_add(gpu[BYTES])?;
            reads.total = reads.total.checked_add(gpu[TOTAL])?;
            reads.peer_to_peer = reads.peer_to_peer.checked_add(gpu[PEER_TO_PEER])?;
            reads.nvidia_fs = reads.nvidia_fs.checked_add(gpu[NVIDIA_FS])?;
            reads.posix = reads.posix.checked_add(gpu[POSIX])?;
        }
        Some(reads)
    }

    /// Difference to an earlier snapshot; `None` if a counter decreased.
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            bytes: self.bytes.checked_sub(before.bytes)?,
            total: self.total.checked_sub(before.total)?,
            peer_to_peer: self.peer_to_peer.checked_sub(before.peer_to_peer)?,
            nvidia_fs: self.nvidia_fs.checked_sub(before.nvidia_fs)?,
            posix: self.posix.checked_sub(before.posix)?,
        })
    }

    /// True if these counts prove that exactly these `bytes` took only the direct path. Anything else, such as a
    /// concurrent read by another program, proves nothing.
    pub fn prove_direct(&self, bytes: u64) -> bool {
        let direct = self.peer_to_peer.checked_add(self.nvidia_fs);
        self.total > 0 && self.bytes == bytes && direct == Some(self.total) && self.posix == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_block_device_holds_is_explained() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let reason = unknown_volume(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
        assert!(reason.contains("no block device"), "{reason}");
        assert!(unknown_volume(-1).is_none());
    }

    #[test]
    fn every_code_is_an_error_with_its_number() {
        for (code, kind) in [
            (5025, DeviceErrorKind::Denied),
            (5018, DeviceErrorKind::Unsupported),
            (5022, DeviceErrorKind::Invalid),
            (5044, DeviceErrorKind::Unavailable),
            (5999, DeviceErrorKind::Unavailable),
        ] {
            let error = failed("cuFileRead", code, 700);
            assert_eq!(error.kind, kind, "{code}");
            assert!(error.detail.contains(&code.to_string()) && error.detail.contains("700"));
        }
        assert!(check("x", Status { code: 0, cuda: 0 }).is_ok());
    }
}

#[cfg(test)]
mod counters_tests {
    use super::*;

    /// Counters of two GPUs; the second has read.
    fn words(bytes: u64, total: u64, peer_to_peer: u64, nvidia_fs: u64, posix: u64) -> Vec<u64> {
        let mut words = vec![0; WORDS];
        words[GPUS_AT] = 2;
        let second = GPUS_AT + 1 + GPU_WORDS;
        words[second + 2] = bytes;
        words[second + 6..second + 10].copy_from_slice(&[total, peer_to_peer, nvidia_fs, posix]);
        words
    }

    #[test]
    fn only_counters_that_add_up_prove_anything() {
        let before = Reads::parse(&words(1000, 5, 2, 2, 1)).unwrap();
        let proven = |after: &[u64]| {
            let since = Reads::parse(after).unwrap().since(&before);
            since.is_some_and(|since| since.prove_direct(4096))
        };
        assert!(proven(&words(5096, 6, 3, 2, 1)), "by peer to peer");
        assert!(proven(&words(5096, 6, 2, 3, 1)), "by nvidia-fs");
        assert!(!proven(&words(5096, 6, 2, 2, 2)), "through POSIX");
        assert!(!proven(&words(5096, 7, 3, 2, 2)), "partly through POSIX");
        assert!(!proven(&words(5096, 6, 2, 2, 1)), "a read of no known way");
        assert!(!proven(&words(9192, 7, 4, 2, 1)), "somebody else read too");
        assert!(!proven(&words(1000, 5, 2, 2, 1)), "nothing was counted");
        assert!(!proven(&words(0, 0, 0, 0, 0)), "the counters were reset");
    }

    #[test]
    fn another_layout_is_not_read() {
        assert_eq!(Reads::parse(&[0; WORDS]), None);
        assert_eq!(Reads::parse(&[u64::MAX; WORDS]), None);
        assert_eq!(Reads::parse(&[1; 100]), None);
    }
}
