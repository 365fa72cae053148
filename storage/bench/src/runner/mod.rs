//! A run of a plan. In: options. Out: a folder of results. Rounds of repeats, each in an order of its own; what is finished is
//! kept at once.

mod journal;
mod options;
mod progress;
mod station;

pub(crate) use options::Options;
pub(crate) use progress::Progress;
pub(crate) use station::{Station, folder_in, local_root, notes_of};

use crate::chance::Random;
use crate::machine::Environment;
use crate::peers::Peers;
use crate::plan::{Changes, Plan, Point};
use crate::record::{Entry, Measured};
use crate::report::{self, Kept};
use crate::stop::Stop;
use crate::summary::{Summary, Verdict, summaries};
use anyhow::{Context, Result, bail};
use journal::Journal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a repeat takes beside its window: dropping or warming the page cache, starting callers.
const BESIDE: Duration = Duration::from_millis(100);

/// Runs a plan.
///
/// # Errors
/// A plan that makes no sense, a tier that does not open, a point that failed, an interrupt.
pub(crate) fn run(options: &Options) -> Result<()> {
    let changes = Changes {
        repeats: options.repeats,
        seconds: options.seconds,
        scratch: options.scratch.clone(),
        no_peers: options.no_peers,
    };
    let plan = Plan::read(&options.plan, &changes)?;
    let stop = Stop::on_signal()?;
    let (folder, mut journal) = match &options.resume {
        Some(folder) => (folder.clone(), Journal::resume(folder, &plan.text)?),
        None => {
            let folder = options.out.clone().unwrap_or_else(|| results_folder(&plan.name));
            let journal = Journal::begin(&folder, &plan.text)?;
            (folder, journal)
        }
    };
    let peers = if plan.peers { Peers::look() } else { Peers::default() };
    let mut stations = stations(&plan)?;
    let environment = environment(&stations);
    let notes = stations
        .iter()
        .map(|(name, station)| (name.clone(), station.notes.clone()))
        .collect();
    let measured = rounds(&plan, &mut stations, &peers, &mut journal, &stop);
    // Whatever came of it, nothing of ours stays on the tiers.
    let removed: Vec<Result<()>> = stations.into_values().map(Station::remove).collect();
    measured?;
    removed.into_iter().collect::<Result<()>>()?;
    let kept = Kept {
        name: plan.name.clone(),
        interrupted: stop.is_asked(),
        environment,
        tiers: notes,
        peer_notes: peers.notes,
        seed: plan.access.seed,
        size_bytes: plan.access.size,
        window_s: plan.access.window.as_secs_f64(),
        warmup_s: plan.access.warmup.as_secs_f64(),
        points: summaries(&journal.entries),
        plan: plan.text.clone(),
    };
    report::write(&kept, &folder)?;
    end(&kept.points, &folder, &plan, stop.is_asked())
}

fn end(points: &[Summary], folder: &Path, plan: &Plan, interrupted: bool) -> Result<()> {
    println!(
        "\nresults in {}: report.html, report.md, points.csv, run.json",
        folder.display()
    );
    if interrupted {
        bail!(
            "interrupted after {} of {} points had a repeat; go on with --resume {}",
            points.len(),
            plan.points.len(),
            folder.display()
        );
    }
    let failed = points
        .iter()
        .filter(|point| matches!(point.verdict, Verdict::Failed(_)))
        .count();
    if failed > 0 {
        bail!("{failed} of {} points failed; the report says why", points.len());
    }
    Ok(())
}

pub(crate) fn results_folder(name: &str) -> PathBuf {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let date: String = now.chars().filter(char::is_ascii_alphanumeric).collect();
    PathBuf::from(format!(
        "results/{name}-{}",
        date.trim_end_matches('Z').replace('T', "-")
    ))
}

