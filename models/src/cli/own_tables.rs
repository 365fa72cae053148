//! `import-table` and `export-table`: requests from arguments, and the printed results.

use crate::error::ModelsError;
use crate::progress::human_bytes;
use crate::stop::Stop;
use crate::tables::own::{
    ColumnRequest, CsvOptions, DuplicateRule, HashedColumn, ImportStep, Imported, NullRule, Part, Request, TypeOf,
    Vector, import_table,
};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use tierlab_formats::table::{KeyKind, MAX_KEY_BYTES};

/// Default folder of feature tables.
pub(super) const FEATURES: &str = "models/features";

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

/// Arguments of `import-table`.
#[derive(Debug, Args)]
pub struct ImportTableArgs {
    /// Files, folders of parts (Spark, Delta, Iceberg's data) and URLs: file:///... and s3://..., with keys, region and
    /// endpoint from the environment
    #[arg(value_name = "FILE", required = true)]
    inputs: Vec<String>,
    /// Key column; `@row` numbers the rows of a single file, from 0
    #[arg(long, value_name = "COLUMN")]
    key: String,
    /// Removed flag: every value is refused
    #[arg(long, hide = true, value_parser = removed_preset)]
    preset: Option<String>,
    /// Type of the keys [default: that of the column; text that holds UUIDs is text]
    #[arg(long, value_enum, value_name = "TYPE")]
    key_type: Option<KeyType>,
    /// Maximum length of a text key in bytes; every row has room for the longest key in the table
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=MAX_KEY_BYTES as i64))]
    max_key_bytes: u16,
    /// Name of the table
    #[arg(long)]
    name: String,
    /// Folder for NAME.rows
    #[arg(long, value_name = "DIR", default_value = FEATURES)]
    out: PathBuf,
    /// Columns to import, separated by commas [default: all]
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    columns: Vec<String>,
    /// Combine columns into one vector, in this order; may be repeated
    #[arg(long, value_name = "NAME=COLUMN,...")]
    vector: Vec<Vector>,
    /// Element type of a column or vector, as price=FP32, or of all others with *=FP32; may be repeated [default: that
    /// of the file]
    #[arg(long = "as", value_name = "COLUMN=TYPE")]
    types: Vec<TypeOf>,
    /// Convert a text column to numbers: its hash below this limit; may be repeated
    #[arg(long, value_name = "COLUMN=BUCKETS")]
    hash: Vec<HashedColumn>,
    /// Handling of nulls: refuse (the import stops), aside (the row goes to the bad rows), zero, nan, or a number
    #[arg(long, value_name = "RULE", default_value = "refuse", allow_hyphen_values = true)]
    nulls: NullRule,
    /// Handling of duplicate keys: the import stops, or the first or last row is used
    #[arg(long, value_enum, value_name = "RULE", default_value = "refuse")]
    duplicates: DuplicateRule,
    /// Maximum rows in NAME.bad.jsonl before the import fails
    #[arg(long, value_name = "ROWS", default_value_t = 1000)]
    max_bad_rows: u64,
    /// Bad rows tolerated; with more, the table is written and the exit code is 3
    #[arg(long, value_name = "ROWS", default_value_t = 0)]
    allow_bad_rows: u64,
    /// Separator of CSV fields: one character, or `tab` [default: comma; tab in .tsv]. Also treats files without an
    /// ending as CSV
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Column names, separated by commas, for CSV without a header line. Also treats files without an ending as CSV
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    header: Vec<String>,
    /// Null values in CSV fields and folder names, separated by commas, as NULL,NA,\N; empty fields are always null
    #[arg(long, value_name = "TEXT,...", value_delimiter = ',', allow_hyphen_values = true)]
    null_values: Vec<String>,
    /// Memory for buffered rows, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(32..=1 << 20))]
    memory_mib: u64,
    /// Read one part of the inputs; other processes with access to the same folder read the others
    #[arg(long, value_name = "I/N")]
    part: Option<Part>,
    /// Write the table, after all parts were read
    #[arg(long, requires = "part")]
    finish: bool,
    /// Start over instead of continuing an interrupted import of this name
    #[arg(long)]
    restart: bool,
    /// Replace a table of that name
    #[arg(long)]
    replace: bool,
}

/// Type of keys.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum KeyType {
    /// 64-bit integers, in any order
    Int64,
    /// Text
    String,
    /// UUIDs, in text or in 16 bytes
    Uuid,
}

/// Arguments of `export-table`.
#[derive(Debug, Args)]
pub struct ExportTableArgs {
    /// Table to export
    #[arg(value_name = "TABLE.rows")]
    table: PathBuf,
    /// Parquet file to write
    #[arg(long, value_name = "FILE.parquet")]
    to: PathBuf,
}

