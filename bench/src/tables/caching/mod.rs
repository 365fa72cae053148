//! Comparison of caches for look-ups: none, in memory, a copy on local disk, and both, on several tiers; and the gap between the real
//! policy and the best possible one. In: a plan. Out: a folder of results. Each round measures everything once, over the same trace.

mod measure;
mod page;
mod plan;
mod play;
mod policies;
mod statements;
mod strategy;

pub(crate) use plan::CachingOptions;

use crate::prepared_tier::{PreparedTiers, with_tiers};
use crate::report::{csv, finish, results_folder};
use crate::rounds::{Rounds, mean, mean_share, shuffled_rounds};
use crate::stop::Stop;
use anyhow::{Error, Result};
use measure::{CacheCase, CachingRepeat, TableOnTier, real_cache_hits, units};
use plan::{CachingPrices, Settings};
use play::{Law, Table};
use policies::{StackDistances, min_hits};
use serde::Serialize;
use statements::{CachingStatement, Computed, statements};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use strategy::Ram;
use tierlab_storage::wrappers::cache::Policy;

/// Time of a step on emulated cloud storage, which takes most of the time.
const EXPECTED: Duration = Duration::from_secs(3);

/// Runs a plan.
///
/// # Errors
/// The plan is invalid, a tier fails, a row differs from the table's, or an interrupt.
pub(crate) fn run(options: &CachingOptions) -> Result<()> {
    let settings = Settings::read(options)?;
    let Settings { common, plan, .. } = &settings;
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.flags.out.as_deref(), &common.name)?;
    let table = Table::new(plan.rows, plan.row_bytes.0, common.seed);
    let (measured, mut run) = with_tiers(common, &stop, 0, |tiers| rounds(&settings, &table, tiers, &stop))?;
    run.failed = measured.failed.map(|e| format!("{e:#}")).or(run.failed.take());
    let figures = CachingFigures {
        prices: settings.prices.clone(),
        measured: statements(&measured.repeats, &settings),
        computed: computed(&settings, &measured.ratios),
    };
    let rows = figures.measured.iter().map(CsvRow::Measured);
    let rows = rows.chain(figures.computed.iter().map(CsvRow::Computed));
    let page = page::page(&run, plan, &figures);
    finish(&folder, &page, (plan, &figures), ("caching.csv", csv(rows)?), "")
}

/// Figures of `run.json`.
#[derive(Serialize)]
struct CachingFigures {
    prices: Option<CachingPrices>,
    measured: Vec<CachingStatement>,
    computed: Vec<Computed>,
}

