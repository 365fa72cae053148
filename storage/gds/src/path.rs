//! Paths from a file to device memory, and the shortfall if the best path was requested and not taken.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use strum::{IntoStaticStr, VariantArray};
use tierlab_protocol::via::{Via, ViaSet};

/// Path from a file to device memory, as named by `path` in a tier's TOML.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum DevicePath {
    /// GPUDirect Storage by cuFile: from the disk to the device without the host's memory. Reads by another path are
    /// called `cufile-posix`; they make a run that requested this path invalid.
    #[default]
    Gds,
    /// cuFile in its compatibility mode: POSIX reads, and copies by cuFile.
    Compat,
    /// Buffered reads into pinned host buffers, each copied to the device during the next read.
    Bounce,
    /// `O_DIRECT` through io_uring into pinned buffers that the kernel has registered, then copied to the device.
    BounceDirect,
    /// Buffered reads into ordinary host memory, then a copy by the driver through its own buffer.
    Pageable,
}

impl DevicePath {
    /// All paths.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Name in configs.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// True if cuFile reads.
    pub const fn uses_cufile(self) -> bool {
        matches!(self, Self::Gds | Self::Compat)
    }

    /// True if files are opened for direct reads, provided that the file system supports them.
    pub const fn opens_direct(self) -> bool {
        self.uses_cufile() || matches!(self, Self::BounceDirect)
    }
}

/// Shortfall of a run's reads against the requested path: `None` if all reads took it, or if there were no reads.
pub fn shortfall(requested: DevicePath, used: ViaSet, missing: &str) -> Option<String> {
    (requested == DevicePath::Gds && used.contains(Via::CufilePosix)).then(|| {
        format!("GPUDirect Storage was requested, but cuFile's counters show reads by another path; missing: {missing}")
    })
}

/// Requirements of GPUDirect Storage that this machine or folder does not appear to meet. The text is for people; the
/// proof is in cuFile's counters.
pub fn missing_for_gds(counts_reads: bool, is_page_cache: bool) -> String {
    let mut missing = Vec::new();
    if !counts_reads {
        missing.push("counters of the reads (cuFile of CUDA 13 or later), without which nothing is proven");
    }
    if is_page_cache {
        missing.push("a file system on a device (this one is in memory)");
    }
    if !Path::new("/dev/nvidia-fs0").exists() {
        missing.push("the nvidia-fs module (/dev/nvidia-fs0), unless the kernel does PCI peer-to-peer by itself");
    }
    if missing.is_empty() {
        missing.push("nothing visible here: see `gdscheck -p` and cufile.log for the driver's reasons");
    }
    missing.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_promise_is_a_shortfall() {
        let posix = ViaSet::of(Via::CufilePosix);
        assert!(shortfall(DevicePath::Gds, posix, "x").unwrap().ends_with("missing: x"));
        let mixed = posix.union(ViaSet::of(Via::Gds));
        assert!(shortfall(DevicePath::Gds, mixed, "x").is_some());
        assert_eq!(shortfall(DevicePath::Gds, ViaSet::of(Via::Gds), "x"), None);
        assert_eq!(shortfall(DevicePath::Gds, ViaSet::default(), "x"), None);
        assert_eq!(
            shortfall(DevicePath::Compat, posix, "x"),
            None,
            "that is what was asked for"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(missing_for_gds(false, true).contains("in memory"));
        assert!(!missing_for_gds(true, false).is_empty());
    }

    #[test]
    fn every_path_has_one_name() {
        for &path in DevicePath::ALL {
            let text = format!("\"{}\"", path.as_str());
            assert_eq!(serde_json::from_str::<DevicePath>(&text).unwrap(), path);
        }
    }
}
