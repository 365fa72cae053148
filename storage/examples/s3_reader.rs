//! Reader of the benchmark `scripts/bench/s3`. Reads an object with the S3 tier or with object_store's plain `get`,
//! once for each line of standard input, and prints the times as a line of JSON. In: endpoint and bucket as arguments,
//! which must be an embedded origin; commands `put`, `tier`, `plain`, `rows-many`, `rows-one`. Every byte is checked
//! after the clock is stopped.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ObjectStoreExt, path::Path as Key};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::io::{BufRead, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tierlab_storage::content::content;
use tierlab_storage::{Body, Object, ObjectPath, Tier, TierConfig, open};

/// Seed of the object's content and of the rows' positions.
const SEED: u64 = 64;

/// Read from an S3 origin as told on standard input
#[derive(Debug, Parser)]
struct Flags {
    /// The origin
    #[arg(long)]
    endpoint: String,
    /// The bucket
    #[arg(long, default_value = "tierlab")]
    bucket: String,
    /// Name of the object
    #[arg(long, default_value = "bench.bin")]
    object: String,
    /// Size of the object in bytes
    #[arg(long, default_value_t = 64 << 20)]
    size: u64,
    /// Bytes per GET of the tier
    #[arg(long, default_value_t = 8 << 20)]
    part_bytes: u64,
    /// GETs of the tier in flight
    #[arg(long, default_value_t = 8)]
    concurrency: u32,
    /// GETs of the tier in flight when it reads rows
    #[arg(long, default_value_t = 32)]
    rows_concurrency: u32,
    /// Gap between two rows that the tier reads over; its default when left out
    #[arg(long)]
    coalesce_bytes: Option<u64>,
    /// Rows to read
    #[arg(long, default_value_t = 1000)]
    rows: usize,
    /// Bytes of a row
    #[arg(long, default_value_t = 1024)]
    row_bytes: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    let whole = tier(&flags, flags.concurrency).await?;
    let of_rows = tier(&flags, flags.rows_concurrency).await?;
    let plain = AmazonS3Builder::new()
        .with_bucket_name(&flags.bucket)
        .with_endpoint(&flags.endpoint)
        .with_allow_http(true)
        .with_skip_signature(true)
        .build()?;
    let want = content(SEED, 0..flags.size);
    let path = ObjectPath::new(&flags.object)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line == "put" {
            whole.put(&path, Body::Bytes(want.clone().into())).await?;
            reply(&serde_json::json!({}))?;
            continue;
        }
        // Not measured for rows, which are read from the same table again and again.
        let object = whole.stat(&path).await?;
        let answer = match line.as_str() {
            "tier" => of_tier(&whole, &path, &want).await?,
            "plain" => of_plain(&plain, &flags, &want).await?,
            "rows-many" => many(&of_rows, &object, &rows(&flags), &want).await?,
            "rows-one" => one_by_one(&of_rows, &object, &rows(&flags), &want).await?,
            other => bail!("`{other}` is no command: put, tier, plain, rows-many or rows-one"),
        };
        reply(&answer)?;
    }
    Ok(())
}

fn reply(line: &serde_json::Value) -> Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .context("cannot write to stdout")
}

async fn tier(flags: &Flags, concurrency: u32) -> Result<Arc<dyn Tier>> {
    let mut document = format!(
        "kind = \"s3\"\nbucket = \"{}\"\nendpoint = \"{}\"\nallow_http = true\nanonymous = true\npart_bytes = {}\n\
         concurrency = {concurrency}\ntimeout_ms = 30000",
        flags.bucket, flags.endpoint, flags.part_bytes,
    );
    if let Some(bytes) = flags.coalesce_bytes {
        document += &format!("\ncoalesce_bytes = {bytes}");
    }
    Ok(open(&TierConfig::parse("bench", &document)?).await?)
}

/// Positions of the rows: scattered, and equal in every run.
fn rows(flags: &Flags) -> Vec<Range<u64>> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let offsets = flags.size.saturating_sub(flags.row_bytes).max(1);
    let row = |start: u64| start..start + flags.row_bytes;
    (0..flags.rows).map(|_| row(random.next_u64() % offsets)).collect()
}

async fn of_tier(tier: &Arc<dyn Tier>, path: &ObjectPath, want: &[u8]) -> Result<serde_json::Value> {
    let began = Instant::now();
    // The look-up is included: a plain `get` needs none, and the CRT finds out the size by itself.
    let object = tier.stat(path).await?;
    let read = tier.read(&object, 0..object.size).await?;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(read.bytes == want, "the tier read wrong bytes");
    // The look-up is one more request.
    Ok(serde_json::json!({"seconds": seconds, "requests": read.cost.requests + 1}))
}

async fn of_plain(store: &AmazonS3, flags: &Flags, want: &[u8]) -> Result<serde_json::Value> {
    let key = Key::parse(&flags.object)?;
    let began = Instant::now();
    let bytes = store.get(&key).await?.bytes().await?;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(bytes == want, "object_store read wrong bytes");
    Ok(serde_json::json!({"seconds": seconds, "requests": 1}))
}

fn check(parts: &[bytes::Bytes], rows: &[Range<u64>], want: &[u8]) -> Result<()> {
    let right = |part: &bytes::Bytes, row: &Range<u64>| *part == want[row.start as usize..row.end as usize];
    ensure!(
        parts.len() == rows.len() && parts.iter().zip(rows).all(|(part, row)| right(part, row)),
        "the tier read wrong rows"
    );
    Ok(())
}

async fn many(tier: &Arc<dyn Tier>, object: &Object, rows: &[Range<u64>], want: &[u8]) -> Result<serde_json::Value> {
    let began = Instant::now();
    let read = tier.read_many(object, rows).await?;
    let seconds = began.elapsed().as_secs_f64();
    check(&read.parts, rows, want)?;
    let wire = read.cost.wire_bytes;
    Ok(serde_json::json!({"seconds": seconds, "requests": read.cost.requests, "wire_bytes": wire}))
}

async fn one_by_one(
    tier: &Arc<dyn Tier>,
    object: &Object,
    rows: &[Range<u64>],
    want: &[u8],
) -> Result<serde_json::Value> {
    let (mut parts, mut requests) = (Vec::with_capacity(rows.len()), 0);
    let began = Instant::now();
    for row in rows {
        let read = tier.read(object, row.clone()).await?;
        requests += read.cost.requests;
        parts.push(read.bytes);
    }
    let seconds = began.elapsed().as_secs_f64();
    check(&parts, rows, want)?;
    Ok(serde_json::json!({"seconds": seconds, "requests": requests}))
}
