//! Fills a cache before it is measured. In: a server. Out: the same server, its cache holding the most popular
//! entities, as after long service.

use crate::error::RunError;
use crate::plan::Plan;
use crate::runner::target::{Content, Target};
use tierlab_load::interrupt::Interrupt;
use tierlab_load::payload::Encoding;
use tierlab_load::reply::Limit;
use tierlab_protocol::metrics;

/// Entities of one request: below any model's largest batch.
const BATCH: u64 = 32;
/// Entities requested at the same time.
pub(super) const TOGETHER: u64 = 4 * BATCH;
/// Rounds between two readings of the cache's fill level.
const LOOK_EVERY: u64 = 2;
/// Share of the capacity that counts as full: the last block that does not fit keeps it below 1.
const FULL_SHARE: f64 = 0.97;

/// Requests entities from the most popular one on until the cache is full or all were requested, and then the same ones
/// again: a cache that weighs the frequency of requests (TinyLFU) treats all entries of a first pass as equally
/// worthless, and evicts the popular ones, which came first.
pub(super) async fn fill(plan: &Plan, target: &Target, interrupt: &Interrupt) -> Result<(), RunError> {
    let Content::Joined(population) = &target.content else {
        return Err(RunError::Usage(format!(
            "`lab.cache.prefill`: model `{}` joins no features, so there is nothing to cache",
            plan.model
        )));
    };
    let count = population.count();
    let ids_from = |rank: u64| -> Vec<i64> {
        let ranks = rank..(rank + TOGETHER).min(count);
        ranks.map(|rank| population.by_rank(rank)).collect()
    };
    let (mut held, mut capacity) = (0.0, f64::INFINITY);
    let (mut asked, mut round) = (0, 0);
    while asked < count && held < capacity * FULL_SHARE {
        ask_for(plan, target, &ids_from(asked), interrupt).await?;
        asked = (asked + TOGETHER).min(count);
        round += 1;
        if round % LOOK_EVERY == 0 || asked == count {
            (held, capacity) = held_of(target).await?;
        }
    }
    for again in (0..asked).step_by(TOGETHER as usize) {
        ask_for(plan, target, &ids_from(again), interrupt).await?;
    }
    (held, capacity) = held_of(target).await?;
    eprintln!(
        "  cache holds {:.1} of {:.1} MiB after its {asked} most popular entities",
        held / f64::from(1 << 20),
        capacity / f64::from(1 << 20)
    );
    Ok(())
}

/// Returns the bytes in the cache, and its capacity.
async fn held_of(target: &Target) -> Result<(f64, f64), RunError> {
    let scrape = target.control.scrape().await?;
    let sum = |name| scrape.sum(name, &[]);
    Ok((sum(metrics::CACHE_BYTES), sum(metrics::CACHE_CAPACITY_BYTES)))
}

/// Requests entities, many at a time, or one after another if the model is too slow for that.
pub(super) async fn ask_for(plan: &Plan, target: &Target, ids: &[i64], interrupt: &Interrupt) -> Result<(), RunError> {
    let Content::Joined(population) = &target.content else {
        return Ok(());
    };
    let check = || match interrupt.is_raised() {
        true => Err(RunError::InterruptedEarly),
        false => Ok(()),
    };
    check()?;
    let ask = |ids: &[i64]| {
        let body = population.body(ids, Encoding::Binary);
        let expected = target.expected(&plan.model, ids.len() as u32);
        let limit = Limit::of_replies(plan.reply_limit_bytes, expected.elements());
        async move { target.control.infer(&plan.model, &body, &expected, &limit).await }
    };
    let together = futures::future::try_join_all(ids.chunks(BATCH as usize).map(ask)).await;
    if together.is_ok() {
        return Ok(());
    }
    for one in ids.chunks(1) {
        check()?;
        ask(one).await?;
    }
    Ok(())
}
