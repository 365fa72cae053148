//! Plans: what to measure, how often, and under which limits.
//!
//! In: a TOML file. Out: a validated [`Plan`]; what is wrong is named by file and key. Nothing deeper reads files or
//! the environment. Paths in a plan are relative to the plan's own file.

mod arrivals;
mod check;
mod columns;
mod driven;
mod files;
mod inputs;
mod keys;
mod lab;
mod loads;
mod mix;
mod overlays;
mod question;
mod raw;
mod search;
mod storage;
mod target;
mod text;
mod variant;

pub use driven::{Ask, ClosedLoopPlan, Content, JourneyPlan, StepPlan};
pub use lab::{ColdStartPlan, Data, LabPlan};
pub use mix::{Mix, Part};
pub use question::Reasked;
pub use search::SearchPlan;
pub use storage::{CacheState, Origin, TierPlan};
pub use target::TargetPlan;
pub use variant::{NO_TIER, Stage, VariantPlan};

use check::{Base, within};
use driven::DrivenPlan;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_analysis::record::{Limits, Question};
use tierlab_formats::model::is_plain_name;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::inputs::InputRules;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::load::Load;
use tierlab_load::payload::Form;
use tierlab_load::wire::{Encoding, Protocol};

/// The longest reply that a plan may have read.
const MAX_REPLY_BYTES: f64 = 4e9;

/// A plan that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", file.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
pub struct PlanError {
    /// The plan's file.
    pub file: PathBuf,
    /// The line of the key, from 1, or of the table that lacks it; absent where `what` says it, or nothing is there.
    pub line: Option<usize>,
    /// The key, and what is wrong with it.
    pub what: String,
}

