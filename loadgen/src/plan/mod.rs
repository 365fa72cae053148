//! Plans: what to measure, how often, and under which limits.
//!
//! In: a TOML file. Out: a validated [`Plan`], or an error with file, line and key. Nothing deeper reads files or the environment.
//! Paths in a plan are relative to the plan's own file.

mod arrivals;
mod check;
mod fault;
mod files;
mod inputs;
mod journeys;
mod keys;
mod lab;
mod loads;
mod question;
mod raw;
mod search;
mod storage;
mod target;
mod value;
mod variant;

pub use fault::{Fault, PlanError};
pub use journeys::{JourneyPlan, Request, StepInputs, StepPlan};
pub use lab::{Data, LabPlan};
pub use loads::{ClosedLoopPlan, Mix, Part};
pub use question::{QuestionChanges, Until};
pub use raw::schema;
pub use search::{SearchPlan, objective};
pub use storage::{CacheState, ColdStartPlan, Origin, TierPlan};
pub use target::TargetPlan;
pub use variant::{NO_TIER, StagePlan, VariantPlan};

pub(crate) use check::pairs;
pub(crate) use files::redacted;

use check::{Base, PlanFacts, StepTimes};
use fault::{check_name, check_range, conflict, exclusive, fault, misplaced, missing, refuse};
use inputs::InputsPlan;
use loads::RawLoad;
use raw::RawPlan;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;
use target::RawTarget;
use tierlab_analysis::record::{Limits, Objective, Question, RampRates};
use tierlab_load::arrivals::{Arrivals, Shape};
use tierlab_load::driver::{Compress, ConnectionUse, Sending};
use tierlab_load::inputs::InputRules;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::payload::{Encoding, Form, Protocol};
use tierlab_load::recording::RecordingSpec;
use tierlab_load::schedule::Load;

/// Validated plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// File of the plan.
    pub file: PathBuf,
    /// Text of that file.
    pub text: String,
    /// Name, one plain path segment.
    pub name: String,
    /// Model to request.
    pub model: String,
    /// Seed from which every step's seed derives.
    pub seed: u64,
    /// Repeats of every configuration.
    pub repeats: u32,
    /// Warm-up: the front of a step, cut off by schedule.
    pub warmup: Duration,
    /// Measured window.
    pub window: Duration,
    /// Time for replies after the window.
    pub drain: Duration,
    /// Users: maximum requests in flight.
    pub max_in_flight: usize,
    /// Connections of requests, their coding, and their record.
    pub sending: Sending,
    /// Client's time limit for one request, from its actual send.
    pub timeout: Duration,
    /// Longest reply that is read, in bytes (default: from the declared outputs).
    pub reply_limit_bytes: Option<usize>,
    /// Transport of requests.
    pub protocol: Protocol,
    /// Encoding of tensors over HTTP.
    pub encoding: Encoding,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// If true, rates above a saturated one are left out.
    pub stop_at_saturation: bool,
    /// If true, a disturbed step is not measured again, and no step waits for a quiet machine.
    pub measure_once: bool,
    /// Distribution of the requested entities.
    pub keys: KeyDistribution,
    /// Inputs of requests to its own model.
    pub inputs: InputRules,
    /// Inputs of requests to other models of its mixes, by name.
    pub inputs_by_model: BTreeMap<String, InputRules>,
    /// Files and folders that decide what is sent.
    pub files: BTreeSet<PathBuf>,
    /// If true, the same load is first measured on a null endpoint.
    pub noise_floor: bool,
    /// If true, `selfcheck` runs first and its lines are part of the result.
    pub selfcheck: bool,
    /// Price list and the instance on it.
    pub prices: Option<(PathBuf, String)>,
    /// Limits of verdicts.
    pub limits: Limits,
    /// Loads, in the plan's order.
    pub loads: Vec<Load>,
    /// Loads sent at the same time, in the plan's order.
    pub mixes: Vec<Mix>,
    /// Closed loops, in the plan's order.
    pub closed_loops: Vec<ClosedLoopPlan>,
    /// Sequences of requests, in the plan's order.
    pub journeys: Vec<JourneyPlan>,
    /// Search for the highest rate.
    pub search: Option<SearchPlan>,
    /// Question to the lab; `None` measures the plan's loads without an answer.
    pub question: Option<Question>,
    /// Objectives of every point; set by `sweep --slo`.
    pub slo: Vec<Objective>,
    /// End of the question's steps; set by `lab --until`.
    pub until: Until,
    /// Size of the feature table that variants are priced for, in GiB (default: the one that is measured).
    pub table_gib: Option<f64>,
    /// Server of a sweep, as far as the plan sets it; `None` in a lab.
    pub target: Option<TargetPlan>,
    /// Lab; `None` in a sweep.
    pub lab: Option<LabPlan>,
}

