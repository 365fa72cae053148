//! Records of a run: the shape of `run.json`, and of one measured step in memory.
//!
//! In: measurements. Out: plain data that this crate summarises and `tierlab-report` shows. Independent of measuring and
//! showing. Latencies are microseconds, rates are per second.
//!
//! A [`Run`] is made of [`Point`]s, a point of [`Repeat`]s, a repeat of [`Sample`]s, stored as histograms, [`Band`]s and the
//! server's counters; a [`Summary`] combines the repeats.

mod driver;
mod findings;
mod instrument;
mod percentile;
mod point;
mod prices;
mod question;
mod requests;
mod run;
mod server;
mod summary;

pub use driver::{
    AgentStart, ClosedLoopFigures, Driven, DriverFigures, GooseFigures, HourBy, JourneyFigures, MixShare, RAMP_BLOCKS,
    RampFigures, RampRates, worst_start,
};
pub use findings::{Finding, NotMet, Objective, Slo, SloFinding, SloOutcome};
pub use instrument::{CarriedCertificate, Certificate, Check, Machine, MachineUse, Program, VALID_DAYS};
pub use percentile::{Grade, Interval, Percentile, samples_needed};
pub use point::{Factors, Histograms, Mode, Point, Pool, Purpose, Repeat, SlowRequest, counted, failures};
pub use prices::{BySize, CostTerms, InstancePrice, PricedVariant, PricedVariants, Pricing, StoredBytes};
pub use question::{
    Answer, AnswerOutcome, Demand, MeetsObjective, Minimise, OpenQuestion, Question, Ranked, StageFill, StageState,
    Variant,
};
pub use requests::{
    Failure, Outcome, Sample, SentInput, SentRequests, ShapeShare, Spread, StreamFigure, StreamSample, StreamSummary,
    StreamedReply, ValueCheck,
};
pub use run::{ColdStart, ColdWay, Environment, PageCache, Resumption, Run, SCHEMA_VERSION};
pub use server::{DeviceReads, GpuUse, IdleByCause, ServerDelta, ServerStages};
pub use summary::{
    Band, Drift, DriftHow, DriftOf, Fault, Gap, Grades, Limits, RampBlock, Reads, Summary, Tail, Verdict,
};

/// Default of a number of servers.
const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}
