//! A run of a plan of points. In: options. Out: a folder of results. Each finished repeat is saved at once.

pub(crate) mod agents;
mod record;
mod report;
mod summary;

use crate::machine::{Environment, check_memory};
use crate::peers::{FIO, Fio};
use crate::plan::{Access, CacheState, Flags, Operation, Plan, Point, Way, bad_usage};
use crate::prepared_tier::{PreparedTier, PreparedTiers, with_tiers};
use crate::report::{RunFacts, csv, finish, results_folder};
use crate::rounds::{Rounds, STEP_OVERHEAD, shuffled_rounds};
use crate::stop::Stop;
use agents::{AgentFigures, Fleet};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use record::{Entry, Journal, MeasuredRepeat, SecondFigures};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;
use summary::{Summary, Verdict, summaries};
use tierlab_agents::options::AgentsOptions;
use tierlab_instrument::host::filesystem;
use tierlab_instrument::units::bytes;

/// Flags of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) flags: Flags,
    /// Resume a run that was interrupted
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub(crate) resume: Option<PathBuf>,
    /// Seconds of each repeat, instead of the plan's
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Do not measure fio, even if it is installed
    #[arg(long)]
    pub(crate) no_peers: bool,
    #[command(flatten)]
    pub(crate) agents: AgentsOptions,
}

/// Runs a plan.
///
/// # Errors
/// The plan is invalid, a tier does not open, a point failed, or an interrupt.
pub(crate) fn run(options: &RunOptions) -> Result<()> {
    let mut plan = Plan::read(&options.flags, options.seconds, options.agents.len())?;
    plan.peers &= !options.no_peers && plan.points.iter().any(|point| point.way != Way::Tier);
    let fleet = fleet(&mut plan, options)?;
    let fingerprint = fingerprint(&plan, fleet.is_some());
    plan.common.text += &fingerprint;
    let stop = Stop::on_signal()?;
    let (folder, mut journal) = match &options.resume {
        Some(folder) => (folder.clone(), Journal::resume(folder, &plan.common.text)?),
        None => {
            let folder = results_folder(options.flags.out.as_deref(), &plan.common.name)?;
            let journal = Journal::begin(&folder, &plan.common.text)?;
            (folder, journal)
        }
    };
    let fio = if plan.peers { Fio::find() } else { Fio::default() };
    let advice = format!("resume it with --resume {}", folder.display());
    let (hosts, run) = match fleet {
        None => with_tiers(&plan.common, &stop, 0, |tiers| {
            check_space(&plan, tiers)?;
            rounds(&plan, &mut journal, &fio, &stop, |point, repeat| {
                let tier = tiers.get_mut(&point.tier).context("a point's tier is not open")?;
                Ok(measure(&plan, tier, &fio, (point, repeat), &stop))
            })?;
            Ok(None)
        })?,
        Some(mut fleet) => {
            let measured = rounds(&plan, &mut journal, &fio, &stop, |point, repeat| {
                fleet.measure(&plan, point, repeat, &stop)
            });
            measured.with_context(|| format!("the run ended early; restart its agents, and {advice}"))?;
            let failed = fleet.close().err();
            let mut run = RunFacts::new(&plan.common, &stop, Environment::current([]), fleet.tiers());
            run.failed = failed.map(|error| format!("{error:#}"));
            (Some(fleet.hosts), run)
        }
    };
    let figures = Figures {
        peer_notes: (plan.peers && fio.0.is_none())
            .then(|| "fio is not installed: `scripts/setup fio` unpacks Debian's".to_owned())
            .into_iter()
            .collect(),
        points: summaries(&journal.entries),
        seconds: PointSeconds::of(&journal.entries),
        agents: hosts.map(|hosts| AgentFigures::of(hosts, &journal.entries)),
    };
    let page = report::page(&run, &plan.access, &figures);
    let table = ("points.csv", csv(&figures.points)?);
    finish(&folder, &page, (&plan.access, &figures), table, &format!("; {advice}"))?;
    let (points, count) = (&figures.points, figures.points.len());
    let is_failed = |point: &&Summary| matches!(point.verdict, Verdict::Failed(_));
    match points.iter().filter(is_failed).count() {
        0 => Ok(()),
        failed => bail!("failed points: {failed} of {count}; the report says why; to measure them again, {advice}"),
    }
}