impl Plan {
    /// Reads and validates a plan.
    ///
    /// # Errors
    /// A file that cannot be read, bad TOML, an unknown key, a value out of range.
    pub fn load(file: &Path) -> Result<Self, PlanError> {
        let text = std::fs::read_to_string(file).map_err(|error| PlanError {
            file: file.to_owned(),
            line: None,
            fault: fault!("", "cannot be read: {error}; {}", read_advice(error.kind())),
        })?;
        Self::parse(file, &text)
    }

    /// Validates a plan's text; errors name `file`, and paths are relative to it.
    ///
    /// # Errors
    /// See [`Plan::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, PlanError> {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        Self::parse_from(Base::local(folder), file, text)
    }

    /// Validates a plan that another host sent. Its files are below `root`, and so is every path that it names.
    ///
    /// # Errors
    /// See [`Plan::load`].
    pub fn parse_sent(root: &Path, file: &Path, text: &str) -> Result<Self, PlanError> {
        let folder = file.parent().unwrap_or(root);
        Self::parse_from(Base::remote(folder, root), file, text)
    }

    fn parse_from(base: Base<'_>, file: &Path, text: &str) -> Result<Self, PlanError> {
        let raw: RawPlan = fault::read(text).map_err(|(line, fault)| PlanError {
            file: file.to_owned(),
            line,
            fault,
        })?;
        let named = RefCell::default();
        let named = Some(&named);
        validate(&raw, Base { named, ..base }, file, text).map_err(|fault| refusal(file, text, fault))
    }

    /// Checks a load that another process orders by the rules of the plan's loads.
    ///
    /// # Errors
    /// A value out of range.
    pub fn check_load(&self, load: &Load) -> Result<(), PlanError> {
        let step = StepTimes {
            warmup_s: self.warmup.as_secs_f64(),
            step_s: self.window.as_secs_f64(),
        };
        // A part of a mix may send less than one request a step.
        let least = 1.0 / step.step_s;
        let rate = if load.rate < least { least } else { load.rate };
        self.located(loads::check("order", &Load { rate, ..*load }, step))
    }

    /// The same plan with another time limit of its searches, in seconds, and with every request kept if `keep_requests`
    /// is true. `option` is the option that makes several processes send, if one was given.
    ///
    /// # Errors
    /// Requests that cannot be kept, or that only one process can send.
    pub fn with_options(
        mut self,
        search_limit_s: Option<u32>,
        keep_requests: bool,
        option: Option<&str>,
    ) -> Result<Self, PlanError> {
        if let (Some(search), Some(limit_s)) = (&mut self.search, search_limit_s) {
            search.limit = Duration::from_secs(limit_s.into());
        }
        self.sending.keep_requests |= keep_requests;
        let senders = option.map_or(Ok(()), |option| self.check_processes(option));
        self.located(self.check_sending().and(senders)).map(|()| self)
    }

    /// Fixed number of connections, with one request at a time on each.
    pub fn pool(&self) -> Option<usize> {
        let shares = self.sending.http2 || self.speaks_grpc();
        let count = self.sending.connections.fixed().filter(|_| !shares)?;
        Some(count.min(self.max_in_flight))
    }

    /// Encoding of requests to a model, in a version if one is asked for.
    pub const fn form<'a>(&self, model: &'a str, version: Option<&'a str>) -> Form<'a> {
        match self.protocol {
            Protocol::Http => Form::Http(self.encoding),
            Protocol::Grpc => Form::Grpc { model, version },
        }
    }

    /// True if any request goes over gRPC.
    pub fn speaks_grpc(&self) -> bool {
        self.protocol == Protocol::Grpc || self.journeys.iter().any(JourneyPlan::speaks_grpc)
    }

    /// Models of its mixes other than its own.
    pub fn other_models(&self) -> BTreeSet<&str> {
        loads::other_models(&self.mixes, &self.model).collect()
    }

    /// Inputs of requests to a model.
    pub fn inputs_of(&self, model: &str) -> InputRules {
        match model == self.model {
            true => self.inputs.clone(),
            false => self.inputs_by_model.get(model).cloned().unwrap_or_default(),
        }
    }

    /// Error in the inputs of a model, with the keys of the plan.
    pub fn inputs_error(&self, model: &str, problem: &anyhow::Error) -> String {
        let mut problem = problem.to_string();
        if model != self.model {
            problem = inputs::rekey(model, &problem);
        }
        format!("{}: {problem}", self.file.display())
    }

    /// Error in a key of this plan, found after it was read.
    pub fn refuse(&self, key: &str, problem: impl Display) -> PlanError {
        refusal(&self.file, &self.text, Fault::new(key, problem))
    }

    /// Checks that a file or folder of a key can be opened.
    ///
    /// # Errors
    /// A missing file, or one that this user may not read.
    pub fn check_opens(&self, key: &str, path: &Path) -> Result<(), PlanError> {
        self.located(fault::check_opens(key, path))
    }

    /// Adds the file, and the line of the key, to a fault of this plan.
    fn located(&self, checked: Result<(), Fault>) -> Result<(), PlanError> {
        checked.map_err(|fault| refusal(&self.file, &self.text, fault))
    }

    /// Objectives of its search or question, and of `sweep --slo`.
    pub fn objectives(&self) -> Vec<Objective> {
        let searched = self.search.iter().map(|search| search.slo.objective);
        let of_question = self.question.iter().flat_map(|question| question.objectives.clone());
        searched.chain(of_question).chain(self.slo.clone()).collect()
    }

    /// True for each of its servers whose replies stream.
    fn streams(&self) -> Vec<bool> {
        let streams = |target: Option<&TargetPlan>| {
            let custom = target.and_then(|target| target.custom.as_ref());
            custom.is_some_and(|custom| custom.stream.is_some())
        };
        match &self.lab {
            Some(lab) => lab.variants.iter().map(|one| streams(one.target.as_deref())).collect(),
            None => vec![streams(self.target.as_ref())],
        }
    }

    /// True if the replies of any server stream.
    pub fn has_streams(&self) -> bool {
        self.streams().contains(&true)
    }

    /// The same plan with objectives that every point is held to.
    ///
    /// # Errors
    /// An objective on streams of replies that do not stream.
    pub fn with_slo(mut self, objectives: &[Objective]) -> Result<Self, PlanError> {
        self.slo.extend_from_slice(objectives);
        self.limits.goodput_us = shortest_us(objectives);
        let checked = self.check_streams().map_err(|fault| fault.of_option("--slo"));
        self.located(checked).map(|()| self)
    }

    /// Checks that replies stream where objectives limit streams, and that an open loop sends their requests.
    fn check_streams(&self) -> Result<(), Fault> {
        const KEY: &str = "target.reply";
        if self.has_streams() {
            let advice = "events are timed in open loops of single requests; put it into a plan of its own";
            match (&self.closed_loops[..], &self.journeys[..]) {
                ([], []) => {}
                ([], _) => return conflict("journey", KEY, advice),
                _ => return conflict("load", KEY, advice),
            }
        }
        let objectives = self.objectives();
        match objectives.iter().find(|objective| objective.stream().is_some()) {
            Some(objective) if self.streams().contains(&false) => Err(fault!(
                KEY,
                "`{objective}` limits replies that stream; set `reply = \"sse\"` or `\"chunked\"` in every `[target]`"
            )),
            _ => Ok(()),
        }
    }

    /// Refuses settings of sending that only requests in open loops support, or only those over HTTP.
    fn check_sending(&self) -> Result<(), Fault> {
        const ADVICE: &str = "only HTTP requests in open loops support it (a number of connections and kept requests: gRPC too); \
                              put it into a plan of its own";
        let sending = self.sending;
        let connections = sending.connections;
        if sending.keep_requests && !cfg!(feature = "parquet") {
            refuse!("keep_requests", "this build cannot write Parquet: run `make build`");
        }
        if let ConnectionUse::Fixed(count) = connections {
            check_range("connections", f64::from(count), 1.0, 8_192.0)?;
        }
        let others = [
            ("protocol", self.speaks_grpc()),
            ("load", !self.closed_loops.is_empty()),
            ("journey", !self.journeys.is_empty()),
        ];
        let is_new = connections == ConnectionUse::New;
        for (key, is_set, first) in [
            ("keep_requests", sending.keep_requests, 1),
            ("connections", is_new, 0),
            ("connections", connections != ConnectionUse::Kept, 1),
            ("compress", sending.compress.is_some(), 0),
            ("http2", sending.http2, 0),
        ] {
            if let Some((other, _)) = others[first..].iter().find(|(_, is_there)| is_set && *is_there) {
                return conflict(key, *other, ADVICE);
            }
        }
        let shared = [("http2", sending.http2 && is_new)];
        let advice = "requests over HTTP/2 share connections; leave one of them out";
        exclusive("connections", advice, &shared)?;
        let replies = sending.compress.is_some_and(Compress::replies);
        let changed =
            [("http2", sending.http2), ("compress", replies)].map(|(key, is_set)| (key, is_set && self.has_streams()));
        let advice = "events are timed over HTTP/1.1 without compression";
        exclusive("target.reply", advice, &changed)
    }

    /// Refuses several processes for requests that only one process can send.
    fn check_processes(&self, option: &str) -> Result<(), Fault> {
        let (closed, has_ramp) = (!self.closed_loops.is_empty(), self.arrivals.ramp().is_some());
        let fixed = self.sending.connections.fixed().is_some();
        let (streams, keep_requests) = (self.has_streams(), self.sending.keep_requests);
        let closed_loop = "a closed loop is run by one process, which has all users";
        let kept_reason = "requests are kept (--keep-requests) by the process that sends them";
        let reasons = [
            ("mix", !self.mixes.is_empty(), "a mix is sent by one process"),
            ("load", closed, closed_loop),
            ("target.reply", streams, "replies that stream are timed by one process"),
            ("keep_requests", keep_requests, kept_reason),
            ("load", has_ramp, "a ramp is stopped by the process that sends it"),
            ("connections", fixed, "one process opens all of them"),
        ];
        if let Some((key, _, why)) = reasons.into_iter().find(|(_, is_set, _)| *is_set) {
            refuse!(key, "{why}; leave out {option}, or put it into a plan of its own");
        }
        Ok(())
    }

    /// Longest duration of one step.
    pub fn step_limit(&self) -> Duration {
        self.warmup + self.window + self.drain
    }
}

