//! One point by flags: the read speed of one tier. In: flags. Out: a report on standard output. The scripts that
//! compare tiers with their peers use it; [`crate::plan`] measures plans of many points.

mod measure;
mod options;
mod report;

pub(crate) use options::SingleOptions;

use crate::content::{Data, name_of_run, remove};
use crate::plan::{bad_usage, tier_config};
use crate::station::runtime;
use crate::stop::Stop;
use crate::ways::Counted;
use anyhow::{Context, Result, ensure};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tierlab_storage::wrappers::{Cache, StorageMetrics};
use tierlab_storage::{ObjectPath, Tier};
use tokio::runtime::Runtime;

/// Content seed of objects written here.
const CONTENT_SEED: u64 = 7;

/// Measures and prints.
///
/// # Errors
/// Invalid flags or tier configuration, a failed read, an interrupt, or a run that is invalid.
pub(crate) fn call(options: &SingleOptions) -> Result<()> {
    let runtime = runtime(options.threads)?;
    let _context = runtime.enter();
    run(options, &runtime)
}

fn run(options: &SingleOptions, runtime: &Runtime) -> Result<()> {
    options.check()?;
    let config = tier_config(&options.tier, &options.set)?;
    let tier = runtime.block_on(tierlab_storage::open(&config));
    let tier = tier.context("cannot open the tier")?;
    let cache = options.cache_config(config.cache());
    let (tier, counter): (Arc<dyn Tier>, _) = match &cache {
        None => (tier, None),
        Some(cache) => {
            let counted = Counted::new(tier);
            let counter = Arc::clone(&counted.counts);
            let metrics = StorageMetrics::unscraped()?.cache(config.kind());
            (Arc::new(Cache::new(Arc::new(counted), cache, metrics)?), Some(counter))
        }
    };
    if options.into == options::Into::Device && tier.device().is_none() {
        let what = format!(
            "tier `{}` does not read into device memory: take one of kind `gds`, without a cache",
            config.kind()
        );
        return Err(bad_usage("--into", &what));
    }
    let stop = Stop::on_signal()?;
    let data = runtime.block_on(prepare(&tier, options))?;
    let measured = measure::run(runtime, &tier, &data, options, &stop);
    let tier_reads = counter.map(|counts| counts.calls.load(Ordering::Relaxed));
    let idle_cpu_share = match &measured {
        Ok(_) if !stop.is_asked() && !options.idle.is_zero() => Some(measure::idle_cpu_share(options.idle)?),
        _ => None,
    };
    // Data is removed from the tier after a failed measurement too.
    if data.seed.is_some() {
        runtime.block_on(remove(&tier, data.objects.iter().cloned()))?;
    }
    let measured = measured?;
    let mut report = report::SingleReport::new(&tier.info(), &data, options, &measured);
    report.interrupted = stop.is_asked();
    report.tier_reads = tier_reads;
    // Only if cache and workload have blocks of one size, so that ranks mean the same to both.
    let kept = cache.filter(|cache| cache.block_bytes == options.block_bytes);
    if let (Some(cache), Some(zipf)) = (kept, options.zipf(data.file_bytes)?) {
        report.best_hit_ratio = Some(zipf.best_hit_ratio(cache.most_blocks()));
    }
    report.idle_cpu_share = idle_cpu_share;
    report.invalid = tier.shortfall(measured.tally.via);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text()?);
    }
    if report.interrupted {
        anyhow::bail!("interrupted: the figures are of {:.1} s", measured.window.as_secs_f64());
    }
    match report.invalid {
        Some(why) => anyhow::bail!("the run is invalid: {why}"),
        None => Ok(()),
    }
}

/// The object to read: one of the tier, or one written for the measurement.
async fn prepare(tier: &Arc<dyn Tier>, options: &SingleOptions) -> Result<Data> {
    let Some(path) = &options.object else {
        let path = ObjectPath::new(&format!("storage-bench/{}.bin", name_of_run()))?;
        return Data::write_one(tier, &path, options.size, CONTENT_SEED).await;
    };
    let object = tier.stat(&ObjectPath::new(path)?).await;
    let object = object.context("cannot measure this object")?;
    ensure!(object.size > 0, "{path} is empty: there is nothing to measure");
    let size = object.size;
    Ok(Data::of(vec![object], size, None))
}
