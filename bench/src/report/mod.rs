//! Report of a run: one content, three renderers. In: figures as text, and the content of `run.json`. Out: files, and tables in the
//! terminal. `html`, `text`: a self-contained HTML page; text for a terminal, and Markdown.

mod csv;
mod html;
mod text;

pub(crate) use csv::{columns, csv};
pub(crate) use html::{levels, pre, with_heading};

use crate::machine::Environment;
use crate::plan::Common;
use crate::stop::Stop;
use anyhow::{Context, Result, anyhow, ensure};
use maud::Markup;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tierlab_instrument::units::{NONE, count_of};
use tierlab_report::parts::{Axis, Cell, Chart, Line, Table, Unit};

/// Notes of each tier by its name.
pub(crate) type TierNotes = BTreeMap<String, Vec<String>>;

/// Facts of every run, in `run.json`.
#[derive(Debug, Serialize)]
pub(crate) struct RunFacts {
    pub(crate) schema_version: u32,
    pub(crate) name: String,
    pub(crate) interrupted: bool,
    pub(crate) environment: Environment,
    /// Notes of each tier: location, wrappers, emulation.
    pub(crate) tiers: TierNotes,
    pub(crate) repeats: u32,
    pub(crate) plan: String,
    /// Error of a measurement, or of the removal of written data, which ends the run after its report.
    #[serde(skip)]
    pub(crate) failed: Option<String>,
}

impl RunFacts {
    /// Creates the facts of a finished run, with the notes of its tiers.
    pub(crate) fn new(common: &Common, stop: &Stop, environment: Environment, tiers: TierNotes) -> Self {
        Self {
            schema_version: 1,
            name: common.name.clone(),
            interrupted: stop.is_requested(),
            environment,
            tiers,
            repeats: common.repeats,
            plan: common.text.clone(),
            failed: None,
        }
    }
}

/// Content of a report.
pub(crate) struct Page<'a> {
    pub(crate) run: &'a RunFacts,
    /// Facts shown in addition to the machine and the tiers.
    pub(crate) facts: Vec<String>,
    /// Badges in the header of the HTML page: a CSS class and a text.
    pub(crate) badges: Vec<(&'static str, String)>,
    /// Findings without their full stops; the first one is the answer.
    pub(crate) findings: Vec<String>,
    /// Table below the answer, of what is compared, ranked.
    pub(crate) overview: Table,
    /// Chart below that table, only in HTML.
    pub(crate) chart: Markup,
    /// Further parts of HTML and Markdown, in order.
    pub(crate) parts: Vec<Part>,
}

/// Part of a report, with its title. Empty parts are left out.
pub(crate) enum Part {
    /// Sentences, one per line.
    List(&'static str, Vec<String>),
    /// Charts and preformatted text, only in HTML: each figure of a chart is also in a table.
    Html(&'static str, Markup),
    /// Tables, and an explanation of their columns. A single table has no title.
    Tables(&'static str, Vec<Table>, &'static str),
}

/// Column of a table: its heading, and the cell of a row.
pub(crate) type Column<R, C = String> = (&'static str, fn(&R) -> C);

/// Creates a table of the columns in which any row has a figure. Columns after the first `text_columns` hold figures.
pub(crate) fn table<R, C: Into<Cell>>(title: &str, columns: &[Column<R, C>], text_columns: usize, rows: &[R]) -> Table {
    let header: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let cells = |row: &R| -> Vec<C> { columns.iter().map(|(_, cell)| cell(row)).collect() };
    Table::of_rows(title, &header, text_columns, rows.iter().map(cells)).filled()
}

/// Text of a figure; `n/a` without one.
pub(crate) fn or_none(value: Option<f64>, text: fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), text)
}

/// A chart of bars, from zero to the largest.
pub(crate) struct Bars {
    pub(crate) title: String,
    /// Name and value of each bar.
    pub(crate) bars: Vec<(String, Option<f64>)>,
    pub(crate) text: fn(f64) -> String,
}

impl Page<'_> {
    fn sentence(&self) -> &str {
        self.findings.first().map_or("Nothing was measured", String::as_str)
    }

    /// Findings after the first one.
    fn remarks(&self) -> &[String] {
        self.findings.get(1..).unwrap_or_default()
    }

    fn all_facts(&self) -> Vec<String> {
        let Environment { date, host, .. } = &self.run.environment;
        let machine = format!("{}, {}, Linux {}", host.cpu, count_of(host.cores, "core"), host.kernel);
        let tiers = self.run.tiers.iter();
        let tiers = tiers.map(|(tier, notes)| format!("{tier}: {}", notes.join(", ")));
        let failed = self.run.failed.iter().map(|why| format!("error: {why}"));
        let all = [machine, date.clone()].into_iter().chain(failed);
        all.chain(self.facts.iter().cloned()).chain(tiers).collect()
    }
}

