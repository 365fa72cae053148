//! Properties of a tier that depend on the machine. In: its configuration. Out: folders and requirements.

use std::path::PathBuf;
use tierlab_storage::TierConfig;

/// Subject of the checks beside the machine itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subject {
    /// Local folders and mounts that the tier reads from.
    pub(super) folders: Vec<PathBuf>,
    /// Bytes of memory that the tier registers with the kernel.
    pub(super) pinned_bytes: u64,
    /// True if the tier bypasses the page cache; `None` if it cannot choose.
    pub(super) direct: Option<bool>,
    pub(super) wants_gpu: bool,
}

impl Subject {
    pub(super) fn of(config: &TierConfig) -> Self {
        match config {
            TierConfig::Wrapped(wrapped) => Self::of(&wrapped.tier),
            TierConfig::Nvme(nvme) => Self {
                folders: nvme.root.iter().chain(&nvme.roots).cloned().collect(),
                pinned_bytes: nvme.registered_buffers_bytes,
                direct: Some(nvme.direct),
                wants_gpu: false,
            },
            TierConfig::Nfs(nfs) => Self {
                folders: nfs.path.iter().cloned().collect(),
                ..Self::default()
            },
            TierConfig::Gds(gds) => Self {
                folders: vec![gds.root.clone()],
                wants_gpu: true,
                ..Self::default()
            },
            _ => Self::default(),
        }
    }
}
