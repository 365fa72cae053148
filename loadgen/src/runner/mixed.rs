//! Mixes: all parts of a mix at the same time, each a point of its own.
//!
//! A part has its own schedule, users and clock, started together with the others': the arrivals are the sum of their
//! processes (for Poisson parts a Poisson process), and each part meets the server under the load of all. The server's
//! counters cover all parts together; the replies give each part's share (`tierlab_analysis::mix_shares`).

use super::ledger::{PlannedStep, Round, Share, Work};
use super::naming::factors;
use super::send::{Around, Part, Sent};
use crate::error::RunError;
use std::time::{Duration, Instant};
use tierlab_analysis::record::Factors;
use tierlab_load::driver;
use tokio::sync::Barrier;

/// First seed of mixes, distinct from those of loads.
const OF_LOAD: usize = 1 << 20;
/// Time between the last part's readiness and the common zero.
const PART_LEAD: Duration = Duration::from_millis(10);

/// Every mix at every rate against every target. The parts share the machine, so a disturbance of one disturbs all.
pub(super) fn steps<'p>(round: &Round<'p, '_>) -> Vec<PlannedStep<'p>> {
    let plan = round.plan;
    let (mut steps, mut number) = (Vec::new(), 0);
    // After the points of the loads.
    let mut first = plan.loads.len();
    for mix in &plan.mixes {
        for &rate in &mix.rates {
            // Each part has its own seed.
            let attempt = |place: usize| round.attempt(OF_LOAD + number * 64 + place);
            for (index, target) in round.targets.iter().enumerate() {
                let (mut shares, mut points) = (Vec::new(), Vec::new());
                for (place, part) in (first..).zip(&mix.parts) {
                    let load = mix.load(part, rate);
                    let model = part.model.as_deref().unwrap_or(&plan.model);
                    let seed = attempt(place).seed;
                    shares.push(Share { load, model, seed });
                    let factors = Factors {
                        mix: Some(mix.to_string()),
                        ..factors(plan, target, load, model)
                    };
                    points.push((place, factors));
                }
                steps.push(PlannedStep {
                    target: index,
                    attempt: attempt(first),
                    work: Work::Mix(shares),
                    points,
                });
            }
            number += 1;
        }
        first += mix.parts.len();
    }
    steps
}

/// Sends the requests of all parts, their clocks started together; `None` if interrupted.
pub(super) async fn send(shares: &[Share<'_>], around: &mut Around<'_>) -> Result<Option<Sent>, RunError> {
    around.begin().await;
    let together = Barrier::new(shares.len());
    let sending = shares
        .iter()
        .map(|share| Box::pin(send_share(share, &together, around)));
    let sent = futures::future::try_join_all(sending).await?;
    Ok(sent.into_iter().collect::<Option<Vec<_>>>().map(Sent::of))
}

async fn send_share(share: &Share<'_>, together: &Barrier, around: &Around<'_>) -> Result<Option<Part>, RunError> {
    let requests = around.requests(share.load, share.model, share.seed);
    let schedule = requests.schedule();
    let (step, sent) = requests.step(&schedule, around.watch)?;
    let facts = requests.described(&step);
    let start = async {
        together.wait().await;
        Ok::<_, RunError>(Instant::now() + PART_LEAD)
    };
    let finished = driver::run_from(step, start, around.interrupt).await?;
    Ok(finished.map(|finished| Part {
        sent: Some(sent),
        facts,
        ..Part::of(finished, schedule, share.seed)
    }))
}
