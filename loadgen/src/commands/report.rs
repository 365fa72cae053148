//! The `report` and `compare` commands. In: folders of runs. Out: rewritten reports, or the differences of two runs.

use crate::error::RunError;
use crate::store::files::{is_tracked, write_atomically};
use crate::store::folder;
use anyhow::Context as _;
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tierlab_analysis::curves::comparison;
use tierlab_analysis::record::Run;
use tierlab_report::{Comparison, Outcome};

/// Options of `report`.
#[derive(Debug, Clone, Default, Args)]
pub struct ReportOptions {
    /// Folders of runs
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Folder for summary.csv, report.md and report.html, with a subfolder per run if there are several. Default:
    /// the run's own folder, unless it is under version control
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Writes one report over all runs to this file
    #[arg(long)]
    pub combined: Option<PathBuf>,
    /// Prints every table and remark before the answer
    #[arg(long, short)]
    pub verbose: bool,
}

/// Options of `compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareOptions {
    /// Folder of the baseline run
    a: PathBuf,
    /// Folder of the run to check for regressions
    b: PathBuf,
    /// Share within which two figures are equivalent
    #[arg(long, value_name = "SHARE", default_value_t = comparison::WITHIN, value_parser = share)]
    within: f64,
    /// Prints a Markdown table
    #[arg(long)]
    markdown: bool,
    /// Prints JSON: every figure with its values, interval and decision
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
}

/// `report RUN...`: summarises every run again from its `run.json` and histograms, writes `summary.csv`, `report.md`
/// and `report.html`, and prints its answer. `run.json` and the histograms stay unchanged, because they are the
/// evidence.
///
/// # Errors
/// A run that cannot be read, and those of [`folder::write_views`].
pub fn rewrite(options: &ReportOptions) -> Result<(), RunError> {
    let (dirs, out) = (&options.runs, options.out.as_deref());
    let mut runs = Vec::with_capacity(dirs.len());
    let mut written = BTreeSet::new();
    for dir in dirs {
        let mut run = load_summarised(dir)?;
        tierlab_analysis::summarise(run.noise_floor.as_mut_slice(), &run.limits, None);
        if dirs.len() > 1 {
            println!("{} ({})\n", run.name, dir.display());
        }
        if options.verbose {
            print!("{}\n\n", tierlab_report::table(&run));
        }
        let views = view_folder(dir, out, dirs.len() > 1);
        let views = views.map(|folder| unique(&folder, &mut written, out.is_some()));
        let wrote = views.as_deref().map_or(Ok(()), |to| folder::write_views(&run, to));
        let paths = views.as_deref().filter(|_| wrote.is_ok());
        // The answer is readable even if nothing can be written.
        print!("{}", tierlab_report::brief(&run, dir, paths));
        wrote?;
        if views.is_none() {
            eprintln!(
                "{}: under version control, so nothing is written there; pass --out FOLDER for the report",
                dir.display()
            );
        }
        runs.push(run);
    }
    if let Some(path) = &options.combined {
        let page = tierlab_report::page(&runs.iter().collect::<Vec<_>>());
        write_atomically(path, page.as_bytes())?;
    }
    Ok(())
}

/// Returns the folder for a run's report; `None` if the run's own folder must stay unchanged.
fn view_folder(dir: &Path, out: Option<&Path>, is_one_of_many: bool) -> Option<PathBuf> {
    match out {
        Some(out) if is_one_of_many => {
            let absolute = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
            Some(out.join(absolute.file_name().unwrap_or_default()))
        }
        Some(out) => Some(out.to_owned()),
        None => (!is_tracked(dir)).then(|| dir.to_owned()),
    }
}

/// Returns a distinct folder below --out for each of several runs of one name: `run`, `run-2`, …
fn unique(folder: &Path, written: &mut BTreeSet<PathBuf>, has_out: bool) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_owned();
    let (mut candidate, mut number) = (folder.to_owned(), 1);
    while has_out && !written.insert(candidate.clone()) {
        number += 1;
        let mut name = name.clone();
        name.push(format!("-{number}"));
        candidate.set_file_name(name);
    }
    candidate
}

/// `compare A B`: prints the differences of B from A, under the names of their folders. Returns 1 for a regression, and 3 if
/// nothing is worse and anything is undecided.
///
/// # Errors
/// A folder that is missing or cannot be read: bad usage, because exit code 1 means a regression.
pub fn compare(options: &CompareOptions) -> Result<u8, RunError> {
    let comparison = compare_folders(&options.a, &options.b, options.within)?;
    let text = match (options.markdown, options.json) {
        (_, true) => comparison.json(),
        (true, _) => comparison.markdown(),
        _ => comparison.text(),
    };
    print!("{text}");
    Ok(exit_code(&comparison))
}

/// Reads an earlier run.
///
/// # Errors
/// A folder that is missing or cannot be read: bad usage, because exit code 1 means a regression.
pub(super) fn load_earlier(dir: &Path) -> Result<Run, RunError> {
    folder::load(dir).map_err(|error| RunError::Usage(error.to_string()))
}

/// Reads an earlier run, and summarises it by the rules of this version instead of those that it was written by.
pub(super) fn load_summarised(dir: &Path) -> Result<Run, RunError> {
    let mut run = load_earlier(dir)?;
    tierlab_analysis::conclude(&mut run);
    Ok(run)
}

/// Compares the runs of two folders.
pub(super) fn compare_folders(a: &Path, b: &Path, within: f64) -> Result<Comparison, RunError> {
    let mut comparison = tierlab_report::comparison(&load_summarised(a)?, &load_summarised(b)?, within);
    comparison.names = (a.display().to_string(), b.display().to_string());
    Ok(comparison)
}

/// Returns 1 for a regression, 3 if nothing is worse and anything is undecided, else 0.
pub(super) fn exit_code(comparison: &Comparison) -> u8 {
    match comparison.outcome() {
        Outcome::NoRegression => 0,
        Outcome::Regression => 1,
        Outcome::Undecided | Outcome::NothingInCommon => 3,
    }
}

/// Parses a share above 0 and below 1.
fn share(text: &str) -> anyhow::Result<f64> {
    let share = text.parse().ok().filter(|share: &f64| *share > 0.0 && *share < 1.0);
    share.context("give a share above 0 and below 1, such as 0.05")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_name_do_not_share_a_folder() {
        let mut written = BTreeSet::new();
        let places = ["o/run", "o/run", "o/other", "o/run"].map(|place| unique(Path::new(place), &mut written, true));
        assert_eq!(places, ["o/run", "o/run-2", "o/other", "o/run-3"].map(PathBuf::from));
        // A run named twice is written twice to its own folder.
        assert_eq!(unique(Path::new("o/run"), &mut written, false), PathBuf::from("o/run"));
    }
}
