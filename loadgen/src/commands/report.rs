//! The `report` and `compare` commands. In: folders of runs. Out: rewritten reports, or the differences of two runs.

use crate::error::RunError;
use crate::store::atomic::write_atomically;
use crate::store::folder;
use crate::store::tracked::is_tracked;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tierlab_report::{Comparison, Outcome};

/// Output of reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Destination<'a> {
    /// Folder for `summary.csv`, `report.md` and `report.html`, with a subfolder per run if there are several. Default:
    /// the run's own folder, unless it is under version control.
    pub out: Option<&'a Path>,
    /// File for one page over all runs.
    pub combined: Option<&'a Path>,
    /// If true, everything is printed, and not only the answer.
    pub verbose: bool,
}

/// `report RUN...`: summarises every run again from its `run.json` and histograms, writes `summary.csv`, `report.md`
/// and `report.html`, and prints its answer. `run.json` and the histograms stay unchanged, because they are the
/// evidence.
///
/// # Errors
/// Those of [`folder::load`] and [`folder::write_views`].
pub fn rewrite(dirs: &[PathBuf], to: Destination<'_>) -> Result<(), RunError> {
    let mut runs = Vec::with_capacity(dirs.len());
    let mut written = BTreeSet::new();
    for dir in dirs {
        let mut run = folder::load(dir)?;
        tierlab_analysis::conclude(&mut run);
        tierlab_analysis::summarise(run.noise_floor.as_mut_slice(), &run.limits, None);
        if dirs.len() > 1 {
            println!("{} ({})\n", run.name, dir.display());
        }
        if to.verbose {
            print!("{}\n\n", tierlab_report::table(&run));
        }
        let views = view_folder(dir, to.out, dirs.len() > 1);
        let views = views.map(|folder| apart(&folder, &mut written, to.out.is_some()));
        // Printed first, so that it is readable even if nothing can be written.
        print!("{}", tierlab_report::brief(&run, dir, views.as_deref()));
        match views {
            Some(folder) => {
                fs::create_dir_all(&folder).map_err(RunError::io(&folder))?;
                folder::write_views(&run, &folder)?;
            }
            None => eprintln!(
                "{}: under version control, so nothing is written there; --out FOLDER says where the report goes",
                dir.display()
            ),
        }
        runs.push(run);
    }
    match to.combined {
        Some(path) => Ok(write_atomically(
            path,
            tierlab_report::page(&runs.iter().collect::<Vec<_>>()).as_bytes(),
        )?),
        None => Ok(()),
    }
}

/// Returns the folder for a run's report; `None` if the run's own folder must stay unchanged.
fn view_folder(dir: &Path, out: Option<&Path>, is_one_of_many: bool) -> Option<PathBuf> {
    match out {
        Some(out) if is_one_of_many => {
            let own = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
            Some(out.join(own.file_name().unwrap_or_default()))
        }
        Some(out) => Some(out.to_owned()),
        None => (!is_tracked(dir)).then(|| dir.to_owned()),
    }
}

/// Returns a distinct folder below --out for each of several runs of one name: `run`, `run-2`, …
fn apart(folder: &Path, written: &mut BTreeSet<PathBuf>, is_moved: bool) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_owned();
    let numbered = (2_u32..).map(|number| {
        let mut name = name.clone();
        name.push(format!("-{number}"));
        folder.with_file_name(name)
    });
    let mut places = std::iter::once(folder.to_owned()).chain(numbered);
    let place = places.find(|place| !is_moved || !written.contains(place));
    let place = place.unwrap_or_else(|| folder.to_owned());
    written.insert(place.clone());
    place
}

/// `compare A B`: prints the differences of B from A, under the names of their folders. `within` is the share within
/// which two figures are equivalent, `form` selects text, Markdown or JSON.
///
/// # Errors
/// A folder that is missing or cannot be read: bad usage, because exit code 1 means a regression.
pub fn compare(a: &Path, b: &Path, within: f64, form: fn(&Comparison) -> String) -> Result<Outcome, RunError> {
    let load = |dir: &Path| folder::load(dir).map_err(|error| RunError::Usage(error.to_string()));
    let (run_a, run_b) = (load(a)?, load(b)?);
    let mut comparison = tierlab_report::comparison(&run_a, &run_b, within);
    comparison.names = (a.display().to_string(), b.display().to_string());
    print!("{}", form(&comparison));
    Ok(comparison.outcome())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_name_do_not_share_a_folder() {
        let mut written = BTreeSet::new();
        let places = ["o/run", "o/run", "o/other", "o/run"].map(|place| apart(Path::new(place), &mut written, true));
        assert_eq!(places, ["o/run", "o/run-2", "o/other", "o/run-3"].map(PathBuf::from));
        // A run named twice is written twice to its own folder.
        assert_eq!(apart(Path::new("o/run"), &mut written, false), PathBuf::from("o/run"));
    }
}