/// Advice about a plan that cannot be read.
const fn read_advice(kind: std::io::ErrorKind) -> &'static str {
    match kind {
        std::io::ErrorKind::NotFound => "give an existing plan, such as configs/sweeps/quick.toml",
        std::io::ErrorKind::IsADirectory => "give the plan's file in that folder",
        _ => "a plan is a TOML file that this user may read",
    }
}

/// Error with the line of its key.
fn refusal(file: &Path, text: &str, fault: Fault) -> PlanError {
    PlanError {
        file: file.to_owned(),
        line: fault::line_of(text, &fault.key),
        fault,
    }
}

fn validate(raw: &RawPlan, base: Base<'_>, file: &Path, text: &str) -> Result<Plan, Fault> {
    let recording = arrivals::recording(raw.arrivals, &raw.arrival, base)?;
    let is_replay = raw.arrivals == arrivals::RawProcess::Replay;
    let facts = PlanFacts {
        replay: recording.as_ref().filter(|_| is_replay),
        ..raw.facts(base)
    };
    check_name("name", &raw.name)?;
    check_name("model", &raw.model)?;
    check_limits(&raw.limits)?;
    let question = question(raw, facts)?;
    let mut traffic = traffic(raw, facts.step)?;
    let encoding = encoding(raw)?;
    let (arrivals, keys, inputs) = requests(raw, facts, recording.as_ref(), &mut traffic)?;
    let prices = prices(raw, base)?;
    let target = sweep_target(raw, facts, &mut traffic, &keys)?;
    let search = search::validate(raw.search.as_ref(), facts, &traffic.loads)?;
    let lab = lab::validate((raw, facts), &traffic, question.as_ref(), &keys)?;
    let mut plan = Plan {
        search,
        slo: Vec::new(),
        question,
        until: Until::default(),
        table_gib: raw.question.as_ref().and_then(|question| question.table_gib),
        loads: traffic.loads,
        mixes: traffic.mixes,
        closed_loops: traffic.closed_loops,
        journeys: traffic.journeys,
        target,
        lab,
        file: file.to_owned(),
        text: text.to_owned(),
        name: raw.name.clone(),
        model: raw.model.clone(),
        seed: raw.seed,
        repeats: raw.repeats,
        warmup: Duration::from_secs_f64(raw.warmup_s),
        window: Duration::from_secs_f64(raw.step_s),
        drain: Duration::from_secs_f64(raw.drain_s),
        max_in_flight: raw.max_in_flight as usize,
        sending: Sending {
            connections: raw.connections,
            compress: raw.compress,
            http2: raw.http2,
            keep_requests: raw.keep_requests,
        },
        timeout: Duration::from_millis(raw.timeout_ms.into()),
        reply_limit_bytes: raw.reply_limit_bytes.map(|bytes| bytes as usize),
        protocol: raw.protocol,
        encoding,
        arrivals,
        stop_at_saturation: raw.stop_at_saturation,
        measure_once: raw.measure_once,
        keys,
        inputs: inputs.rules,
        inputs_by_model: inputs.by_model,
        files: base.named.map(RefCell::take).unwrap_or_default(),
        noise_floor: raw.noise_floor,
        selfcheck: raw.selfcheck,
        prices,
        limits: raw.limits.clone(),
    };
    plan.limits.objective_us = shortest_us(&plan.objectives());
    plan.limits.allow(plan.question.as_ref());
    plan.check_streams()?;
    plan.check_sending()?;
    Ok(plan)
}

