//! The tiers of a run: opened, measured and cleared again. In: a plan's tiers. Out: measurements, and facts about the run.

use crate::machine::Environment;
use crate::plan::Common;
use crate::report::Ran;
use crate::station::{Station, Stations};
use crate::stop::Stop;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Opens the plan's tiers on `threads` threads each (0: one per core), measures on them, and removes everything written, also after
/// an error.
///
/// # Errors
/// A tier does not open, `measure` fails, or data cannot be removed.
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
    let notes = tiers.iter().map(|(name, tier)| (name.clone(), tier.notes.clone()));
    let ran = Ran::of(common, stop, environment, notes.collect());
    let removed: Vec<Result<()>> = tiers.values().map(Station::remove).collect();
    let measured = measured?;
    removed.into_iter().collect::<Result<()>>()?;
    Ok((measured, ran))
}

/// Creates the results folder: `out`, else one named after the run and the time. An error here is reported before any measurement.
///
/// # Errors
/// The folder cannot be created.
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
