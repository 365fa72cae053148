//! The `agent` command: measures points for runs on other hosts, one run at a time, until interrupted. Tiers are only files in the
//! owner's folder, so that no run reaches a path, a secret or an endpoint that the owner did not name.

use super::{AgentHost, AgentRepeatResult, Job, LIMIT, PROGRAM};
use crate::drive::RepeatRun;
use crate::plan::{Flags, Plan, Point};
use crate::prepared_tier::{PreparedTiers, environment, notes, runtime, with_tiers};
use crate::runner::record::MeasuredRepeat;
use crate::runner::{check_space, prepare_repeat};
use crate::stop::Stop;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Instant;
use tierlab_agents::clock::WallClock;
use tierlab_agents::link::{Link, LinkError, Orders, Output};
use tierlab_agents::message::{ToRun, ToWorker};
use tierlab_agents::options::AgentOptions;
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
pub(crate) fn run(flags: &AgentFlags) -> Result<()> {
    let runtime = runtime(1)?;
    let stop = Stop::on_signal()?;
    runtime.block_on(async {
        let (listener, admission) = flags.agent.listen(PROGRAM).await?;
        // Tiers have runtimes of their own, which must be dropped on a thread that may block.
        let work = async |link: Link, clock: &WallClock| {
            let (flags, clock, handle) = (flags.clone(), *clock, Handle::current());
            tokio::task::spawn_blocking(move || serve(link, clock, &flags, &handle)).await?
        };
        session::serve(listener, admission, &flags.agent.clock(), stop.requested(), work).await;
        Ok(())
    })
}

/// Requests the stop on drop: with the link, or with this program.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// Serves a run until the run or its link ends.
fn serve(link: Link, clock: WallClock, flags: &AgentFlags, handle: &Handle) -> Result<()> {
    let (input, output) = link.halves();
    let (orders, reading) = input.orders();
    let stop = Stop::default();
    let guard = StopOnDrop(stop.clone());
    // Detects the end of the link during a repeat.
    handle.spawn(async move {
        let _guard = guard;
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
        let plan = Plan::of_run(&setup.text, &own, &flags.tiers, setup.seconds, setup.share)?;
        let stop = self.stop.clone();
        let ((), run) = with_tiers(&plan.common, &stop, 0, |tiers| {
            check_space(&plan, tiers)?;
            self.reply(&AgentHost {
                agent: String::new(),
                environment: serde_json::to_value(environment(tiers))?,
                tiers: notes(tiers),
            })?;
            loop {
                match self.next()? {
                    Job::Measure(point, repeat) => self.measure(&plan, tiers, &point, repeat)?,
                    Job::End => return Ok(()),
                    Job::Setup(_) => bail!(LinkError::Unexpected("Measure")),
                }
            }
        })?;
        if let Some(why) = run.failed {
            bail!(why);
        }
        self.reply(&run.tiers)
    }

    /// Measures a repeat, and reports it to the run. A failed point is reported like any other.
    fn measure(&mut self, plan: &Plan, tiers: &mut PreparedTiers, point: &Point, repeat: u32) -> Result<()> {
        let name = &point.tier;
        let tier = tiers.get_mut(name).filter(|_| plan.points.contains(point));
        let tier = tier.with_context(|| format!("{point}: not a point of the plan with this agent's tier `{name}`"))?;
        let stop = self.stop.clone();
        let late = Cell::new(None);
        let mut wait_for_start = || -> Result<Instant> {
            let ready = session::ready(&mut self.orders, &mut self.output, &self.clock, LIMIT);
            let start = self.handle.block_on(ready)?;
            late.set(Some(start.late));
            Ok(start.at)
        };
        let measured = prepare_repeat(plan, tier, point, &stop)
            .and_then(|()| {
                let start = |run: RepeatRun| anyhow::Ok(run.starting_at(wait_for_start()?));
                tier.measure(point, &plan.access, repeat, &stop, start)
            })
            .and_then(|outcome| MeasuredRepeat::of(&outcome, &plan.limits));
        if late.get().is_none() {
            wait_for_start()?;
        }
        // Cut short: no figures of the repeat.
        ensure!(!stop.is_requested(), LinkError::Ended);
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
