//! Machine during a measurement: CPU, the disk or NFS mount below a folder, and its description.

mod look;
mod traffic;

pub(crate) use look::{MachineUse, Watched, own_cpu_s};
pub(crate) use traffic::Traffic;

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;
use tierlab_instrument::host::{Host, filesystem};

/// Machine and build.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Environment {
    pub(crate) date: String,
    #[serde(flatten)]
    pub(crate) host: Host,
    pub(crate) version: String,
    /// File systems below the scratch folders: type, device and options.
    pub(crate) filesystems: BTreeMap<PathBuf, String>,
    /// Processes ready to run at the start, mean of a minute.
    pub(crate) load_average: String,
}

impl Environment {
    pub(crate) fn here(folders: &[PathBuf]) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            host: Host::here(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            filesystems: folders
                .iter()
                .map(|folder| (folder.clone(), filesystem(folder)))
                .collect(),
            load_average: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}