fn removed_preset(preset: &str) -> Result<String, String> {
    Err(match preset {
        "criteo" => {
            "presets were removed: pass --key @row, --delimiter tab and --header, and gather columns with \
                     --vector and --hash"
        }
        _ => "presets were removed: write the rows as Parquet, Arrow IPC, CSV or TFRecord first",
    }
    .to_owned())
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        &[byte] => Ok(byte),
        _ => Err("one character, or `tab`".to_owned()),
    }
}

pub(super) async fn run_import(args: ImportTableArgs, stop: &Stop) -> Result<(), ModelsError> {
    let request = Request {
        inputs: args.inputs,
        out: args.out,
        columns: ColumnRequest {
            name: args.name,
            key: args.key,
            key_kind: args.key_type.map(|kind| match kind {
                KeyType::Int64 => KeyKind::Int64,
                KeyType::String => KeyKind::String,
                KeyType::Uuid => KeyKind::Uuid,
            }),
            max_key_bytes: usize::from(args.max_key_bytes),
            only: args.columns,
            vectors: args.vector,
            types: args.types,
            hashed: args.hash,
            nulls: args.nulls,
            duplicates: args.duplicates,
        },
        csv: CsvOptions {
            delimiter: args.delimiter,
            names: args.header,
            null_values: args.null_values,
            ..CsvOptions::default()
        },
        memory_bytes: args.memory_mib << 20,
        max_bad_rows: args.max_bad_rows.max(args.allow_bad_rows),
        part: args.part.unwrap_or(Part { number: 1, of: 1 }),
        step: match (args.part, args.finish) {
            (None, _) => ImportStep::Whole,
            (Some(_), false) => ImportStep::Read,
            (Some(_), true) => ImportStep::Finish,
        },
        restart: args.restart,
        replace: args.replace,
    };
    let (part, allowed, stop) = (args.part, args.allow_bad_rows, stop.clone());
    let work = tokio::task::spawn_blocking(move || import_table(&request, &stop));
    let imported = work
        .await
        .map_err(|e| ModelsError::bad(&"import-table", &format!("it broke off: {e}")))??;
    print(&imported, part);
    // When all parts are written, the bad rows of each part are counted again.
    if imported.header.is_none() || imported.bad <= allowed {
        return Ok(());
    }
    Err(ModelsError::Incomplete(format!(
        "{}: {} bad rows are missing from the table, {allowed} may be: mend them, see {}, or pass --allow-bad-rows {}",
        imported.path.display(),
        imported.bad,
        imported.bad_file.display(),
        imported.bad
    )))
}

fn print(imported: &Imported, part: Option<Part>) {
    for left_out in &imported.left_out {
        println!("{left_out}");
    }
    let (read, rows) = (imported.read_seconds, imported.rows);
    match &imported.header {
        None => {
            let part = part.map_or_else(String::new, |part| format!("part {} of {}", part.number, part.of));
            println!("{part}: {rows} rows read in {read:.1} s; --finish writes the table once all parts are read");
        }
        Some(header) => {
            let seconds = read + imported.write_seconds;
            println!(
                "{}: written, {} rows of {} bytes, {} in {seconds:.1} s (read {read:.1}, write {:.1}; {:.0} rows/s)",
                imported.path.display(),
                header.rows,
                header.stride,
                human_bytes(header.file_len()),
                imported.write_seconds,
                rows as f64 / seconds.max(1e-9),
            );
            print!("{}", crate::inspect::describe_columns(header));
        }
    }
    if imported.dropped > 0 {
        println!(
            "{} rows left out: their key stands in another row, which counts",
            imported.dropped
        );
    }
    if imported.bad > 0 {
        println!(
            "{} bad rows kept aside in {}",
            imported.bad,
            imported.bad_file.display()
        );
    }
}

#[cfg(feature = "flight")]
pub(super) fn run_export(args: &ExportTableArgs, stop: &Stop) -> Result<(), ModelsError> {
    let (rows, bytes) = crate::tables::export::export(&args.table, &args.to, stop)?;
    println!("{}: {rows} rows, {}", args.to.display(), human_bytes(bytes));
    Ok(())
}

#[cfg(not(feature = "flight"))]
pub(super) fn run_export(args: &ExportTableArgs, _: &Stop) -> Result<(), ModelsError> {
    let what = "this build has no feature `flight`, whose columns Parquet gets";
    Err(ModelsError::bad(&args.table.display(), &what))
}
