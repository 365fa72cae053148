//! A folder, a stand-in with its own state, and a tier that reads the folder through the stand-in.
#![allow(unsafe_code)]

use crate::standin::StandIn;
use libloading::Library;
use std::ffi::CString;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tierlab_storage::device::{DevicePath, DeviceReads, Landed};
use tierlab_storage::tiers::gds::{GdsConfig, GdsTier};
use tierlab_storage::{Object, ObjectPath, StorageError, Tier};

/// Counters that must be zero when everything has been released.
const BALANCED: [&str; 8] = [
    "contexts",
    "allocations",
    "pinned",
    "streams",
    "events",
    "handles",
    "buffers",
    "drivers",
];

pub(crate) struct Harness {
    pub(crate) root: TempDir,
    library: Library,
    standin: StandIn,
}

impl Harness {
    pub(crate) fn new() -> Self {
        let standin = StandIn::build();
        // SAFETY: the stand-in has no initialisers but one that reads the environment.
        let library = unsafe { Library::new(standin.folder().join("libcuda.so.1")) }.unwrap();
        // Below the project's target folder rather than in memory, so that there are direct reads.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { root, library, standin }
    }

    pub(crate) fn standin(&self) -> &StandIn {
        &self.standin
    }

    pub(crate) fn set(&self, name: &str, value: i64) {
        let name = CString::new(name).unwrap();
        // SAFETY: the stand-in's own function; the text outlives the call.
        let code = unsafe {
            let set: libloading::Symbol<'_, unsafe extern "C" fn(*const std::ffi::c_char, i64) -> i32> =
                self.library.get("standin_set").unwrap();
            set(name.as_ptr(), value)
        };
        assert_eq!(code, 0, "the stand-in has no setting {name:?}");
    }

    pub(crate) fn count(&self, name: &str) -> i64 {
        let c_name = CString::new(name).unwrap();
        // SAFETY: as above.
        let count = unsafe {
            let get: libloading::Symbol<'_, unsafe extern "C" fn(*const std::ffi::c_char) -> i64> =
                self.library.get("standin_get").unwrap();
            get(c_name.as_ptr())
        };
        assert!(
            count >= 0,
            "`{name}` was given back more often than taken, or is not counted"
        );
        count
    }

    pub(crate) fn config(&self, path: DevicePath) -> GdsConfig {
        GdsConfig {
            root: self.root.path().to_owned(),
            device: 0,
            path,
            chunk_bytes: 64 << 10,
            pinned_buffers: 2,
            threads: 4,
            device_memory_bytes: 64 << 20,
            libraries: vec![self.standin.folder()],
        }
    }

    pub(crate) async fn tier(&self, path: DevicePath) -> Arc<GdsTier> {
        Arc::new(GdsTier::open(&self.config(path)).await.unwrap())
    }

    /// Everything that was taken has been given back, and nothing was used after that.
    pub(crate) fn assert_balanced(&self) {
        for name in BALANCED {
            assert_eq!(self.count(name), 0, "{name} that were not given back");
        }
        assert_eq!(self.count("violations"), 0, "memory was given back while it was in use");
        assert_eq!(
            self.count("unpinned_copies"),
            0,
            "asynchronous copies from memory that is not pinned"
        );
    }
}

/// Bytes that identify their position.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

pub(crate) async fn object(tier: &GdsTier, root: &Path, name: &str, bytes: &[u8]) -> Object {
    std::fs::write(root.join(name), bytes).unwrap();
    tier.stat(&ObjectPath::new(name).unwrap()).await.unwrap()
}

/// Copies landed ranges to the host.
pub(crate) fn on_host(landed: &Landed) -> Vec<Vec<u8>> {
    let parts = landed.parts.iter().map(|part| {
        let mut bytes = vec![0; part.len()];
        landed.bytes.to_host(part.start, &mut bytes).unwrap();
        bytes
    });
    parts.collect()
}

pub(crate) async fn read(tier: &GdsTier, object: &Object, ranges: &[Range<u64>]) -> Result<Landed, StorageError> {
    tier.read_to_device(object, ranges).await
}

pub(crate) async fn read_one(tier: &GdsTier, object: &Object, range: Range<u64>) -> Result<Landed, StorageError> {
    tier.read_to_device(object, std::slice::from_ref(&range)).await
}