/// A validated plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where it was read from.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// Its name, one plain path segment.
    pub name: String,
    /// Model name.
    pub model: String,
    /// What every step's seed derives from.
    pub seed: u64,
    /// Repeats of every configuration.
    pub repeats: u32,
    /// Cut off the front of a step, by schedule.
    pub warmup: Duration,
    /// The measured window.
    pub window: Duration,
    /// How long replies may come in after the window.
    pub drain: Duration,
    /// Users: the most requests in flight.
    pub max_in_flight: usize,
    /// Time limit of the client for one request, from its actual send.
    pub timeout: Duration,
    /// The longest reply that is read, in bytes; what the declared outputs can take where the plan does not say.
    pub reply_limit_bytes: Option<usize>,
    /// What requests go over.
    pub protocol: Protocol,
    /// How tensors are sent over HTTP.
    pub encoding: Encoding,
    /// How requests are spread over time.
    pub arrivals: Arrivals,
    /// Which entities are asked for.
    pub keys: KeyDistribution,
    /// What the inputs of requests are, of its own model.
    pub inputs: InputRules,
    /// And of other models that its mixes ask, by name.
    pub inputs_of_others: BTreeMap<String, InputRules>,
    /// Every file that requests are made of.
    pub input_files: Vec<PathBuf>,
    /// Whether the same load is first measured on a null endpoint.
    pub noise_floor: bool,
    /// Whether `selfcheck` runs first and its lines stand in the result.
    pub selfcheck: bool,
    /// The price list and the instance on it.
    pub prices: Option<(PathBuf, String)>,
    /// What verdicts are given by.
    pub limits: Limits,
    /// Every load, in the plan's order.
    pub loads: Vec<Load>,
    /// Loads that are sent at the same time, in the plan's order.
    pub mixes: Vec<Mix>,
    /// Closed loops, in the plan's order.
    pub closed_loops: Vec<ClosedLoopPlan>,
    /// Requests in a row, in the plan's order.
    pub journeys: Vec<JourneyPlan>,
    /// What the highest rate is searched under; absent where none is.
    pub search: Option<SearchPlan>,
    /// What the lab is asked; absent where it measures the plan's loads and says nothing.
    pub question: Option<Question>,
    /// Size of the feature table that variants are priced for, in GiB (default: the one that is measured).
    pub table_gib: Option<f64>,
    /// The server that a sweep measures, as far as the plan says; absent in a lab.
    pub target: Option<TargetPlan>,
    /// The lab around it; absent in a sweep.
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
            what: format!("cannot be read: {error}; {}", unread(error.kind())),
        })?;
        Self::parse(file, &text)
    }

    /// Validates a plan's text; `file` is what errors name and what paths are relative to.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, PlanError> {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        Self::parse_from(Base::here(folder), file, text)
    }

    /// Validates a plan that another host sent. Its files lie below `root`, and so does every path that it names.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn parse_sent(root: &Path, file: &Path, text: &str) -> Result<Self, PlanError> {
        let folder = file.parent().unwrap_or(root);
        Self::parse_from(Base::sent(folder, root), file, text)
    }

    fn parse_from(base: Base<'_>, file: &Path, text: &str) -> Result<Self, PlanError> {
        let raw: raw::RawPlan = toml::from_str(text).map_err(|error| PlanError {
            file: file.to_owned(),
            line: None,
            what: error.to_string().trim_end().to_owned(),
        })?;
        validate(raw, base, file, text).map_err(|what| refusal(file, text, what))
    }

    /// Checks a load that another process asks for, as those of the plan are checked.
    ///
    /// # Errors
    /// Names the value that is out of bounds.
    pub fn check_load(&self, load: &Load) -> Result<(), String> {
        let (warmup_s, window_s) = (self.warmup.as_secs_f64(), self.window.as_secs_f64());
        // A part of a mix may send less than one request a step.
        let least = 1.0 / window_s;
        let rate = if load.rate < least { least } else { load.rate };
        loads::check("order", &Load { rate, ..*load }, warmup_s, window_s)
    }

    /// The same plan, its searches limited to so many seconds where any are given.
    #[must_use]
    pub fn with_search_limit(mut self, limit_s: Option<u32>) -> Self {
        if let (Some(search), Some(limit_s)) = (&mut self.search, limit_s) {
            search.limit = Duration::from_secs(limit_s.into());
        }
        self
    }

    /// What requests to a model are encoded as.
    #[must_use]
    pub const fn form<'a>(&self, model: &'a str) -> Form<'a> {
        match self.protocol {
            Protocol::Http => Form::Http(self.encoding),
            Protocol::Grpc => Form::Grpc(model),
        }
    }

    /// Whether any request goes over gRPC.
    #[must_use]
    pub fn speaks_grpc(&self) -> bool {
        self.protocol == Protocol::Grpc || self.journeys.iter().any(JourneyPlan::speaks_grpc)
    }

    /// The models that its mixes ask for beside its own.
    #[must_use]
    pub fn other_models(&self) -> BTreeSet<&str> {
        let parts = self.mixes.iter().flat_map(|mix| &mix.parts);
        let models = parts.filter_map(|part| part.model.as_deref());
        models.filter(|model| *model != self.model).collect()
    }

    /// What it says of the inputs of a model.
    #[must_use]
    pub fn inputs_of(&self, model: &str) -> InputRules {
        match model == self.model {
            true => self.inputs.clone(),
            false => self.inputs_of_others.get(model).cloned().unwrap_or_default(),
        }
    }

    /// An error of the inputs of a model, in the words of the plan.
    #[must_use]
    pub fn wrong_inputs(&self, model: &str, what: &str) -> String {
        let what = match model == self.model {
            true => what.to_owned(),
            false => inputs::of_model(model, what),
        };
        format!("{}: {what}", self.file.display())
    }

    /// An error of this plan, found out later; `what` begins with the key, between backticks.
    #[must_use]
    pub fn refuse(&self, what: String) -> PlanError {
        refusal(&self.file, &self.text, what)
    }

    /// The longest that one step can take.
    #[must_use]
    pub fn step_limit(&self) -> Duration {
        self.warmup + self.window + self.drain
    }
}

/// What to do about a plan that cannot be read.
const fn unread(kind: std::io::ErrorKind) -> &'static str {
    match kind {
        std::io::ErrorKind::NotFound => "name a plan that is there, such as configs/sweeps/quick.toml",
        std::io::ErrorKind::IsADirectory => "name the plan's file in that folder",
        _ => "a plan is a TOML file that this user may read",
    }
}

/// An error with the line of the key that it names first.
fn refusal(file: &Path, text: &str, what: String) -> PlanError {
    let key = what.split('`').nth(1).map(|key| key.trim_matches(['[', ']']));
    PlanError {
        file: file.to_owned(),
        line: key.and_then(|key| text::line::line_of(text, key)),
        what,
    }
}

