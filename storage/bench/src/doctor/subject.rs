//! What of a tier matters to the machine that reads it. In: its configuration. Out: folders and what they need.

use std::path::PathBuf;
use tierlab_storage::TierConfig;

/// What is looked at beside the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subject {
    /// Local folders and mounts that it reads from.
    pub(super) folders: Vec<PathBuf>,
    /// Memory that it registers with the kernel.
    pub(super) pinned_bytes: u64,
    /// Whether it reads past the page cache; none where that is not its choice.
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
