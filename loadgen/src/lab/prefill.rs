//! Fills a cache before it is measured. In: a server. Out: the same server, its cache holding the most popular entities,
//! as one has that has served for long.

use crate::error::RunError;
use crate::interrupt::Interrupt;
use crate::payload;
use crate::plan::{Encoding, Plan};
use crate::runner::{Content, Target};
use tierlab_protocol::metrics;

/// Entities of one request: below any model's largest batch.
const BATCH: u64 = 32;
/// Requests in flight.
const CONCURRENCY: u64 = 4;
/// Rounds between two looks at how full it is.
const LOOK_EVERY: u64 = 8;
/// As full as it gets: the last block that does not fit keeps it below its capacity.
const FULL_SHARE: f64 = 0.97;

/// Asks for entities from the most popular one on until the cache is full or all were asked for.
pub(super) async fn fill(plan: &Plan, target: &Target, interrupt: &Interrupt) -> Result<(), RunError> {
    let Content::Joined(population) = &target.content else {
        return Err(RunError::Usage(format!(
            "`lab.cache.prefill`: model `{}` joins no features, so there is nothing to cache",
            plan.model
        )));
    };
    let (mut held, mut capacity) = (0.0, f64::INFINITY);
    let mut asked = 0;
    let mut round = 0;
    while asked < population.count() && held < capacity * FULL_SHARE {
        if interrupt.is_raised() {
            return Err(RunError::InterruptedEarly);
        }
        let requests = (0..CONCURRENCY).map(|i| {
            let first = (asked + i * BATCH).min(population.count());
            let last = (first + BATCH).min(population.count());
            let ids: Vec<i64> = (first..last).map(|rank| population.by_rank(rank)).collect();
            async move {
                if ids.is_empty() {
                    return Ok(());
                }
                let body = payload::joined(&ids, Encoding::Binary);
                target.control.infer(&plan.model, &body).await.map(|_| ())
            }
        });
        futures::future::try_join_all(requests).await?;
        asked = (asked + CONCURRENCY * BATCH).min(population.count());
        round += 1;
        if round % LOOK_EVERY == 0 || asked == population.count() {
            let scrape = target.control.scrape().await?;
            held = scrape.sum(metrics::CACHE_BYTES, &[]);
            capacity = scrape.sum(metrics::CACHE_CAPACITY_BYTES, &[]);
            if capacity == 0.0 {
                return Err(RunError::Child(format!(
                    "the {} server was told to cache but reports no capacity",
                    target.tier
                )));
            }
        }
    }
    eprintln!(
        "  cache holds {:.1} of {:.1} MiB after its {asked} most popular entities",
        held / f64::from(1 << 20),
        capacity / f64::from(1 << 20)
    );
    Ok(())
}
