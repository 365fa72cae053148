//! Stage and cache of a variant: the folder of the stage, emptied before the server starts; stage and cache, filled if the plan
//! requires it. In: a variant with its server. Out: their content at the start of measuring.

use super::context::{LabContext, Purpose, Replica};
use crate::error::RunError;
use crate::plan::{LabPlan, Plan, VariantPlan};
use crate::runner::target::{Content, Target};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tierlab_analysis::record::{StageFill, StageState};
use tierlab_load::interrupt::Interrupt;
use tierlab_load::keys::Population;
use tierlab_load::payload::{Encoding, Form};
use tierlab_load::reply::Limit;
use tierlab_protocol::metrics;

/// Distance between requested entities in the table, well below a stage's smallest block.
const STRIDE_BYTES: u64 = 32 << 10;
/// Layout in which no two entities share a block.
const FILE_PER_ROW: &str = "files";
/// Interval without growth after which a stage counts as settled: blocks are written to it after their reply.
const SETTLED_AFTER: Duration = Duration::from_millis(500);
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// Entities of one request: below any model's largest batch.
const BATCH: u64 = 32;
/// Entities requested at the same time.
const ROUND_ENTITIES: u64 = 4 * BATCH;
/// Rounds between two readings of the cache's fill level.
const ROUNDS_PER_READING: u64 = 2;
/// Share of the capacity that counts as full: the last block that does not fit keeps it below 1.
const FULL_SHARE: f64 = 0.97;

/// Folder of the stages of a variant's servers.
fn folder(lab: &LabPlan, variant: &VariantPlan, purpose: Purpose) -> PathBuf {
    let purpose = match purpose {
        Purpose::Loads => "loads",
        Purpose::ColdStarts => "cold-starts",
    };
    lab.work.join("stages").join(variant.file_name()).join(purpose)
}

/// Treats a missing file as removed.
pub(super) fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Folder of one server's stage; a shared stage has one for all servers.
pub(super) fn server_folder(lab: &LabPlan, replica: &Replica<'_>) -> PathBuf {
    let is_shared = replica.variant.staged.is_some_and(|stage| stage.is_shared);
    let host = if is_shared { 0 } else { replica.number };
    folder(lab, replica.variant, replica.purpose).join(host.to_string())
}

/// Empties a variant's stages, which earlier runs may have filled.
pub(super) fn empty(context: &LabContext<'_>, variant: &VariantPlan, purpose: Purpose) -> Result<(), RunError> {
    if variant.staged.is_none() {
        return Ok(());
    }
    let folder = folder(context.lab, variant, purpose);
    ignore_missing(fs::remove_dir_all(&folder)).map_err(RunError::io(&folder))?;
    for number in 0..variant.servers {
        let folder = server_folder(context.lab, &Replica::new(variant, number, purpose));
        fs::create_dir_all(&folder).map_err(RunError::io(&folder))?;
    }
    Ok(())
}

/// Fills a variant's stage if the plan requires it, and returns its state.
pub(super) async fn prepare(
    context: &LabContext<'_>,
    variant: &VariantPlan,
    target: &Target,
) -> Result<Option<StageState>, RunError> {
    let Some(stage) = variant.staged else { return Ok(None) };
    let is_filled = stage.fill == StageFill::Filled;
    let prepared = &context.prepared;
    let stored_bytes = prepared.laid_out_bytes_of(variant).unwrap_or(prepared.table_bytes);
    if is_filled && stored_bytes > 0 {
        let population = entities(context.plan, target, "staged = \"filled\"")?;
        // An entity of every part of the table, so that each of its blocks is read once.
        let stride = rows_apart(variant.laid_out(), stored_bytes, population.count());
        let ids: Vec<i64> = population.ids().step_by(stride as usize).collect();
        for round in ids.chunks(ROUND_ENTITIES as usize) {
            request_entities(context.plan, target, round, context.interrupt).await?;
        }
    }
    let held_bytes = settle(target).await?;
    let needed = stored_bytes.min(stage.capacity_bytes);
    if is_filled && (held_bytes as f64) < 0.9 * needed as f64 {
        return Err(RunError::Failed(format!(
            "the stage of variant {} holds only {held_bytes} of {needed} bytes after every part of the table was requested; check \
             `tierlab_staged_*` in its server's metrics, and the free space on the disk of {}",
            variant.label(),
            folder(context.lab, variant, Purpose::Loads).display()
        )));
    }
    eprintln!("  stage holds {:.1} MiB", held_bytes as f64 / f64::from(1 << 20));
    Ok(Some(StageState {
        prepared: stage.fill,
        is_shared: stage.is_shared,
        held_bytes,
        capacity_bytes: stage.capacity_bytes,
    }))
}

/// Returns the entities that a model's requests consist of: those fill what `setting` asks for.
fn entities<'a>(plan: &Plan, target: &'a Target, setting: &str) -> Result<&'a Population, RunError> {
    let Content::Joined(population) = &target.content else {
        let model = &plan.model;
        let problem = format!(
            "`{setting}`: requests to model `{model}` are not of entities alone, which would fill it; leave it out"
        );
        return Err(RunError::Usage(problem));
    };
    Ok(population)
}

/// Returns the distance in rows between requested entities, so that every block of the table is read.
fn rows_apart(layout: Option<&str>, stored_bytes: u64, rows: u64) -> u64 {
    if layout == Some(FILE_PER_ROW) {
        return 1;
    }
    let row_bytes = (stored_bytes / rows.max(1)).max(1);
    (STRIDE_BYTES / row_bytes).max(1)
}

