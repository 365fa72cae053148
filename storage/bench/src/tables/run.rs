//! What runs over tables share: tiers that are opened, measured and cleared away again, what is kept of every run, and its files.

use super::page::Page;
use super::plan::Common;
use super::ran::Ran;
use super::sitting::Sitting;
use crate::machine::Environment;
use crate::report::write_files;
use crate::stop::Stop;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tiers by name.
pub(super) type Sittings = BTreeMap<String, Sitting>;

/// The folder of results, made: one that cannot be is found before anything is measured.
///
/// # Errors
/// A folder that cannot be made.
pub(super) fn results_folder(out: Option<&Path>, common: &Common) -> Result<PathBuf> {
    let folder = out.map_or_else(|| crate::runner::results_folder(&common.name), Path::to_owned);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Opens the plan's tiers, measures on them, and removes all that was written, whatever came of it. So many threads read of each; all cores where
/// none is said.
///
/// # Errors
/// A tier that does not open, what `measure` says, something that cannot be removed.
pub(super) fn on_tiers<T>(
    common: &Common,
    threads: Option<usize>,
    stop: &Stop,
    measure: impl FnOnce(&Sittings) -> Result<T>,
) -> Result<(T, Ran)> {
    let mut sittings = Sittings::new();
    for (name, config) in &common.tiers {
        let sitting = Sitting::open(name, config, common.scratch.as_deref(), threads)?;
        sittings.insert(name.clone(), sitting);
    }
    let measured = measure(&sittings);
    let roots: Vec<PathBuf> = sittings
        .values()
        .filter_map(|sitting| sitting.root().map(Path::to_owned))
        .collect();
    let ran = Ran {
        schema_version: 1,
        name: common.name.clone(),
        interrupted: stop.is_asked(),
        environment: Environment::here(&roots),
        tiers: sittings
            .iter()
            .map(|(name, sitting)| (name.clone(), sitting.notes()))
            .collect(),
        repeats: common.repeats,
        plan: common.text.clone(),
    };
    let removed: Vec<Result<()>> = sittings.into_values().map(Sitting::remove).collect();
    let measured = measured?;
    removed.into_iter().collect::<Result<()>>()?;
    Ok((measured, ran))
}

/// Writes the files of a run, prints its tables, and says where it lies. `csv` is a file's name and its text.
///
/// # Errors
/// A file that cannot be written, and that the run was interrupted.
pub(super) fn finish(folder: &Path, kept: &impl Serialize, csv: (&str, String), page: &Page<'_>) -> Result<()> {
    write_files(
        folder,
        kept,
        [
            (csv.0, csv.1),
            ("report.md", page.markdown()),
            ("report.html", page.html()),
        ],
    )?;
    print!("{}", page.text());
    println!(
        "\nresults in {}: report.html, report.md, {}, run.json",
        folder.display(),
        csv.0
    );
    match page.ran.interrupted {
        true => bail!("interrupted: what was measured until then is in the report"),
        false => Ok(()),
    }
}