/// Shortest latency limit of objectives that count from the scheduled send, in microseconds.
fn shortest_us(objectives: &[Objective]) -> Option<f64> {
    let limits_us = objectives.iter().filter_map(|objective| objective.limit_since_due_us());
    limits_us.min_by(f64::total_cmp)
}

/// Arrivals, keys and inputs; a replay takes them from its recording.
fn requests(
    raw: &RawPlan,
    PlanFacts { base, step, .. }: PlanFacts<'_>,
    recording: Option<&RecordingSpec>,
    traffic: &mut Traffic,
) -> Result<(Arrivals, KeyDistribution, InputsPlan), Fault> {
    let timing = (raw.arrivals, &raw.arrival, raw.shape.as_ref());
    let (mut arrivals, calls) = arrivals::validate(timing, recording)?;
    if let Some(rates) = traffic.ramp {
        arrivals.shape = Shape::Climb(rates);
    }
    let others: Vec<&str> = loads::other_models(&traffic.mixes, &raw.model).collect();
    let mut keys = keys::validate(&raw.keys, base)?;
    let mut inputs = inputs::validate(raw.inputs.clone(), &others, base)?;
    if arrivals.is_replay() {
        const ADVICE: &str =
            "a replay sends the recorded requests at their own times; leave it out, or set `arrivals = \"trace\"`";
        exclusive("arrivals", ADVICE, &[("load", !raw.load.is_empty())])?;
        check_sole(raw, "arrivals", ADVICE)?;
        traffic.loads = vec![loads::replayed(&arrivals, step)?];
        if requests_model(raw) {
            inputs::replay(&mut inputs, &calls)?;
        }
        keys::replay(&mut keys, &raw.arrival, &calls)?;
    }
    Ok((arrivals, keys, inputs))
}