/// Waits until the stage stops growing, and returns its bytes.
pub(super) async fn settle(target: &Target) -> Result<u64, RunError> {
    let deadline = Instant::now() + SETTLED_WITHIN;
    let staged = || async { Ok::<_, RunError>(target.control.scrape().await?.sum(metrics::STAGED_BYTES, &[]) as u64) };
    let mut previous = staged().await?;
    loop {
        tokio::time::sleep(SETTLED_AFTER).await;
        let current = staged().await?;
        if current == previous || Instant::now() > deadline {
            return Ok(current);
        }
        previous = current;
    }
}

/// Requests entities from the most popular one on until the cache is full or all were requested, and then the same ones
/// again: a cache that weighs the frequency of requests (TinyLFU) treats all entries of a first pass as equally
/// worthless, and evicts the popular ones, which came first.
pub(super) async fn fill_cache(plan: &Plan, target: &Target, interrupt: &Interrupt) -> Result<(), RunError> {
    let population = entities(plan, target, "lab.cache.prefill")?;
    let count = population.count();
    let ids_from = |rank: u64| -> Vec<i64> {
        let ranks = rank..(rank + ROUND_ENTITIES).min(count);
        ranks.map(|rank| population.by_rank(rank)).collect()
    };
    let (mut cached, mut capacity) = (0.0, f64::INFINITY);
    let (mut requested, mut round) = (0, 0);
    while requested < count && cached < capacity * FULL_SHARE {
        request_entities(plan, target, &ids_from(requested), interrupt).await?;
        requested = (requested + ROUND_ENTITIES).min(count);
        round += 1;
        if round % ROUNDS_PER_READING == 0 || requested == count {
            (cached, capacity) = cache_fill(target).await?;
        }
    }
    for start in (0..requested).step_by(ROUND_ENTITIES as usize) {
        request_entities(plan, target, &ids_from(start), interrupt).await?;
    }
    (cached, capacity) = cache_fill(target).await?;
    let [cached, capacity] = [cached, capacity].map(|bytes| bytes / f64::from(1 << 20));
    eprintln!("  cache holds {cached:.1} of {capacity:.1} MiB after its {requested} most popular entities");
    Ok(())
}

/// Returns the bytes in the cache, and its capacity.
async fn cache_fill(target: &Target) -> Result<(f64, f64), RunError> {
    let scrape = target.control.scrape().await?;
    let sum = |name| scrape.sum(name, &[]);
    Ok((sum(metrics::CACHE_BYTES), sum(metrics::CACHE_CAPACITY_BYTES)))
}

/// Requests entities, many at a time, or one after another if the model is too slow for that.
async fn request_entities(plan: &Plan, target: &Target, ids: &[i64], interrupt: &Interrupt) -> Result<(), RunError> {
    let Content::Joined(population) = &target.content else {
        return Ok(());
    };
    let check = || match interrupt.is_raised() {
        true => Err(RunError::InterruptedEarly),
        false => Ok(()),
    };
    check()?;
    let request = |ids: &[i64]| {
        let body = population.body(ids, Form::Http(Encoding::Binary));
        let expected = target.expected(&plan.model, ids.len() as u32);
        let limit = Limit::of_replies(plan.reply_limit_bytes, expected.elements());
        async move { target.control.infer(&plan.model, &body, &expected, &limit).await }
    };
    let replies = futures::future::try_join_all(ids.chunks(BATCH as usize).map(request)).await;
    if replies.is_ok() {
        return Ok(());
    }
    for id in ids.chunks(1) {
        check()?;
        request(id).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::control::Control;
    use std::collections::BTreeMap;
    use std::path::Path;
    use tierlab_load::inputs::{Declared, InputRules, Inputs};
    use tierlab_load::keys::KeyDistribution;

    #[tokio::test]
    async fn a_model_with_inputs_of_its_own_is_not_filled_by_entities_and_says_so() {
        let text = "name = \"t\"\nmodel = \"m\"\nseed = 1\nwarmup_s = 0.5\nstep_s = 2.0\ndrain_s = 1.0\n\
                    [[load]]\nmode = \"realtime\"\nrates = [50]\n";
        let plan = Plan::parse(Path::new("t.toml"), text).unwrap();
        let declared = Declared {
            model: "m",
            inputs: &[],
            outputs: &[],
            batched: true,
        };
        let inputs = Inputs::resolve(&InputRules::default(), &declared).unwrap();
        let joined = Population::new(0, 10, KeyDistribution::Uniform, 1);
        let control = Control::own("http://127.0.0.1:1", None).unwrap();
        let target = Target::new(control, Content::Mixed(joined, inputs), BTreeMap::new());
        let error = fill_cache(&plan, &target, &Interrupt::never())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("`lab.cache.prefill`: requests to model `m` are not of entities alone"),
            "{error}"
        );
    }

    #[test]
    fn every_block_is_asked_for_whatever_a_row_takes_in_its_layout() {
        assert_eq!(rows_apart(None, 512_000, 1000), 64);
        // A sample of tar takes more than a row, a row of compressed pages less.
        assert_eq!(rows_apart(Some("tar"), 4_096_000, 1000), 8);
        assert_eq!(rows_apart(Some("parquet-zstd"), 128_000, 1000), 256);
        assert_eq!(rows_apart(Some("files"), 512_000, 1000), 1);
        assert_eq!(rows_apart(None, 0, 0), STRIDE_BYTES);
    }
}
