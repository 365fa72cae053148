//! The `lab` command: every tier in every cache state, from nothing to a report.
//!
//! In: a plan with `[lab]`. Out: a run in its folder, and no process left behind. It generates the data, starts
//! origins, publishes, starts one server for each tier and cache state, checks a reply of each, fills warm caches, and
//! hands the targets to the [`runner`](crate::runner).

mod cold_start;
mod context;
mod data;
mod doctor;
mod locations;
mod prices;
mod servers;
mod stage;

pub(super) use prices::resize;

use crate::commands::options::{RunOptions, unless_interrupted};
use crate::environment;
use crate::error::RunError;
use crate::plan::{LabPlan, Origin, Plan, Until, VariantPlan};
use crate::runner::{Instrument, Runner, Senders, check_met_rate, new_run, question_load};
use crate::selfcheck::prove::prove;
use crate::store::folder::{claim, sha256};
use crate::store::resume::StoppedRun;
use clap::Args;
use context::{LabContext, PreparedData, programs};
use servers::Targets;
use std::collections::BTreeMap;
use std::mem::take;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_analysis::curves::distinct;
use tierlab_analysis::latency::objective::{limited, measured_us};
use tierlab_analysis::record::{Environment, Objective, PageCache, Point, Question, Run};
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_instrument::host::drop_cached_below;
use tierlab_instrument::units::wait;
use tierlab_load::interrupt::Interrupt;

/// Options of `lab`.
#[derive(Debug, Clone, Args)]
pub struct LabOptions {
    /// Plan, a TOML file with `[lab]`
    pub plan: PathBuf,
    /// Working folder for data, stages and logs [default: the plan's `lab.work`, or below $XDG_STATE_HOME if that
    /// cannot be written]
    #[arg(long, value_name = "FOLDER")]
    pub work: Option<PathBuf>,
    /// Folder of tierlab-server, tierlab-origin and tierlab-models [default: beside this program]
    #[arg(long)]
    pub bin_dir: Option<PathBuf>,
    /// Runs the self-check first and stores its lines in the result, overriding the plan
    #[arg(long)]
    pub selfcheck: bool,
    /// End of the steps of the plan's question; those of its loads follow in any case
    #[arg(long, value_enum, default_value_t, value_name = "END")]
    pub until: Until,
    /// Options of every run.
    #[command(flatten)]
    pub run: RunOptions,
}

/// Runs the command.
///
/// # Errors
/// See [`RunError`].
pub async fn run(options: &LabOptions, interrupt: Interrupt) -> Result<Run, RunError> {
    let mut plan = options.run.apply_to(Plan::load(&options.plan)?)?;
    plan.selfcheck |= options.selfcheck;
    plan.until = options.until;
    let lab = lab_plan(&plan, options)?;
    let _work_claim = claim(&lab.work, "--work")?;
    let agents = options.run.open_agents()?;
    let resumed = options.run.resumed(&plan)?;
    let mut context = LabContext {
        plan: &plan,
        lab: &lab,
        programs: programs(&lab, options.bin_dir.as_deref())?,
        prepared: PreparedData::default(),
        interrupt: &interrupt,
        verbose: options.run.verbose,
    };
    let configs = config_files(&plan, &lab)?;
    // Before the lab's own work, which would count as foreign load.
    let warnings = doctor::warnings(options.bin_dir.as_deref()).await;
    context.prepared = data::prepare(&context)?;
    let hashes = sha256(&[configs, take(&mut context.prepared.files)].concat())?;
    let earlier = resumed.as_ref().map(|(earlier, _)| earlier);
    earlier.map_or(Ok(()), |earlier| earlier.check_files(&hashes))?;
    // Reports gaps of the price list before anything runs; sizes of layouts are known only once they are written.
    prices::of_variants(&context)?;
    let instrument = prove(&plan, earlier, &options.run.certificates, &interrupt).await?;
    if let Some(question) = &plan.question {
        check_answerable(&plan, question, lab.variants.len(), &instrument)?;
    }
    let locations = locations::open(&context)?;
    data::publish(&mut context, &locations)?;
    let pricing = prices::of_variants(&context)?;
    let mut environment = environment::inspect(&locations.folders);
    environment.shared_cores = shared_cores(&lab, options);
    environment.machine_warnings = warnings;
    let opening = Box::pin(Targets::open(&context, locations, &mut environment));
    let mut targets = unless_interrupted(&interrupt, opening).await?;
    let cold_starts = match (earlier, &lab.cold_start) {
        (Some(earlier), _) => earlier.run.cold_starts.clone(),
        (None, Some(plan)) => Box::pin(cold_start::measure(&context, plan, &targets)).await?,
        (None, None) => Vec::new(),
    };
    let dropped = pages_to_drop(&lab, &targets.servers, &mut environment)?;
    // The claim is held to the end of the run.
    let (folder, _claim, earlier) = options.run.folder(&plan, resumed)?;
    let run = Run {
        config_sha256: hashes,
        pricing,
        variants: take(&mut targets.variants),
        cold_starts,
        ..new_run(&plan, environment, instrument)
    };
    let connecting = Box::pin(Senders::new(&plan, options.run.workers, agents));
    let senders = unless_interrupted(&interrupt, connecting).await?;
    let destination = (folder, earlier);
    measure(&context, targets, &dropped, destination, senders, run).await
}

