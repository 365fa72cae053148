//! What every part of a plan is checked by.

use std::path::{Component, Path, PathBuf};

/// The most requests of one step: their due times, keys and bodies are all made before it starts.
pub(super) const MAX_REQUESTS_PER_STEP: f64 = 2e6;
/// The highest rate that a plan may ask for, in requests per second.
pub(super) const MAX_RATE: f64 = 100_000.0;

/// Folder that a plan's paths are relative to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    folder: &'a Path,
    /// Folder that holds copies of another host's files: every path of the plan leads into it.
    root: Option<&'a Path>,
}

impl<'a> Base<'a> {
    /// Folder of a plan on this host.
    pub(super) const fn here(folder: &'a Path) -> Self {
        Self { folder, root: None }
    }

    /// Folder of a plan that another host sent, below `root`.
    pub(super) const fn sent(folder: &'a Path, root: &'a Path) -> Self {
        Self {
            folder,
            root: Some(root),
        }
    }

    /// Path of a file that the plan names.
    pub(super) fn path(self, path: &Path) -> PathBuf {
        let Some(root) = self.root else {
            return below(self.folder, path);
        };
        let on_its_host = Path::new("/").join(self.folder.strip_prefix(root).unwrap_or(self.folder));
        let names = below(&on_its_host, path);
        let names = names.components().filter(|part| matches!(part, Component::Normal(_)));
        root.join(names.collect::<PathBuf>())
    }
}

/// Path from a folder, without `..` where it leads back through a plain name.
pub(super) fn below(folder: &Path, path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir if matches!(short.components().next_back(), Some(Component::Normal(_))) => {
                short.pop();
            }
            Component::CurDir => {}
            part => short.push(part),
        }
    }
    short
}

/// Refuses NaN, infinities and whatever lies outside.
pub(super) fn within(key: &str, value: f64, least: f64, most: f64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("`{key}` = {value} is not within {least} and {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_a_sent_plan_leads_below_its_root() {
        let root = Path::new("/tmp/agent");
        let base = Base::sent(Path::new("/tmp/agent/home/a/plans"), root);
        let at = |path: &str| base.path(Path::new(path));
        assert_eq!(at("x.npy"), Path::new("/tmp/agent/home/a/plans/x.npy"));
        assert_eq!(at("../x.npy"), Path::new("/tmp/agent/home/a/x.npy"));
        assert_eq!(at("/etc/shadow"), Path::new("/tmp/agent/etc/shadow"));
        assert_eq!(at("../../../../../../etc/shadow"), Path::new("/tmp/agent/etc/shadow"));
        assert_eq!(at("./a/../../../../../../.."), Path::new("/tmp/agent"));
        let here = Base::here(Path::new("plans"));
        assert_eq!(here.path(Path::new("/etc/hosts")), Path::new("/etc/hosts"));
    }
}
