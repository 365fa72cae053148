//! Opening the sessions of a version, within limits of time.
//!
//! In: a recipe, and a turn among the loads. Out: sessions that are built and warm, or the limit that was passed. Sessions
//! are built in turns, because of the files that are in memory meanwhile; they warm up at the same time as others are
//! built, so that a warm-up that does not end holds up nobody.

use crate::repository::LoadError;
use crate::runtime::Source;
use crate::session::open::{Recipe, Report, open};
use crate::session::{self, SpawnedSession, cpus};
use futures::future::{join_all, try_join_all};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::model::ModelConfig;
use tokio::sync::SemaphorePermit;
use tokio::time::{timeout, timeout_at};

/// How long a load may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadLimits {
    /// Reading a version's files, building its sessions and opening its table.
    pub(crate) load: Duration,
    /// The warm-up of a session.
    pub(crate) warmup: Duration,
}

/// A load under way.
pub(crate) struct Turn<'a> {
    /// By when everything but the warm-up is done.
    pub(crate) deadline: Instant,
    /// Held for as long as files are in memory that no session has taken yet.
    pub(crate) room: SemaphorePermit<'a>,
}

impl LoadLimits {
    fn too_late(&self, what: &str) -> String {
        let ms = self.load.as_millis();
        format!("{what} within {ms} ms (`runtime.load_timeout_ms`)")
    }

    /// A load that took too long, which another time it may not.
    pub(crate) fn late(&self, object: impl fmt::Display, what: &str) -> LoadError {
        LoadError {
            passing: true,
            ..LoadError::at(object, self.too_late(what))
        }
    }
}

/// Starts the threads and waits until each has built its session and is warm. The turn ends when all are built.
///
/// # Errors
/// What the first session says that cannot be opened, or the limit that was passed. All threads end by themselves: a
/// warm-up at its next operator, the building of a session when it is done, for ONNX Runtime does not let itself be
/// interrupted there.
pub(super) async fn open_sessions(
    limits: &LoadLimits,
    name: &str,
    config: &ModelConfig,
    recipe: Recipe,
    turn: Turn<'_>,
) -> Result<(Vec<SpawnedSession>, Vec<Report>), String> {
    let Turn { deadline, room } = turn;
    let recipe = Arc::new(recipe);
    let mut sessions = Vec::new();
    for instance in 0..config.instances.count {
        let cpus = cpus::share(&config.instances.cpus, instance, recipe.threads.intra_op);
        // One of them writes the optimised graph down.
        let recipe = match (&recipe.source, instance) {
            (Source::Saving(_), 1..) => Arc::new(recipe.without_saving()),
            _ => Arc::clone(&recipe),
        };
        sessions.push(session::spawn(name, instance, move |opening| {
            // Before the session: ONNX Runtime's own threads take after this one.
            cpus::pin(&cpus)?;
            open(recipe, opening)
        })?);
    }
    drop(recipe);
    // One that fails drops its sender: its report says why.
    let built = join_all(sessions.iter_mut().map(|session| &mut session.built));
    if timeout_at(deadline.into(), built).await.is_err() {
        return Err(limits.too_late("its sessions were not built"));
    }
    drop(room);
    let warm = try_join_all(sessions.iter_mut().map(async |session| {
        let report = (&mut session.opened).await;
        report.unwrap_or_else(|_| Err("its thread ended".into()))
    }));
    let late = |_| {
        let ms = limits.warmup.as_millis();
        Err(format!(
            "its warm-up did not end within {ms} ms (`runtime.warmup_timeout_ms`)"
        ))
    };
    let reports = timeout(limits.warmup, warm).await.unwrap_or_else(late)?;
    Ok((sessions, reports))
}