/// Line of the saved plan with the tiers, and the disk below local ones, that a resumed run must also share.
fn fingerprint(plan: &Plan, is_by_agents: bool) -> String {
    let common = &plan.common;
    let tiers = crc32c::crc32c(format!("{:?}", common.tiers).as_bytes());
    let scratch = common.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let is_local = !is_by_agents && common.tiers.values().any(|config| config.kind() == "nvme");
    let disk = std::fs::metadata(&scratch).ok().filter(|_| is_local);
    let disk = disk.map(|disk| format!(", scratch on device {}: {}", disk.dev(), filesystem(&scratch)));
    format!("# tiers {tiers:08x}{}\n", disk.unwrap_or_default())
}

/// Connects to the agents of a run; `None` without them.
///
/// # Errors
/// Flags or a plan that agents cannot run, or an agent that is unreachable or refuses.
fn fleet(plan: &mut Plan, options: &RunOptions) -> Result<Option<Fleet>> {
    let Some(agents) = options.agents.open(agents::PROGRAM)? else {
        return Ok(None);
    };
    plan.check_agents()?;
    if plan.peers {
        let why = "fio is only measured on a single host: set `peers = false`, or pass --no-peers";
        return Err(bad_usage("peers", why));
    }
    if options.flags.scratch.is_some() {
        let why = "local tiers use the --scratch of each agent: remove this flag";
        return Err(bad_usage("--scratch", why));
    }
    // A resumed run needs the same number of agents.
    plan.common.text += &format!("# --agents: {}\n", agents.addresses.len());
    Fleet::open(&agents, plan, &options.flags, options.seconds).map(Some)
}

/// Refuses a run whose calls in flight, or data of tiers in memory, do not fit into memory, or whose data does not fit into its scratch
/// folder, before writing. All local tiers are in that folder.
fn check_space(plan: &Plan, tiers: &PreparedTiers) -> Result<()> {
    let points = plan.points.iter();
    // A restore reads in parts.
    let holding = points.filter(|point| point.operation.moves_bytes() && point.operation != Operation::Restore);
    let held = holding.map(Point::in_flight_bytes).max();
    check_memory("cross: `block` × `depth`", held.unwrap_or(0))?;
    let (mut needed, mut in_memory) = (0_u64, 0_u64);
    for (name, tier) in tiers {
        let points = plan.points.iter().filter(|point| point.tier == *name);
        in_memory = in_memory.saturating_add(tier.memory_bytes(points.clone(), plan.access.size));
        needed = needed.saturating_add(tier.local_bytes(points, plan.access.size));
    }
    check_memory("the data of tiers of kind `memory`", in_memory)?;
    let Some(root) = tiers.values().find_map(PreparedTier::root).filter(|_| needed > 0) else {
        return Ok(());
    };
    let disk = nix::sys::statvfs::statvfs(root).with_context(|| format!("cannot inspect {}", root.display()))?;
    let free = disk.blocks_available() * disk.fragment_size();
    ensure!(
        needed <= free,
        "the plan writes {} but only {} are free below {}: choose another --scratch, or lower `size`, `files` or `block`",
        bytes(needed),
        bytes(free),
        root.display()
    );
    Ok(())
}

/// Figures of `run.json`.
#[derive(Serialize)]
struct Figures {
    /// Missing parts of the comparison with fio, with advice.
    peer_notes: Vec<String>,
    points: Vec<Summary>,
    /// Figures of each second of each repeat, in order, for repeats of at least two seconds.
    seconds: Vec<PointSeconds>,
    /// Agents, and their shares of each repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<AgentFigures>,
}

/// Figures of each second of a point, by repeat.
#[derive(Debug, Serialize)]
struct PointSeconds {
    point: Point,
    repeats: Vec<Vec<SecondFigures>>,
}

impl PointSeconds {
    fn of(entries: &[Entry]) -> Vec<Self> {
        let mut all: BTreeMap<&Point, BTreeMap<u32, Vec<SecondFigures>>> = BTreeMap::new();
        // A call of a checkpoint lasts for seconds.
        for entry in entries.iter().filter(|entry| !entry.point.operation.is_once()) {
            let seconds = entry.measured.iter().map(|one| one.seconds.clone());
            for seconds in seconds.filter(|seconds| !seconds.is_empty()) {
                all.entry(&entry.point).or_default().insert(entry.repeat, seconds);
            }
        }
        let of_point = |(point, repeats): (&Point, BTreeMap<_, _>)| Self {
            point: point.clone(),
            repeats: repeats.into_values().collect(),
        };
        all.into_iter().map(of_point).collect()
    }
}

/// Expected mean time of the repeats, with those of fio and with preconditioning.
fn expected_repeat(order: &[(u32, &Point)], access: &Access, fio: &Fio) -> Duration {
    let of = |&(repeat, point): &(u32, &Point)| {
        let tools = 1 + u32::from(fio.has_job(point, access));
        let is_first_write = repeat == 0 && point.operation.writes() && !point.operation.takes_objects();
        (access.warmup_of(point) + access.window) * tools + access.precondition * u32::from(is_first_write)
    };
    order.iter().map(of).sum::<Duration>() / order.len().max(1) as u32 + STEP_OVERHEAD
}

