//! The `agent` command: measures points for runs on other hosts, one run at a time, until interrupted. Tiers are only files in the
//! owner's folder, so that no run reaches a path, a secret or an endpoint that the owner did not name.

use super::{AgentHost, AgentRepeatResult, Job, LIMIT, PROGRAM};
use crate::drive::Course;
use crate::plan::{Flags, Plan, Point, bad_usage};
use crate::runner::record::MeasuredRepeat;
use crate::runner::{check_space, prepared};
use crate::station::{Stations, environment, notes, on_tiers, runtime};
use crate::stop::Stop;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Instant;
use tierlab_agents::clock::WallClock;
use tierlab_agents::link::{Link, LinkError, Orders, Output};
use tierlab_agents::message::{ToRun, ToWorker};
use tierlab_agents::options::{AgentError, AgentOptions};
use tierlab_agents::session;
use tokio::runtime::Handle;

/// Flags of `agent`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentFlags {
    #[command(flatten)]
    agent: AgentOptions,
    /// Folder of the tiers that runs may measure: TOML files with the names used in plans
    #[arg(long, value_name = "FOLDER")]
    tiers: PathBuf,
    /// Folder on the disk that local tiers measure [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
}

/// Serves runs until interrupted.
///
/// # Errors
/// An address in use or without authentication, or an unreadable token or certificate.
pub(crate) fn call(flags: &AgentFlags) -> Result<()> {
    let runtime = runtime(1)?;
    let stop = Stop::on_signal()?;
    runtime.block_on(async {
        let (listener, door) = flags.agent.listen(PROGRAM).await.map_err(|error| match error {
            AgentError::Usage(why) => bad_usage("agent", &why),
            AgentError::Listen { .. } => error.into(),
        })?;
        // Tiers have runtimes of their own, which must be dropped on a thread that may block.
        let work = async |link: Link, clock: &WallClock| {
            let (flags, clock, handle) = (flags.clone(), *clock, Handle::current());
            tokio::task::spawn_blocking(move || serve(link, clock, &flags, &handle)).await?
        };
        session::serve(listener, door, &flags.agent.clock(), stop.asked(), work).await;
        Ok(())
    })
}

/// Requests the stop on drop: with the link, or with this program.
struct AskOnDrop(Stop);

impl Drop for AskOnDrop {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// Serves a run until the run or its link ends.
fn serve(link: Link, clock: WallClock, flags: &AgentFlags, handle: &Handle) -> Result<()> {
    let (input, output) = link.halves();
    let (orders, reading) = input.orders();
    let stop = Stop::default();
    let ask = AskOnDrop(stop.clone());
    // Detects the end of the link during a repeat.
    handle.spawn(async move {
        let _ask = ask;
        reading.await
    });
    let mut session = Session {
        orders,
        output,
        clock,
        handle,
        stop,
    };
    let Err(error) = session.run(flags) else { return Ok(()) };
    match error.downcast_ref::<LinkError>() {
        Some(link) if link.is_unreachable() => Ok(()),
        _ => {
            let _ = handle.block_on(session.output.fail(format!("{error:#}")));
            Err(error)
        }
    }
}

/// One run.
struct Session<'a> {
    orders: Orders<Job>,
    output: Output,
    clock: WallClock,
    handle: &'a Handle,
    stop: Stop,
}

impl Session<'_> {
    fn run(&mut self, flags: &AgentFlags) -> Result<()> {
        let Job::Setup(setup) = self.next()? else {
            bail!(LinkError::Unexpected("Setup"));
        };
        let own = Flags {
            plan: PathBuf::from(&setup.file),
            scratch: flags.scratch.clone(),
            out: None,
            repeats: None,
        };
        let plan = Plan::sent(&setup.text, &own, &flags.tiers, setup.seconds, setup.share)?;
        let stop = self.stop.clone();
        on_tiers(&plan.common, &stop, 0, |stations| {
            check_space(&plan, stations)?;
            self.reply(&AgentHost {
                agent: String::new(),
                environment: serde_json::to_value(environment(stations))?,
                tiers: notes(stations),
            })?;
            loop {
                match self.next()? {
                    Job::Measure(point, repeat) => self.measure(&plan, stations, &point, repeat)?,
                    Job::End => return Ok(()),
                    Job::Setup(_) => bail!(LinkError::Unexpected("Measure")),
                }
            }
        })?;
        self.reply(&())
    }

    /// Measures a repeat, and reports it to the run. A failed point is reported like any other.
    fn measure(&mut self, plan: &Plan, stations: &mut Stations, point: &Point, repeat: u32) -> Result<()> {
        let tier = &point.tier;
        let station = stations.get_mut(tier).filter(|_| plan.points.contains(point));
        let station =
            station.with_context(|| format!("{point}: not a point of the plan with this agent's tier `{tier}`"))?;
        let stop = self.stop.clone();
        let late = Cell::new(None);
        let mut begin = || -> Result<Instant> {
            let ready = session::ready(&mut self.orders, &mut self.output, &self.clock, LIMIT);
            let start = self.handle.block_on(ready)?;
            late.set(Some(start.late));
            Ok(start.at)
        };
        let measured = prepared(plan, station, point, repeat, &stop)
            .and_then(|()| {
                let start = |course: Course| anyhow::Ok(course.beginning(begin()?));
                station.measure_from(point, &plan.access, repeat, &stop, start)
            })
            .and_then(|driven| MeasuredRepeat::of(&driven, &plan.limits));
        if late.get().is_none() {
            begin()?;
        }
        // Cut short: no figures of the repeat.
        if stop.is_asked() {
            bail!(LinkError::Ended);
        }
        self.reply(&AgentRepeatResult {
            late_us: late.get().unwrap_or_default().as_secs_f64() * 1e6,
            measured: measured.map_err(|error| format!("{error:#}")),
        })
    }

    fn next(&mut self) -> Result<Job> {
        match self.handle.block_on(self.orders.next())? {
            ToWorker::Job(job) => Ok(job),
            _ => bail!(LinkError::Unexpected("Job")),
        }
    }

    fn reply(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let reply = ToRun::Reply(serde_json::to_string(value)?);
        Ok(self.handle.block_on(self.output.send(&reply))?)
    }
}
