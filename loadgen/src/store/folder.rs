//! From a summarised run to what people and other tools read.
//!
//! In: a [`Run`] whose points are summarised. Out: a result folder (`run.json`, `summary.csv`, `hdr/*.hdr`,
//! `report.html`, `report.md`), a terminal table, and comparisons. Must not measure, and must not compute statistics of its own.

mod best;
mod caution_words;
mod certificate_words;
mod cold_starts;
mod compare;
mod cost_words;
mod hdr_log;
mod html;
mod journal;
mod markdown;
mod percentiles;
mod reach_words;
mod run_json;
mod summary_csv;
mod table;
mod tracked;
mod units;
mod words;

pub use compare::{Change, Comparison, Outcome};
pub(crate) use hdr_log::parse_rfc3339;
pub use journal::is_there as has_journal;
pub use journal::{Journal, Place, Points, Step};
pub(crate) use run_json::write_atomically;

use crate::analysis;
use crate::record::{Factors, Histograms, Point, Repeat, Run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CSV: &str = "summary.csv";
const COLD_STARTS: &str = "cold_starts.csv";
const HTML: &str = "report.html";
const MARKDOWN: &str = "report.md";

/// What to do about a file that is not there.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "; a run's folder is wanted, as results/<run>",
        _ => "",
    }
}

/// Why a result folder could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file could not be written or read.
    #[error("{}: {source}{}", path.display(), hint(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `run.json` is not one, or could not be made.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What and where.
        source: serde_json::Error,
    },
    /// `run.json` is of another version of this program.
    #[error("{}: schema_version is {found}, this program reads {}; use the version that wrote it (environment.version)",
            path.display(), crate::record::SCHEMA_VERSION)]
    Schema {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u32,
    },
    /// A histogram log or a journal is damaged.
    #[error("{}: entry {entry}: {what}; restore the file, or measure again", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Which entry, from 1.
        entry: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The run does not say where histograms go, twice the same place, or a place outside its folder.
    #[error("hdr_file `{0}` must be a plain path below the run's folder, and of one repeat only")]
    HdrFile(String),
    /// The CSV could not be made.
    #[error("{}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: csv::Error,
    },
}

/// Name of the file of a repeat's histograms, relative to the run's folder; goes into [`Repeat::hdr_file`].
#[must_use]
pub fn hdr_file(factors: &Factors, repeat: u32) -> String {
    hdr_log::file_name(factors, repeat)
}

/// The same of a repeat that was measured in vain so many times before; each has a file of its own.
#[must_use]
pub fn hdr_file_of(factors: &Factors, repeat: u32, attempt: u32) -> String {
    let name = hdr_log::file_name(factors, repeat);
    match (attempt, name.strip_suffix(".hdr")) {
        (0, _) | (_, None) => name,
        (attempt, Some(stem)) => format!("{stem}_again{attempt}.hdr"),
    }
}

/// A time as results have it, RFC 3339 in UTC; `None` for anything else.
#[must_use]
pub fn parse_time(text: &str) -> Option<std::time::SystemTime> {
    hdr_log::parse_rfc3339(text)
}

/// Writes a result folder: the histograms and `run.json` first, since everything else can be made from them.
///
/// # Errors
/// A file cannot be written, or two repeats name the same histogram file.
pub fn write(run: &Run, dir: &Path) -> Result<(), ReportError> {
    fs::create_dir_all(dir).map_err(io(dir))?;
    let mut names = BTreeSet::new();
    for repeat in points(run).flat_map(|point| &point.repeats) {
        if !names.insert(&repeat.hdr_file) {
            return Err(ReportError::HdrFile(repeat.hdr_file.clone()));
        }
        write_histograms(dir, repeat)?;
    }
    write_anew(run, dir)
}

/// Writes what a run knows before its first step, so that a kill from then on leaves a folder that can be read and
/// gone on with: `run.json`, and the histograms of the noise floor.
///
/// # Errors
/// A file cannot be written.
pub fn begin(run: &Run, dir: &Path) -> Result<(), ReportError> {
    fs::create_dir_all(dir).map_err(io(dir))?;
    for repeat in run.noise_floor.iter().flat_map(|point| &point.repeats) {
        write_histograms(dir, repeat)?;
    }
    run_json::write(run, dir)
}

/// Writes everything but the histograms, which lie in their files since their steps were finished.
///
/// # Errors
/// A file cannot be written.
pub fn write_anew(run: &Run, dir: &Path) -> Result<(), ReportError> {
    run_json::write(run, dir)?;
    write_views(run, dir)
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ReportError {
    let path = path.to_owned();
    move |source| ReportError::Io { path, source }
}

fn write_histograms(dir: &Path, repeat: &Repeat) -> Result<(), ReportError> {
    let path = hdr_path(dir, repeat)?;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(io(parent))?;
    }
    let text = hdr_log::write(&repeat.histograms, &repeat.started_at).map_err(|what| ReportError::Entry {
        path: path.clone(),
        entry: 0,
        what,
    })?;
    run_json::write_atomically(&path, &text)
}

fn read_histograms(path: &Path) -> Result<Histograms, ReportError> {
    let text = fs::read(path).map_err(io(path))?;
    hdr_log::read(path, &text)
}