fn stations(plan: &Plan) -> Result<BTreeMap<String, Station>> {
    let used: BTreeSet<&String> = plan.points.iter().map(|point| &point.tier).collect();
    let tiers = plan.tiers.iter().filter(|(name, _)| used.contains(name));
    tiers
        .map(|(name, config)| {
            Ok((
                name.clone(),
                Station::new(name, config, plan.scratch.as_deref(), &plan.name)?,
            ))
        })
        .collect()
}

fn environment(stations: &BTreeMap<String, Station>) -> Environment {
    let roots: Vec<PathBuf> = stations
        .values()
        .filter_map(|station| station.root().map(Path::to_owned))
        .collect();
    Environment::here(&roots)
}

/// Every repeat that the journal has not.
fn rounds(
    plan: &Plan,
    stations: &mut BTreeMap<String, Station>,
    peers: &Peers,
    journal: &mut Journal,
    stop: &Stop,
) -> Result<()> {
    let done: BTreeSet<(Point, u32)> = journal
        .entries
        .iter()
        .map(|entry| (entry.point.clone(), entry.repeat))
        .collect();
    let order = order(plan, &done);
    let mut progress = Progress::new(order.len() as u64, plan.access.warmup + plan.access.window + BESIDE);
    for (repeat, point) in order {
        if stop.is_asked() {
            break;
        }
        progress.begin(&point.to_string());
        let station = stations.get_mut(&point.tier).context("a point's tier is not open")?;
        let entry = one(plan, station, peers, (&point, repeat), stop);
        if !stop.is_asked() {
            journal.keep(entry)?;
        }
        progress.end();
    }
    progress.clear();
    Ok(())
}

/// Each round of repeats in another order, drawn from the seed.
fn order(plan: &Plan, done: &BTreeSet<(Point, u32)>) -> Vec<(u32, Point)> {
    let mut all = Vec::new();
    for repeat in 0..plan.repeats {
        let mut round: Vec<(u32, Point)> = plan.points.iter().map(|point| (repeat, point.clone())).collect();
        Random::new(plan.access.seed, u64::from(repeat)).shuffle(&mut round);
        all.extend(
            round
                .into_iter()
                .filter(|(repeat, point)| !done.contains(&(point.clone(), *repeat))),
        );
    }
    all
}

/// One repeat with its peers beside it; which of them begins alternates.
fn one(plan: &Plan, station: &mut Station, peers: &Peers, (point, repeat): (&Point, u32), stop: &Stop) -> Entry {
    let mut entry = Entry {
        point: point.clone(),
        repeat,
        measured: None,
        failed: None,
        peers: BTreeMap::new(),
        peer_faults: Vec::new(),
    };
    if let Err(error) = station.prepare(point, &plan.access) {
        entry.failed = Some(format!("{error:#}"));
        return entry;
    }
    if repeat % 2 == 1 {
        beside(plan, station, peers, &mut entry, stop);
    }
    match ours(plan, station, point, repeat, stop) {
        Ok(measured) => entry.measured = Some(measured),
        Err(error) => entry.failed = Some(format!("{error:#}")),
    }
    if repeat % 2 == 0 {
        beside(plan, station, peers, &mut entry, stop);
    }
    entry
}

fn ours(plan: &Plan, station: &mut Station, point: &Point, repeat: u32, stop: &Stop) -> Result<Measured> {
    station.settle(point)?;
    let driven = station.measure(point, &plan.access, repeat, stop)?;
    if let Some(why) = station.shortfall(&driven) {
        bail!("the way that was asked for was not taken: {why}");
    }
    Measured::of(&driven, plan.limits)
}

fn beside(plan: &Plan, station: &Station, peers: &Peers, entry: &mut Entry, stop: &Stop) {
    let Some(file) = station.file(&entry.point) else { return };
    for job in peers.jobs(&entry.point, &plan.access, &file) {
        if stop.is_asked() {
            return;
        }
        let figures = station.settle(&entry.point).and_then(|()| job.run(&plan.access));
        match figures {
            Ok(figures) => {
                entry.peers.insert(job.tool(), figures);
            }
            Err(error) => entry.peer_faults.push(format!("{error:#}")),
        }
    }
}
