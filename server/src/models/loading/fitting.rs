//! Opening a model's sessions: as its config states, or else fitted to the cores and the model.
//!
//! In: what a session is built from, and the config. Out: sessions in their groups, warm and waiting for a queue.
//! [`layout`] decides which groups to try and which to keep; this module opens sessions and times their runs, one model
//! after the other, so that measurements do not disturb each other. Time is bounded: a few runs in each group, within
//! `runtime.instances.measure_ms` except the first of each. The log gives the choice and its reason.
//!
//! Few versions are built at a time, because their files are in memory meanwhile. They warm up while others are built,
//! so that an endless warm-up delays no other version.

use crate::error::LoadError;
use crate::host::memory::LimitedLoad;
use crate::host::{self, Cores};
use crate::inference::runtime::{GraphSource, Provider, Threads};
use crate::inference::session::layout::{self, FitConfig, SessionGroup};
use crate::inference::session::open::{SessionReport, SessionSpec, SpawnedSession, open, spawn};
use anyhow::{Result, anyhow, bail};
use futures::future::{join_all, try_join_all};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_formats::model::InstanceConfig;
use tokio::sync::{Mutex, SemaphorePermit};
use tokio::time::{timeout, timeout_at};

/// Resources that sessions are sized for.
pub(crate) struct Fitting {
    config: FitConfig,
    /// Cores that sessions are sized for.
    pub(super) cores: Cores,
    /// Held by the model whose runs are measured.
    measuring: Mutex<()>,
}

/// Sessions to open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SessionPlan {
    /// Groups, fewest threads first; at least one.
    pub(super) groups: Vec<SessionGroup>,
    choice: InstanceChoice,
}

/// Choice of the sessions among the groups of a [`SessionPlan`].
#[derive(Debug, PartialEq, Eq)]
enum InstanceChoice {
    /// Stated in the config.
    Stated,
    /// By the time of a run in each group.
    Measured,
    /// Without measuring, for this reason.
    Unmeasured(&'static str),
}

/// Opened groups, most threads first, and the reason for them.
type FittedGroups = (Vec<WarmGroup>, String);

impl Fitting {
    /// Creates the fitting for the cores of this process, or the configured ones.
    pub(crate) fn new(config: FitConfig) -> Self {
        let cores = Cores::of_this_process(config.cores);
        tracing::info!(%cores, "cores to size sessions for, if a model's config states no instances");
        Self {
            config,
            cores,
            measuring: Mutex::new(()),
        }
    }

    /// Sessions for a model with `weight_bytes` bytes of weights. On a GPU the default is one session.
    pub(super) fn plan(&self, stated: Option<&InstanceConfig>, weight_bytes: u64, on_cpu: bool) -> SessionPlan {
        let on_gpu = InstanceConfig::default();
        if let Some(instances) = stated.or((!on_cpu).then_some(&on_gpu)) {
            return SessionPlan {
                groups: vec![SessionGroup::stated(instances)],
                choice: InstanceChoice::Stated,
            };
        }
        let cores = self.cores.count;
        let groups = layout::candidates(cores, weight_bytes, self.config.max_weight_bytes);
        let choice = match groups.len() {
            1 if cores == 1 => InstanceChoice::Unmeasured("there is one core"),
            1 => InstanceChoice::Unmeasured(
                "its weights are too large for another session (`runtime.instances.max_weight_bytes`)",
            ),
            _ if self.config.measure.is_zero() => {
                InstanceChoice::Unmeasured("measuring is disabled (`runtime.instances.measure_ms`)")
            }
            _ => InstanceChoice::Measured,
        };
        SessionPlan { groups, choice }
    }

    /// Opens the sessions of a plan; the group with the most threads is first.
    ///
    /// # Errors
    /// The error of the first session that cannot be opened, or an exceeded limit. A session opened only for measuring
    /// is left out if it cannot be opened.
    pub(super) async fn open(&self, plan: &SessionPlan, opener: Opener<'_>) -> Result<Vec<WarmGroup>> {
        let model = opener.model;
        let (opened, why) = match plan.choice {
            InstanceChoice::Stated => return opener.open_all(&plan.groups, Vec::new()).await,
            InstanceChoice::Measured => self.open_fitted(&plan.groups, opener).await?,
            InstanceChoice::Unmeasured(why) => {
                let groups = layout::unmeasured(&plan.groups);
                (opener.open_all(&groups, Vec::new()).await?, why.to_owned())
            }
        };
        let sessions: Vec<String> = opened.iter().map(|opened| opened.group.to_string()).collect();
        let (sessions, cores) = (sessions.join(", "), self.cores);
        tracing::info!(model, sessions, why, %cores, "config states no instances: fitted sessions");
        Ok(opened)
    }

