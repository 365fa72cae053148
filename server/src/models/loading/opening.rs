//! Opening the sessions of a version, within time limits.
//!
//! In: what a session is built from, and a slot among the loads. Out: built and warm sessions, or the exceeded limit.
//! Few versions are built at a time, because their files are in memory meanwhile. They warm up while others are built,
//! so that an endless warm-up delays no other version.

use crate::error::LoadError;
use crate::host;
use crate::host::memory::LimitedLoad;
use crate::inference::runtime::{GraphSource, Runtime, Threads};
use crate::inference::session::layout::SessionGroup;
use crate::inference::session::open::{SessionReport, SessionSpec, SpawnedSession, open, spawn};
use futures::future::{join_all, try_join_all};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::SemaphorePermit;
use tokio::time::{timeout, timeout_at};

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
    pub(crate) room: SemaphorePermit<'a>,
}

impl LoadLimits {
    fn too_late(&self, what: &str) -> String {
        let ms = self.load.as_millis();
        format!("{what} within {ms} ms (`runtime.load_timeout_ms`)")
    }

    /// Error of a load that exceeded its time; it is temporary.
    pub(crate) fn late(&self, object: impl fmt::Display, what: &str) -> LoadError {
        LoadError::at(object, self.too_late(what)).passing()
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
    ) -> Result<Vec<SpawnedSession>, String> {
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
                if !Runtime::is_cpu(spec.provider) {
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
            Err(_) => Err(self.limits.too_late("its sessions were not built")),
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
    ) -> Result<Vec<WarmSession>, String> {
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
    ) -> Result<Vec<WarmGroup>, String> {
        let mut sessions = built;
        // Sessions built before belong to the last group.
        let mut before = sessions.len() as u32;
        for group in groups.iter().rev() {
            let more = group.sessions.saturating_sub(std::mem::take(&mut before));
            sessions.extend(self.build(more, group.threads, None).await?);
        }
        let Self { limits, spec, slot, .. } = self;
        // No session needs the files any more.
        drop((spec, slot.room));
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
pub(super) async fn warm(limits: &LoadLimits, sessions: &mut [SpawnedSession]) -> Result<Vec<SessionReport>, String> {
    let warm = try_join_all(sessions.iter_mut().map(async |session| {
        let report = (&mut session.opened).await;
        report.unwrap_or_else(|_| Err("session's thread ended".into()))
    }));
    let late = |_| {
        let ms = limits.warmup.as_millis();
        Err(format!(
            "warm-up not finished within {ms} ms; raise `runtime.warmup_timeout_ms`"
        ))
    };
    timeout(limits.warmup, warm).await.unwrap_or_else(late)
}
