//! What a run found, for people and for other tools. In: summarised points. Out: files, and a table in the terminal.

mod csv;
mod curves;
mod heat;
mod html;
mod kept;
mod markdown;
pub(crate) mod parts;
mod rows;
mod sentences;
mod terminal;

pub(crate) use kept::Kept;
pub(crate) use terminal::STYLE;

use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// Writes the files and prints the table.
pub(crate) fn write(kept: &Kept, folder: &Path) -> Result<()> {
    write_files(
        folder,
        kept,
        [
            ("points.csv", csv::csv(&kept.points)?),
            ("report.md", markdown::markdown(kept)),
            ("report.html", html::page(kept)),
        ],
    )?;
    print!("{}", terminal::text(kept));
    Ok(())
}

/// Writes `run.json`, what is kept, and the files that are made of it.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write_files(folder: &Path, kept: &impl Serialize, files: [(&str, String); 3]) -> Result<()> {
    let json = serde_json::to_string_pretty(kept)? + "\n";
    for (name, text) in [("run.json", json)].into_iter().chain(files) {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
