//! `import-table` and `export-table`: requests from arguments, and the printed results.

use crate::error::ModelsError;
use crate::progress::human_bytes;
use crate::stop::Stop;
use crate::tables::export::export;
pub(super) use crate::tables::import::TableRequest as ImportTableArgs;
use crate::tables::import::{ImportedTable, Part, import_table};
use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  tierlab-models import-table users.parquet --key user_id --name users
  tierlab-models import-table s3://lake/users/ --key user_id --name users --as '*=FP32' --nulls zero
  tierlab-models import-table clicks.csv --key id --name clicks --vector dense=price,age,clicks --hash city=100000
  tierlab-models import-table big/ --key id --name big --part 1/4      one of four processes; then 2/4, 3/4, 4/4
  tierlab-models import-table big/ --key id --name big --part 1/4 --finish
  tierlab-models import-table day_0 --key @row --name days --delimiter tab --header label,I1,I2 --nulls zero
  tierlab-models import-table shards/ --key __key__ --name train --columns cls,emb.npy      WebDataset

In config.toml of a model, `[joined.dense]` with `table = \"users\"` has the server read the rows of `entity_id`.";

#[derive(Debug, Args)]
pub(super) struct ExportTableArgs {
    /// Table to export
    #[arg(value_name = "TABLE.rows")]
    table: PathBuf,
    /// Parquet file to write
    #[arg(long, value_name = "FILE.parquet")]
    to: PathBuf,
}

pub(super) async fn run_import(request: ImportTableArgs, stop: &Stop) -> Result<(), ModelsError> {
    let (part, allowed, stop) = (request.part, request.allow_bad_rows, stop.clone());
    let work = tokio::task::spawn_blocking(move || import_table(&request, &stop));
    let imported = work
        .await
        .map_err(|e| ModelsError::bad(&"import-table", &format!("stopped unexpectedly: {e}")))??;
    print(&imported, part);
    // When all parts are written, the bad rows of each part are counted again.
    if imported.header.is_none() || imported.bad <= allowed {
        return Ok(());
    }
    let (path, file, bad) = (imported.path.display(), imported.bad_file.display(), imported.bad);
    Err(ModelsError::Incomplete(format!(
        "{path}: {bad} bad rows are missing from the table, {allowed} are allowed: fix them, see {file}, or pass --allow-bad-rows {bad}"
    )))
}

fn print(imported: &ImportedTable, part: Option<Part>) {
    for skipped in &imported.skipped {
        println!("{skipped}");
    }
    let (read, rows) = (imported.read_seconds, imported.rows);
    match &imported.header {
        None => {
            let part = part.map_or_else(String::new, |part| format!("part {} of {}", part.number, part.count));
            println!("{part}: {rows} rows read; --finish writes the table once all parts are read");
        }
        Some(header) => {
            let (path, bytes) = (imported.path.display(), human_bytes(header.file_len()));
            let (written, stride, write) = (header.rows, header.stride, imported.write_seconds);
            // No rate: a command that resumes, or finishes parts, did not read all of these rows.
            let seconds = read + write;
            println!(
                "{path}: written, {written} rows of {stride} bytes, {bytes} in {seconds:.1} s \
                 (read {read:.1}, write {write:.1})"
            );
            print!("{}", crate::inspect::describe_columns(header));
        }
    }
    if imported.dropped > 0 {
        println!("{} rows dropped: duplicate keys", imported.dropped);
    }
    if imported.bad > 0 {
        println!("{} bad rows written to {}", imported.bad, imported.bad_file.display());
    }
}

pub(super) fn run_export(args: &ExportTableArgs, stop: &Stop) -> Result<(), ModelsError> {
    let (rows, bytes) = export(&args.table, &args.to, stop)?;
    println!("{}: {rows} rows, {}", args.to.display(), human_bytes(bytes));
    Ok(())
}
