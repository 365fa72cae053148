//! What a cache does for look-ups: none, one in memory, a copy on local disk, and one over the other, on several tiers; and how far the real
//! policy is from the best possible. In: a plan. Out: a folder of results. Everything is measured once in each round, in an order of its own,
//! over the same trace.

mod asked;
mod kept;
mod made;
mod measure;
mod options;
mod page;
mod play;
mod policies;
mod price;
mod statements;
mod strategy;
mod trace;
mod warm;

pub(crate) use options::Options;

use crate::chance::Random;
use crate::runner::Progress;
use crate::stop::Stop;
use crate::tables::run::{Sittings, finish, on_tiers, results_folder};
use anyhow::{Context, Result};
use asked::Asked;
use kept::Kept;
use made::Table;
use measure::{Placed, Repeat, through_the_cache, units};
use policies::{StackDistances, min_hits};
use statements::{Computed, Place, at_most_one, mean, statements};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strategy::Ram;
use tierlab_storage::wrappers::cache::Policy;

/// What a step takes, before any has ended: on emulated cloud storage, where most of the time goes.
const EXPECTED: Duration = Duration::from_secs(3);

/// Runs a plan.
///
/// # Errors
/// A plan that makes no sense, a tier that fails, rows that are not those of the table, an interrupt.
pub(crate) fn run(options: &Options) -> Result<()> {
    let asked = Asked::read(options)?;
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.out.as_deref(), &asked.common)?;
    let table = Table::new(asked.rows, asked.row_bytes, asked.common.seed);
    let (measured, ran) = on_tiers(&asked.common, None, &stop, |sittings| {
        rounds(&asked, &table, sittings, &stop)
    })?;
    let kept = Kept {
        ran,
        rows: asked.rows,
        row_bytes: asked.row_bytes,
        table_bytes: asked.table_bytes(),
        lookups: asked.lookups,
        trace_lookups: asked.trace_lookups,
        depth: asked.depth,
        measured: statements(&measured.repeats, &asked.laws, &asked.strategies, asked.prices.as_ref()),
        computed: computed(&asked, &measured.ratios),
        prices: asked.prices.clone(),
    };
    finish(&folder, &kept, ("caching.csv", page::csv(&kept)?), &page::page(&kept))
}

/// Hit ratios of one size in one round.
struct Ratios {
    entries: u64,
    distinct: u64,
    lru: f64,
    tiny_lfu: f64,
    min: f64,
}

/// What came of all rounds.
#[derive(Default)]
struct Measured {
    repeats: BTreeMap<Place, Vec<Repeat>>,
    /// By law, unit and size, as the plan lists them.
    ratios: BTreeMap<(usize, usize, usize), Vec<Ratios>>,
}

fn rounds(asked: &Asked, table: &Table, sittings: &Sittings, stop: &Stop) -> Result<Measured> {
    let mut placed = BTreeMap::new();
    for (name, sitting) in sittings {
        placed.insert(name, Placed::put(name, sitting, asked, table)?);
    }
    let mut measured = Measured::default();
    let per_law = sittings.len() * asked.strategies.len() + asked.units.len();
    let todo = u64::from(asked.common.repeats) * (asked.laws.len() * per_law) as u64;
    let mut progress = Progress::new(todo, EXPECTED);
    for round in 0..asked.common.repeats {
        let of_round = format!("round {} of {}", round + 1, asked.common.repeats);
        let mut traces = Vec::new();
        for law in &asked.laws {
            let seed = asked.common.seed.wrapping_add(u64::from(round) << 32);
            traces.push(law.trace(asked.rows, asked.trace_lookups, seed)?);
        }
        let firsts: Vec<Arc<Vec<u32>>> = traces
            .iter()
            .map(|trace| Arc::new(trace[..asked.lookups as usize].to_vec()))
            .collect();
        let mut order: Vec<Place> = Vec::new();
        for tier in sittings.keys() {
            for law in 0..asked.laws.len() {
                order.extend((0..asked.strategies.len()).map(|strategy| (tier.clone(), law, strategy)));
            }
        }
        Random::new(asked.common.seed, u64::from(round)).shuffle(&mut order);
        for place in order {
            let (tier, law, strategy) = (&place.0, place.1, asked.strategies[place.2]);
            let what = format!("{strategy} on {tier}, {}", asked.laws[law]);
            progress.begin(&format!("{of_round}, {what}"));
            let one = placed[tier].measure(strategy, asked, table, &firsts[law], stop);
            // What an interrupt cut short says nothing.
            if stop.is_asked() {
                progress.clear();
                return Ok(measured);
            }
            let one = one.with_context(|| what)?;
            measured.repeats.entry(place).or_default().push(one);
            progress.end();
        }
        for (law, trace) in traces.into_iter().enumerate() {
            let trace = Arc::new(trace);
            for unit in 0..asked.units.len() {
                progress.begin(&format!("{of_round}, computing hit ratios, {}", asked.laws[law]));
                let of_unit = compute(asked, table, &trace, unit, stop)?;
                if stop.is_asked() {
                    progress.clear();
                    return Ok(measured);
                }
                for (size, ratios) in of_unit.into_iter().enumerate() {
                    measured.ratios.entry((law, unit, size)).or_default().push(ratios);
                }
                progress.end();
            }
        }
    }
    progress.clear();
    Ok(measured)
}

/// Hit ratios of each size over one trace.
fn compute(asked: &Asked, table: &Table, trace: &Arc<Vec<u32>>, unit: usize, stop: &Stop) -> Result<Vec<Ratios>> {
    let ram = |share: f64| Ram {
        share,
        policy: Policy::TinyLfu,
        unit: asked.units[unit],
    };
    let keys = units(&ram(1.0), table, trace);
    let lru = StackDistances::of(&keys);
    let share = |hits: u64| hits as f64 / keys.len().max(1) as f64;
    let of_size = |&size: &f64| {
        let ram = ram(size);
        let entries = ram.config(asked.table_bytes(), asked.row_bytes).most_blocks();
        Ok(Ratios {
            entries,
            distinct: lru.distinct(),
            lru: share(lru.hits(entries)),
            tiny_lfu: share(through_the_cache(ram, table, trace, stop)?),
            min: share(min_hits(&keys, entries)),
        })
    };
    asked.shares.iter().map(of_size).collect()
}

fn computed(asked: &Asked, ratios: &BTreeMap<(usize, usize, usize), Vec<Ratios>>) -> Vec<Computed> {
    let of = |(&(law, unit, size), rounds): (&(usize, usize, usize), &Vec<Ratios>)| {
        let each = |value: fn(&Ratios) -> f64| mean(&rounds.iter().map(value).collect::<Vec<_>>());
        let share = |value| at_most_one(each(value));
        Computed {
            law: asked.laws[law],
            ram: Ram {
                share: asked.shares[size],
                policy: Policy::TinyLfu,
                unit: asked.units[unit],
            },
            unit: asked.units[unit].to_string(),
            entries: rounds[0].entries,
            distinct: each(|ratios| ratios.distinct as f64).value,
            lru: share(|ratios| ratios.lru),
            tiny_lfu: share(|ratios| ratios.tiny_lfu),
            min: share(|ratios| ratios.min),
        }
    };
    ratios.iter().map(of).collect()
}
