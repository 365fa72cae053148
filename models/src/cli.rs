//! Command line: parses arguments and calls the command. Results go to stdout, progress to stderr.

#[cfg(feature = "tables")]
mod table_commands;
#[cfg(any(test, not(feature = "tables")))]
mod unsupported;

#[cfg(not(feature = "tables"))]
use unsupported::{self as lay_out, self as table_commands};

use crate::error::ModelsError;
use crate::generators::{DEFAULT_SEED, ModelKind, Request, Size};
use crate::import::independence::Verdict;
use crate::import::{Import, import};
use crate::inspect;
#[cfg(feature = "tables")]
use crate::lay_out;
use crate::progress::human_bytes;
use crate::publish::{self, Selection};
use crate::repository;
use crate::stop::Stop;
use crate::tables::{self, FEATURES, TableKind};
use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use table_commands::{ExportTableArgs, ImportTableArgs};
use tierlab_storage::TierInfo;

/// Threads of the async runtime, which mostly waits for disks and networks.
const WORKERS: usize = 2;

const REPOSITORY: &str = "models/repository";

const EXAMPLES: &str = "\
Examples:
  tierlab-models generate                                   mlp, ctr and vision, small
  tierlab-models generate --model ctr --size full --seed 7
  tierlab-models features --table ctr --rows 10000000       5.1 GB, in bounded memory
  tierlab-models import my-model.onnx --name my-model
  tierlab-models import my-model.onnx --batching=64         only if its rows do not depend on each other
  tierlab-models import-table users.parquet --key user_id --name users
  tierlab-models export-table models/features/users.rows --to users.parquet
  tierlab-models publish --to configs/tiers/s3.toml --set endpoint=http://127.0.0.1:9000
  tierlab-models lay-out --layout parquet --to configs/tiers/nvme.toml
  tierlab-models inspect --verify

Exit codes: 0 success, 2 bad usage or config, 3 done with rows missing (import-table), 1 anything else.";

/// Generates, imports, checks and publishes models and feature tables.
#[derive(Debug, Parser)]
#[command(name = "tierlab-models", version = tierlab_program::version(None), after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write models with seeded weights into a repository
    ///
    /// Each becomes NAME/1/model.onnx with NAME/config.toml and NAME/manifest.json. The same arguments give the same
    /// bytes. An existing, undamaged model stays unchanged, and so does an edited config.toml.
    Generate(GenerateArgs),
    /// Write a feature table with seeded rows
    ///
    /// Entities are numbered 0 to ROWS-1. Every row depends only on the seed and its id. Memory is bounded at any size.
    /// An existing, identical and undamaged table stays unchanged.
    Features(FeaturesArgs),
    /// Import your own ONNX model, with its external weights, into a repository
    ///
    /// The import first tries the model as the server would load it: a session of ONNX Runtime, its tensors against the
    /// config, the warm-up, a run on zeros. A model that the server would refuse is not imported, and the message says
    /// what to do. Weights that are missing, truncated or left out by git-lfs are listed with their sizes.
    ///
    /// Without a config the model is served unbatched: each request is a separate run, whatever its shapes. With
    /// --batching, seeded rows run through ONNX Runtime together, alone and permuted, in several batch sizes. If no row
    /// depends on another, config.toml sets `max_batch_size`; otherwise the model is imported without batching, the
    /// reason is printed, and the exit code is 1.
    Import(ImportArgs),
    /// Import a feature table from your own rows: Parquet, Arrow IPC, CSV, shards of samples, or a folder of parts
    ///
    /// Keys are integers in any order, texts or UUIDs. Columns of numbers become columns, lists become vectors, and
    /// unsupported columns are refused by name. Memory is bounded at any size; an interrupted command continues when it
    /// is run again. Rows that cannot be used go to NAME.bad.jsonl, with file, row and reason.
    #[command(after_help = table_commands::EXAMPLES)]
    ImportTable(Box<ImportTableArgs>),
    /// Write a feature table as Parquet, readable by pandas, pyarrow, Spark and DuckDB
    ExportTable(ExportTableArgs),
    /// Put models and feature tables on a tier, at models/... and features/..., or results of runs at results/...
    ///
    /// Identical existing objects stay unchanged. Each model's manifest is written last, so no reader sees a manifest
    /// of missing files. With --model, --table or --run, only the named items are put.
    Publish(PublishArgs),
    /// Write feature tables to a tier in another layout, at features/TABLE.LAYOUT/...
    ///
    /// Layouts are small files, shards of samples with an index, Parquet and Arrow IPC; a server reads them with
    /// `features.layout`. Memory holds one shard. A server that reads the table continues with its version until the
    /// new one is complete.
    #[command(after_help = lay_out::EXAMPLES)]
    LayOut(lay_out::LayOutArgs),
    /// Print the contents of repositories, models, tables and ONNX files
    Inspect(InspectArgs),
}