/// Row of `caching.csv`.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum CsvRow<'a> {
    Measured(&'a CachingStatement),
    Computed(&'a Computed),
}

/// Hit ratios of one cache size in one round.
struct Ratios {
    entries: u64,
    distinct: u64,
    lru: f64,
    tiny_lfu: f64,
    min: f64,
}

#[derive(Default)]
struct MeasuredCaches {
    repeats: BTreeMap<CacheCase, Vec<CachingRepeat>>,
    /// Hit ratios by law, unit and size, in the plan's order.
    ratios: BTreeMap<(usize, usize, usize), Vec<Ratios>>,
    /// Error that ended the rounds.
    failed: Option<Error>,
}

/// A step of a round, with its display name.
struct Step {
    name: String,
    task: Task,
}

enum Task {
    Measure(CacheCase),
    /// Hit ratios of a law and a unit, by their indices in the plan.
    Compute(usize, usize),
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

fn steps(settings: &Settings, tiers: &PreparedTiers) -> Vec<Step> {
    let mut steps = Vec::new();
    for (law, shown) in settings.plan.laws.iter().enumerate() {
        let depths = settings.plan.depths();
        for (tier, &depth) in tiers.keys().flat_map(|tier| depths.iter().map(move |at| (tier, at))) {
            steps.extend(settings.strategies.iter().enumerate().map(|(at, strategy)| Step {
                name: format!("{strategy} on {tier}, {shown}, {depth} at a time"),
                task: Task::Measure((tier.clone(), law, depth, at)),
            }));
        }
        steps.extend(settings.units.iter().enumerate().map(|(at, unit)| Step {
            name: format!("computing hit ratios, {shown}, {unit}"),
            task: Task::Compute(law, at),
        }));
    }
    steps
}

fn rounds(settings: &Settings, table: &Table, tiers: &PreparedTiers, stop: &Stop) -> Result<MeasuredCaches> {
    let Settings { common, plan, .. } = settings;
    let mut tables = BTreeMap::new();
    for (name, tier) in tiers {
        tables.insert(name, TableOnTier::put(name, tier, settings, table, stop)?);
    }
    let steps = steps(settings, tiers);
    let order = shuffled_rounds(common.seed, common.repeats, &steps);
    let mut measured = MeasuredCaches::default();
    let mut traces: (Option<u32>, Vec<Arc<Vec<u32>>>) = (None, Vec::new());
    let ended = Rounds::new(common.repeats, stop, order.len(), EXPECTED).measure(&order, |round, step| {
        if traces.0 != Some(round) {
            let seed = common.seed.wrapping_add(u64::from(round) << 32);
            let trace = |law: &Law| Ok(Arc::new(law.trace(plan.rows, plan.trace_lookups, seed)?));
            traces = (Some(round), plan.laws.iter().map(trace).collect::<Result<_>>()?);
        }
        match &step.task {
            Task::Measure(case) => {
                let first = Arc::new(traces.1[case.1][..plan.lookups as usize].to_vec());
                let one = tables[&case.0].measure(case, &first)?;
                // An interrupted repeat is dropped.
                if !stop.is_requested() {
                    measured.repeats.entry(case.clone()).or_default().push(one);
                }
            }
            Task::Compute(law, unit) => {
                let of_unit = compute(settings, table, &traces.1[*law], *unit, stop)?;
                for (size, ratios) in of_unit.into_iter().enumerate().filter(|_| !stop.is_requested()) {
                    measured.ratios.entry((*law, *unit, size)).or_default().push(ratios);
                }
            }
        }
        Ok(())
    });
    measured.failed = ended.err();
    Ok(measured)
}

/// Cache in memory of a size and a unit, for which the ratios are computed.
fn computed_ram(settings: &Settings, share: f64, unit: usize) -> Ram {
    Ram {
        share,
        policy: Policy::TinyLfu,
        unit: settings.units[unit],
    }
}

/// Hit ratios of each size over one trace.
fn compute(settings: &Settings, table: &Table, trace: &Arc<Vec<u32>>, unit: usize, stop: &Stop) -> Result<Vec<Ratios>> {
    let plan = &settings.plan;
    let keys = units(&computed_ram(settings, 1.0, unit), table, trace);
    let lru = StackDistances::of(&keys);
    let share = |hits: u64| hits as f64 / keys.len().max(1) as f64;
    let of_size = |&size: &f64| {
        let ram = computed_ram(settings, size, unit);
        let entries = ram.config(plan.table_bytes(), plan.row_bytes.0).max_blocks();
        Ok(Ratios {
            entries,
            distinct: lru.distinct,
            lru: share(lru.hits(entries)),
            tiny_lfu: share(real_cache_hits(ram, table, trace, stop)?),
            min: share(min_hits(&keys, entries)),
        })
    };
    plan.shares.iter().map(of_size).collect()
}

fn computed(settings: &Settings, ratios: &BTreeMap<(usize, usize, usize), Vec<Ratios>>) -> Vec<Computed> {
    let of = |(&(law, unit, size), rounds): (&(usize, usize, usize), &Vec<Ratios>)| {
        let share = |value: fn(&Ratios) -> f64| mean_share(rounds.iter().map(value));
        Computed {
            law: settings.plan.laws[law],
            ram: computed_ram(settings, settings.plan.shares[size], unit),
            unit: settings.units[unit].to_string(),
            entries: rounds[0].entries,
            distinct: mean(rounds.iter().map(|ratios| ratios.distinct as f64)).value,
            lru: share(|ratios| ratios.lru),
            tiny_lfu: share(|ratios| ratios.tiny_lfu),
            min: share(|ratios| ratios.min),
        }
    };
    ratios.iter().map(of).collect()
}