/// Measures every repeat missing in the journal.
fn rounds(
    plan: &Plan,
    journal: &mut Journal,
    fio: &Fio,
    stop: &Stop,
    mut measure: impl FnMut(&Point, u32) -> Result<Entry>,
) -> Result<()> {
    let entries = journal.entries.iter();
    let done: BTreeSet<(Point, u32)> = entries.map(|entry| (entry.point.clone(), entry.repeat)).collect();
    let points: Vec<Point> = plan.points.iter().cloned().collect();
    let mut order = shuffled_rounds(plan.common.seed, plan.common.repeats, &points);
    order.retain(|(repeat, point)| !done.contains(&((*point).clone(), *repeat)));
    let expected = expected_repeat(&order, &plan.access, fio);
    Rounds::new(plan.common.repeats, stop, order.len(), expected).measure(&order, |repeat, point| {
        let entry = measure(point, repeat)?;
        match stop.is_requested() {
            true => Ok(()),
            false => journal.append(entry),
        }
    })
}

/// Measures one repeat, with fio.
fn measure(plan: &Plan, tier: &mut PreparedTier, fio: &Fio, (point, repeat): (&Point, u32), stop: &Stop) -> Entry {
    let mut entry = Entry::new(point, repeat);
    let result = prepare_repeat(plan, tier, point, stop).and_then(|()| {
        // The bench and fio alternate in going first.
        if repeat % 2 == 1 {
            measure_fio(plan, tier, fio, &mut entry, stop);
        }
        let outcome = tier.measure(point, &plan.access, repeat, stop, Ok);
        if repeat.is_multiple_of(2) {
            measure_fio(plan, tier, fio, &mut entry, stop);
        }
        MeasuredRepeat::of(&outcome?, &plan.limits)
    });
    entry.record(result);
    entry
}

/// Writes the data of a repeat. Before the first one of this process, writes like the point for the plan's preconditioning time, so that a
/// measured flash drive has no clean blocks left.
fn prepare_repeat(plan: &Plan, tier: &mut PreparedTier, point: &Point, stop: &Stop) -> Result<()> {
    tier.prepare(point, &plan.access, stop)?;
    let writes = matches!(point.operation, Operation::Write | Operation::Mixed);
    if plan.access.precondition.is_zero() || !writes || !tier.preconditioned.insert(point.clone()) {
        return Ok(());
    }
    let access = Access {
        window: plan.access.precondition,
        warmup: Duration::ZERO,
        ..plan.access
    };
    let mut unending = point.clone();
    // Accesses to cold data end with the data.
    unending.cache = CacheState::AsIs;
    let written = tier.measure(&unending, &access, u32::MAX, stop, Ok);
    written.map(drop).context("preconditioning")
}

fn measure_fio(plan: &Plan, tier: &PreparedTier, fio: &Fio, entry: &mut Entry, stop: &Stop) {
    let Some(file) = tier.peer_file(&entry.point).filter(|_| !stop.is_requested()) else {
        return;
    };
    let prepare_file = || tier.prepare_peer_file(&entry.point, file.clone());
    match fio.run((&entry.point, entry.repeat), &plan.access, &file, prepare_file, stop) {
        Ok(figures) => entry.peers.extend(figures.map(|figures| (FIO.to_owned(), figures))),
        Err(error) => entry.peer_faults.push(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_time_of_a_repeat_includes_that_of_fio() {
        let local = Point {
            way: Way::Pread,
            cache: CacheState::Warm,
            ..Point::reads("disk", 4096)
        };
        let remote = Point::reads("bucket", 4096);
        let (order, second) = ([(0_u32, &local), (0, &remote)], Duration::from_secs(1));
        let access = Access::reads(1 << 20, second, second);
        let expected = |fio| expected_repeat(&order, &access, &Fio(fio));
        assert_eq!(expected(None), 2 * second + STEP_OVERHEAD);
        assert_eq!(expected(Some("fio".into())), 3 * second + STEP_OVERHEAD);
        let written = Point {
            operation: Operation::Write,
            ..local.clone()
        };
        let preconditioned = Access {
            precondition: 8 * second,
            ..access
        };
        let order = [(0, &written), (1, &written)];
        let expected = expected_repeat(&order, &preconditioned, &Fio(None));
        assert_eq!(expected, 6 * second + STEP_OVERHEAD);
    }
}
