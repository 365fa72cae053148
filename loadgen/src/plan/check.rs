//! Limits, paths and keys of other programs' configs, which several parts of a plan share.

use super::fault::{Fault, check_range, refuse};
use super::storage::RawFleet;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use tierlab_analysis::record::Limits;
use tierlab_load::payload::Protocol;
use tierlab_load::recording::RecordingSpec;

/// Maximum requests of one step: their due times, keys and bodies are all built before it starts.
const MAX_REQUESTS_PER_STEP: f64 = 2e6;
/// Highest rate of a plan, in requests per second.
const MAX_RATE: f64 = 100_000.0;

/// Folder that a plan's paths are relative to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) folder: &'a Path,
    /// Folder that holds copies of another host's files: every path of the plan leads into it.
    pub(super) root: Option<&'a Path>,
    /// Files and folders that decide what is sent, as far as they were named.
    pub(super) named: Option<&'a RefCell<BTreeSet<PathBuf>>>,
}

impl<'a> Base<'a> {
    /// Folder of a plan on this host.
    pub(super) const fn local(folder: &'a Path) -> Self {
        Self {
            folder,
            root: None,
            named: None,
        }
    }

    /// Folder of a plan that another host sent, below `root`.
    pub(super) const fn remote(folder: &'a Path, root: &'a Path) -> Self {
        let root = Some(root);
        Self {
            root,
            ..Self::local(folder)
        }
    }

    /// True if the plan's files are on this host at their own paths.
    pub(super) const fn is_local(self) -> bool {
        self.root.is_none()
    }

    /// Path of a file that the plan names.
    pub(super) fn path(self, path: &Path) -> PathBuf {
        let Some(root) = self.root else {
            return below(self.folder, path);
        };
        let original = Path::new("/").join(self.folder.strip_prefix(root).unwrap_or(self.folder));
        let parts = below(&original, path);
        let parts = parts.components().filter(|part| matches!(part, Component::Normal(_)));
        root.join(parts.collect::<PathBuf>())
    }

    /// Path of a file or folder that decides what is sent: agents get it, and a resumed run needs the same.
    pub(super) fn request_file(self, path: &Path) -> PathBuf {
        let path = self.path(path);
        if let Some(named) = self.named {
            named.borrow_mut().insert(path.clone());
        }
        path
    }
}

/// Path from a folder, without `..` if it follows a plain name.
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

/// Facts of the whole plan that its parts are checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanFacts<'a> {
    /// Folder that its paths are relative to.
    pub(super) base: Base<'a>,
    pub(super) step: StepTimes,
    pub(super) repeats: u32,
    pub(super) limits: &'a Limits,
    pub(super) protocol: Protocol,
    pub(super) fleet: Option<&'a RawFleet>,
    pub(super) has_prices: bool,
    /// Recording with `arrivals = "replay"`.
    pub(super) replay: Option<&'a RecordingSpec>,
}

/// Lengths of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepTimes {
    pub(super) warmup_s: f64,
    pub(super) step_s: f64,
}

impl StepTimes {
    /// Highest rate whose requests fit into a step.
    pub(super) fn highest_rate(self) -> f64 {
        (MAX_REQUESTS_PER_STEP / (self.warmup_s + self.step_s)).min(MAX_RATE)
    }

    /// Refuses a rate that is out of range, or sends nothing or too much in a step. `requests` is their number at each arrival.
    pub(super) fn check_rate(self, key: &str, rate: f64, requests: usize) -> Result<(), Fault> {
        check_range(key, rate, 0.01, MAX_RATE)?;
        if rate * self.step_s < 1.0 {
            let (step_s, least) = (self.step_s, (1e3 / self.step_s).ceil() / 1e3);
            refuse!(
                key,
                "{rate}/s sends nothing in a step of {step_s} s; give {least} or more"
            );
        }
        let sent = rate * (self.warmup_s + self.step_s) * requests as f64;
        if sent > MAX_REQUESTS_PER_STEP {
            refuse!(
                key,
                "{rate} per second is {sent:.0} requests a step, more than {MAX_REQUESTS_PER_STEP}; shorten `step_s`"
            );
        }
        Ok(())
    }
}

/// Keys of another program's config as `KEY=VALUE`, nested tables as dotted keys.
pub(crate) fn pairs(table: &toml::Table) -> Vec<String> {
    let mut pairs = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => pairs.extend(self::pairs(inner).iter().map(|pair| format!("{key}.{pair}"))),
            toml::Value::String(text) => pairs.push(format!("{key}={text}")),
            other => pairs.push(format!("{key}={other}")),
        }
    }
    pairs
}

/// Refuses dates, and the capacity of a cache, which would be the same in every cache state.
pub(super) fn check_pairs(at: &str, table: &toml::Table) -> Result<(), Fault> {
    for (key, value) in table {
        let path = format!("{at}.{key}");
        if path.ends_with(".cache.capacity_bytes") {
            refuse!(
                path,
                "a lab sets the capacity of caches by `[[lab.cache]]`, whose `share` is of the table; remove it"
            );
        }
        match value {
            toml::Value::Table(inner) => check_pairs(&path, inner)?,
            toml::Value::Datetime(_) => refuse!(path, "dates are not allowed"),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_a_sent_plan_leads_below_its_root() {
        let root = Path::new("/tmp/agent");
        let base = Base::remote(Path::new("/tmp/agent/home/a/plans"), root);
        let at = |path: &str| base.path(Path::new(path));
        assert_eq!(at("x.npy"), Path::new("/tmp/agent/home/a/plans/x.npy"));
        assert_eq!(at("../x.npy"), Path::new("/tmp/agent/home/a/x.npy"));
        assert_eq!(at("/etc/shadow"), Path::new("/tmp/agent/etc/shadow"));
        assert_eq!(at("../../../../../../etc/shadow"), Path::new("/tmp/agent/etc/shadow"));
        assert_eq!(at("./a/../../../../../../.."), Path::new("/tmp/agent"));
        let here = Base::local(Path::new("plans"));
        assert_eq!(here.path(Path::new("/etc/hosts")), Path::new("/etc/hosts"));
    }
}