/// Writes what is made from the run alone: `summary.csv`, `report.md` and `report.html`.
fn write_views(run: &Run, dir: &Path) -> Result<(), ReportError> {
    let path = dir.join(CSV);
    let text = summary_csv::text(run).map_err(|source| ReportError::Csv {
        path: path.clone(),
        source,
    })?;
    run_json::write_atomically(&path, &text)?;
    if !run.cold_starts.is_empty() {
        run_json::write_atomically(&dir.join(COLD_STARTS), cold_starts::csv(run).as_bytes())?;
    }
    run_json::write_atomically(&dir.join(MARKDOWN), markdown::text(run).as_bytes())?;
    run_json::write_atomically(&dir.join(HTML), html::page(&[run]).as_bytes())
}

/// The table of a run, as [`print_table`] prints it.
#[must_use]
pub fn table(run: &Run) -> String {
    table::text(run)
}

/// Prints the table of a run to stdout.
pub fn print_table(run: &Run) {
    print!("{}", table(run));
}

/// Reads a run back from its folder, histograms included. Of a run that did not come to its end, every step in its
/// journal is there.
///
/// # Errors
/// A file is missing, damaged or of another schema.
pub fn load(dir: &Path) -> Result<Run, ReportError> {
    let mut run = run_json::read(dir)?;
    let steps = if run.interrupted {
        journal::read(dir)?
    } else {
        Vec::new()
    };
    let journaled = !steps.is_empty();
    if journaled {
        run.points.clear();
    }
    let points = run.points.iter_mut().chain(&mut run.noise_floor);
    for repeat in points.flat_map(|point| &mut point.repeats) {
        repeat.histograms = read_histograms(&hdr_path(dir, repeat)?)?;
    }
    if journaled {
        run.points = Points::of(steps).all().to_vec();
        analysis::conclude(&mut run);
    }
    Ok(run)
}

/// Where a report goes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Destination<'a> {
    /// A folder for `summary.csv`, `report.md` and `report.html`, of several runs one below it for each; without it they
    /// are written into the run's own, unless that is under version control.
    pub out: Option<&'a Path>,
    /// A file for one page over all runs.
    pub combined: Option<&'a Path>,
}

/// `report RUN...`: summarises every run anew from its `run.json` and histograms, writes `summary.csv`, `report.md` and
/// `report.html`, and prints its table. `run.json` and the histograms, being the evidence, are left as they are.
///
/// # Errors
/// As [`load`] and [`write()`].
pub fn rewrite(dirs: &[PathBuf], to: Destination<'_>) -> Result<(), ReportError> {
    let mut runs = Vec::with_capacity(dirs.len());
    for dir in dirs {
        let mut run = load(dir)?;
        analysis::conclude(&mut run);
        analysis::summarise(run.noise_floor.as_mut_slice(), &run.limits, None);
        match view_folder(dir, to.out, dirs.len() > 1) {
            Some(folder) => {
                fs::create_dir_all(&folder).map_err(io(&folder))?;
                write_views(&run, &folder)?;
            }
            None => eprintln!(
                "{}: under version control, so nothing is written there; --out FOLDER says where the report goes",
                dir.display()
            ),
        }
        if dirs.len() > 1 {
            println!("{} ({})\n", run.name, dir.display());
        }
        print_table(&run);
        runs.push(run);
    }
    match to.combined {
        Some(path) => run_json::write_atomically(path, html::page(&runs.iter().collect::<Vec<_>>()).as_bytes()),
        None => Ok(()),
    }
}

/// Where the views of a run are written; `None` where that is to be left as it is.
fn view_folder(dir: &Path, out: Option<&Path>, is_one_of_many: bool) -> Option<PathBuf> {
    match out {
        Some(out) if is_one_of_many => {
            let own = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
            Some(out.join(own.file_name().unwrap_or_default()))
        }
        Some(out) => Some(out.to_owned()),
        None => (!tracked::is_tracked(dir)).then(|| dir.to_owned()),
    }
}

/// `compare A B`: prints how B differs from A and says whether anything got worse. `within`: the share by which two figures
/// may differ and be equivalent.
///
/// # Errors
/// As [`load`].
pub fn compare(a: &Path, b: &Path, within: f64, markdown: bool) -> Result<Outcome, ReportError> {
    let (run_a, run_b) = (load(a)?, load(b)?);
    let comparison = compare::compare(&run_a, &run_b, within);
    print!(
        "{}",
        if markdown {
            comparison.markdown()
        } else {
            comparison.text()
        }
    );
    Ok(comparison.outcome())
}

/// Compares two runs point by point. See [`Comparison`].
#[must_use]
pub fn comparison(a: &Run, b: &Run, within: f64) -> Comparison {
    compare::compare(a, b, within)
}

fn points(run: &Run) -> impl Iterator<Item = &Point> {
    run.points.iter().chain(&run.noise_floor)
}

/// The place of a repeat's histograms. A run may come from anywhere: its paths must stay inside its folder.
fn hdr_path(dir: &Path, repeat: &Repeat) -> Result<PathBuf, ReportError> {
    let name = Path::new(&repeat.hdr_file);
    let plain = name
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    if !plain || repeat.hdr_file.is_empty() {
        return Err(ReportError::HdrFile(repeat.hdr_file.clone()));
    }
    Ok(dir.join(name))
}
