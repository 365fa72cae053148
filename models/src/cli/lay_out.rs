//! `lay-out`: its arguments and output.

use crate::error::ModelsError;
use crate::lay_out::{self, LaidOutTable};
use crate::progress::human_bytes;
use crate::publish;
use crate::stop::Stop;
use crate::tables::FEATURES;
use clap::Args;
use std::path::PathBuf;
use tierlab_layouts::{Layout, Options};

pub(super) const EXAMPLES: &str = "\
Examples:
  tierlab-models lay-out --layout parquet --to configs/tiers/nvme.toml
  tierlab-models lay-out --layout tar --layout arrow --table ctr --to configs/tiers/s3.toml --set endpoint=http://127.0.0.1:9000
  tierlab-server --tier nvme --set features.layout=parquet";

#[derive(Debug, Args)]
pub(super) struct LayOutArgs {
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

pub(super) async fn run(args: &LayOutArgs, stop: &Stop) -> Result<(), ModelsError> {
    let layouts: Result<Vec<Layout>, String> = args.layout.iter().map(|name| name.parse()).collect();
    let layouts = layouts.map_err(|what| ModelsError::Usage(format!("--layout: {what}")))?;
    let tier = publish::open_tier(&args.to, &args.set).await?;
    let info = tier.info();
    for layout in layouts {
        let options = Options {
            layout,
            shard_bytes: args.shard_mib << 20,
        };
        for done in lay_out::lay_out((&args.features, &args.table), &*tier, options, stop).await? {
            if args.prune {
                let failed = |e| ModelsError::bad(&done.folder, &format!("not pruned: {e}"));
                let work = async {
                    let pruned = tierlab_layouts::prune(&*tier, &done.folder, &done.manifest).await;
                    pruned.map_err(failed)
                };
                let (objects, bytes) = stop.or(work).await?;
                if objects > 0 {
                    eprintln!(
                        "{}: {objects} objects of earlier versions removed, {}",
                        done.folder,
                        human_bytes(bytes)
                    );
                }
            }
            if args.json {
                let LaidOutTable {
                    table,
                    folder,
                    manifest,
                    seconds,
                } = done;
                let line = serde_json::json!({
                    "table": table,
                    "layout": layout,
                    "folder": folder.as_str(),
                    "rows": manifest.rows,
                    "bytes": manifest.bytes,
                    "seconds": seconds,
                });
                println!("{line}");
                continue;
            }
            let (rows, of_shard) = (done.manifest.rows, done.manifest.rows_per_shard);
            let (many, each) = match layout {
                Layout::Files => ("folders", "files"),
                _ => ("shards", "rows"),
            };
            println!(
                "{} on {} {}: {rows} rows in {} {many} of {of_shard} {each} at most, {} in {:.1} s ({:.0} rows/s)",
                done.folder,
                info.kind,
                info.location,
                rows.div_ceil(of_shard.max(1)),
                human_bytes(done.manifest.bytes),
                done.seconds,
                rows as f64 / done.seconds.max(1e-9),
            );
        }
    }
    Ok(())
}
