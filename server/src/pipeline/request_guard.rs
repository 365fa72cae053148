//! Request in progress: its state, counted exactly once.
//!
//! In: the stages' reports. Out: metrics, statistics and spans. A request is answered, refused, or, if the guard is
//! dropped early, given up by its client, with the stage in which it waited.

use crate::models::serving::Model;
use crate::request::{Reason, Refusal};
use crate::telemetry::trace::{self, RequestOutcome};
use crate::telemetry::{Metrics, Mode, WaitPoint};
use std::time::Instant;
use tierlab_protocol::timing::StageTimings;

/// Request in progress.
pub(crate) struct RequestGuard<'a> {
    metrics: &'a Metrics,
    pub(super) model: &'a Model,
    pub(super) wait_point: WaitPoint,
    /// Number of rows, once known.
    pub(super) rows: Option<usize>,
    /// Start of its stages; before its body has arrived, its arrival.
    pub(super) began: Instant,
    open: bool,
}

impl<'a> RequestGuard<'a> {
    pub(super) fn begin(metrics: &'a Metrics, model: &'a Model) -> Self {
        Self {
            metrics,
            model,
            wait_point: WaitPoint::Body,
            rows: None,
            began: Instant::now(),
            open: true,
        }
    }

    /// Ends a request at its body.
    pub(crate) fn refuse(mut self, refusal: &Refusal) {
        self.open = false;
        if refusal.reason == Reason::Cancelled {
            self.metrics.count_cancelled(self.wait_point);
        }
        self.count_refusal(refusal, &StageTimings::default());
    }

    /// Ends a request with its reply or its refusal.
    pub(super) fn settle<R>(&mut self, reply: &Result<R, Refusal>, timings: &StageTimings) {
        self.open = false;
        match reply {
            Ok(_) => {
                let rows = self.rows.unwrap_or(1);
                self.model.metrics.count_answer(rows, timings);
                self.model.stats.count_answer(rows, timings);
                self.note(None, timings);
            }
            Err(refusal) => self.count_refusal(refusal, timings),
        }
    }

    fn note(&self, refusal: Option<Reason>, timings: &StageTimings) {
        trace::note_outcome(|| RequestOutcome {
            model: self.model.name.clone(),
            version: self.model.version.clone(),
            rows: self.rows,
            began: self.began,
            timings: *timings,
            refusal,
        });
    }

    fn count_refusal(&self, refusal: &Refusal, timings: &StageTimings) {
        self.note(Some(refusal.reason), timings);
        let mode = self.rows.map(Mode::of_rows);
        self.metrics.count_refusal(&self.model.name, mode, refusal);
        self.model.stats.count_failure(timings);
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if self.open {
            self.metrics.count_cancelled(self.wait_point);
            let gone = Refusal::new(Reason::Cancelled, "the client went away");
            self.count_refusal(&gone, &StageTimings::default());
        }
    }
}