#[derive(Debug, Args)]
struct GenerateArgs {
    /// Model to write; may be repeated [default: all]
    #[arg(long, value_enum)]
    model: Vec<ModelKind>,
    /// Model size (mlp has one size)
    #[arg(long, value_enum, default_value = "small")]
    size: Size,
    /// Seed of the weights
    #[arg(long, default_value_t = DEFAULT_SEED, allow_negative_numbers = true)]
    seed: u64,
    /// Repository folder
    #[arg(long, value_name = "DIR", default_value = REPOSITORY)]
    repository: PathBuf,
}

#[derive(Debug, Args)]
struct FeaturesArgs {
    /// Table to write
    #[arg(long, value_enum)]
    table: TableKind,
    /// Number of entities
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    rows: u64,
    /// Seed of the rows
    #[arg(long, default_value_t = DEFAULT_SEED, allow_negative_numbers = true)]
    seed: u64,
    /// Folder for TABLE.rows
    #[arg(long, value_name = "DIR", default_value = FEATURES)]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct ImportArgs {
    #[command(flatten)]
    import: Import,
    /// Repository folder
    #[arg(long, value_name = "DIR", default_value = REPOSITORY)]
    repository: PathBuf,
}

#[derive(Debug, Args)]
struct PublishArgs {
    #[command(flatten)]
    selection: Selection,
    /// Configuration of the tier, a TOML file
    #[arg(long, value_name = "TIER.toml")]
    to: PathBuf,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Args)]
struct InspectArgs {
    /// Repositories, model folders, feature folders, .rows or .onnx files [default: models/repository models/features]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Read all data and verify every checksum
    #[arg(long)]
    verify: bool,
}

/// Runs the program with the arguments of the process until its end or a stop. Part of the library, so that its futures
/// are compiled once.
pub fn main() -> ExitCode {
    let cli: Cli = tierlab_program::start();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .init();
    start(cli.command).unwrap_or_else(|e| {
        eprintln!("tierlab-models: {e:#}");
        ExitCode::FAILURE
    })
}

fn start(command: Command) -> anyhow::Result<ExitCode> {
    tierlab_program::can_start_workers(WORKERS).context("cannot start the runtime")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let stop = Stop::default();
    let interrupted = stop.clone();
    let handled = tierlab_program::on_interrupt(move || interrupted.stop(), || std::process::exit(1));
    handled.context("cannot handle Ctrl-C")?;
    let code = runtime.block_on(async {
        let code = match run(command, &stop).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("tierlab-models: {e}");
                ExitCode::from(e.exit_code())
            }
        };
        tierlab_storage::cleaned_up().await;
        code
    });
    // After a stop, a thread may still wait for a disk.
    runtime.shutdown_background();
    Ok(code)
}

async fn run(command: Command, stop: &Stop) -> Result<(), ModelsError> {
    match command {
        Command::Generate(args) => run_generate(&args, stop),
        Command::Features(args) => run_features(&args, stop),
        Command::Import(args) => run_import(&args, stop),
        Command::ImportTable(args) => table_commands::run_import(*args, stop).await,
        Command::ExportTable(args) => table_commands::run_export(&args, stop),
        Command::Publish(args) => run_publish(args, stop).await,
        Command::LayOut(args) => lay_out::run(&args, stop).await,
        Command::Inspect(args) => run_inspect(args, stop),
    }
}