/// Creates the results folder: `out`, else one named after the run and the time. An error here is reported before any measurement.
///
/// # Errors
/// The folder cannot be created, or has results.
pub(crate) fn results_folder(out: Option<&Path>, name: &str) -> Result<PathBuf> {
    let folder = out.map_or_else(
        || {
            let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let date = now.trim_end_matches('Z').replace(['-', ':'], "").replace('T', "-");
            PathBuf::from(format!("results/{name}-{date}"))
        },
        Path::to_owned,
    );
    let shown = folder.display();
    std::fs::create_dir_all(&folder)
        .map_err(|error| anyhow!("cannot write results to {shown}: {error}; choose another --out"))?;
    ensure!(
        !folder.join("run.json").exists(),
        "{shown} contains results: choose another --out (`run` continues its own with --resume)"
    );
    Ok(folder)
}

/// Content of `run.json`.
#[derive(Serialize)]
struct RunFile<'a, S, F> {
    #[serde(flatten)]
    run: &'a RunFacts,
    /// Settings with defaults and flags applied.
    settings: &'a S,
    #[serde(flatten)]
    figures: &'a F,
}

/// Writes the files of a run, and prints its answer and the paths of its reports. `csv` is a file's name and its text. `advice` is shown
/// if the run was interrupted.
///
/// # Errors
/// A file cannot be written, a measurement failed, the run was interrupted, or its data was not removed.
pub(crate) fn finish(
    folder: &Path,
    page: &Page<'_>,
    (settings, figures): (&impl Serialize, &impl Serialize),
    (csv_name, csv): (&str, String),
    advice: &str,
) -> Result<()> {
    let run = RunFile {
        run: page.run,
        settings,
        figures,
    };
    let mut written = Ok(());
    for (name, text) in [
        ("run.json", serde_json::to_string_pretty(&run)? + "\n"),
        (csv_name, csv),
        ("report.md", page.markdown(csv_name)),
        ("report.html", page.html()),
    ] {
        let path = folder.join(name);
        let file = std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()));
        written = written.and(file);
    }
    // Also if the disk is full: otherwise hours of measuring would leave nothing.
    print!("{}", page.text(folder, csv_name));
    written?;
    page.run.failed.as_ref().map_or(Ok(()), |why| Err(anyhow!("{why}")))?;
    let interrupted = "interrupted: the report covers the finished repeats";
    ensure!(!page.run.interrupted, "{interrupted}{advice}");
    Ok(())
}

/// Chart of lines over a logarithmic axis; `None` if no line has two points, since a single point is no curve.
pub(crate) fn curves(
    title: String,
    (name, unit): (&'static str, Unit),
    y: Axis,
    mut lines: Vec<Line>,
) -> Option<Chart> {
    lines.retain(|line| !line.x.is_empty());
    lines.iter().find(|line| line.x.len() > 1)?;
    let mut all_x: Vec<f64> = lines.iter().flat_map(|line| line.x.iter().copied()).collect();
    all_x.sort_by(f64::total_cmp);
    all_x.dedup();
    Some(Chart {
        title,
        x: Axis::logarithmic(name, unit, (all_x.first()? / 1.15, all_x.last()? * 1.15)),
        y,
        lines,
        rows: (all_x, 0.0),
        ..Chart::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finishes an empty run in a folder.
    fn finish_in(folder: &Path, failed: Option<&str>) -> Result<()> {
        let run = RunFacts {
            schema_version: 1,
            name: "test".to_owned(),
            interrupted: false,
            environment: Environment::default(),
            tiers: BTreeMap::new(),
            repeats: 1,
            plan: String::new(),
            failed: failed.map(str::to_owned),
        };
        let page = Page {
            run: &run,
            facts: Vec::new(),
            badges: Vec::new(),
            findings: Vec::new(),
            overview: Table::default(),
            chart: Markup::default(),
            parts: Vec::new(),
        };
        let none = serde_json::json!({});
        let table = ("points.csv", String::new());
        finish(folder, &page, (&none, &none), table, "")
    }

    #[test]
    fn the_other_files_are_written_if_one_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("run.json")).unwrap();
        let error = finish_in(folder.path(), None).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert!(folder.path().join("report.md").exists());
    }

    #[test]
    fn data_that_cannot_be_removed_leaves_the_results() {
        let folder = tempfile::tempdir().unwrap();
        let error = finish_in(folder.path(), Some("cannot remove the written objects")).unwrap_err();
        assert!(error.to_string().contains("cannot remove"), "{error}");
        assert!(folder.path().join("run.json").exists());
        let report = std::fs::read_to_string(folder.path().join("report.md")).unwrap();
        assert!(report.contains("error: cannot remove"), "{report}");
    }
}
