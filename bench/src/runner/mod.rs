//! A run of a plan of points. In: options. Out: a folder of results. Each finished repeat is kept at once.

mod journal;
mod record;
mod report;
mod summary;

use crate::peers::Peers;
use crate::plan::{Flags, Plan, Point};
use crate::report::{csv, finish};
use crate::rounds::{Rounds, order};
use crate::station::{Station, Stations};
use crate::stop::Stop;
use crate::tiers::{on_tiers, results_folder};
use anyhow::{Context, Result, bail};
use clap::Args;
use journal::Journal;
use record::{Entry, MeasuredRepeat};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use summary::{Summary, Verdict, summaries};

/// Time of a repeat beside its window: dropping or warming the page cache, starting callers.
const BESIDE: Duration = Duration::from_millis(100);

/// Flags of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) flags: Flags,
    /// Resume a run that was interrupted
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub(crate) resume: Option<PathBuf>,
    /// Seconds of each repeat, over the plan's
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Measure no peers (fio and others), even where they are installed
    #[arg(long)]
    pub(crate) no_peers: bool,
}

/// Runs a plan.
///
/// # Errors
/// The plan is wrong, a tier does not open, a point failed, or an interrupt.
pub(crate) fn run(options: &RunOptions) -> Result<()> {
    let plan = Plan::read(&options.flags, options.seconds)?;
    let stop = Stop::on_signal()?;
    let (folder, mut journal) = match &options.resume {
        Some(folder) => (folder.clone(), Journal::resume(folder, &plan.common.text)?),
        None => {
            let folder = results_folder(options.flags.out.as_deref(), &plan.common.name)?;
            let journal = Journal::begin(&folder, &plan.common.text)?;
            (folder, journal)
        }
    };
    let peers = match plan.peers && !options.no_peers {
        true => Peers::look(),
        false => Peers::default(),
    };
    let ((), ran) = on_tiers(&plan.common, &stop, 0, |stations| {
        rounds(&plan, stations, &peers, &mut journal, &stop)
    })?;
    let figures = Figures {
        peer_notes: peers.notes,
        points: summaries(&journal.entries),
    };
    let page = report::page(&ran, &plan.access, &figures);
    let table = ("points.csv", csv(&figures.points)?);
    let advice = format!("; resume it with --resume {}", folder.display());
    finish(&folder, &page, (&plan.access, &figures), table, &advice)?;
    let points = &figures.points;
    let is_failed = |point: &&Summary| matches!(point.verdict, Verdict::Failed(_));
    match points.iter().filter(is_failed).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} points failed; the report says why", points.len()),
    }
}

/// Figures of `run.json`.
#[derive(Serialize)]
struct Figures {
    /// Tools that are missing, and how to get them.
    peer_notes: Vec<String>,
    points: Vec<Summary>,
}

/// Measures every repeat that the journal does not hold.
fn rounds(plan: &Plan, stations: &mut Stations, peers: &Peers, journal: &mut Journal, stop: &Stop) -> Result<()> {
    let entries = journal.entries.iter();
    let done: BTreeSet<(Point, u32)> = entries.map(|entry| (entry.point.clone(), entry.repeat)).collect();
    let points: Vec<Point> = plan.points.iter().cloned().collect();
    let mut order = order(plan.common.seed, plan.common.repeats, &points);
    order.retain(|(repeat, point)| !done.contains(&((*point).clone(), *repeat)));
    let expected = plan.access.warmup + plan.access.window + BESIDE;
    Rounds::new(plan.common.repeats, stop, order.len(), expected).measure(&order, |repeat, point| {
        let station = stations.get_mut(&point.tier).context("a point's tier is not open")?;
        let entry = one(plan, station, peers, (point, repeat), stop);
        match stop.is_asked() {
            true => Ok(()),
            false => journal.keep(entry),
        }
    })
}

/// One repeat with its peers beside it. The bench and its peers take turns in beginning.
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

fn ours(plan: &Plan, station: &mut Station, point: &Point, repeat: u32, stop: &Stop) -> Result<MeasuredRepeat> {
    let driven = station.measure(point, &plan.access, repeat, stop)?;
    MeasuredRepeat::of(&driven, &plan.limits)
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
                entry.peers.insert(job.name().to_owned(), figures);
            }
            Err(error) => entry.peer_faults.push(format!("{error:#}")),
        }
    }
}