/// True if any server gets requests to a model, and not only those of `kind = "http"`.
fn requests_model(raw: &RawPlan) -> bool {
    let is_http = |target: &Option<RawTarget>| target.as_ref().is_some_and(RawTarget::is_http);
    match &raw.variant[..] {
        [] => !is_http(&raw.target),
        variants => !variants.iter().all(|variant| is_http(&variant.target)),
    }
}

/// Requests that a plan sends beside those of its question.
#[derive(Debug, Default)]
struct Traffic {
    loads: Vec<Load>,
    ramp: Option<RampRates>,
    mixes: Vec<Mix>,
    closed_loops: Vec<ClosedLoopPlan>,
    journeys: Vec<JourneyPlan>,
}

fn traffic(raw: &RawPlan, step: StepTimes) -> Result<Traffic, Fault> {
    refuse_search(raw)?;
    let mut traffic = Traffic::default();
    loads::validate(&raw.load, step, &mut traffic)?;
    traffic.journeys = journeys::validate(raw, step)?;
    loads::validate_mixes(&raw.mix, step)?;
    traffic.mixes.clone_from(&raw.mix);
    let has_none = raw.load.is_empty() && raw.mix.is_empty() && raw.journey.is_empty() && raw.question.is_none();
    if has_none && raw.arrivals != arrivals::RawProcess::Replay {
        let advice = "a plan needs at least one load, or a `[[mix]]`, a `[[journey]]` or a `[question]`";
        return missing("[[load]]", advice);
    }
    if traffic.ramp.is_some() {
        check_sole(raw, "load[0].rates", "a ramp is measured in a plan of its own")?;
    }
    Ok(traffic)
}