/// Returns the lab of a plan, in its working folder.
fn lab_plan(plan: &Plan, options: &LabOptions) -> Result<LabPlan, RunError> {
    let Some(mut lab) = plan.lab.clone() else {
        let problem = "no `[lab]`: run it with `tierlab-loadgen sweep --url`, or add one";
        return Err(RunError::about(&plan.file, problem));
    };
    if let Some(other) = plan.other_models().first() {
        let problem = format!(
            "a part requests model `{other}`, but a lab generates and serves one model, `{}`; sweep a server that has both",
            plan.model
        );
        return Err(plan.refuse("mix", problem).into());
    }
    lab.work = context::work_folder(options.work.as_deref(), &lab.work, &plan.name, |name| {
        std::env::var_os(name)
    })?;
    Ok(lab)
}

/// Measures the targets and ends their servers. `destination` is the run's folder, and the run to resume.
async fn measure(
    context: &LabContext<'_>,
    targets: Targets,
    dropped: &BTreeMap<(String, String), PathBuf>,
    (folder, earlier): (PathBuf, Option<StoppedRun>),
    senders: Senders,
    run: Run,
) -> Result<Run, RunError> {
    let mut servers = targets.servers;
    let result = {
        let runner = Runner {
            plan: context.plan,
            targets: targets.by_variant,
            folder,
            earlier,
            interrupt: context.interrupt.clone(),
            senders,
            verbose: context.verbose,
            health_check: Box::new(|| servers.check()),
            prepare: Box::new(|target| {
                let dropped = dropped.get(&(target.label().to_owned(), target.cache.clone()));
                dropped.map_or(Ok(()), |folder| drop_cached_below(folder).map_err(RunError::io(folder)))
            }),
        };
        Box::pin(runner.run(run)).await
    };
    servers.stop();
    let run = result?;
    check_met_rate(context.plan, &run)?;
    Ok(run)
}

/// Folders whose page cache is dropped before a step, by label and cache state. The result notes these states.
fn pages_to_drop(
    lab: &LabPlan,
    servers: &servers::Servers,
    environment: &mut Environment,
) -> Result<BTreeMap<(String, String), PathBuf>, RunError> {
    let mut folders = BTreeMap::new();
    let drops = |variant: &&VariantPlan| variant.cache.page_cache == PageCache::Dropped;
    for variant in lab.variants.iter().filter(drops) {
        let key = (variant.label().to_owned(), variant.cache.name.clone());
        folders.insert(key, servers.folder(&variant.tier)?);
    }
    let dropping = lab.variants.iter().filter(drops);
    let states = distinct(dropping.map(|variant| variant.cache.name.as_str()));
    for origin in environment.origins.values_mut().filter(|_| !states.is_empty()) {
        *origin += &format!("; page cache dropped before each step of: {}", states.join(", "));
    }
    Ok(folders)
}