fn validate(mut raw: raw::RawPlan, base: Base<'_>, file: &Path, text: &str) -> Result<Plan, String> {
    for (key, name) in [("name", &raw.name), ("model", &raw.model)] {
        if !is_plain_name(name) {
            return Err(format!(
                "`{key}` = `{name}` is no plain name (letters, digits, `.`, `_`, `-`)"
            ));
        }
    }
    within("repeats", f64::from(raw.repeats), 1.0, 100.0)?;
    within("warmup_s", raw.warmup_s, 0.0, 3_600.0)?;
    within("step_s", raw.step_s, 0.1, 3_600.0)?;
    within("drain_s", raw.drain_s, 0.05, 600.0)?;
    within("max_in_flight", f64::from(raw.max_in_flight), 1.0, 8_192.0)?;
    within("timeout_ms", raw.timeout_ms as f64, 1.0, 600_000.0)?;
    if let Some(bytes) = raw.reply_limit_bytes {
        within("reply_limit_bytes", bytes as f64, 1_024.0, MAX_REPLY_BYTES)?;
    }
    check_limits(&raw.limits)?;
    let asked = raw.question.take();
    let table_gib = asked.as_ref().and_then(|asked| asked.table_gib);
    let question = question(asked, &raw, base)?;
    let DrivenPlan {
        mut closed_loops,
        journeys,
    } = driven::validate(&mut raw)?;
    let encoding = match (raw.protocol, raw.encoding) {
        (Protocol::Grpc, Some(Encoding::Json)) => {
            return Err(
                "`encoding` = \"json\" does not belong to `protocol = \"grpc\"`, whose tensors are binary".into(),
            );
        }
        (_, encoding) => encoding.unwrap_or_default(),
    };
    let keys = keys::validate(raw.keys, base)?;
    let arrivals = arrivals::validate(raw.arrivals, raw.arrival, raw.shape, base)?;
    let prices = match (raw.prices, raw.instance) {
        (None, None) => None,
        (Some(prices), Some(instance)) => Some((base.path(&prices), instance)),
        (Some(_), None) => return Err("`instance` is missing: which instance of `prices` is it?".into()),
        (None, Some(_)) => return Err("`prices` is missing: where is `instance` priced?".into()),
    };
    let frame = mix::Frame {
        warmup_s: raw.warmup_s,
        step_s: raw.step_s,
        base,
    };
    let mixes = mix::validate(raw.mix, frame)?;
    let asked = mixes.iter().flat_map(|mix| &mix.parts);
    let mut others: Vec<&str> = asked.filter_map(|part| part.model.as_deref()).collect();
    others.retain(|model| *model != raw.model);
    let inputs = inputs::validate(raw.inputs, &others, base)?;
    if raw.load.is_empty() && mixes.is_empty() && journeys.is_empty() && question.is_none() {
        return Err(
            "`[[load]]` is missing: a plan needs at least one load, or a `[[mix]]`, a `[[journey]]` or a `[question]`"
                .into(),
        );
    }
    let mut loads = loads::validate(&raw.load, raw.warmup_s, raw.step_s)?;
    let place = target::Place {
        at: "target",
        base,
        protocol: raw.protocol,
        keys: &keys,
    };
    let target = raw
        .target
        .map(|given| sweep_target(given, raw.lab.is_some(), &place))
        .transpose()?;
    if let Some(custom) = target.as_ref().and_then(|target| target.custom.as_ref()) {
        target::loads_of(custom, &mut loads)?;
        driven::carry(custom, &mut closed_loops)?;
        if !mixes.is_empty() {
            return Err(
                "`mix` and `target.kind` = \"http\" do not go together: a mix asks models of one server".into(),
            );
        }
        if raw.encoding.is_some() {
            return Err(
                "`encoding` does not belong to `target.kind` = \"http\", whose bodies are the plan's own".into(),
            );
        }
    }
    let steps = search::Steps {
        warmup_s: raw.warmup_s,
        step_s: raw.step_s,
        repeats: raw.repeats,
        limits: &raw.limits,
        loads: &loads,
    };
    let search = raw.search.map(|raw| search::validate(raw, &steps)).transpose()?;
    if raw.limits.objective_us.is_some() {
        return Err(
            "`limits.objective_us` is not set by itself; `search.slo` or `question.slo` names the objective".into(),
        );
    }
    let limits = Limits {
        objective_us: objective_us(search.as_ref(), question.as_ref()),
        ..raw.limits.clone()
    };
    let around = lab::Around {
        base,
        variants: &raw.variant,
        has_prices: prices.is_some(),
        question: question.as_ref(),
        protocol: raw.protocol,
        keys: &keys,
        loads: &loads,
        closed_loops: &closed_loops,
        fleet: raw.fleet.as_ref(),
    };
    if raw.fleet.is_some() {
        if raw.lab.is_none() {
            return Err("`fleet` is of servers that a lab starts, and there is no `[lab]`".into());
        }
        if !closed_loops.is_empty() || !journeys.is_empty() {
            return Err(
                "`fleet`: its servers take turns at requests of a rate; users and journeys stay with one".into(),
            );
        }
    }
    let lab = raw.lab.map(|lab| lab::validate(lab, &around)).transpose()?;
    Ok(Plan {
        search,
        question,
        table_gib,
        loads,
        mixes,
        target,
        lab,
        closed_loops,
        journeys,
        file: file.to_owned(),
        text: text.to_owned(),
        name: raw.name,
        model: raw.model,
        seed: raw.seed,
        repeats: raw.repeats,
        warmup: Duration::from_secs_f64(raw.warmup_s),
        window: Duration::from_secs_f64(raw.step_s),
        drain: Duration::from_secs_f64(raw.drain_s),
        max_in_flight: raw.max_in_flight as usize,
        timeout: Duration::from_millis(raw.timeout_ms),
        reply_limit_bytes: raw.reply_limit_bytes.map(|bytes| bytes as usize),
        protocol: raw.protocol,
        encoding,
        arrivals,
        keys,
        inputs: inputs.rules,
        inputs_of_others: inputs.of_others,
        input_files: inputs.files,
        noise_floor: raw.noise_floor,
        selfcheck: raw.selfcheck,
        prices,
        limits,
    })
}

