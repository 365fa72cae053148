//! `lay-out`: layout of a folder's feature tables on a tier, `features/TABLE.LAYOUT/`, as the server reads them with
//! `features.layout`.

use crate::error::ModelsError;
use crate::progress::{Progress, human_bytes};
use crate::publish;
use crate::stop::Stop;
use crate::tables::FEATURES;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierlab_formats::model::FEATURES_PREFIX;
use tierlab_formats::table::EXTENSION;
use tierlab_layouts::rows_tier::folder_of;
use tierlab_layouts::{Layout, Manifest, Options};
use tierlab_storage::{ObjectPath, StorageError, Tier, TierConfig, TierInfo};

pub(crate) const EXAMPLES: &str = "\
Examples:
  tierlab-models lay-out --layout parquet --to configs/tiers/nvme.toml
  tierlab-models lay-out --layout tar --layout arrow --table ctr --to configs/tiers/s3.toml --set endpoint=http://127.0.0.1:9000
  tierlab-server --tier nvme --set features.layout=parquet";

#[derive(Debug, Args)]
pub(crate) struct LayOutArgs {
    /// Layout: files, tar, tfrecord, parquet, parquet-snappy, parquet-lz4, parquet-zstd, arrow, arrow-lz4 or
    /// arrow-zstd; may be repeated
    #[arg(long, value_name = "LAYOUT", required = true)]
    layout: Vec<String>,
    /// Folder of feature tables
    #[arg(long, value_name = "DIR", default_value = FEATURES)]
    features: PathBuf,
    /// Table to lay out; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// Approximate shard size in MiB; memory holds one shard
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    shard_mib: u64,
    /// Remove the shards of earlier versions; servers that still use them fail until they reload the table
    #[arg(long)]
    prune: bool,
    /// Print a line of JSON per table instead of text
    #[arg(long)]
    json: bool,
    /// Configuration of the tier, a TOML file
    #[arg(long, value_name = "TIER.toml")]
    to: PathBuf,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Result for one table.
#[derive(Debug)]
pub struct LaidOutTable {
    /// Name of the table.
    pub table: String,
    /// Folder on the tier.
    pub folder: ObjectPath,
    /// Manifest of the folder.
    pub manifest: Manifest,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Lays out tables: all of a folder if none is named. The file of each is read once, and every row is checked.
///
/// # Errors
/// A missing folder or table; a table that is damaged, or that the layout cannot hold; a tier that refuses; a stop. The
/// existing version stays until the new one is complete.
pub async fn lay_out(
    (features, tables): (&Path, &[String]),
    to: &dyn Tier,
    options: Options,
    stop: &Stop,
) -> Result<Vec<LaidOutTable>, ModelsError> {
    if options.layout == Layout::Rows {
        let what = "`rows` is the layout that `tierlab-models publish` writes: name another layout";
        return Err(ModelsError::Usage(what.to_owned()));
    }
    let files = publish::table_files(features, tables)?;
    let from = open_folder(features).await?;
    let mut results = Vec::new();
    for file in files {
        let file_name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let table = file_name.strip_suffix(&format!(".{EXTENSION}")).unwrap_or(file_name);
        let metadata = std::fs::metadata(&file).map_err(ModelsError::io("read", &file))?;
        let mut progress = Progress::bytes(&format!("{table} as {}", options.layout), metadata.len());
        let started = Instant::now();
        let work = async {
            let source = ObjectPath::new(file_name)?;
            let folder = folder_of(&format!("{FEATURES_PREFIX}/{table}"), options.layout)?;
            let on_bytes = &mut |bytes| progress.advance(bytes);
            let manifest = tierlab_layouts::lay_out((&*from, &source), (to, &folder), options, on_bytes).await?;
            Ok((folder, manifest))
        };
        let failed = |e: StorageError| ModelsError::bad(&file.display(), &format!("not laid out: {e}"));
        let (folder, manifest) = stop.race(async { work.await.map_err(failed) }).await?;
        results.push(LaidOutTable {
            table: table.to_owned(),
            folder,
            manifest,
            seconds: started.elapsed().as_secs_f64(),
        });
    }
    Ok(results)
}

/// Opens the folder as a tier that is read through the page cache, because each byte is read once.
async fn open_folder(folder: &Path) -> Result<std::sync::Arc<dyn Tier>, ModelsError> {
    let open_error = |e: &dyn std::fmt::Display| ModelsError::bad(&folder.display(), &format!("cannot be opened: {e}"));
    let folder: PathBuf = std::path::absolute(folder).map_err(|e| open_error(&e))?;
    let root = toml::Value::String(folder.display().to_string());
    let text = format!("kind = \"nvme\"\nroot = {root}\ndirect = false\n");
    let config = TierConfig::parse("the folder of tables", &text).map_err(|e| open_error(&e))?;
    tierlab_storage::open(&config).await.map_err(|e| open_error(&e))
}

/// Runs `lay-out` and prints a line for each table.
pub(crate) async fn run(args: &LayOutArgs, stop: &Stop) -> Result<(), ModelsError> {
    let layouts: anyhow::Result<Vec<Layout>> = args.layout.iter().map(|name| name.parse()).collect();
    let layouts = layouts.map_err(|what| ModelsError::Usage(format!("--layout: {what}")))?;
    let tier = stop.race(Box::pin(publish::open_tier(&args.to, &args.set))).await?;
    for layout in layouts {
        let options = Options {
            layout,
            shard_bytes: args.shard_mib << 20,
        };
        for done in lay_out((&args.features, &args.table), &*tier, options, stop).await? {
            if args.prune {
                prune(&*tier, &done, stop).await?;
            }
            print(&done, layout, &tier.info(), args.json);
        }
    }
    Ok(())
}

async fn prune(tier: &dyn Tier, done: &LaidOutTable, stop: &Stop) -> Result<(), ModelsError> {
    let folder = &done.folder;
    let work = async {
        let pruned = tierlab_layouts::prune(tier, folder, &done.manifest).await;
        pruned.map_err(|e| ModelsError::bad(folder, &format!("not pruned: {e}")))
    };
    let (objects, bytes) = stop.race(work).await?;
    if objects > 0 {
        let bytes = human_bytes(bytes);
        eprintln!("{folder}: {objects} objects of earlier versions removed, {bytes}");
    }
    Ok(())
}

fn print(done: &LaidOutTable, layout: Layout, tier: &TierInfo, as_json: bool) {
    let (folder, seconds) = (&done.folder, done.seconds);
    let (rows, bytes, per_shard) = (done.manifest.rows, done.manifest.bytes, done.manifest.rows_per_shard);
    if as_json {
        let line = serde_json::json!({
            "table": done.table,
            "layout": layout,
            "folder": folder.as_str(),
            "rows": rows,
            "bytes": bytes,
            "seconds": seconds,
        });
        println!("{line}");
        return;
    }
    let (unit, content) = match layout {
        Layout::Files => ("folders", "files"),
        _ => ("shards", "rows"),
    };
    let (kind, location, bytes) = (tier.kind, &tier.location, human_bytes(bytes));
    let (count, rate) = (rows.div_ceil(per_shard.max(1)), rows as f64 / seconds.max(1e-9));
    println!(
        "{folder} on {kind} {location}: {rows} rows in {count} {unit} of {per_shard} {content} at most, \
         {bytes} in {seconds:.1} s ({rate:.0} rows/s)"
    );
}