    /// Opens one session of each candidate group, and then the others of the groups that are worth having.
    async fn open_fitted(&self, candidates: &[SessionGroup], mut opener: Opener<'_>) -> Result<FittedGroups> {
        let (first, wider) = (candidates[0], &candidates[1..]);
        let budget = self.config.measure / candidates.len() as u32;
        let mut built = opener.build(1, first.threads, Some(budget)).await?;
        // Its warm-up, and then the measured runs. A session that takes longer does not delay other loads.
        let reports = timeout(self.config.measure * 2, warm(opener.limits, &mut built)).await;
        let reports = reports.unwrap_or_else(|_| Ok(Vec::new()))?;
        let alone = reports.first().map(|report| report.run_time);
        let reason = match alone {
            Some(Some(alone)) if alone <= budget => {
                let first = WarmGroup {
                    group: first,
                    sessions: with_reports(built, reports).collect(),
                };
                return Ok(self.open_measured(first, alone, wider, &mut opener).await);
            }
            Some(None) => "it does not run on zeros: not measured",
            _ => "one run exceeds the time limit of all measured runs (`runtime.instances.measure_ms`)",
        };
        let mut groups = layout::unmeasured(candidates);
        if reports.is_empty() {
            return Ok((opener.open_all(&groups, built).await?, reason.to_owned()));
        }
        // One session of the group with the fewest threads is already open.
        if let Some(last) = groups.last_mut() {
            last.sessions -= 1;
        }
        let mut groups = opener.open_all(&groups, Vec::new()).await?;
        if let Some(last) = groups.last_mut() {
            last.group.sessions += 1;
            last.sessions.extend(with_reports(built, reports));
        }
        Ok((groups, reason.to_owned()))
    }

    /// Opens the remaining sessions, after the first session's run was measured.
    async fn open_measured(
        &self,
        mut first: WarmGroup,
        alone: Duration,
        wider: &[SessionGroup],
        opener: &mut Opener<'_>,
    ) -> FittedGroups {
        let short = layout::for_short_runs(self.cores.count, alone).filter(|_| first.group.threads.intra_op == 1);
        let (mut groups, reason) = match short {
            Some(group) => {
                first.group = group;
                let reason = format!("a run takes {}, too short for several threads", format_time(alone));
                (vec![first], reason)
            }
            None => self.measure(first, wider, opener).await,
        };
        for WarmGroup { group, sessions } in &mut groups {
            match try_open(opener, group.sessions - 1, group.threads, None).await {
                Some(others) => sessions.extend(others),
                None => group.sessions = 1,
            }
        }
        (groups, reason)
    }

    /// Times a run in each group, and keeps the groups worth having, most threads first.
    async fn measure(&self, first: WarmGroup, wider: &[SessionGroup], opener: &mut Opener<'_>) -> FittedGroups {
        let _measuring = self.measuring.lock().await;
        let budget = self.config.measure / (1 + wider.len() as u32);
        let mut measured = vec![first];
        for &group in wider {
            if let Some(sessions) = try_open(opener, 1, group.threads, Some(budget)).await {
                measured.push(WarmGroup { group, sessions });
            }
        }
        let run_time = |warm: &WarmGroup| warm.sessions.first().and_then(|first| first.report.run_time);
        let timed: Vec<(SessionGroup, Option<Duration>)> =
            measured.iter().map(|warm| (warm.group, run_time(warm))).collect();
        let times = timed.iter().filter_map(|(group, run_time)| {
            let (time, threads) = (format_time((*run_time)?), group.threads.intra_op);
            let plural = if threads == 1 { "" } else { "s" };
            Some(format!("{time} with {threads} thread{plural}"))
        });
        let reason = format!("a run takes {}", times.collect::<Vec<_>>().join(", "));
        let groups = layout::select_groups(&timed);
        // Sessions of the other groups end with their threads.
        measured.retain(|warm| groups.contains(&warm.group));
        measured.reverse();
        (measured, reason)
    }
}

/// Opens optional sessions; `None` if one of them cannot be opened.
async fn try_open(
    opener: &mut Opener<'_>,
    count: u32,
    threads: Threads,
    measure: Option<Duration>,
) -> Option<Vec<WarmSession>> {
    let opened = opener.open(count, threads, measure).await;
    let without = |error: &anyhow::Error| {
        tracing::warn!(
            model = opener.model,
            error = error.to_string(),
            "cannot open more sessions; serving the model without them"
        );
    };
    opened.inspect_err(without).ok()
}

/// `7 us`, `56.2 ms`.
fn format_time(time: Duration) -> String {
    match time.as_micros() {
        us @ ..1000 => format!("{us} us"),
        _ => format!("{:.1} ms", time.as_secs_f64() * 1000.0),
    }
}

/// Time limits of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadLimits {
    /// Limit of reading a version's files, building its sessions and opening its table.
    pub(crate) load: Duration,
    /// Limit of a session's warm-up.
    pub(crate) warmup: Duration,
    /// Maximum memory for building and warming up a session, in bytes; 0 uses the available memory.
    pub(crate) memory: u64,
}