/// Files that decide what is measured, each of which must exist.
pub(super) fn config_files(plan: &Plan, lab: &LabPlan) -> Result<Vec<PathBuf>, RunError> {
    let is_started = |variant: &VariantPlan| variant.target.is_none();
    let server = lab.variants.iter().any(is_started).then(|| lab.server_config.clone());
    let servers = server.into_iter().map(|file| ("lab.server_config", file));
    let tiers = lab.tiers.iter().map(|tier| ("lab.tiers", lab.tier_file(&tier.name)));
    let prices = plan.prices.iter().map(|(file, _)| ("prices", file.clone()));
    let mut files = plan.request_files().map_err(RunError::io(&plan.file))?;
    files.push(plan.file.clone());
    for (key, file) in servers.chain(tiers).chain(prices) {
        plan.check_opens(key, &file)?;
        files.push(file);
    }
    Ok(files)
}

fn shared_cores(lab: &LabPlan, options: &LabOptions) -> Vec<String> {
    let started = lab.variants.iter().filter(|variant| variant.target.is_none());
    let variants = started.clone().count();
    let servers: u32 = started.map(|variant| variant.servers).sum();
    let mut shared = vec![Senders::note(options.run.workers, options.run.agents.len())];
    if servers > 0 {
        let measured = match variants == servers as usize {
            true => "the one measured",
            false => "those measured, a fleet on the same cores,",
        };
        shared.push(format!("{servers} servers, all but {measured} idle"));
    }
    if variants < lab.variants.len() {
        shared.push("other programs on this machine".into());
    }
    let embedded = lab.tiers.iter().filter(|tier| tier.origin == Origin::Embedded);
    let embedded: Vec<&str> = embedded.map(|tier| tier.name.as_str()).collect();
    if !embedded.is_empty() {
        shared.push(format!("embedded origins: {}", embedded.join(", ")));
    }
    shared
}

/// Minimum steps of a variant: a scout, a bracket of two, and one to be sure.
const STEPS_PER_VARIANT: u32 = 4;
/// Steps that confirm the winner.
const STEPS_TO_CONFIRM: u32 = 3;

/// Refuses a question that cannot be answered in its budget or by this instrument.
///
/// # Errors
/// An objective below the noise floor, a budget too short for the minimum steps.
fn check_answerable(
    plan: &Plan,
    question: &Question,
    variants: usize,
    instrument: &Instrument,
) -> Result<(), RunError> {
    let step = plan.step_limit();
    let min_time = step * (STEPS_PER_VARIANT * variants as u32 + STEPS_TO_CONFIRM);
    let loads_time = step * (variants * plan.loads.len()) as u32 * plan.repeats;
    if Duration::from_secs_f64(question.budget_s) < min_time + loads_time {
        let loads_note = match loads_time.is_zero() {
            true => String::new(),
            false => format!(", {} of it for the plan's own loads", wait(loads_time)),
        };
        let [budget, least] = [Duration::from_secs_f64(question.budget_s), min_time + loads_time].map(wait);
        let problem = format!(
            "{budget} is too short for {variants} variants at {:.1} s per step: they take at least \
             {least}{loads_note}; raise it, or remove variants",
            step.as_secs_f64()
        );
        return Err(plan.refuse("question.budget", problem).into());
    }
    let mut floors = instrument.noise_floor.iter();
    let too_low = floors.find_map(|floor| question.objectives.iter().find_map(|objective| below(objective, floor)));
    let Some((objective, floor_us)) = too_low else {
        return Ok(());
    };
    let (rate, figure, floor_ms) = (question_load(question).rate, objective.figure(), floor_us / 1e3);
    let problem = format!(
        "{objective} is below the noise floor: at {rate:.0}/s a server that does nothing has a {figure} of \
         {floor_ms:.3} ms on this machine, so no variant can meet it; raise its limit, or measure on a quieter machine"
    );
    Err(plan.refuse("question.slo", problem).into())
}

/// Returns an objective that even the null endpoint does not meet, with the measured figure.
fn below<'a>(objective: &'a Objective, floor: &Point) -> Option<(&'a Objective, f64)> {
    let repeats = floor.repeats.iter();
    let table = BlockTable::new(repeats.map(|repeat| limited(*objective, repeat)));
    let us = measured_us(*objective, &table)?;
    (us >= objective.limit_us()).then_some((objective, us))
}
