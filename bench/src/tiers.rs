//! The tiers of a run: opened, measured and cleared again. In: a plan's tiers. Out: what was measured, and facts about the run.

use crate::machine::Environment;
use crate::plan::Common;
use crate::report::Ran;
use crate::station::{Station, Stations};
use crate::stop::Stop;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tierlab_storage::{TierConfig, TierInfo};

/// Opens the plan's tiers on `threads` threads each (0: one per core), measures on them, and removes everything written, also after an
/// error.
///
/// # Errors
/// A tier does not open, `measure` fails, or something cannot be removed.
pub(crate) fn on_tiers<T>(
    common: &Common,
    stop: &Stop,
    threads: u16,
    measure: impl FnOnce(&mut Stations) -> Result<T>,
) -> Result<(T, Ran)> {
    let mut tiers = Stations::new();
    for (name, config) in &common.tiers {
        let station = Station::new(name, config, common.scratch.as_deref(), threads)?;
        tiers.insert(name.clone(), station);
    }
    let roots = tiers.values().filter_map(|tier| tier.root().map(Path::to_owned));
    let environment = Environment::here(&roots.collect::<Vec<_>>());
    let measured = measure(&mut tiers);
    let ran = Ran {
        schema_version: 1,
        name: common.name.clone(),
        interrupted: stop.is_asked(),
        environment,
        tiers: tiers
            .iter()
            .map(|(name, tier)| (name.clone(), tier.notes.clone()))
            .collect(),
        repeats: common.repeats,
        plan: common.text.clone(),
    };
    let removed: Vec<Result<()>> = tiers.values().map(Station::remove).collect();
    let measured = measured?;
    removed.into_iter().collect::<Result<()>>()?;
    Ok((measured, ran))
}

/// Folder of results: `out`, else one named after the run and the time. Creates it, so that a folder that cannot be made is an error
/// before anything is measured.
///
/// # Errors
/// The folder cannot be made.
pub(crate) fn results_folder(out: Option<&Path>, name: &str) -> Result<PathBuf> {
    let folder = out.map_or_else(
        || {
            let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let date: String = now.chars().filter(char::is_ascii_alphanumeric).collect();
            let date = date.trim_end_matches('Z').replace('T', "-");
            PathBuf::from(format!("results/{name}-{date}"))
        },
        Path::to_owned,
    );
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot write results to {}: choose another --out", folder.display()))?;
    Ok(folder)
}

/// Makes a folder of the run the root of a tier of local files. `None` for other tiers.
///
/// # Errors
/// The folder cannot be made.
pub(crate) fn local_root(
    name: &str,
    config: &mut TierConfig,
    scratch: Option<&Path>,
) -> Result<Option<tempfile::TempDir>> {
    let TierConfig::Nvme(nvme) = config else {
        return Ok(None);
    };
    if !nvme.roots.is_empty() {
        return Ok(None);
    }
    let root = folder_in(scratch, name)?;
    nvme.root = Some(root.path().to_owned());
    Ok(Some(root))
}

/// Notes of a tier about itself, and whether its origin only stands in on this machine.
pub(crate) fn notes_of(info: &TierInfo) -> Vec<String> {
    let here = ["127.0.0.1", "localhost", "[::1]"];
    let is_address = !info.location.starts_with('/');
    let is_here = is_address && here.iter().any(|here| info.location.contains(here));
    let embedded = "embedded origin: it runs on this machine, and no network lies between";
    std::iter::once(format!("{} {}", info.kind, info.location))
        .chain(info.wrappers.iter().map(|wrapper| format!("behind {wrapper}")))
        .chain(info.notes.clone())
        .chain(is_here.then(|| embedded.to_owned()))
        .collect()
}

/// A folder of the run, removed when dropped.
///
/// # Errors
/// The folder cannot be made.
pub(crate) fn folder_in(scratch: Option<&Path>, name: &str) -> Result<tempfile::TempDir> {
    let parent = scratch.map_or_else(std::env::temp_dir, Path::to_owned);
    let why = || {
        format!(
            "cannot make a folder in {}: it must exist and be writable; choose another with --scratch",
            parent.display()
        )
    };
    let parent = parent.canonicalize().with_context(why)?;
    let builder = tempfile::Builder::new()
        .prefix(&format!("tierlab-storage-bench-{name}-"))
        .tempdir_in(&parent);
    builder.with_context(why)
}