/// Load in progress.
pub(crate) struct LoadSlot<'a> {
    /// Deadline of everything except the warm-up.
    pub(crate) deadline: Instant,
    /// Held while files are in memory that no session has taken yet.
    pub(crate) permit: SemaphorePermit<'a>,
}

impl LoadLimits {
    fn timeout_message(&self, failure: &str) -> String {
        let ms = self.load.as_millis();
        format!("{failure} within {ms} ms (`runtime.load_timeout_ms`)")
    }

    /// Error of a load that exceeded its time; it is temporary.
    pub(crate) fn timed_out(&self, object: impl fmt::Display, failure: &str) -> LoadError {
        LoadError::at(object, self.timeout_message(failure)).transient()
    }
}

/// Warm session with its report.
pub(super) struct WarmSession {
    pub(super) session: SpawnedSession,
    pub(super) report: SessionReport,
}

/// Warm sessions of a group.
pub(super) struct WarmGroup {
    pub(super) group: SessionGroup,
    pub(super) sessions: Vec<WarmSession>,
}

/// Combines sessions with their reports, in the same order.
pub(super) fn with_reports(
    sessions: impl IntoIterator<Item = SpawnedSession>,
    reports: impl IntoIterator<Item = SessionReport>,
) -> impl Iterator<Item = WarmSession> {
    let pairs = sessions.into_iter().zip(reports);
    pairs.map(|(session, report)| WarmSession { session, report })
}

/// Opens the sessions of one version. Threads of dropped sessions end by themselves: in a warm-up at the next operator,
/// while building a session at its end, because ONNX Runtime cannot be interrupted there.
pub(super) struct Opener<'a> {
    pub(super) limits: &'a LoadLimits,
    pub(super) model: &'a str,
    pub(super) spec: SessionSpec,
    /// CPUs to pin them to; empty for no pinning.
    pub(super) cpus: &'a [u32],
    pub(super) slot: LoadSlot<'a>,
    /// Number of sessions so far.
    pub(super) opened: u32,
}

impl Opener<'_> {
    /// Starts the threads and waits until each has built its session.
    ///
    /// # Errors
    /// The exceeded limit. The reason why a session was not built is in its report.
    pub(super) async fn build(
        &mut self,
        count: u32,
        threads: Threads,
        measure: Option<Duration>,
    ) -> Result<Vec<SpawnedSession>> {
        let mut sessions = Vec::new();
        for _ in 0..count {
            let cpus = host::of_instance(self.cpus, self.opened, threads.intra_op);
            let mut spec = SessionSpec {
                threads,
                measure,
                ..self.spec.clone()
            };
            // A single session writes the optimised graph.
            if self.opened > 0 && matches!(spec.source, GraphSource::Saving(_)) {
                spec.source = GraphSource::Original;
            }
            let (spec, memory) = (Arc::new(spec), self.limits.memory);
            sessions.push(spawn(self.model, self.opened, move |control, built| {
                // Before the session: ONNX Runtime's own threads inherit this thread's CPUs.
                host::pin(&cpus)?;
                if spec.provider != Provider::Cpu {
                    return open(spec, control, built);
                }
                let load = LimitedLoad::begin(memory);
                open(spec, control, built).map_err(|error| load.explain(error))
            })?);
            self.opened += 1;
        }
        // A failing session drops its sender: its report has the reason.
        let built = join_all(sessions.iter_mut().map(|session| &mut session.built));
        match timeout_at(self.slot.deadline.into(), built).await {
            Ok(_) => Ok(sessions),
            Err(_) => bail!(self.limits.timeout_message("its sessions were not built")),
        }
    }

    /// Opens the sessions, waits until they are warm, and measures them if requested.
    ///
    /// # Errors
    /// The error of the first session that cannot be opened, or an exceeded limit.
    pub(super) async fn open(
        &mut self,
        count: u32,
        threads: Threads,
        measure: Option<Duration>,
    ) -> Result<Vec<WarmSession>> {
        let mut sessions = self.build(count, threads, measure).await?;
        let reports = warm(self.limits, &mut sessions).await?;
        Ok(with_reports(sessions, reports).collect())
    }

    /// Opens all sessions of all groups in addition to those already built. The slot is returned when all are built.
    ///
    /// # Errors
    /// Same as [`Opener::open`].
    pub(super) async fn open_all(
        mut self,
        groups: &[SessionGroup],
        built: Vec<SpawnedSession>,
    ) -> Result<Vec<WarmGroup>> {
        let mut sessions = built;
        // Sessions built before belong to the last group.
        let mut before = sessions.len() as u32;
        for group in groups.iter().rev() {
            let more = group.sessions.saturating_sub(std::mem::take(&mut before));
            sessions.extend(self.build(more, group.threads, None).await?);
        }
        let Self { limits, spec, slot, .. } = self;
        // No session needs the files any more.
        drop((spec, slot.permit));
        let reports = warm(limits, &mut sessions).await?;
        let mut warm = with_reports(sessions, reports);
        let of_group = |&group: &SessionGroup| WarmGroup {
            group,
            sessions: warm.by_ref().take(group.sessions as usize).collect(),
        };
        let mut all: Vec<WarmGroup> = groups.iter().rev().map(of_group).collect();
        all.reverse();
        Ok(all)
    }
}

