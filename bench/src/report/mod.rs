//! Files of a run for people and for other tools. In: a page, and the content of `run.json`. Out: files, and tables in the terminal.

mod csv;
mod page;

pub(crate) use csv::{columns, csv};
pub(crate) use page::{Bars, Block, Column, Page, Part, Ran, under};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::path::Path;
use tierlab_report::parts::{Axis, Chart, Line, Unit};

/// Content of `run.json`.
#[derive(Serialize)]
struct Kept<'a, S, F> {
    #[serde(flatten)]
    ran: &'a Ran,
    /// Settings with defaults and flags applied.
    settings: &'a S,
    #[serde(flatten)]
    figures: &'a F,
}

/// Writes the files of a run, and prints its tables and its results folder. `csv` is a file's name and its text. `advice` is shown
/// if the run was interrupted.
///
/// # Errors
/// A file cannot be written, or the run was interrupted.
pub(crate) fn finish(
    folder: &Path,
    page: &Page<'_>,
    (settings, figures): (&impl Serialize, &impl Serialize),
    (csv_name, csv): (&str, String),
    advice: &str,
) -> Result<()> {
    let kept = Kept {
        ran: page.ran,
        settings,
        figures,
    };
    let json = serde_json::to_string_pretty(&kept)? + "\n";
    for (name, text) in [
        ("run.json", json),
        (csv_name, csv),
        ("report.md", page.markdown()),
        ("report.html", page.html()),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print!("{}", page.text());
    println!(
        "\nresults in {}: report.html, report.md, {csv_name}, run.json",
        folder.display()
    );
    if page.ran.interrupted {
        bail!("interrupted: the report covers the finished repeats{advice}");
    }
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
    let mut places: Vec<f64> = lines.iter().flat_map(|line| line.x.iter().copied()).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    Some(Chart {
        title,
        x: Axis::logarithmic(name, unit, (places.first()? / 1.15, places.last()? * 1.15)),
        y,
        lines,
        rows: (places, 0.0),
        ..Chart::default()
    })
}
