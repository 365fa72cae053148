//! Whole tables streamed through a model, without requests: what the loader does alone, the model alone, both together, and both with one read at
//! a time. In: a plan. Out: a folder of results, which says in words what to mend. Everything is measured once in each round, in an order of its
//! own.

mod asked;
mod csv;
mod kept;
mod loader;
mod measure;
mod options;
mod page;
mod price;
mod ready;
mod shuffle;
mod statements;
mod workload;

pub(crate) use options::Options;

use crate::chance::Random;
use crate::plan::bad_usage;
use crate::runner::Progress;
use crate::stop::Stop;
use crate::tables::run::{Sittings, finish, on_tiers, results_folder};
use crate::tables::sitting::LaidOut;
use anyhow::{Context, Result, bail};
use asked::Asked;
use kept::{Kept, KeptTable};
use loader::Source;
use measure::{Repeat, measure};
use ort::session::Session;
use statements::{Place, statements};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierlab_models::import::load_onnxruntime;
use workload::Workload;

/// Measurements of a repeat.
const MEASUREMENTS: u32 = 4;

/// What came of all rounds.
#[derive(Default)]
struct Measured {
    repeats: BTreeMap<Place, Vec<Repeat>>,
    failed: BTreeMap<Place, String>,
}

type Workloads = BTreeMap<String, Arc<Workload>>;

/// Runs a plan.
///
/// # Errors
/// A plan that makes no sense, no ONNX Runtime, a model that its table does not fill, a tier that fails, an interrupt.
pub(crate) fn run(options: &Options) -> Result<()> {
    let asked = Asked::read(options)?;
    let environment = load_onnxruntime(options.onnxruntime.as_deref());
    let environment = environment.map_err(|e| bad_usage("--onnxruntime", &e.to_string()))?;
    let made = |(name, raw)| {
        Ok::<_, anyhow::Error>((
            String::clone(name),
            Arc::new(Workload::of(&options.plan, name, raw, asked.common.seed)?),
        ))
    };
    let workloads: Workloads = asked.workloads.iter().map(made).collect::<Result<_>>()?;
    let open = |(name, workload): (&String, &Arc<Workload>)| {
        let session = |_| workload.session(&environment, asked.session_threads);
        let sessions: Vec<Session> = (0..asked.sessions).map(session).collect::<Result<_>>()?;
        Ok((name.clone(), sessions))
    };
    let mut sessions: BTreeMap<String, Vec<Session>> = workloads.iter().map(open).collect::<Result<_>>()?;
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.out.as_deref(), &asked.common)?;
    let (Measured { repeats, failed }, ran) = on_tiers(&asked.common, Some(asked.loader.workers), &stop, |sittings| {
        rounds(&asked, &workloads, &mut sessions, sittings, &stop)
    })?;
    let failed = failed
        .into_iter()
        .map(|((tier, layout, name), why)| format!("{name} as {layout} on {tier} failed: {why}"));
    let failed: Vec<String> = failed.collect();
    let table = |(name, workload): (&String, &Arc<Workload>)| {
        let kept = KeptTable {
            rows: workload.header.rows,
            row_bytes: u64::from(workload.header.stride),
            batch_rows: workload.batch_rows,
            shuffle_rows: workload.shuffle_rows,
        };
        (name.clone(), kept)
    };
    let kept = Kept {
        ran,
        tables: workloads.iter().map(table).collect(),
        window_s: asked.window.as_secs_f64(),
        sessions: asked.sessions,
        session_threads: asked.session_threads,
        statements: statements(&repeats, asked.prices.as_ref(), cores()),
        prices: asked.prices.clone(),
        failed,
    };
    finish(&folder, &kept, ("offline.csv", csv::csv(&kept)?), &page::page(&kept))?;
    if !kept.failed.is_empty() {
        bail!("{}", kept.failed.join("; "));
    }
    Ok(())
}

/// Cores that the process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn rounds(
    asked: &Asked,
    workloads: &Workloads,
    sessions: &mut BTreeMap<String, Vec<Session>>,
    sittings: &Sittings,
    stop: &Stop,
) -> Result<Measured> {
    let mut places: Vec<Place> = Vec::new();
    for tier in sittings.keys() {
        for layout in &asked.layouts {
            places.extend(workloads.keys().map(|name| (tier.clone(), *layout, name.clone())));
        }
    }
    let expected = (asked.window + asked.warmup) * MEASUREMENTS;
    let mut progress = Progress::new(places.len() as u64 * u64::from(asked.common.repeats + 1), expected);
    let mut laid_out: BTreeMap<Place, LaidOut> = BTreeMap::new();
    for place @ (tier, layout, name) in &places {
        if stop.is_asked() {
            break;
        }
        progress.begin(&format!("laying out {name} as {layout} on {tier}"));
        let file = workloads[name].file.clone();
        let table = sittings[tier].lay_out(&format!("{name}/{layout}"), file, *layout, asked.shard_bytes);
        let table = table.with_context(|| format!("cannot lay {name} out as {layout} on {tier}"))?;
        laid_out.insert(place.clone(), table);
        progress.end();
    }
    let mut measured = Measured::default();
    for round in 0..asked.common.repeats {
        let mut order = places.clone();
        Random::new(asked.common.seed, u64::from(round)).shuffle(&mut order);
        for place in order {
            let (tier, layout, name) = &place;
            let is_open = !stop.is_asked() && !measured.failed.contains_key(&place);
            let Some(table) = laid_out.get(&place).filter(|_| is_open) else {
                continue;
            };
            progress.begin(&format!(
                "round {} of {}, {name} as {layout} on {tier}",
                round + 1,
                asked.common.repeats
            ));
            let source = Source {
                table: Arc::clone(&table.table),
                workload: Arc::clone(&workloads[name]),
                seed: asked.common.seed ^ (u64::from(round) << 32),
            };
            let own = sessions.get_mut(name).context("a workload without sessions")?;
            match measure(&sittings[tier].runtime, &source, own, asked, stop) {
                // What an interrupt cut short is no repeat.
                _ if stop.is_asked() => continue,
                Ok(one) => measured.repeats.entry(place).or_default().push(one),
                // The others go on.
                Err(error) => _ = measured.failed.insert(place, format!("{error:#}")),
            }
            progress.end();
        }
    }
    progress.clear();
    Ok(measured)
}