/// Waits until sessions are warm.
///
/// # Errors
/// The error of the first session that cannot be opened, or an exceeded limit.
pub(super) async fn warm(limits: &LoadLimits, sessions: &mut [SpawnedSession]) -> Result<Vec<SessionReport>> {
    let warm = try_join_all(sessions.iter_mut().map(async |session| {
        let report = (&mut session.opened).await;
        report.unwrap_or_else(|_| Err(anyhow!("session's thread ended")))
    }));
    let late = |_| {
        let ms = limits.warmup.as_millis();
        Err(anyhow!(
            "warm-up not finished within {ms} ms; raise `runtime.warmup_timeout_ms`"
        ))
    };
    timeout(limits.warmup, warm).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitting(cores: u32, measure_ms: u64) -> Fitting {
        Fitting::new(FitConfig {
            cores,
            measure: Duration::from_millis(measure_ms),
            max_weight_bytes: 1000,
        })
    }

    fn planned(plan: &SessionPlan) -> (u32, u32, Vec<u32>) {
        let first = plan.groups[0];
        let wider = plan.groups[1..].iter().map(|group| group.threads.intra_op);
        (first.sessions, first.threads.intra_op, wider.collect())
    }

    fn stated_plan(instances: &InstanceConfig) -> SessionPlan {
        SessionPlan {
            groups: vec![SessionGroup::stated(instances)],
            choice: InstanceChoice::Stated,
        }
    }

    #[test]
    fn what_is_stated_is_opened_as_it_is() {
        let stated = InstanceConfig {
            count: 3,
            intra_op_threads: 4,
            ..InstanceConfig::default()
        };
        let plan = fitting(8, 1000).plan(Some(&stated), 10, true);
        assert_eq!(plan, stated_plan(&stated));
        assert!(!plan.groups[0].threads.spinning);
        let bare = fitting(8, 1000).plan(Some(&InstanceConfig::default()), 10, true);
        assert_eq!(planned(&bare), (1, 1, vec![]));
        let gpu = fitting(8, 1000).plan(None, 10, false);
        assert_eq!(gpu, stated_plan(&InstanceConfig::default()));
    }

    #[test]
    fn what_is_not_stated_is_fitted() {
        let plan = |cores, measure_ms, bytes| fitting(cores, measure_ms).plan(None, bytes, true);
        assert_eq!(planned(&plan(4, 1000, 10)), (4, 1, vec![2, 4]));
        assert_eq!(planned(&plan(4, 0, 10)), (4, 1, vec![2, 4]));
        assert_eq!(planned(&plan(4, 1000, 900)), (1, 4, vec![]));
        assert_eq!(planned(&plan(1, 1000, 10)), (1, 1, vec![]));
        for (cores, measure_ms, bytes, part) in [
            (1, 1000, 10, "one core"),
            (4, 1000, 900, "max_weight_bytes"),
            (4, 0, 10, "measure_ms"),
        ] {
            let InstanceChoice::Unmeasured(reason) = plan(cores, measure_ms, bytes).choice else {
                panic!("measured");
            };
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn times_read_well() {
        assert_eq!(format_time(Duration::from_nanos(7_400)), "7 us");
        assert_eq!(format_time(Duration::from_micros(56_170)), "56.2 ms");
    }
}
