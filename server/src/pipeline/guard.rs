//! One request on its way: where it is, and that it is counted exactly once.
//!
//! In: the stages' reports. Out: metrics statistics and spans: answered, refused, or, when the passage is dropped on the way,
//! given up by its client, with the place where that was.

use crate::models::serving::Model;
use crate::pipeline::refusal::{Reason, Refusal};
use crate::telemetry::metrics::{Metrics, Mode};
use crate::telemetry::trace::{self, Answered};
use std::time::Instant;
use tierlab_protocol::timing::StageTimings;

/// Where a request can wait, and its client lose patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its body is arriving.
    Body,
    /// Its rows are being read.
    Tier,
    /// It is queued, or in a run that goes on without it.
    Batch,
}

impl Place {
    /// Every place.
    pub(crate) const ALL: [Self; 3] = [Self::Body, Self::Tier, Self::Batch];

    /// The name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Tier => "tier",
            Self::Batch => "batch",
        }
    }
}

/// A request on its way.
pub(crate) struct Passage<'a> {
    metrics: &'a Metrics,
    pub(super) model: &'a Model,
    pub(super) place: Place,
    /// Once they are known.
    pub(super) rows: Option<usize>,
    /// When its stages began; until its body is there, when it came.
    pub(super) began: Instant,
    open: bool,
}

impl<'a> Passage<'a> {
    pub(super) fn begin(metrics: &'a Metrics, model: &'a Model) -> Self {
        Self {
            metrics,
            model,
            place: Place::Body,
            rows: None,
            began: Instant::now(),
            open: true,
        }
    }

    /// Ends a request that got no further than its body.
    pub(crate) fn refuse(mut self, refusal: &Refusal) {
        self.open = false;
        if refusal.reason == Reason::Cancelled {
            self.metrics.count_cancelled(self.place);
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
        trace::note(|| Answered {
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

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.open {
            self.metrics.count_cancelled(self.place);
            let gone = Refusal::new(Reason::Cancelled, "the client went away");
            self.count_refusal(&gone, &StageTimings::default());
        }
    }
}