/// Refuses other requests and rates beside those of a key.
fn check_sole(raw: &RawPlan, key: &str, advice: &str) -> Result<(), Fault> {
    let others = [
        ("mix", !raw.mix.is_empty()),
        ("journey", !raw.journey.is_empty()),
        ("search", raw.search.is_some()),
        ("question", raw.question.is_some()),
        ("shape", raw.shape.is_some()),
    ];
    exclusive(key, advice, &others)
}

/// Refuses closed loops and journeys beside a search.
fn refuse_search(plan: &RawPlan) -> Result<(), Fault> {
    let closed = plan.load.iter().position(RawLoad::is_closed);
    let closed = closed.map(|index| format!("load[{index}].mode"));
    let journey = (!plan.journey.is_empty()).then(|| "journey".to_owned());
    match closed.or(journey).filter(|_| plan.search.is_some()) {
        None => Ok(()),
        Some(key) => conflict(
            key,
            "[search]",
            "a search is for the highest rate of single requests in an open loop; put one of them into a plan of its own",
        ),
    }
}

fn encoding(raw: &RawPlan) -> Result<Encoding, Fault> {
    let advice = "tensors over gRPC are binary; leave `encoding` out";
    match (raw.protocol, raw.encoding) {
        (Protocol::Grpc, Some(Encoding::Json)) => conflict("encoding", "protocol", advice),
        (_, encoding) => Ok(encoding.unwrap_or_default()),
    }
}