/// `[target]`, which a lab has in its variants.
fn sweep_target(given: target::RawTarget, has_lab: bool, place: &target::Place<'_>) -> Result<TargetPlan, String> {
    if has_lab {
        return Err(
            "`target` is of a sweep; a lab measures servers that run already as variants: `[[variant]] url = ...`"
                .into(),
        );
    }
    target::validate(given, place)
}

/// The plan's question, which takes a lab, its own steps, and no search beside it.
fn question(
    asked: Option<question::RawQuestion>,
    plan: &raw::RawPlan,
    base: Base<'_>,
) -> Result<Option<Question>, String> {
    if !plan.variant.is_empty() && plan.lab.is_none() {
        return Err("`variant` is part of a lab, and the plan has no `[lab]`".into());
    }
    let Some(asked) = asked else { return Ok(None) };
    if plan.lab.is_none() {
        return Err("`question` is put to a lab, and the plan has no `[lab]`".into());
    }
    if plan.search.is_some() {
        return Err("`search` and `question` do not go together: a question finds the highest rate by itself".into());
    }
    if !plan.mix.is_empty() {
        return Err("`mix` and `question` do not go together: a question is about one kind of request".into());
    }
    driven::refuse_beside_question(plan)?;
    let around = question::Around {
        base,
        step_s: plan.step_s,
        warmup_s: plan.warmup_s,
        limits: &plan.limits,
        has_prices: plan.prices.is_some(),
    };
    question::validate(&asked, &around).map(Some)
}

/// The strictest latency limit that the run is judged by.
fn objective_us(search: Option<&SearchPlan>, question: Option<&Question>) -> Option<f64> {
    let searched = search.iter().map(|search| &search.slo.objective);
    let asked = question.iter().flat_map(|question| &question.objectives);
    searched
        .chain(asked)
        .filter_map(|objective| objective.limit_us())
        .min_by(f64::total_cmp)
}

fn check_limits(limits: &Limits) -> Result<(), String> {
    within("limits.rate_error_share", limits.rate_error_share, 0.0, 1.0)?;
    within("limits.lag_share_of_p99", limits.lag_share_of_p99, 0.0, 1.0)?;
    within("limits.error_share", limits.error_share, 0.0, 1.0)?;
    within("limits.foreign_cpu_share", limits.foreign_cpu_share, 0.0, 1.0)?;
    within("limits.foreign_io_pressure", limits.foreign_io_pressure, 0.0, 1.0)?;
    within(
        "limits.foreign_memory_pressure",
        limits.foreign_memory_pressure,
        0.0,
        1.0,
    )?;
    let (disk, network) = (limits.foreign_disk_bytes_per_s, limits.foreign_network_bytes_per_s);
    within("limits.foreign_disk_bytes_per_s", disk, 0.0, 1e12)?;
    within("limits.foreign_network_bytes_per_s", network, 0.0, 1e12)?;
    within("limits.steal_share", limits.steal_share, 0.0, 1.0)
}

#[cfg(test)]
mod tests;