fn run_generate(args: &GenerateArgs, stop: &Stop) -> Result<(), ModelsError> {
    let is_wanted = |kind: &ModelKind| args.model.is_empty() || args.model.contains(kind);
    for kind in ModelKind::ALL.into_iter().filter(is_wanted) {
        let (size, seed) = (args.size, args.seed);
        let request = Request { kind, size, seed };
        let generated = repository::write_generated(&args.repository, &request, stop)?;
        let folder = args.repository.join(kind.to_string());
        let bytes = human_bytes(generated.manifest.files.iter().map(|file| file.bytes).sum());
        println!("{}: {}, {bytes}", folder.display(), generated.outcome);
        if generated.config_preserved {
            println!("{}: kept its edited config.toml", folder.display());
        }
    }
    Ok(())
}

fn run_features(args: &FeaturesArgs, stop: &Stop) -> Result<(), ModelsError> {
    let table = tables::generate(args.table, args.rows, args.seed, &args.out, stop)?;
    let (header, seconds) = (&table.header, table.seconds);
    let (path, outcome, rows, stride) = (table.path.display(), table.outcome, header.rows, header.stride);
    let (bytes, rate) = (header.file_len(), header.file_len() as f64 / 1e6 / seconds.max(1e-9));
    let bytes = human_bytes(bytes);
    println!("{path}: {outcome}, {rows} rows of {stride} bytes, {bytes} in {seconds:.1} s ({rate:.0} MB/s)");
    Ok(())
}

fn run_import(args: &ImportArgs, stop: &Stop) -> Result<(), ModelsError> {
    let imported = import(&args.repository, &args.import, stop)?;
    let folder = args.repository.join(&imported.manifest.name);
    println!("{}: imported", folder.display());
    print!("{}", inspect::describe_manifest(&imported.manifest));
    if args.import.unchecked {
        println!("  not tried in ONNX Runtime (--unchecked)");
    }
    if let Some(reason) = imported.zero_run_error {
        println!(
            "  its first request is not warmed up, because it does not run on zeros with free dimensions as 1; add a [[warmup]] \
             sample that runs to its config: {reason}"
        );
    }
    match imported.batching {
        None => {}
        Some(Verdict::Independent(evidence)) => println!("  batched: {evidence}"),
        Some(Verdict::Refused(reason)) => {
            let what = format!("imported without batching: its rows could not be proven independent: {reason}");
            return Err(ModelsError::bad(&folder.display(), &what));
        }
    }
    Ok(())
}

async fn run_publish(args: PublishArgs, stop: &Stop) -> Result<(), ModelsError> {
    let or_existing =
        |path: Option<PathBuf>, default: &str| path.or_else(|| Some(PathBuf::from(default)).filter(|p| p.is_dir()));
    let mut selection = args.selection;
    selection.repository = or_existing(selection.repository, REPOSITORY);
    selection.features = or_existing(selection.features, FEATURES);
    let tier = stop.race(Box::pin(publish::open_tier(&args.to, &args.set))).await?;
    for what in publish::skipped_entries(&selection)? {
        eprintln!("left out: {what}");
    }
    let summary = publish::publish(&*tier, &selection, stop).await?;
    let TierInfo { kind, location, .. } = tier.info();
    let (put, bytes, seconds) = (summary.put, human_bytes(summary.put_bytes), summary.seconds);
    let unchanged = summary.unchanged;
    println!("{kind} on {location}: {put} objects put ({bytes} in {seconds:.1} s), {unchanged} unchanged");
    Ok(())
}

fn run_inspect(args: InspectArgs, stop: &Stop) -> Result<(), ModelsError> {
    let mut paths = args.paths;
    if paths.is_empty() {
        paths.extend([REPOSITORY, FEATURES].map(PathBuf::from));
        paths.retain(|path| path.exists());
    }
    if paths.is_empty() {
        let what = format!("neither {REPOSITORY} nor {FEATURES} exists: name a path, or run `tierlab-models generate`");
        return Err(ModelsError::Usage(what));
    }
    inspect::inspect(&paths, args.verify, stop, &mut |text| print!("{text}"))
}