/// Returns the price list and the instance on it.
fn prices(raw: &RawPlan, base: Base<'_>) -> Result<Option<(PathBuf, String)>, Fault> {
    match (&raw.prices, &raw.instance) {
        (None, None) => Ok(None),
        (Some(file), Some(instance)) => Ok(Some((base.path(file), instance.clone()))),
        (Some(_), None) => missing("instance", "the instance type on the list `prices`"),
        (None, Some(_)) => missing("prices", "the price list of `instance`"),
    }
}

/// `[target]` of a sweep, whose requests may set the rows of the loads.
fn sweep_target(
    raw: &RawPlan,
    facts: PlanFacts<'_>,
    traffic: &mut Traffic,
    keys: &KeyDistribution,
) -> Result<Option<TargetPlan>, Fault> {
    let Some(raw_target) = &raw.target else { return Ok(None) };
    if raw.lab.is_some() {
        let owner = "sweeps; a lab measures an existing server as a variant: `[[variant]] url = ...`";
        return misplaced("target", owner);
    }
    let target = target::validate(raw_target, &target::Scope::new("target", facts, keys))?;
    let Some(custom) = &target.custom else {
        return Ok(Some(target));
    };
    target::set_rows(custom, &mut traffic.loads)?;
    loads::set_closed_rows(custom, &mut traffic.closed_loops)?;
    if !traffic.mixes.is_empty() {
        let advice = "a mix sends requests of the Open Inference Protocol, not of \"http\"";
        return conflict("mix", "target.kind", advice);
    }
    if raw.encoding.is_some() {
        let advice = "bodies of \"http\" are the plan's own; leave `encoding` out";
        return conflict("encoding", "target.kind", advice);
    }
    Ok(Some(target))
}

/// Returns the plan's question, which requires a lab and excludes other requests and a search.
fn question(plan: &RawPlan, facts: PlanFacts<'_>) -> Result<Option<Question>, Fault> {
    if !plan.variant.is_empty() && plan.lab.is_none() {
        return misplaced("variant", "a `[lab]`");
    }
    let Some(raw) = &plan.question else { return Ok(None) };
    if plan.lab.is_none() {
        return misplaced("question", "a `[lab]`");
    }
    let others = [
        ("search", plan.search.is_some()),
        ("mix", !plan.mix.is_empty()),
        ("journey", !plan.journey.is_empty()),
        ("load", plan.load.iter().any(RawLoad::is_closed)),
    ];
    let advice = "a question chooses the rates of open loops of one kind of request; put them into two plans";
    exclusive("question", advice, &others)?;
    question::validate(raw, facts).map(Some)
}

/// Refuses limits out of range, and an objective that another key sets.
fn check_limits(limits: &Limits) -> Result<(), Fault> {
    for (key, share) in [
        ("rate_error_share", limits.rate_error_share),
        ("lag_share_of_p99", limits.lag_share_of_p99),
        ("error_share", limits.error_share),
        ("foreign_cpu_share", limits.foreign_cpu_share),
        ("foreign_io_pressure", limits.foreign_io_pressure),
        ("foreign_memory_pressure", limits.foreign_memory_pressure),
        ("steal_share", limits.steal_share),
    ] {
        check_range(&format!("limits.{key}"), share, 0.0, 1.0)?;
    }
    let (disk, network) = (limits.foreign_disk_bytes_per_s, limits.foreign_network_bytes_per_s);
    check_range("limits.foreign_disk_bytes_per_s", disk, 0.0, 1e12)?;
    check_range("limits.foreign_network_bytes_per_s", network, 0.0, 1e12)?;
    let of_objectives = [("objective_us", limits.objective_us), ("goodput_us", limits.goodput_us)];
    if let Some((key, _)) = of_objectives.iter().find(|(_, limit_us)| limit_us.is_some()) {
        refuse!(format!("limits.{key}"), "an objective sets it; leave it out");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
