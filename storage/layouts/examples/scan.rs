//! Scans a laid-out table, and prints rows, seconds, and the peak memory of this process. In: a tier's config and the
//! folder as arguments. Every row is checked against its checksum, and the ids against the manifest.
//!
//! ```text
//! cargo run --release -p tierlab-layouts --example scan -- configs/tiers/nvme.toml features/ctr.parquet-zstd
//! ```

use std::time::Instant;
use tierlab_layouts::Table;
use tierlab_storage::{ErrorKind, ObjectPath, StorageError, TierConfig, open};

#[tokio::main]
async fn main() -> Result<(), StorageError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(config), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err(ErrorKind::Invalid.error("arguments", "name a tier's config and the folder of a table"));
    };
    let unreadable = |e: std::io::Error| ErrorKind::Invalid.error(&config, e.to_string());
    let text = std::fs::read_to_string(&config).map_err(unreadable)?;
    let tier = open(&TierConfig::parse(&config, &text)?).await?;
    let table = Table::open(tier, ObjectPath::new(&folder)?).await?;
    let began = Instant::now();
    let (mut rows, mut bytes, mut scan) = (0_u64, 0_u64, table.scan());
    while let Some(some) = scan.next().await? {
        rows += some.len() as u64;
        bytes += some.iter().map(|row| row.len() as u64).sum::<u64>();
    }
    let seconds = began.elapsed().as_secs_f64();
    if rows != table.manifest().rows {
        let detail = format!("{rows} rows, its manifest says {}", table.manifest().rows);
        return Err(ErrorKind::Corrupt.error(&folder, detail));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or(" ?");
    println!(
        "{rows} rows, {bytes} bytes in {seconds:.1} s; most memory{}",
        peak.replace('\t', " ")
    );
    Ok(())
}
